"""What the owners of the market run: busy sources of a real trace, in windows that begin very often.

    flows ── part-0 ── talkers-0 ── last-0 ── out-0
          └─ part-1 ── talkers-1 ── last-1 ── out-1    and so on

Flows come to the owner's home node, which has the results too; only ``talkers`` run where load is traded.
Each is a task of its own. It reads one of the ``PARTS`` of the trace, so all take the same where the trace
goes by at the same pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, count_distinct, median, sum

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PARTS", "WINDOW_US", "RepeatedTrace", "fragment", "placed", "query", "unmoved"]

PARTS = 6
"""A task has one row of the trace in so many."""

WINDOW_US, ADVANCE_US = 20_000_000, 20_000
COLUMNS = {"ts_us": "int64", "n": "int64", "src": "utf8", "dport": "int32", "bytes": "int64"}


def query(owner: str, tasks: int) -> Query:
    """The query of an owner; it is called like him.

    Args:
        tasks: how many parts of the trace it reads, at most ``PARTS``.
    """
    q = Query(owner)
    flows = q.source("flows", COLUMNS, time="ts_us", unit="us")
    for number in range(tasks):
        part = flows.filter(f"n % {PARTS} = {number}", name=f"part-{number}")
        talkers = part.window(WINDOW_US, ADVANCE_US).group_by("src")
        counted = talkers.aggregate(
            flows=count(),
            ports=count_distinct("dport"),
            volume=sum("bytes"),
            middle=median("bytes"),
            name=f"talkers-{number}",
        ).filter("flows > 40", name=f"busy-{number}")
        q.sink(f"out-{number}", counted.filter("volume > 0", name=f"last-{number}"))
    return q


def fragment(owner: str, number: int) -> str:
    """The name of a task's fragment."""
    return f"{owner}/talkers-{number}"


def placed(home: str, trades: str, tasks: int) -> dict[str, Sequence[str]]:
    """Tasks at the node that trades, all else at home."""
    ends = [f"{name}-{number}" for number in range(tasks) for name in ("part", "last", "out")]
    return {home: ["flows", *ends], trades: [f"talkers-{number}" for number in range(tasks)]}


class RepeatedTrace:
    """The shipped trace, and from its beginning again once it is over; times and numbers go on.

    Args:
        tasks: rows of so many parts alone are given.
    """

    def __init__(self, tasks: int) -> None:
        import numpy as np
        import pyarrow as pa

        from medusa.apps.workloads.netmon import load_trace

        trace = load_trace()
        times = trace["ts_us"].to_numpy()
        self._rows = trace.num_rows // PARTS * PARTS
        numbers = np.arange(self._rows)
        keep = numbers % PARTS < tasks
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


def unmoved(owner: str, tasks: int, rows: pa.Table) -> dict[str, pa.Table]:
    """What the query gives in one program, by sink."""
    from medusa.runtime.embedded.embedded_run import collect

    q = query(owner, tasks)
    return dict(collect(q, flows=rows))
