"""The owner's side of a passive standby: a secondary is sent checkpoints, and of later ones what it lacks.

    checkpoint on the owner's disk ── read ──> files that it lacks, who reads, all names ──> secondary
                   ^── the newest one, once the one before is held there ──┘

Nothing that the fragment is fed goes. What a secondary holds, it holds whole: until the last frame of the
next checkpoint has come it has the one before.

Where the next one stands on the one that the secondary said it holds, by the owner's disk, only the deltas
between the two go. The secondary then holds a chain, as the disk does, which ends when a checkpoint is
written whole. A delta that doesn't fit what is held is refused, and all of the newest checkpoint goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from medusa.elements import Silent, Train
from medusa.engine.state.checkpoint import crc32c
from medusa.engine.state.delta import DeltaFiles
from medusa.nodes.fragment.change_feed import ITEM_BYTES, StandbyChangeFeed
from medusa.nodes.fragment.checkpoint_record import LOG, RECORD
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.nodes.migration.state_sender import PIECE_BYTES, STUCK_US, StateSender
from medusa.nodes.reports import Copied
from medusa.nodes.upstream_backup.marks import Mark
from medusa.ports import Buffer
from medusa.wire.messages import Message
from medusa.wire.messages.move import Got, Whole
from medusa.wire.outbox import Copy

__all__ = ["CheckpointFeed", "CheckpointManifest", "CheckpointSender", "DeltaRecord", "FileFacts", "is_state"]


class FileFacts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Of a file: bytes, and the CRC32C of all of it."""

    nbytes: int
    crc: int


class DeltaRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A delta, which stands on the one before, and the first on files of the state that are there whole.

    Attributes:
        token: of its checkpoint.
        base: of the one that it stands on.
        same, changed: as ``medusa.engine.state.delta.DeltaCut`` has them.
        files: names of its own files, in the order of ``key``.
    """

    token: int
    base: int
    same: tuple[str, ...]
    changed: dict[str, int]
    files: tuple[str, ...]

    def key(self, place: int) -> str:
        """What one of its files is called as it is sent and held: no other file has a colon."""
        return f"{self.token}:{place}"

    def files_of(self, held: Mapping[str, Buffer]) -> DeltaFiles:
        """Put its own files to it. KeyError: one isn't there."""
        plan = {"same": list(self.same), "changed": self.changed}
        own = {name: held[self.key(place)] for place, name in enumerate(self.files)}
        return DeltaFiles(self.token, self.base, plan, own)


class CheckpointManifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All files of a checkpoint, by name.

    Attributes:
        epoch, configuration: where deltas go: by which the fragment is its owner's.
        deltas: that make it of the files of the state, the oldest first.
    """

    files: dict[str, FileFacts]
    epoch: int = 0
    configuration: int = 0
    deltas: tuple[DeltaRecord, ...] = ()

    def to_bytes(self) -> bytes:
        """As it is sent: without deltas as before there were any."""
        return msgspec.msgpack.encode(self if self.deltas else (self.files,))


_LOG_NAME = re.compile(rf"{LOG}(-\d+)?")


def is_state(file: str) -> bool:
    """Whether a file of a checkpoint, as it is sent, is of the state of its fragment."""
    return file != RECORD and not _LOG_NAME.fullmatch(file)


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
    def ships_checkpoints(self) -> bool:
        return not self._marks

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

    def refused(self) -> None:
        """It doesn't fit what the secondary holds: the newest one goes, which may be this one again."""
        self.token = 0
        self.want()

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


@dataclass(frozen=True, slots=True)
class _Holding:
    """A checkpoint as a secondary has it.

    Attributes:
        sum: the CRC-32C of its manifest on our disk, in hex; empty: none that a delta could stand on.
    """

    token: int = 0
    sum: str = ""
    files: Mapping[str, FileFacts] = field(default_factory=dict)
    deltas: tuple[DeltaRecord, ...] = ()


