"""Finding the pairs of an interval join: rows of equal key, at most so far apart in time.

Each side keeps its rows in segments. A segment is sorted by (key, time, position), which is one
number a row, so all partners of a row are one range in it, found by binary search:

    key * span + (time - base)        span = times of the segment, last - first + 1

Segments of a side cover ascending, disjoint ranges of time: a search skips most of them, and
forgetting old rows drops whole segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.engine.rows import take

__all__ = ["Ints", "Rows", "Segment", "order_of_pairs", "pairs_of", "ranges_of"]

Ints = npt.NDArray[np.int64]

CODE_MAX = 1 << 62


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one side.

    Attributes:
        batch: their columns.
        keys: their key columns in native types; no nulls.
        times: int64, microseconds.
        positions: int64, ascending: their numbers in the input.
        ids: int64, the number of the key.
    """

    batch: pa.RecordBatch
    keys: pa.RecordBatch
    times: Ints
    positions: Ints
    ids: Ints

    def __len__(self) -> int:
        return len(self.times)

    def pick(self, index: Ints) -> Rows:
        """Some rows, ascending by position."""
        at = pa.array(index)
        return Rows(
            take(self.batch, at),
            take(self.keys, at),
            self.times[index],
            self.positions[index],
            self.ids[index],
        )

    def nbytes(self) -> int:
        return int(self.batch.nbytes) + 24 * len(self)


def concat(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    return Rows(
        pa.concat_batches([part.batch for part in parts]),
        pa.concat_batches([part.keys for part in parts]),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.positions for part in parts]),
        np.concatenate([part.ids for part in parts]),
    )


class Segment:
    """Rows sorted for the search: ``codes`` is ascending, and ``order[i]`` the row of ``codes[i]``."""

    __slots__ = ("base", "codes", "first", "last", "order", "ranks", "rows", "span")

    def __init__(self, rows: Rows) -> None:
        assert len(rows) > 0
        self.rows = rows
        times = rows.times
        self.first = int(times.min())
        self.last = int(times.max())
        self.base = self.first
        self.span = self.last - self.first + 1
        self.ranks: Ints | None = None
        steps = times - self.base
        if (int(rows.ids.max()) + 2) * self.span >= CODE_MAX:
            # Times far apart and many keys: count in distinct times instead of microseconds.
            self.ranks = np.unique(times)
            self.span = len(self.ranks)
            steps = np.searchsorted(self.ranks, times)
        codes = rows.ids * self.span + steps
        # Not stable: pairs are put into their order at the end, and this sort is twice as fast.
        self.order = np.argsort(codes)
        self.codes = codes[self.order]

    def floor(self, ids: Ints, times: Ints) -> Ints:
        """For each (key, time): the first index at or after it."""
        if self.ranks is None:
            steps = np.clip(times - self.base, 0, self.span)
        else:
            steps = np.searchsorted(self.ranks, times)
        return np.searchsorted(self.codes, ids * self.span + steps)


def ranges_of(probe: Segment, build: Segment, within_us: int) -> tuple[Ints, Ints] | None:
    """For each row of ``probe``, in its sorted order: where its partners begin and how many they are.

    Returns:
        (starts, counts), indexes into the sorted order of ``build``; None where there are no pairs.
    """
    if probe.first - within_us > build.last or probe.last + within_us < build.first:
        return None
    ids = probe.rows.ids[probe.order]
    times = probe.rows.times[probe.order]
    starts = build.floor(ids, times - within_us)
    counts = build.floor(ids, times + (within_us + 1)) - starts
    return (starts, counts) if counts.any() else None


def pairs_of(probe: Segment, build: Segment, ranges: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Rows of all pairs: (rows of ``probe``, rows of ``build``), in no order that matters."""
    starts, counts = ranges
    total = int(counts.sum())
    ends = np.cumsum(counts)
    at = np.arange(total) - np.repeat(ends - counts, counts) + np.repeat(starts, counts)
    return np.repeat(probe.order, counts), build.order[at]


def order_of_pairs(releases: Ints, left: Ints, right: Ints) -> Ints:
    """The order of pairs: by (release, left position, right position)."""
    columns = [numbers - numbers.min() for numbers in (releases, left, right)]
    bits = [int(numbers.max()).bit_length() for numbers in columns]
    if sum(bits) > CODE_MAX.bit_length():
        return np.lexsort((right, left, releases))
    # One number a pair: no two are equal, so any sort will do.
    return np.argsort((((columns[0] << bits[1]) | columns[1]) << bits[2]) | columns[2])


class Segments:
    """The rows of one side that may still find partners.

    Small segments are merged with their neighbour when it is not much larger, so that n pushes of
    one row cost n log n, and there are few segments to search.
    """

    MERGED_ROWS_MAX = 1 << 16

    def __init__(self) -> None:
        self._list: list[Segment] = []

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    def add(self, segment: Segment, keep_from_us: int) -> None:
        """Append rows, all later than those held; forget rows before ``keep_from_us`` on the way."""
        self._list.append(segment)
        while len(self._list) >= 2:
            last, before = self._list[-1], self._list[-2]
            rows = len(last.rows) + len(before.rows)
            if len(before.rows) > 2 * len(last.rows) or rows > self.MERGED_ROWS_MAX:
                return
            merged = concat([before.rows, last.rows])
            # Positions ascend by row again after merging ranges of time.
            order = np.argsort(merged.positions, kind="stable")
            order = order[merged.times[order] >= keep_from_us]
            self._list[-2:] = [Segment(merged.pick(order))] if len(order) else []

    def forget(self, before_us: int) -> None:
        """Drop the segments whose rows are all older."""
        self._list = [segment for segment in self._list if segment.last >= before_us]

    def replace(self, segments: list[Segment]) -> None:
        self._list = segments

    def rows(self) -> list[Rows]:
        return [segment.rows for segment in self._list]
