"""What was decided in an earlier life, and the rows that wait until it has taken them.

Decisions stand in lanes: of runs in which the order of rows of different sources shows, all in one;
else those of each source by themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from msgspec.structs import replace

from medusa._native import Times
from medusa.elements import END_US, START_US
from medusa.engine.recovery.decisions import AnswersReleased, Entry, Lifts, Promise, Rest, RowsEntered, Sheds
from medusa.errors import DataError

__all__ = ["DecisionReplay", "HeldInput"]


@dataclass(frozen=True, slots=True)
class HeldInput:
    """Rows that wait, or a boundary behind them.

    Attributes:
        number: ascending, in the order in which they came.
    """

    number: int
    source: str
    batch: pa.RecordBatch | None = None
    times: Times | None = None
    arrival_us: int | None = None
    time_us: int = 0


@dataclass(slots=True)
class _Source:
    rows: deque[HeldInput] = field(default_factory=deque)
    count: int = 0
    promised_us: int = int(START_US)
    deferred_us: int = int(START_US)
    ends: int | None = None


class DecisionReplay:
    """Lanes of entries, and what waits for them.

    Args:
        entries: in order.
        ordered: all stand in one lane.
    """

    def __init__(self, entries: Iterable[Entry], *, ordered: bool) -> None:
        self._ordered = ordered
        self.lanes: dict[str, deque[Entry]] = {}
        self._sources: dict[str, _Source] = {}
        self._promises: list[HeldInput] = []
        self._next = 0
        for each in entries:
            self._take(each)

    def _take(self, entry: Entry) -> None:
        if isinstance(entry, AnswersReleased):
            self.lanes.setdefault("", deque()).append(entry)
        elif isinstance(entry, Lifts | Sheds):
            # Apart they do the same, unless the order of sources shows: then there is one lane.
            parts: Sequence[Lifts | Sheds] = [entry]
            if not self._ordered:
                parts = [replace(entry, sources=(each,)) for each in entry.sources]
            for part in parts:
                self.lanes.setdefault(self.lane_of(part.sources[0][0]), deque()).append(part)
        else:
            self.lanes.setdefault(self.lane_of(entry.source), deque()).append(entry)
        if isinstance(entry, Promise):
            source = self._of(entry.source)
            source.promised_us = max(source.promised_us, entry.time_us)
            if entry.time_us >= END_US:
                source.ends = entry.at

    def lane_of(self, source: str) -> str:
        """The lane in which a source stands."""
        return "" if self._ordered else source

    def holds(self, source: str) -> bool:
        """Whether rows of a source have to wait for what was decided."""
        return self.lane_of(source) in self.lanes

    def _of(self, source: str) -> _Source:
        return self._sources.setdefault(source, _Source())

    def entries(self) -> Iterator[Entry]:
        """Those that are left."""
        for lane in self.lanes.values():
            yield from lane

    def promised_us(self, source: str) -> int:
        """The last explicit boundary of a source that was decided."""
        return self._of(source).promised_us

    def ends(self, source: str) -> int | None:
        """The number of rows after which a source ended."""
        return self._of(source).ends

    # What waits

    def hold(
        self,
        source: str,
        batches: Sequence[pa.RecordBatch],
        times: Sequence[Times | None],
        arrival: int | None,
    ) -> None:
        """Keep rows until they are taken."""
        mine = self._of(source)
        for batch, batch_times in zip(batches, times, strict=True):
            if batch.num_rows:
                mine.rows.append(HeldInput(self._number(), source, batch, batch_times, arrival))
                mine.count += batch.num_rows

    def promise(self, source: str, time_us: int) -> None:
        """Keep a new boundary until everything that was decided has been done.

        Raises:
            DataError: it is below one before it.
        """
        mine = self._of(source)
        if time_us < mine.deferred_us:
            raise DataError(
                f"source {source!r}: a boundary is below the earlier one",
                hint="a boundary is a promise: it may not decrease",
                code="data.boundary",
            )
        mine.deferred_us = time_us
        self._promises.append(HeldInput(self._number(), source, time_us=time_us))

    def _number(self) -> int:
        self._next += 1
        return self._next

    def count(self, source: str) -> int:
        """Rows of a source that wait."""
        found = self._sources.get(source)
        return 0 if found is None else found.count

    def nbytes(self) -> int:
        """Bytes of the rows that wait."""
        held = (each.batch for mine in self._sources.values() for each in mine.rows)
        return sum(batch.nbytes for batch in held if batch is not None)

    def rows(self, source: str, count: int) -> list[HeldInput]:
        """Take the next rows of a source, at most so many."""
        mine, made = self._of(source), []
        while count and mine.rows:
            first = mine.rows.popleft()
            assert first.batch is not None
            rows = first.batch.num_rows
            if rows > count:
                mine.rows.appendleft(_part(first, count, rows - count))
                first = _part(first, 0, count)
                rows = count
            made.append(first)
            mine.count -= rows
            count -= rows
        return made

    def leave(self, lane: str) -> list[HeldInput]:
        """All decisions of a lane have been done: what waits for it, in the order in which it came."""
        del self.lanes[lane]
        names = list(self._sources) if self._ordered else [lane]
        made = [each for name in names for each in self.rows(name, self.count(name))]
        mine = [each for each in self._promises if each.source in names or self._ordered]
        self._promises = [each for each in self._promises if each not in mine]
        return sorted([*made, *mine], key=lambda each: each.number)

    def missing(self, accepted: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Which rows are waited for: source -> (the first, the one after the last)."""
        made = {}
        for lane in self.lanes.values():
            first = lane[0]
            wanted: dict[str, int] = {}
            if isinstance(first, RowsEntered):
                wanted = {first.source: first.stop}
            elif isinstance(first, Promise | Rest):
                wanted = {first.source: first.at}
            elif isinstance(first, Lifts | Sheds):
                wanted = {source: at for source, at, _ in first.sources}
            for source, stop in wanted.items():
                have = accepted[source] + self.count(source)
                if have < stop:
                    made[source] = (have, stop)
        return made


def _part(held: HeldInput, start: int, rows: int) -> HeldInput:
    assert held.batch is not None
    times = None if held.times is None else held.times.part(start, rows)
    return HeldInput(held.number, held.source, held.batch.slice(start, rows), times, held.arrival_us)