class CheckpointSender(StateSender):
    """Sends a passive secondary one checkpoint after the other: see ``StateSender``.

    Args:
        owned_by: epoch and number of the configuration by which the fragment is ours.

    Attributes:
        opened: it holds a checkpoint.
        decided, covered: of the newest one that it holds: the number of the next decision, and the token.
    """

    def __init__(
        self, *args: Any, tap: CheckpointFeed, owned_by: Callable[[], tuple[int, int]], **more: Any
    ) -> None:
        super().__init__(*args, tap=tap, **more)
        self._feed = tap
        self._owned_by = owned_by
        self._asked_of = self._asked_base = 0
        """Which checkpoint is read, and on which one it may be a delta."""
        self._held = self._held_next = _Holding()
        """What it holds, and what it will once all that goes has come."""
        self._said_held = 0
        """Its own word of that, by token."""
        self._news = False
        """It holds another one: who may succeed is looked at now."""

    @property
    def near(self) -> bool:
        return self.opened

    @property
    def deltas(self) -> int:
        """How many it holds, on a whole checkpoint."""
        return len(self._held.deltas)

    def copied(self, now_us: int, done: Copied) -> None:
        """The files of a checkpoint, or why they can't be read; two secondaries may be sent the same one, but
        for deltas on what only one of them holds."""
        if not self._feed.reading or done.base not in (0, self._asked_base):
            return
        self._feed.read()
        if done.why:
            self.broken = self.broken or done.why
            return
        self._moved_us = now_us
        own = f"{LOG}-{self._feed.token}"  # As the checkpoints after it call it.
        files = {own if name == LOG else name: data for name, data in done.files.items()}
        self._files = self._frames(files, done)
        self._pump(now_us)

    def _frames(self, files: Mapping[str, Buffer], done: Copied) -> Iterator[tuple[Message, Buffer | None]]:
        """Pieces of the files that it lacks, then who reads, then what the whole is made of."""
        held, token, base = self._held, self._feed.token, 0
        made: dict[str, FileFacts] = {}
        deltas: tuple[DeltaRecord, ...] = ()
        if done.base:
            base = held.token
            made |= {name: fact for name, fact in held.files.items() if is_state(name)}
            for each in done.deltas:
                same, changed = tuple(each.plan["same"]), dict(each.plan["changed"])
                delta = DeltaRecord(each.token, each.base, same, changed, tuple(each.files))
                deltas += (delta,)
                for place, data in enumerate(each.files.values()):
                    made[delta.key(place)] = yield from self._file(delta.key(place), data)
            deltas = (*held.deltas, *deltas)
        for name, data in files.items():
            view = memoryview(data).cast("B")
            known = held.files.get(name)
            if known is not None and known.nbytes == len(view) and known.crc == crc32c(view):
                made[name], base = known, held.token
            else:
                made[name] = yield from self._file(name, data)
        standing, clients, _ = self._standing(token)
        yield msgspec.structs.replace(standing, frame=self._frame), clients
        self._held_next = _Holding(token, done.sum, made, deltas)
        self._marks.append((self._frame, token))
        whole = Whole(frame=self._frame, files=len(made), token=token, base=base, **self._about)
        epoch, configuration = self._owned_by() if deltas else (0, 0)
        yield whole, CheckpointManifest(made, epoch, configuration, deltas).to_bytes()

    def _file(self, name: str, data: Buffer) -> Generator[tuple[Message, Buffer | None], None, FileFacts]:
        """The pieces of a file; at the end what is told of it."""
        view, crc = memoryview(data).cast("B"), 0
        for offset in range(0, max(len(view), 1), PIECE_BYTES):
            part = view[offset : offset + PIECE_BYTES]
            crc = crc32c(part, crc)
            yield self._piece(name, view, offset, part), part
        return FileFacts(len(view), crc)

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
        self._said_held = message.held
        while self._marks and self._marks[0][0] < message.durable:
            self.covered = self._marks.popleft()[1]
            self._held = self._held_next
            self._files = None
            self.opened = True
            self.decided = self._feed.arrived()
            self._feed.want()
            self._news = True
        if self._marks and self._marks[0][0] == message.refused - 1:
            self._was_refused()
        self._go_on(now_us)

    def _was_refused(self) -> None:
        """What went doesn't fit what it holds: it holds that still, and is sent all of the newest one."""
        _, token = self._marks.popleft()
        self._outbox.report(
            "warning",
            "secondary refuses a delta: all of the checkpoint goes",
            fragment=self._hosted.spec.name,
            peer=self._target,
            checkpoint=token,
        )
        self._held, self._files = _Holding(), None
        self._asked_of = 0
        self._feed.refused()

    def tick(self, now_us: int) -> None:
        self._news = False
        self._go_on(now_us)

    def _go_on(self, now_us: int) -> None:
        self.broken = self.broken or self._feed.broken
        if self._feed.reading and self._asked_of != self._feed.token:
            self._asked_of = self._feed.token
            self._moved_us = now_us
            name, held = self._hosted.spec.name, self._held
            if self._feed.files:
                self.copied(now_us, Copied(name, self._feed.token, self._feed.files))
            else:
                stands = bool(held.sum) and held.token == self._said_held
                self._asked_base, sum = (held.token, held.sum) if stands else (0, "")
                self._outbox.append(
                    Copy(fragment=name, token=self._feed.token, base=self._asked_base, base_sum=sum)
                )
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
