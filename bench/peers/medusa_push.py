"""Medusa live: batches of 65,536 rows pushed into a run, results taken after each."""

from __future__ import annotations

import pyarrow as pa

import medusa as md
from bench.peers import medusa_


class Engine(medusa_.Engine):
    def __init__(self, table: pa.Table, threads: int) -> None:
        super().__init__(table, threads)
        self.batches = [("events", batch) for batch in table.to_batches(max_chunksize=65_536)]
        sides = [side.to_batches(max_chunksize=65_536) for side in self.inputs["W4"].values()]
        self.pairs = [
            each for both in zip(*sides, strict=True) for each in zip(("left", "right"), both, strict=True)
        ]

    def run(self, workload: str) -> pa.Table:
        taken = []
        with md.start(medusa_.query(workload, self.table.schema), threads=self.threads) as run:
            for source, batch in self.pairs if workload == "W4" else self.batches:
                run.push(source, batch)
                taken.append(run.take("out"))
            run.finish()
            taken.append(run.take("out"))
        return pa.concat_tables(taken)
