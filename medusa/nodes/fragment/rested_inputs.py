"""What comes by sources that rest: it waits in memory, then on disk, until they are fed again. Pure: no IO.

    a source rests ──> works wait ── SEGMENT_BYTES ──> written, and their credit is given back
                                                          │ the source rests no more
                       fed, in their order <── read back ─┘

While an input is missing, what meets it can't be used, and would fill memory (``consistency.held_state``).
On disk it throttles neither its sender nor the fork, which had it when it came. It isn't durable there,
and nobody is told
so: its sender keeps it until a checkpoint has it, and after a restart it is asked for again. Each source
has an order of its own. What can't be read back is asked for again too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from medusa.elements import Kind, Train
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.ports import Buffer
from medusa.units import size_text
from medusa.wire import limits
from medusa.wire.messages.links import Data
from medusa.wire.outbox import Fetch, Outbox, WriteSegment

__all__ = ["RestedInputs"]

SEGMENT_BYTES = 1 << 20
"""So much of a source is written at once, or a quarter of what may be under way from its sender or of what
may wait in memory.

Too small: many files, and a sync for each; too large: memory, and the sender runs out of credit meanwhile."""

RETRY_US = 500_000
"""What couldn't be written is tried again after this."""

WORK_BYTES = 1024
"""What a work takes in memory while its rows are on disk counts there. Too small: small trains fill it."""

READS_MAX = 3
"""Failed reads of a segment after which its rows are asked for again."""


@dataclass(frozen=True, slots=True)
class _OnDisk:
    """Rows of a work: where they are, and what their bytes don't say.

    Attributes:
        header: as of the frame that would bring them.
        arrival_us: as of ``Train``.
    """

    token: int
    offset: int
    nbytes: int
    header: Data
    arrival_us: int | None


@dataclass(slots=True, eq=False)
class _Source:
    """What waits of one source, oldest first.

    Attributes:
        places: of those works whose rows are on disk.
        fresh: works with rows that aren't, behind all that are or are being written; ``fresh_bytes``: of
            these.
        writing: token, and of works that aren't fed meanwhile where each will be.
        reading: token, and works.
        read: works whose rows were read back and aren't fed yet; ``read_bytes``: of these rows.
    """

    works: deque[tuple[int, Work]] = field(default_factory=deque)
    places: dict[Work, _OnDisk] = field(default_factory=dict)
    fresh: deque[Work] = field(default_factory=deque)
    fresh_bytes: int = 0
    writing: tuple[int, dict[Work, _OnDisk]] | None = None
    reading: tuple[int, list[Work]] | None = None
    read: dict[Work, int] = field(default_factory=dict)
    read_bytes: int = 0
    failures: int = 0


