"""Flink's SQL in one JVM, over files of CSV (parsing is in its figure); rows come back through Python.

Its timestamps count milliseconds; times in us given as such, 1 s written as 1,000 s, lose nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
from pyflink.table import EnvironmentSettings, TableEnvironment

from bench import data
from bench.workloads import WORKLOADS

SOURCE = """CREATE TABLE {name} (ts BIGINT, k BIGINT, v DOUBLE,
    t AS TO_TIMESTAMP_LTZ(ts - {base}, 3), WATERMARK FOR t AS t - INTERVAL '101' SECOND(3))
    WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv')"""
EPOCH = "TIMESTAMP '1970-01-01 00:00:00'"
START = f"{data.START_US} + 1000 * TIMESTAMPDIFF(SECOND, {EPOCH}, CAST(window_start AS TIMESTAMP(3)))"
SECOND = "INTERVAL '16:40' MINUTE TO SECOND"
GROUPED = f"""SELECT {START}, k, count(*), sum(v), min(v), max(v), avg(v)
    FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(t), {SECOND})) GROUP BY window_start, window_end, k"""
TEXTS = {
    "W1": GROUPED,
    "W2": f"""SELECT {START}, k, count(*), avg(v) FROM TABLE(HOP(TABLE events, DESCRIPTOR(t), {SECOND},
        INTERVAL '02:46:40' HOUR TO SECOND)) GROUP BY window_start, window_end, k""",
    "W3": """SELECT count(*), sum(v * 2.0 + 1.0), sum(v * k) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(t),
        INTERVAL '30' DAY)) WHERE v > 0.5 GROUP BY window_start, window_end""",
    "W4": f"""SELECT l.k, l.ts, l.v, r.ts, r.v FROM left_events l JOIN right_events r ON l.k = r.k
        AND l.t BETWEEN r.t - {SECOND} AND r.t + {SECOND}""",
    "W5": GROUPED,
}


class Engine:
    version = version("apache-flink")
    supports = frozenset(TEXTS)

    def __init__(self, table: pa.Table, threads: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="medusa-bench-"))
        self.env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        for name, value in (("table.local-time-zone", "UTC"), ("parallelism.default", str(threads))):
            self.env.get_config().set(name, value)
        streams = {
            "events": table,
            **dict(zip(("left_events", "right_events"), data.sides(table), strict=True)),
        }
        for name, rows in streams.items():
            path = self.folder / f"{name}.csv"
            pyarrow.csv.write_csv(rows, path, pyarrow.csv.WriteOptions(include_header=False))
            self.env.execute_sql(SOURCE.format(name=name, path=path, base=data.START_US))

    def run(self, workload: str) -> Any:
        return self.env.sql_query(
            TEXTS[workload]
        ).to_pandas()  # in batches: collect() takes milliseconds a row

    def answer(self, workload: str, result: Any) -> pa.Table:
        return pa.Table.from_pandas(result, preserve_index=False).rename_columns(WORKLOADS[workload].columns)

    def __del__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
