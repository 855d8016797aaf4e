"""The owner's side of one attempt: a checkpoint and all that is fed after it, sent until the target has it.

A secondary is sent the same for as long as it follows (``StandbyChangeFeed``).

    files of the checkpoint ─┐
    what is fed after it ────┴─> frames, numbered ──> at most a window under way ──> Got ──> forgotten

What isn't acknowledged in time is sent again, with all that was sent after it. Pieces are cut, and trains
encoded, only when there is room for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from medusa.elements import Boundary, Kind, Shed, Train
from medusa.engine.state.checkpoint import crc32c
from medusa.nodes.fragment.change_feed import ChangeFeed, CheckpointMark, FedElement, StandbyChangeFeed
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.fed_together import together
from medusa.nodes.migration.standby import Clients, ReaderPosition
from medusa.nodes.reports import Copied
from medusa.ports import Buffer
from medusa.wire.limits import TRAIN_BYTES
from medusa.wire.messages import Message
from medusa.wire.messages.move import Fed, Got, Handover, Piece, Ready, Standing, Whole
from medusa.wire.outbox import Copy, Outbox

__all__ = ["StateSender"]

PIECE_BYTES = 256 << 10
"""A file goes in pieces of this. Too small: the cost per frame; too large: other streams wait behind one."""

AGAIN_US = 300_000
AGAIN_US_MAX = 1_200_000
"""What wasn't acknowledged is sent again after the first, and then after twice as long each time, up to the
second, until something is acknowledged: a target that is only slow would be kept busy with what it has."""

STANDING_US = 50_000
"""So often the target hears how far readers are."""

GATHER_US = 20_000
GATHER_ITEMS = 8
"""What no output waits for is sent to a secondary together, after so long or when so many are there: each
message costs both nodes a turn. Too large: so much more is fed again after a takeover."""

GATHER_SOON_US = 15_000
"""...and after so long with whatever is fed then: a turn only to send it costs as much as a message."""

STUCK_US = 10_000_000
"""An attempt in which nothing moves for so long is over."""

PACE_US = 5_000_000
"""Who is behind by no more than this, and has followed for twice as long, keeps pace. Too small: who works in
batches is never handed anything; too large: so much longer nothing comes out when it is."""


class StateSender:
    """Sends one fragment to one target.

    Args:
        hosted: the fragment; its ``tap`` is set and taken away here.
        ticket, window: as the target's ``Ready`` says.
        tap: of a secondary, which the fragment has already; None: one for a move is made.

    Attributes:
        nbytes: sent so far, once each.
        opened: the target runs it.
        decided: it has all decisions below this number, and feeds them before any other.
        covered: the newest of our checkpoints all of which is on its disk, by token.
        handed: ``Handover`` was said.
        keeps_pace: what was fed is sent at once, and the oldest of it that isn't fed there yet is of late.
        broken: why this attempt can't go on; empty: it can.
    """

    def __init__(
        self,
        now_us: int,
        hosted: FragmentHost,
        ready: Ready,
        *,
        node: str,
        target: str,
        outbox: Outbox,
        tap: StandbyChangeFeed | None = None,
    ) -> None:
        self._hosted = hosted
        self._about: dict[str, Any] = {
            "fragment": ready.fragment,
            "attempt": ready.attempt,
            "ticket": ready.ticket,
        }
        self._node = node
        self._target = target
        self._outbox = outbox
        self._window = ready.window
        self._together = ready.together
        self._tap: ChangeFeed = ChangeFeed() if tap is None else tap
        self._standby_tap = tap
        if tap is None:
            hosted.tapped(self._tap)
        self.decided = self.covered = 0
        self._marks: deque[tuple[int, int]] = deque()
        """Frame and token of checkpoints that we took and that it hasn't on its disk."""
        self._asked = False
        self._files: Iterator[tuple[Message, Buffer | None]] | None = None
        self._going: deque[tuple[Message, Buffer | None, int, int, int]] = deque()
        """Sent and not acknowledged: message, payload, bytes, what the tap counts it for, when it went."""
        self._first = 0
        """Number of the oldest of them."""
        self._bytes = 0
        self._next: deque[tuple[Message, Buffer | None, int]] = deque()
        """Pieces of a train that was taken from the tap."""
        self._again_us = self._moved_us = now_us
        self._again_after_us = AGAIN_US
        self._stood_us = 0
        self._stood = 0, b""
        self._gather_until_us: int | None = None
        self._gathered = 0
        """So many wait in the tap, as it was looked at last."""
        self.nbytes = 0
        self.opened = self.handed = self._said = self.keeps_pace = False
        self._opened_us = 0
        self.broken = ""
        hosted.changed(now_us, True)

    @property
    def _frame(self) -> int:
        return self._first + len(self._going)

    @property
    def near(self) -> bool:
        """All but a little has arrived and been fed."""
        return self.opened and self._tap.near

    @property
    def token(self) -> int:
        """Of the checkpoint that goes."""
        return self._tap.token

    def stop(self) -> None:
        """Send nothing more; the fragment is as before."""
        if self._standby_tap is None:
            self._hosted.tapped(None)

    # --- what comes -----------------------------------------------------------------------------

    def copied(self, now_us: int, done: Copied) -> None:
        """The files of the checkpoint, or why they can't be read; two secondaries may be sent the same
        one."""
        if self._files is not None or done.base:
            return
        if done.why:
            self.broken = done.why
            return
        self._files = self._pieces(done.files)
        if self._standby_tap is not None:
            self._standby_tap.read()
        self._pump(now_us)

    def got(self, now_us: int, message: Got) -> None:
        """The target has so much."""
        if message.ticket != self._about["ticket"] or not self._first <= message.frames <= self._frame:
            return
        if message.opened and not self.opened:
            self.opened, self._opened_us = True, now_us
            self._tap.opened()
            # What came after it may have been fed before it was on disk.
            self.decided = max(self.decided, self._tap.decided)
            self.covered = max(self.covered, self._tap.token)
        full = self._tap.full
        while self._first < message.frames:
            done, _, nbytes, cost, _ = self._going.popleft()
            if isinstance(done, Fed) and done.last and done.number >= 0:
                self.decided = done.number + 1
            self._first += 1
            self._bytes -= nbytes
            if cost:
                self._tap.done(cost)
            self._acknowledged(now_us)
        while self._marks and self._marks[0][0] < message.durable:
            self.covered = self._marks.popleft()[1]
        self._pump(now_us)
        self._look_at_pace(now_us)
        if full and not (self._tap.full or self.near):  # Near: it stops.
            self._hosted.tick(now_us)

    def _look_at_pace(self, now_us: int) -> None:
        """One that works in batches never has all but a little: it is behind by a batch or two, however few
        rows come. The longer it has followed, the longer a pause may be."""
        oldest_us = self._going[0][4] if self._going else now_us
        behind_us, followed_us = now_us - oldest_us, now_us - self._opened_us
        steady = behind_us <= min(followed_us // 2, PACE_US)
        self.keeps_pace = self.opened and steady and self._bytes < self._window

    def _acknowledged(self, now_us: int) -> None:
        """The target has more than before."""
        self._again_us = self._moved_us = now_us
        self._again_after_us = AGAIN_US

    def _send_again(self, now_us: int) -> None:
        """All that isn't acknowledged, if it is overdue."""
        if self._going and now_us >= self._again_at_us:
            self._again_us = now_us
            self._again_after_us = min(2 * self._again_after_us, AGAIN_US_MAX)
            for message, payload, *_ in self._going:
                self._outbox.send(self._target, message, payload)

    @property
    def _again_at_us(self) -> int:
        return self._again_us + self._again_after_us

    def hand_over(self, now_us: int) -> None:
        """Nothing more is fed, and that is on disk."""
        self.handed = True
        self._stand(now_us)
        self._pump(now_us)

    def tick(self, now_us: int) -> None:
        """Go on; send again what is overdue."""
        self.broken = self.broken or self._tap.broken
        if self._tap.durable and not self._asked:
            self._asked = True
            self._moved_us = now_us
            self._outbox.append(Copy(fragment=self._hosted.spec.name, token=self._tap.token))
        self._send_again(now_us)
        if not self._going:
            self._moved_us = max(self._moved_us, now_us if self.opened else 0)
        if now_us - self._moved_us >= STUCK_US and not self.handed:
            self.broken = self.broken or f"nothing moved for {STUCK_US // 1_000_000} s"
        if self.opened and now_us - self._stood_us >= STANDING_US and not self.handed:
            self._stand(now_us)
        self._pump(now_us)

    def rests(self, now_us: int) -> bool:
        """Whether ``tick`` has nothing to do but to wait for what is fed next."""
        due_us = self._gather_until_us
        return (
            due_us is not None
            and now_us < due_us
            and len(self._tap.queue) == self._gathered
            and now_us - self._stood_us < STANDING_US
            and not (self._going and now_us >= self._again_at_us)
        )

    def wake_at_us(self, now_us: int) -> int:
        """When ``tick`` has work."""
        times = [now_us + STANDING_US] if self.opened and not self.handed else []
        times += [self._again_at_us] if self._going else []
        times += [] if self._gather_until_us is None else [self._gather_until_us]
        return min(times, default=self._moved_us + STUCK_US)

    # --- what goes ------------------------------------------------------------------------------

    def _pump(self, now_us: int) -> None:
        if self._files is None or self._gathers(now_us):
            return
        frames: list[tuple[Message, Buffer | None]] = []
        while self._bytes < self._window and (item := self._item()) is not None:
            message, payload, cost = item
            if not self._going:
                self._again_us = now_us
            nbytes = memoryview(payload).nbytes if payload is not None else 0
            self._put(now_us, message, payload, nbytes, cost)
            frames.append((message, payload))
        for message, payload in together(frames) if self._together else frames:
            self._outbox.send(self._target, message, payload)
        if frames:
            self._moved_us = now_us

    def _gathers(self, now_us: int) -> bool:
        """Whether what was fed may wait for what is fed next."""
        tap = self._standby_tap
        self._gathered = len(self._tap.queue)
        few = tap is not None and 0 < len(tap.queue) < GATHER_ITEMS and not tap.hurries
        if not (few and self.opened) or self._hosted.mixed or self._next:
            self._gather_until_us = None
            return False
        self._gather_until_us = self._gather_until_us or now_us + GATHER_US
        if now_us >= self._gather_until_us - (GATHER_US - GATHER_SOON_US):
            self._gather_until_us = None
        return self._gather_until_us is not None

    def _put(self, now_us: int, message: Message, payload: Buffer | None, nbytes: int, cost: int) -> None:
        nbytes += 128
        self._going.append((message, payload, nbytes, cost, now_us))
        self._bytes += nbytes
        self.nbytes += nbytes

    def _item(self) -> tuple[Message, Buffer | None, int] | None:
        assert self._files is not None
        if (piece := next(self._files, None)) is not None:
            return (*piece, 0)
        if not self._next and self._tap.queue:
            tapped = self._tap.queue.popleft()
            if isinstance(tapped, CheckpointMark):
                self._next.append(self._standing(tapped.token))
            else:
                self._next.extend(self._fed(tapped))
        if not self._next and self.handed and not self._said:
            self._said = True
            return Handover(frame=self._frame, decided=self._hosted.decided.at, **self._about), None, 0
        if not self._next:
            return None
        message, payload, cost = self._next.popleft()
        if isinstance(message, Standing) and message.mark:
            self._marks.append((self._frame, message.mark))
        if isinstance(message, Fed) and message.frame == self._frame:
            return message, payload, cost
        return replace(message, frame=self._frame), payload, cost

    def _pieces(self, files: Mapping[str, Buffer]) -> Iterator[tuple[Message, Buffer | None]]:
        for name, data in files.items():
            view = memoryview(data).cast("B")
            for offset in range(0, max(len(view), 1), PIECE_BYTES):
                part = view[offset : offset + PIECE_BYTES]
                yield self._piece(name, view, offset, part), part
        yield Whole(frame=self._frame, files=len(files), **self._about), None

    def _piece(self, name: str, of: memoryview, offset: int, part: memoryview) -> Piece:
        return Piece(
            frame=self._frame,
            file=name,
            offset=offset,
            nbytes=len(of),
            crc=crc32c(part),
            **self._about,
        )

    def _fed(self, tapped: FedElement) -> Iterator[tuple[Message, Buffer | None, int]]:
        """The messages of one element; the last one bears its cost."""
        input, element = tapped.input, tapped.element
        fed: dict[str, Any] = {
            "frame": self._frame,
            "kind": tapped.kind,
            "number": tapped.number,
            "source": input.source,
            "peer": input.peer,
            "boundary_us": tapped.boundary_us,
            "note": tapped.note,
            **self._about,
        }
        if not isinstance(element, Train):
            time_us = element.time_us if isinstance(element, Boundary) else 0
            time_us = element.share_ppm if isinstance(element, Shed) else time_us
            yield Fed(next_seq=tapped.next_seq, time_us=time_us, **fed), None, tapped.cost
            return
        pieces = _encoded(tapped, element)
        seq, left = element.first_seq, len(element)
        for place, (payload, rows, late) in enumerate(pieces, start=1):
            last = place == len(pieces)
            left -= rows
            message = Fed(
                last=last,
                seq=seq,
                rows=rows,
                next_seq=tapped.next_seq - left,
                time_us=0,
                tentative=element.kind is Kind.TENTATIVE,
                late=late,
                arrival_us=element.arrival_us,
                **fed,
            )
            seq += rows
            yield message, memoryview(payload), tapped.cost if last else 0

    def _stand(self, now_us: int) -> None:
        """Say how far readers are, where that has changed."""
        self._stood_us = now_us
        standing = self._standing()
        stood = standing[0].released, standing[1]
        if stood != self._stood and self._files is not None:
            self._stood = stood
            self._next.append(standing)

    def _standing(self, mark: int = 0) -> tuple[Standing, bytes, int]:
        hosted = self._hosted
        readers = {
            sink: {
                key: ReaderPosition(view.durable, view.plain, view.note)
                for key, view in output.sender.receivers.items()
            }
            for sink, output in hosted.outputs.items()
        }
        named = (input for input in hosted.inputs.values() if input.named)
        holders = tuple((input.source, input.peer, input.by) for input in named)
        released = 0 if self._standby_tap is None else hosted.released
        standing = Standing(frame=0, mark=mark, released=released, **self._about)
        return standing, msgspec.msgpack.encode(Clients(readers, holders)), 0


def _encoded(tapped: FedElement, train: Train) -> list[tuple[Buffer, int, bool]]:
    """The payloads of its rows, as ``TrainCodec.encode`` has them: as it came, where that is known."""
    if tapped.payload is not None and memoryview(tapped.payload).nbytes <= TRAIN_BYTES:
        return [(tapped.payload, len(train), train.late is not None)]
    return list(tapped.input.codec.encode(train))
