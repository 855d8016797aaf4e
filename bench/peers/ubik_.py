"""ubik-sql over a file of JSON lines; parsing is in its figure, as it takes nothing else from a host."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import ubik

from bench import data

TUMBLING = """SELECT key, TUMBLE(ts, INTERVAL 1 SECOND) AS w, count(*) AS n, sum(value) AS s,
    min(value) AS lo, max(value) AS hi, avg(value) AS mean
    FROM events GROUP BY key, TUMBLE(ts, INTERVAL 1 SECOND)"""
SLIDING = """SELECT key, HOP(ts, INTERVAL 1 SECOND, INTERVAL 10 SECOND) AS w, count(*) AS n,
    avg(value) AS mean FROM events GROUP BY key, HOP(ts, INTERVAL 1 SECOND, INTERVAL 10 SECOND)"""

JOINED = """SELECT a.key, a.us AS ts, a.value, b.us AS ts_right, b.value AS value_right
    FROM left_events a JOIN right_events b
    ON a.key = b.key AND b.ts BETWEEN a.ts - INTERVAL 1 SECOND AND a.ts + INTERVAL 1 SECOND"""


class Engine:
    version = ubik.__version__
    supports = frozenset({"W1", "W2", "W4", "W5"})

    def __init__(self, table: pa.Table, threads: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="medusa-bench-"))
        streams = dict(zip(("left_events", "right_events"), data.sides(table), strict=True))
        stamp = pl.from_epoch("ts", time_unit="us").dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
        for name, rows in {"events": table, **streams}.items():
            frame = pl.from_arrow(rows)
            assert isinstance(frame, pl.DataFrame)
            frame.with_columns(ts=stamp, us=pl.col("ts")).write_ndjson(self.folder / f"{name}.ndjson")
        self.threads = threads

    def run(self, workload: str) -> pa.Table:
        text = {"W2": SLIDING, "W4": JOINED}.get(workload, TUMBLING)
        first = "left_events" if workload == "W4" else "events"
        options: dict[str, Any] = {"workers": self.threads, "watermark_delay": "200 milliseconds"}
        if workload == "W4":
            options["streams"] = {"right_events": f"file://{self.folder}/right_events.ndjson"}
        with ubik.stream(text, from_=f"file://{self.folder}/{first}.ndjson", **options) as result:
            return result.arrow()

    def answer(self, workload: str, result: pa.Table) -> pa.Table:
        if workload == "W4":
            return result
        start = result["w"].cast(pa.timestamp("us")).cast(pa.int64())
        return result.append_column("start", start)

    def __del__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
