"""DuckDB on the Arrow table (no import: it scans Arrow in place)."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from bench import data
from bench.peers import sql

START = "ts - ts % 1000000"


class Engine:
    version = duckdb.__version__
    supports = frozenset({"W1", "W2", "W3", "W4", "W5"})

    def __init__(self, table: pa.Table, threads: int) -> None:
        self.connection = duckdb.connect(config={"threads": threads})
        self.connection.execute("SET preserve_insertion_order = false")
        self.connection.register("events", table)
        for name, side in zip(("left_events", "right_events"), data.sides(table), strict=True):
            self.connection.register(name, side)
        grouped = sql.GROUPED.format(start=START)
        self.texts = {
            "W1": grouped,
            "W2": sql.SLIDING.format(start=START, backs="range(10) AS backs(back)"),
            "W3": sql.FILTERED,
            "W4": sql.JOINED.format(div="//"),
            "W5": grouped,
        }

    def run(self, workload: str) -> pa.Table:
        return self.connection.sql(self.texts[workload]).to_arrow_table()

    def answer(self, workload: str, result: pa.Table) -> pa.Table:
        return result
