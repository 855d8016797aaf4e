"""polars, lazy plans. POLARS_MAX_THREADS is set by the worker before this is imported."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from bench import data
from bench.workloads import PANES, SECOND


class Engine:
    version = pl.__version__
    supports = frozenset({"W1", "W2", "W3", "W4", "W5"})
    engine = "in-memory"

    def __init__(self, table: pa.Table, threads: int) -> None:
        if pl.thread_pool_size() != threads:
            raise RuntimeError(f"polars has {pl.thread_pool_size()} threads instead of {threads}")
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        self.events = frame.lazy()
        self.sides = [pl.from_arrow(side).lazy() for side in data.sides(table)]  # type: ignore[union-attr]

    def run(self, workload: str) -> pl.DataFrame:
        return self.plan(workload).collect(engine=self.engine)

    def plan(self, workload: str) -> pl.LazyFrame:
        value = pl.col("value")
        if workload == "W3":
            kept = self.events.filter(value > 0.5).select(x=value * 2.0 + 1.0, y=value * pl.col("key"))
            return kept.select(pl.len().alias("n"), pl.col("x").sum(), pl.col("y").sum())
        if workload == "W4":
            left, right = self.sides
            # As sql.JOINED: a left row looks in the two buckets of 2 s that it can have partners in.
            first = (pl.col("ts") - SECOND) // (2 * SECOND)
            looking = pl.concat([left.with_columns(bucket=first), left.with_columns(bucket=first + 1)])
            found = looking.join(
                right.with_columns(bucket=pl.col("ts") // (2 * SECOND)), on=["key", "bucket"]
            )
            return found.filter((pl.col("ts") - pl.col("ts_right")).abs() <= SECOND).drop("bucket")
        start = (pl.col("ts") // SECOND * SECOND).alias("start")
        grouped = self.events.group_by(start, "key")
        if workload == "W2":
            panes = grouped.agg(n=pl.len().cast(pl.Int64), s=value.sum())
            back = pl.lit([number * SECOND for number in range(PANES)], dtype=pl.List(pl.Int64))
            spread = (
                panes.with_columns(back=back)
                .explode("back")
                .with_columns(start=pl.col("start") - pl.col("back"))
            )
            windows = spread.group_by("start", "key").agg(pl.col("n").sum(), pl.col("s").sum())
            return windows.select("start", "key", "n", mean=pl.col("s") / pl.col("n"))
        return grouped.agg(n=pl.len(), s=value.sum(), lo=value.min(), hi=value.max(), mean=value.mean())

    def answer(self, workload: str, result: pl.DataFrame) -> pa.Table:
        return result.to_arrow()
