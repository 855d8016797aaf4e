"""A union whose order shows at several places: what one reader saw must be what all others did."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa

from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, sum
from medusa.sim.trials.queries import QueryTrial
from medusa.sim.world.virtual_time import SimulationError

__all__ = ["PLACES", "OrderTrial", "numbered", "rows_of"]

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}
BEHIND = ["counted", "numbered", "per_k", "out"]

PLACES: list[dict[str, list[str]]] = [
    {"a": ["left", "right", "both", "rows", *BEHIND]},
    {"a": ["left", "right", "both", "rows"], "b": BEHIND},
    {"x": ["left"], "y": ["right"], "a": ["both", "rows", *BEHIND]},
    {"x": ["left"], "a": ["right", "both", "rows"], "b": BEHIND},
]
"""Where the boxes stand: the union with its sources and what shows its order, or each elsewhere."""


def numbered(slack: str) -> Query:
    """Each row with its number among those of its key, as they come out of a union; and windows."""
    q = Query("u")
    left = q.source("left", SCHEMA, time="ts", slack=slack)
    right = q.source("right", SCHEMA, time="ts", slack=slack)
    both = left.union(right, name="both")
    q.sink("rows", both)
    q.sink("numbered", both.group_by("k").running(n=count(), name="counted"))
    q.sink("out", both.window("1s").group_by("k").aggregate(n=count(), s=sum("v"), name="per_k"))
    return q


def rows_of(dice: Random, source: str, rows: int) -> pa.Table:
    """Rows in the order of their times; each has a ``v`` of its own."""
    times = sorted(dice.randrange(20_000_000) for _ in range(rows))
    first = 0 if source == "left" else rows
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": pa.array([dice.choice("abcdef") for _ in times]),
            "v": pa.array(range(first, first + rows), pa.int64()),
        }
    )


class OrderTrial(QueryTrial):
    """A trial of ``numbered``: the numbers are places in the one order that its reader of rows saw."""

    def check_end(self) -> None:
        whole = self.want
        self.want = {sink: table for sink, table in whole.items() if sink != "numbered"}
        try:
            super().check_end()
        finally:
            self.want = whole
        if self.said:
            self._check_once(whole["rows"])
            return
        seen: Counter[str] = Counter()
        places: dict[int, int] = {}
        for k, v in zip(self._column("rows", "k"), self._column("rows", "v"), strict=True):
            seen[k] += 1
            places[v] = seen[k]
        told = list(zip(self._column("numbered", "v"), self._column("numbered", "n"), strict=True))
        if len(told) != len(places):
            raise SimulationError(f"order: {len(told)} rows have numbers, {len(places)} came")
        for v, n in told:
            if places[v] != n:
                raise SimulationError(
                    f"order: row {v} was number {places[v]} for one reader, {n} for another"
                )

    def _check_once(self, want: pa.Table) -> None:
        """What a disk has lost may be missing. Other rows come, or rows twice, only where a node has lost in
        which order it took them; then each that may have says so."""
        silent = [n.name for n in self.nodes.values() if n.disk.damaged and not (n.told or n.unable)]
        more = Counter(self._column("rows", "v")) - Counter(want.column("v").to_pylist())
        if more and silent:
            raise SimulationError(
                f"order: {len(more)} rows came that shouldn't, or twice, as {min(more)}; {silent} say nothing"
            )

    def _column(self, sink: str, name: str) -> list[Any]:
        stream = f"{self.q.graph.name}.{sink}"
        batches = [batch for client in self.clients.values() for batch in client.rows.get(stream, [])]
        return [value for batch in batches for value in batch.column(name).to_pylist()]
