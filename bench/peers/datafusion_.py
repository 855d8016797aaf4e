"""DataFusion on the Arrow table, its batches cut to 65,536 rows."""

from __future__ import annotations

import datafusion
import pyarrow as pa

from bench import data
from bench.peers import sql

START = "ts - ts % 1000000"


class Engine:
    version = datafusion.__version__
    supports = frozenset({"W1", "W2", "W3", "W4", "W5"})

    def __init__(self, table: pa.Table, threads: int) -> None:
        config = datafusion.SessionConfig().with_target_partitions(threads)
        self.context = datafusion.SessionContext(config)
        for name, rows in zip(
            ("events", "left_events", "right_events"), (table, *data.sides(table)), strict=True
        ):
            batches = rows.to_batches(max_chunksize=65_536)
            share = -(-len(batches) // threads)
            parts = [batches[first : first + share] for first in range(0, len(batches), share)]
            self.context.register_record_batches(name, parts)
        grouped = sql.GROUPED.format(start=START)
        self.texts = {
            "W1": grouped,
            "W2": sql.SLIDING.format(start=START, backs="(SELECT unnest(range(0, 10)) AS back)"),
            "W3": sql.FILTERED,
            "W4": sql.JOINED.format(div="/"),
            "W5": grouped,
        }

    def run(self, workload: str) -> list[pa.RecordBatch]:
        return self.context.sql(self.texts[workload]).collect()

    def answer(self, workload: str, result: list[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(result)
