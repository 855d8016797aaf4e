"""ubik-sql over a file of JSON lines; parsing is in its figure, as it takes nothing else from a host."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import polars as pl
import pyarrow as pa
import ubik

TUMBLING = """SELECT key, TUMBLE(ts, INTERVAL 1 SECOND) AS w, count(*) AS n, sum(value) AS s,
    min(value) AS lo, max(value) AS hi, avg(value) AS mean
    FROM events GROUP BY key, TUMBLE(ts, INTERVAL 1 SECOND)"""
SLIDING = """SELECT key, HOP(ts, INTERVAL 1 SECOND, INTERVAL 10 SECOND) AS w, count(*) AS n,
    avg(value) AS mean FROM events GROUP BY key, HOP(ts, INTERVAL 1 SECOND, INTERVAL 10 SECOND)"""


class Engine:
    version = ubik.__version__
    supports = frozenset({"W1", "W2", "W5"})

    def __init__(self, table: pa.Table, threads: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="medusa-bench-"))
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        stamp = pl.from_epoch("ts", time_unit="us").dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
        frame.with_columns(ts=stamp).write_ndjson(self.folder / "events.ndjson")
        self.threads = threads

    def run(self, workload: str) -> pa.Table:
        text = SLIDING if workload == "W2" else TUMBLING
        uri = f"file://{self.folder}/events.ndjson"
        with ubik.stream(text, from_=uri, workers=self.threads, watermark_delay="200 milliseconds") as result:
            return result.arrow()

    def answer(self, workload: str, result: pa.Table) -> pa.Table:
        start = result["w"].cast(pa.timestamp("us")).cast(pa.int64())
        return result.append_column("start", start)

    def __del__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
