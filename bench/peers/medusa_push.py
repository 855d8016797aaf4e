"""Medusa live: batches of 65,536 rows pushed into a run, results taken after each."""

from __future__ import annotations

import pyarrow as pa

import medusa as md
from bench.peers import medusa_


class Engine(medusa_.Engine):
    def __init__(self, table: pa.Table, threads: int) -> None:
        super().__init__(table, threads)
        self.batches = table.to_batches(max_chunksize=65_536)

    def run(self, workload: str) -> pa.Table:
        taken = []
        with md.start(medusa_.query(workload, self.table.schema)) as run:
            for batch in self.batches:
                run.push("events", batch)
                taken.append(run.take("out"))
            run.finish()
            taken.append(run.take("out"))
        return pa.concat_tables(taken)
