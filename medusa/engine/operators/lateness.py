"""How late rows are: for a source as a whole, or for each of its partitions apart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from medusa._native import Keys, Lateness, PartLateness, Times
from medusa.elements import END_US, START_US
from medusa.engine.core.box import BoxState, expect_table
from medusa.engine.core.native_types import native_arrow, native_type, widen
from medusa.engine.core.rows import only_chunk
from medusa.errors import DataError
from medusa.query.boxes import Source
from medusa.query.types import to_arrow

__all__ = ["Judge", "PartitionJudge", "WholeJudge", "judge_of"]


class Judge(ABC):
    """Judges the lateness of rows of one source, row by row, so that cuts never matter."""

    @abstractmethod
    def check(self, batch: pa.RecordBatch) -> None:
        """DataError for rows that can't be judged; nothing changes."""

    @abstractmethod
    def judge(self, batch: pa.RecordBatch, times: Times, now_us: int | None) -> tuple[int, int, Any]:
        """(late rows, greatest lateness in us, mask or None) of rows that came at ``now_us``."""

    @abstractmethod
    def promise(self, time_us: int) -> None:
        """Take an explicit boundary."""

    @abstractmethod
    def lift(self, time_us: int) -> None:
        """Take a boundary that was decided because nothing came."""

    @property
    @abstractmethod
    def boundary_us(self) -> int:
        """The boundary of the source; START_US: none."""

    @property
    @abstractmethod
    def newest_us(self) -> int | None:
        """The largest time of a row; None: none came."""

    @abstractmethod
    def rest(self, now_us: int, idle_us: int) -> bool:
        """Idle partitions no longer hold back those that aren't; whether the whole source is idle."""

    def resting(self, now_us: int, idle_us: int) -> tuple[int, ...]:
        """The numbers of the partitions that ``rest`` finds idle; without partitions none."""
        return ()

    def let_go(self, parts: Sequence[int]) -> None:
        """What ``rest`` does with partitions that it finds idle.

        Raises:
            ValueError: there is no such partition.
        """
        raise ValueError("a source without partitions")

    def holder(self) -> str:
        """The partition that holds the boundary, for people; empty without partitions."""
        return ""

    def state_bytes(self) -> int:
        return 0

    @abstractmethod
    def save(self, state: BoxState) -> None: ...

    @abstractmethod
    def load(self, state: BoxState, promised_us: int) -> None: ...


def judge_of(spec: Source) -> Judge:
    """The judge that a source with time asks for."""
    return WholeJudge(spec) if spec.partition is None else PartitionJudge(spec)


def known(time_us: int) -> int | None:
    return time_us if time_us > START_US else None


class WholeJudge(Judge):
    """All rows of a source are one sequence."""

    def __init__(self, spec: Source) -> None:
        self._slack_us = spec.slack_us or 0
        self._lateness = Lateness(self._slack_us)
        self._lifted_us = int(START_US)
        self._active_us: int | None = None

    def check(self, batch: pa.RecordBatch) -> None:
        pass

    def judge(self, batch: pa.RecordBatch, times: Times, now_us: int | None) -> tuple[int, int, Any]:
        self._active_us = now_us
        return self._lateness.judge(times)

    def promise(self, time_us: int) -> None:
        before = self._lateness.promised_us
        if before is None or time_us > before:  # it may have been lifted beyond
            self._lateness.promise(time_us)

    def lift(self, time_us: int) -> None:
        self._lifted_us = max(self._lifted_us, time_us)
        self.promise(self._lifted_us)

    @property
    def boundary_us(self) -> int:
        return self._lateness.boundary_us

    @property
    def newest_us(self) -> int | None:
        return self._lateness.max_us

    def rest(self, now_us: int, idle_us: int) -> bool:
        if self._active_us is None:
            self._active_us = now_us
        return now_us - self._active_us >= idle_us

    def save(self, state: BoxState) -> None:
        state.meta["max_us"] = self._lateness.max_us
        state.meta["lifted_us"] = self._lifted_us

    def load(self, state: BoxState, promised_us: int) -> None:
        largest, lifted = state.meta["max_us"], state.meta["lifted_us"]
        if type(lifted) is not int or not START_US <= lifted < END_US:
            raise ValueError(f"lifted_us is {lifted!r}")
        self._lifted_us = lifted
        self._lateness = Lateness(self._slack_us, max_us=largest, boundary_us=known(max(promised_us, lifted)))