class RestedInputs:
    """Of one fragment.

    Args:
        memory_bytes_max: most that may wait in memory, for the size of what is written at once.
        disk_bytes_max: most that waits on disk; beyond it the rest keeps its credit, so that its sender
            waits. 0: nothing is written.
        asks_again: what an input brought from where it was fed on is to come once more.

    Attributes:
        resting: sources of which nothing is fed.
        disk_bytes: that wait on disk, each work with ``WORK_BYTES``.
        error: why the last segment couldn't be written; empty: it could.
    """

    def __init__(
        self,
        fragment: str,
        *,
        memory_bytes_max: int,
        disk_bytes_max: int,
        next_token: Callable[[], int],
        outbox: Outbox,
        asks_again: Callable[[int, FragmentInput], None],
    ) -> None:
        self.resting: frozenset[str] = frozenset()
        self.disk_bytes = 0
        self.error = ""
        self._fragment = fragment
        self._disk_bytes_max = disk_bytes_max
        self._memory_bytes_max = memory_bytes_max
        self._next_token = next_token
        self._outbox = outbox
        self._asks_again = asks_again
        self._sources: dict[str, _Source] = {}
        self._segments: dict[int, int] = {}
        """Token -> works whose rows are there and are needed still."""
        self._void: set[int] = set()
        """Segments under way of which nothing is needed any more."""
        self._count = 0
        """Of works that have come to wait here."""
        self._is_full_told = False
        self._write_at_us = 0

    # --- what comes and goes ----------------------------------------------------------------------

    def rest(self, sources: frozenset[str]) -> bool:
        """These rest from now on; whether others did before."""
        changed, self.resting = sources != self.resting, sources
        return changed

    def takes(self, work: Work) -> bool:
        """Whether it comes behind what waits here."""
        return work.input.source in self.resting or work.input.source in self._sources

    def add(self, now_us: int, work: Work) -> None:
        """It waits here."""
        source = self._sources.setdefault(work.input.source, _Source())
        source.works.append((self._count, work))
        self._count += 1
        if isinstance(work.element, Train):
            source.fresh.append(work)
            source.fresh_bytes += work.cost
        elif self.disk_bytes < self._disk_bytes_max:
            self._give_credit(now_us, work)
        self._write(now_us, source)

    def next(self, now_us: int) -> Work | None:
        """The oldest that may be fed, and is in memory; it waits here no more. None: there is none."""
        ready = [
            (source.works[0][0], name)
            for name, source in self._sources.items()
            if name not in self.resting and self._is_ready(source)
        ]
        if not ready:
            return None
        _, name = min(ready)
        source = self._sources[name]
        _, work = source.works.popleft()
        self._forget(source, work)
        if not source.works:
            self._end(name)
        return work

    def __bool__(self) -> bool:
        """Whether anything waits here."""
        return bool(self._sources)

    def works(self) -> Iterator[Work]:
        """Those in memory, of each source in order."""
        for source in self._sources.values():
            yield from (work for _, work in source.works if work not in source.places)

    def disk_rows(self, source: str) -> int:
        """Rows of a source that wait on disk."""
        found = self._sources.get(source)
        return 0 if found is None else sum(place.header.rows for place in found.places.values())

    @property
    def held_back(self) -> frozenset[str]:
        """Sources whose senders run out of credit: there is no room on disk, or it can't be written."""
        full = bool(self.error) or self.disk_bytes >= self._disk_bytes_max
        return self.resting if full else frozenset()

    @property
    def tokens(self) -> tuple[int, ...]:
        """Segments that are needed still, or being written."""
        writing = (source.writing[0] for source in self._sources.values() if source.writing is not None)
        return (*self._segments, *writing)

    def tick(self, now_us: int) -> None:
        """Try again what couldn't be written."""
        for source in self._sources.values():
            self._write(now_us, source)
        if self.error and not self._is_writing and now_us >= self._write_at_us:
            self._write_at_us = now_us + RETRY_US  # There is nothing to write just now.
            if not any(source.fresh for source in self._sources.values()):
                self.error = ""

    @property
    def _is_writing(self) -> bool:
        return any(source.writing is not None for source in self._sources.values())

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._write_at_us if self.error and not self._is_writing else None

    def _end(self, name: str) -> None:
        source = self._sources.pop(name)
        if source.writing is not None:
            self._void.add(source.writing[0])
        self._is_full_told = self._is_full_told and bool(self._sources)

    def _forget(self, source: _Source, work: Work) -> None:
        if source.fresh and source.fresh[0] is work:
            source.fresh.popleft()
            source.fresh_bytes -= work.cost
        if source.writing is not None:
            source.writing[1].pop(work, None)
        source.read_bytes -= source.read.pop(work, 0)

    @staticmethod
    def _give_credit(now_us: int, work: Work) -> None:
        work.input.receiver.consumed(now_us, work.cost)
        work.holds_no_credit()

    # --- to disk ----------------------------------------------------------------------------------

    def _write(self, now_us: int, source: _Source) -> None:
        """Begin a segment, if there is enough for one."""
        if source.writing is not None or not source.fresh or now_us < self._write_at_us:
            return
        if self.disk_bytes >= self._disk_bytes_max:
            self._tell_full()
            return
        most_bytes = min(self._memory_bytes_max, source.fresh[0].input.receiver.settings.window_bytes)
        if source.fresh_bytes < min(SEGMENT_BYTES, most_bytes // 4):
            return
        token, offset = self._next_token(), 0
        written: dict[Work, _OnDisk] = {}
        payloads: list[Buffer] = []
        while source.fresh and offset < SEGMENT_BYTES:
            work = source.fresh.popleft()
            source.fresh_bytes -= work.cost
            assert isinstance(work.element, Train), "only rows are written"
            payload, header = _encoded(work, work.element)
            nbytes = memoryview(payload).nbytes
            written[work] = _OnDisk(token, offset, nbytes, header, work.element.arrival_us)
            payloads.append(payload)
            offset += nbytes
        source.writing = token, written
        self._outbox.append(WriteSegment(token=token, fragment=self._fragment, payloads=tuple(payloads)))

    def _tell_full(self) -> None:
        if not self._is_full_told:
            self._is_full_told = True
            what = "suspended: what waits for a missing input is held back at its senders"
            self._outbox.report("warning", what, fragment=self._fragment, on_disk=size_text(self.disk_bytes))

    def written(self, now_us: int, token: int, ok: bool, why: str) -> bool:
        """A segment is there, or couldn't be written; whether it was ours."""
        if token in self._void:
            self._void.discard(token)
            return True
        for source in self._sources.values():
            if source.writing is not None and source.writing[0] == token:
                self._was_written(now_us, source, source.writing[1], ok, why)
                return True
        return False

    def _was_written(
        self, now_us: int, source: _Source, written: Mapping[Work, _OnDisk], ok: bool, why: str
    ) -> None:
        source.writing = None
        if not ok:
            if not self.error:
                what = "what waits for a missing input couldn't be written: it is held back at its senders"
                self._outbox.report("error", what, fragment=self._fragment, why=why)
            self.error, self._write_at_us = why or "unknown", now_us + RETRY_US
            source.fresh.extendleft(reversed(list(written)))
            source.fresh_bytes += sum(work.cost for work in written)
            return
        self.error = ""
        for work, place in written.items():
            self._give_credit(now_us, work)
            work.leave_rows()
            source.places[work] = place
            self.disk_bytes += place.nbytes + WORK_BYTES
            self._segments[place.token] = self._segments.get(place.token, 0) + 1
        self._write(now_us, source)

    # --- and back ---------------------------------------------------------------------------------

    def _is_ready(self, source: _Source) -> bool:
        """Whether the oldest work can be fed; what is on disk behind it is asked for."""
        if source.reading is None and source.places and source.read_bytes < SEGMENT_BYTES:
            self._read(source)
        return source.works[0][1] not in source.places

    def _read(self, source: _Source) -> None:
        works: list[Work] = []
        places: list[tuple[int, int]] = []
        token = next(iter(source.places.values())).token
        for work, place in source.places.items():
            if place.token != token:
                break
            works.append(work)
            places.append((place.offset, place.nbytes))
        source.reading = token, works
        self._outbox.append(Fetch(token=token, fragment=self._fragment, places=tuple(places)))

    def fetched(self, now_us: int, token: int, payloads: Sequence[Buffer], why: str) -> bool:
        """A ``Fetch`` was answered; whether it was ours.

        Args:
            why: it couldn't be read; empty: it could.
        """
        for name, source in list(self._sources.items()):
            if source.reading is not None and source.reading[0] == token:
                works, source.reading = source.reading[1], None
                if why:
                    self._could_not_read(now_us, name, source, why)
                else:
                    source.failures = 0
                    for work, payload in zip(works, payloads, strict=True):
                        self._bring_back(source, work, payload)
                return True
        return False

    def _bring_back(self, source: _Source, work: Work, payload: Buffer) -> None:
        place = source.places.pop(work)
        self._left(place)
        train = work.input.codec.decode(place.header, payload, peer=work.input.peer)
        work.bring_rows(msgspec.structs.replace(train, arrival_us=place.arrival_us), payload)
        source.read[work] = place.nbytes
        source.read_bytes += place.nbytes

    def _left(self, place: _OnDisk) -> None:
        """The rows of one work are needed there no more."""
        self.disk_bytes -= place.nbytes + WORK_BYTES
        self._segments[place.token] -= 1
        if not self._segments[place.token]:
            del self._segments[place.token]

    def _could_not_read(self, now_us: int, name: str, source: _Source, why: str) -> None:
        """Try again at the next look; in the end its sender has it still."""
        source.failures += 1
        if source.failures < READS_MAX:
            return
        about = {"fragment": self._fragment, "source": name, "why": why}
        what = "what waited on disk can't be read: it is asked for again"
        self._outbox.report("error", what, rows=self.disk_rows(name), **about)
        for place in source.places.values():
            self._left(place)
        self._end(name)
        for _, work in source.works:
            self._give_credit(now_us, work)
        for input in dict.fromkeys(work.input for _, work in source.works):
            self._asks_again(now_us, input)


def _encoded(work: Work, train: Train) -> tuple[Buffer, Data]:
    """The rows as one payload, and the header with which they are read again."""
    if (payload := work.payload) is None:
        [(payload, *_)] = work.input.codec.encode(train, bytes_aim=limits.PAYLOAD_BYTES_MAX)
    header = Data(
        stream=work.input.stream,
        epoch=0,
        frame=0,
        seq=train.first_seq,
        rows=len(train),
        tentative=train.kind is Kind.TENTATIVE,
        late=train.late is not None,
    )
    return payload, header
