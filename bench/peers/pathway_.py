"""pathway: rows from its Python connector, one dict each, as it takes nothing else from a host's memory."""

from __future__ import annotations

import logging
from typing import Any

import pathway as pw
import pyarrow as pa

from bench import data
from bench.workloads import SECOND

logging.disable(logging.WARNING)


class Row(pw.Schema):
    ts: int
    key: int
    value: float


class Replay(pw.io.python.ConnectorSubject):
    def __init__(self, table: pa.Table) -> None:
        super().__init__()
        self.table = table

    def run(self) -> None:
        for batch in self.table.to_batches(max_chunksize=8_192):
            for row in batch.to_pylist():
                self.next(**row)
            self.commit()


class Engine:
    version = pw.__version__
    supports = frozenset({"W1", "W2", "W3", "W4", "W5"})

    def __init__(self, table: pa.Table, threads: int) -> None:
        self.table = table

    def run(self, workload: str) -> list[dict[str, Any]]:
        pw.internals.parse_graph.G.clear()
        rows: list[dict[str, Any]] = []

        def keep(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
            if is_addition:
                rows.append(row)

        pw.io.subscribe(self.graph(workload), on_change=keep)
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        return rows[-1:] if workload == "W3" else rows  # a total is corrected with each batch

    def graph(self, workload: str) -> Any:
        if workload == "W4":
            left, right = (self.source(side) for side in data.sides(self.table))
            near = pw.temporal.interval(-SECOND, SECOND)
            pairs = left.interval_join(right, left.ts, right.ts, near, left.key == right.key)
            return pairs.select(
                key=left.key, ts=left.ts, value=left.value, ts_right=right.ts, value_right=right.value
            )
        events, this, reducers = self.source(self.table), pw.this, pw.reducers
        if workload == "W3":
            kept = events.filter(this.value > 0.5).select(x=this.value * 2.0 + 1.0, y=this.value * this.key)
            return kept.reduce(n=reducers.count(), x=reducers.sum(this.x), y=reducers.sum(this.y))
        window = pw.temporal.tumbling(duration=SECOND)
        if workload == "W2":
            window = pw.temporal.sliding(hop=SECOND, duration=10 * SECOND)
        once = pw.temporal.exactly_once_behavior(shift=100_001)
        grouped = events.windowby(events.ts, window=window, instance=events.key, behavior=once)
        columns: dict[str, Any] = {
            "start": this._pw_window_start,
            "key": this._pw_instance,
            "n": reducers.count(),
            "mean": reducers.avg(this.value),
        }
        if workload != "W2":
            columns["s"] = reducers.sum(this.value)
            columns |= {"lo": reducers.min(this.value), "hi": reducers.max(this.value)}
        return grouped.reduce(**columns)

    def source(self, table: pa.Table) -> Any:
        return pw.io.python.read(Replay(table), schema=Row, autocommit_duration_ms=None)

    def answer(self, workload: str, result: list[dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist(result)
