"""What the owners of the market run: busy sources of a real trace, in windows that begin very often.

    flows ── part-0 ── talkers-0 ── last-0 ── out-0
          └─ part-1 ── talkers-1 ── last-1 ── out-1    and so on

Flows come to the owner's home node, which has the results too; only ``talkers`` run where load is traded.
Each is a task of its own. It reads one of the ``PARTS`` of the trace, so all take the same where the trace
goes by at the same pace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, count_distinct, median, sum
from medusa.query.stream.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PARTS", "TALKERS", "RepeatedTrace", "TaskQuery"]

PARTS = 6
"""A task has one row of the trace in so many."""

WINDOW_US, ADVANCE_US = 20_000_000, 20_000
COLUMNS = {"ts_us": "int64", "n": "int64", "src": "utf8", "dport": "int32", "bytes": "int64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuery:
    """The query of an owner, who has so many tasks of one kind.

    Attributes:
        kind: what its tasks are called.
        parts: a task has one row of the trace in so many.
        task: what a task makes of its part, in one fragment. Its first box is called ``kind-number``.
        due_us: the time of a row behind which the newest row of these results has left.
    """

    kind: str
    parts: int
    task: Callable[[Stream, int], Stream]
    due_us: Callable[[pa.RecordBatch], int]

    def query(self, owner: str, tasks: int) -> Query:
        """The query of an owner; it is called like him.

        Args:
            tasks: how many parts of the trace it reads, at most ``parts``.
        """
        q = Query(owner)
        flows = q.source("flows", COLUMNS, time="ts_us", unit="us")
        for number in range(tasks):
            part = flows.filter(f"n % {self.parts} = {number}", name=f"part-{number}")
            made = self.task(part, number)
            q.sink(f"out-{number}", made.filter("true", name=f"last-{number}"))
        return q

    def fragment(self, owner: str, number: int) -> str:
        """The name of a task's fragment."""
        return f"{owner}/{self.kind}-{number}"

    def placed(self, home: str, trades: str, tasks: int) -> dict[str, Sequence[str]]:
        """Tasks at the node that trades, all else at home."""
        ends = [f"{name}-{number}" for number in range(tasks) for name in ("part", "last", "out")]
        return {home: ["flows", *ends], trades: [f"{self.kind}-{number}" for number in range(tasks)]}

    def unmoved(self, owner: str, tasks: int, rows: pa.Table) -> dict[str, pa.Table]:
        """What the query gives in one program, by sink."""
        from medusa.runtime.embedded.embedded_run import collect

        return dict(collect(self.query(owner, tasks), flows=rows))


def _talkers(part: Stream, number: int) -> Stream:
    windows = part.window(WINDOW_US, ADVANCE_US).group_by("src")
    counted = windows.aggregate(
        flows=count(),
        ports=count_distinct("dport"),
        volume=sum("bytes"),
        middle=median("bytes"),
        name=f"talkers-{number}",
    )
    return counted.filter("flows > 40", name=f"busy-{number}")


def _closed_us(batch: pa.RecordBatch) -> int:
    return int(batch.column("window_start")[-1].value) + WINDOW_US


TALKERS = TaskQuery(kind="talkers", parts=PARTS, task=_talkers, due_us=_closed_us)


class RepeatedTrace:
    """The shipped trace, and from its beginning again once it is over; times and numbers go on.

    Args:
        tasks: rows of so many parts alone are given, of ``parts``.
    """

    def __init__(self, tasks: int, parts: int = PARTS) -> None:
        import numpy as np
        import pyarrow as pa

        from medusa.apps.workloads.netmon import load_trace

        trace = load_trace()
        times = trace["ts_us"].to_numpy()
        self._rows = trace.num_rows // parts * parts
        numbers = np.arange(self._rows)
        keep = numbers % parts < tasks
        self._numbers, self._times = numbers[keep], (times[: self._rows] - times[0])[keep]
        self._round_us = int(times[self._rows - 1] - times[0]) + 1
        self._columns = trace.slice(0, self._rows).select(["src", "dport", "bytes"]).filter(pa.array(keep))

    def until(self, begin_us: int, end_us: int) -> pa.Table:
        """The rows from one moment to before another, both since the beginning of the first round."""
        import pyarrow as pa

        pieces = [
            self._piece(number, begin_us, end_us)
            for number in range(begin_us // self._round_us, -(-end_us // self._round_us))
        ]
        return pa.concat_tables(pieces)

    def _piece(self, number: int, begin_us: int, end_us: int) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        shift_us = number * self._round_us
        first, last = np.searchsorted(self._times, [begin_us - shift_us, end_us - shift_us])
        columns = self._columns.slice(first, last - first)
        return pa.table(
            {
                "ts_us": self._times[first:last] + shift_us,
                "n": self._numbers[first:last] + number * self._rows,
                **{name: columns[name] for name in columns.column_names},
            }
        )