class PartitionJudge(Judge):
    """Rows of each value of a column are a sequence; the boundary is the least of theirs.

    A partition that is seen for the first time starts at the boundary of that moment. Listed ones
    stand from the beginning, so each holds the boundary until it has been seen.
    """

    def __init__(self, spec: Source) -> None:
        self._source = spec.id
        self._name = spec.partition or ""
        names = [field.name for field in spec.schema]
        self._column = names.index(self._name)
        self._type = spec.schema[self._column].type
        self._slack_us = spec.slack_us or 0
        self._schema = pa.schema([(self._name, native_arrow(self._type))])
        self._listed = spec.partitions
        self._active_us = np.zeros(0, np.int64)
        self._newest_us: int | None = None
        self._start()

    def _start(self) -> None:
        self._keys = Keys([native_type(self._type)])
        self._lateness = PartLateness(self._slack_us)
        if self._listed is not None:
            self._ids(pa.array(list(self._listed), to_arrow(self._type)))
            for _ in self._listed:
                self._lateness.append(None, None)

    def _ids(self, column: pa.Array, *, insert: bool = True) -> pa.Array:
        """The number of the partition of each row; -1 for a new one unless inserting."""
        rows = pa.RecordBatch.from_arrays([widen(column, self._type)], schema=self._schema)
        return pa.array(self._keys.map(rows, insert=insert))

    def check(self, batch: pa.RecordBatch) -> None:
        if self._listed is None:
            return
        column = batch.column(self._column)
        ids = self._ids(column, insert=False).to_numpy()
        if len(ids) and ids.min() < 0:
            row = int(np.flatnonzero(ids < 0)[0])
            raise DataError(
                f"source {self._source!r}: row {row} is of partition {column[row].as_py()!r:.80}, which"
                " partitions= doesn't list",
                hint="list it, or leave partitions= out: then those that were seen hold the boundary",
                code="data.partition",
            )

    def judge(self, batch: pa.RecordBatch, times: Times, now_us: int | None) -> tuple[int, int, Any]:
        ids = self._ids(batch.column(self._column))
        found = self._lateness.judge(times.array, ids)
        if (extent := times.extent) is not None:
            newest_us = self._newest_us
            self._newest_us = extent[1] if newest_us is None else max(newest_us, extent[1])
        if now_us is not None:
            self._follow(now_us)
            self._active_us[ids.to_numpy()] = now_us
        return found

    def _follow(self, now_us: int) -> None:
        """A moment of the last row for every partition; for new ones: now."""
        fresh = len(self._lateness) - len(self._active_us)
        if fresh:
            self._active_us = np.concatenate([self._active_us, np.full(fresh, now_us, np.int64)])

    def promise(self, time_us: int) -> None:
        self._lateness.promise(time_us)

    def lift(self, time_us: int) -> None:
        for part in range(len(self._lateness)):
            self._lateness.lift(part, time_us)

    @property
    def boundary_us(self) -> int:
        return self._lateness.boundary_us

    @property
    def newest_us(self) -> int | None:
        return self._newest_us

    def rest(self, now_us: int, idle_us: int) -> bool:
        self._follow(now_us)
        if not len(self._active_us) or now_us < int(self._active_us.min()) + idle_us:
            return False
        return self._lateness.rest(pa.array(self._active_us), now_us - idle_us)

    def resting(self, now_us: int, idle_us: int) -> tuple[int, ...]:
        self._follow(now_us)
        return tuple(np.flatnonzero(self._active_us <= now_us - idle_us).tolist())

    def let_go(self, parts: Sequence[int]) -> None:
        since = np.ones(len(self._lateness), np.int64)
        if any(part >= len(since) for part in parts):
            raise ValueError("no such partition")
        since[list(parts)] = 0
        self._lateness.rest(pa.array(since), 0)

    def holder(self) -> str:
        part = self._lateness.holder
        if part is None:
            return ""
        value = pa.record_batch(self._keys.keys()).column(0)[part].as_py()
        seen = self._lateness.part(part)[0] is not None
        return f"partition {value!r:.80}" + ("" if seen else ", not seen yet")

    def state_bytes(self) -> int:
        return self._lateness.nbytes()

    def save(self, state: BoxState) -> None:
        parts = [self._lateness.part(part) for part in range(len(self._lateness))]
        columns = [
            pa.record_batch(self._keys.keys()).column(0),
            pa.array([largest for largest, _ in parts], pa.int64()),
            pa.array([floor for _, floor in parts], pa.int64()),
        ]
        state.tables["partitions"] = pa.Table.from_arrays(columns, schema=self._state_schema())

    def _state_schema(self) -> pa.Schema:
        return pa.schema([*self._schema, ("@max_us", pa.int64()), ("@floor_us", pa.int64())])

    def load(self, state: BoxState, promised_us: int) -> None:
        table = expect_table(state.tables, "partitions", self._state_schema()).combine_chunks()
        listed = len(self._lateness)
        fresh = PartLateness(self._slack_us, boundary_us=known(promised_us))
        column = table.column(0)
        values = only_chunk(column)
        rows = pa.RecordBatch.from_arrays([values], schema=self._schema)
        ids = pa.array(self._keys.map(rows)).to_numpy()
        if not np.array_equal(ids, np.arange(len(ids))) or len(ids) < listed:
            raise ValueError("a partition stands twice, or one that is listed is missing")
        largest_us = table.column(1).to_pylist()
        for largest, floor in zip(largest_us, table.column(2).to_pylist(), strict=True):
            for number in (largest, floor):
                if number is not None and not START_US <= number <= END_US:
                    raise ValueError(f"the time {number} is out of range")
            fresh.append(largest, floor)
        self._newest_us = max((each for each in largest_us if each is not None), default=None)
        self._lateness = fresh
