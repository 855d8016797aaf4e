"""The owner's side of a passive standby: a secondary is sent checkpoints, and of later ones what it lacks.

    checkpoint on the owner's disk ── read ──> files that it lacks, who reads, all names ──> secondary
                   ^── the newest one, once the one before is held there ──┘

Nothing that the fragment is fed goes. What a secondary holds, it holds whole: until the last frame of the
next checkpoint has come it has the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from medusa.elements import Silent, Train
from medusa.engine.state.checkpoint import crc32c
from medusa.nodes.fragment.change_feed import ITEM_BYTES, StandbyChangeFeed
from medusa.nodes.fragment.checkpoint_record import LOG
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.nodes.migration.state_sender import PIECE_BYTES, STUCK_US, StateSender
from medusa.nodes.upstream_backup.marks import Mark
from medusa.ports import Buffer
from medusa.wire.messages.message_union import Message
from medusa.wire.messages.move import Got, Whole
from medusa.wire.outbox import Copy

__all__ = ["CheckpointFeed", "CheckpointSender", "FileFacts", "CheckpointManifest"]


class FileFacts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Of a file: bytes, and the CRC32C of all of it."""

    nbytes: int
    crc: int


class CheckpointManifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All files of a checkpoint, by name."""

    files: dict[str, FileFacts]


@dataclass(frozen=True, slots=True)
class _Taken:
    """A checkpoint: its token, the number of the next decision, and what had been fed by then in this
    attempt, in bytes and elements."""

    token: int
    decided: int
    nbytes: int
    items: int


class CheckpointFeed(StandbyChangeFeed):
    """Says which checkpoint goes to a passive secondary next; counts what is fed, and keeps nothing of it.

    Args:
        marks: what goes are marks, which are offered, and nothing that is on disk.

    Attributes:
        token: of the checkpoint that is read or was read last.
        reading: it is being read, so no other may be taken: it would be deleted.
        nbytes, items: fed since the checkpoint that the secondary holds.
        files: of the mark that goes.
    """

    def __init__(self, *, marks: bool = False) -> None:
        super().__init__()
        self._marks = marks
        self._mark: Mark | None = None
        """The newest one that was offered."""
        self.files: Mapping[str, Buffer] = {}
        self.reading = False
        self._wanted = True
        self._fed_bytes = self._fed_items = 0
        self._writing: _Taken | None = None
        self._newest: _Taken | None = None
        self._sent: _Taken | None = None

    @property
    def begun(self) -> bool:
        """A checkpoint may refer to older ones: the output in those goes once."""
        return True

    @property
    def holds_checkpoints(self) -> bool:
        return self.reading and not self._marks

    @property
    def due(self) -> bool:
        return self.reading

    @property
    def near(self) -> bool:
        return True

    def begins(self, token: int, decided: int) -> None:
        if self._marks:
            return
        self._writing = _Taken(token, decided, self._fed_bytes, self._fed_items)

    def persisted(self, token: int, ok: bool, why: str) -> None:
        if self._writing is None or self._writing.token != token:
            return
        if ok:
            self._newest = self._writing
        self._writing = None
        self._read_next()

    def offer(self, mark: Mark) -> None:
        if self._marks and (self._mark is None or mark.token > self._mark.token):
            self._mark = mark
            self._newest = _Taken(mark.token, mark.decided, self._fed_bytes, self._fed_items)
            self._read_next()

    def want(self) -> None:
        """The one before is held: the next may go."""
        self._wanted = True
        self._read_next()

    def _read_next(self) -> None:
        """Begin with the newest one, unless it has gone already, or one is being written in its place."""
        newest = self._newest
        if self._wanted and newest is not None and self._writing is None and newest.token != self.token:
            self._wanted, self.reading = False, True
            self._sent, self.token = newest, newest.token
            if self._mark is not None:
                self.files = self._mark.files()

    def read(self) -> None:
        self.reading = False

    def arrived(self) -> int:
        """The secondary holds what was sent; decisions below this number are in it."""
        assert self._sent is not None
        self.nbytes, self.items = self._fed_bytes - self._sent.nbytes, self._fed_items - self._sent.items
        return self._sent.decided

    def fed(self, work: Work) -> None:
        if isinstance(work.element, Silent):
            return
        cost = ITEM_BYTES + len(work.note)
        cost += work.element.batch.nbytes if isinstance(work.element, Train) else 0
        self._fed_bytes += cost
        self._fed_items += 1
        self.nbytes += cost
        self.items += 1

    def joined(self, input: FragmentInput, number: int) -> None:
        """The next checkpoint has it."""


class CheckpointSender(StateSender):
    """Sends a passive secondary one checkpoint after the other: see ``StateSender``.

    Attributes:
        opened: it holds a checkpoint.
        decided, covered: of the newest one that it holds: the number of the next decision, and the token.
    """

    def __init__(self, *args: Any, tap: CheckpointFeed, **more: Any) -> None:
        super().__init__(*args, tap=tap, **more)
        self._feed = tap
        self._asked_of = 0
        self._held: dict[str, FileFacts] = {}
        """Files of the checkpoint that it holds, the one with this token:"""
        self._held_token = 0
        self._going_files: dict[str, FileFacts] = {}
        """Of the one that goes."""
        self._news = False
        """It holds another one: who may succeed is looked at now."""

    @property
    def near(self) -> bool:
        return self.opened

    def copied(self, now_us: int, files: Mapping[str, Buffer], why: str) -> None:
        """The files of a checkpoint, or why they can't be read; two secondaries may be sent the same one."""
        if not self._feed.reading:
            return
        self._feed.read()
        if why:
            self.broken = self.broken or why
            return
        self._moved_us = now_us
        own = f"{LOG}-{self._feed.token}"  # As the checkpoints after it call it.
        self._files = self._frames({own if name == LOG else name: data for name, data in files.items()})
        self._pump(now_us)

    def _frames(self, files: Mapping[str, Buffer]) -> Iterator[tuple[Message, Buffer | None]]:
        """Pieces of the files that it lacks, then who reads, then what the whole is made of."""
        made: dict[str, FileFacts] = {}
        for name, data in files.items():
            view = memoryview(data).cast("B")
            known = self._held.get(name)
            if known is not None and known.nbytes == len(view) and known.crc == crc32c(view):
                made[name] = known
                continue
            crc = 0
            for offset in range(0, max(len(view), 1), PIECE_BYTES):
                part = view[offset : offset + PIECE_BYTES]
                crc = crc32c(part, crc)
                yield self._piece(name, view, offset, part), part
            made[name] = FileFacts(len(view), crc)
        token = self._feed.token
        standing, clients, _ = self._standing(token)
        yield msgspec.structs.replace(standing, frame=self._frame), clients
        self._going_files = made
        base = self._held_token if any(self._held.get(name) is known for name, known in made.items()) else 0
        self._marks.append((self._frame, token))
        whole = Whole(frame=self._frame, files=len(made), token=token, base=base, **self._about)
        yield whole, msgspec.msgpack.encode(CheckpointManifest(made))

    def _item(self) -> tuple[Message, Buffer | None, int] | None:
        if self._files is None or (frame := next(self._files, None)) is None:
            return None
        return (*frame, 0)

    def got(self, now_us: int, message: Got) -> None:
        if message.ticket != self._about["ticket"] or not self._first <= message.frames <= self._frame:
            return
        while self._first < message.frames:
            self._bytes -= self._going.popleft()[2]
            self._first += 1
            self._acknowledged(now_us)
        self._pump(now_us)
        while self._marks and self._marks[0][0] < message.durable:
            self._held_token = self.covered = self._marks.popleft()[1]
            self._held, self._going_files = self._going_files, {}
            self._files = None
            self.opened = True
            self.decided = self._feed.arrived()
            self._feed.want()
            self._news = True
        self._go_on(now_us)

    def tick(self, now_us: int) -> None:
        self._news = False
        self._go_on(now_us)

    def _go_on(self, now_us: int) -> None:
        self.broken = self.broken or self._feed.broken
        if self._feed.reading and self._asked_of != self._feed.token:
            self._asked_of = self._feed.token
            self._moved_us = now_us
            if self._feed.files:
                self.copied(now_us, self._feed.files, "")
            else:
                self._outbox.append(Copy(fragment=self._hosted.spec.name, token=self._feed.token))
        self._send_again(now_us)
        if not (self._going or self._feed.reading):
            self._moved_us = now_us  # Nothing is to be sent until the owner's next checkpoint.
        if now_us - self._moved_us >= STUCK_US:
            self.broken = self.broken or f"nothing moved for {STUCK_US // 1_000_000} s"
        self._pump(now_us)

    def wake_at_us(self, now_us: int) -> int:
        if self._news:
            return now_us
        return self._again_at_us if self._going else self._moved_us + STUCK_US
