"""Streaming DataFrames of rows, in micro-batches of given sizes, and what a streaming query writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["Feed", "Written", "ended"]

FOREVER = 253_402_214_400_000_000
BOUNDARY = pa.timestamp("us", tz="UTC")


class Feed:
    """A folder of Parquet files, each of which is a micro-batch of a stream."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._files = 0
        folder.mkdir(parents=True)

    def put(self, *tables: pa.Table) -> None:
        """One micro-batch more for each table."""
        for table in tables:
            path = self._folder / f"{self._files:04}.parquet"
            pq.write_table(table, path)
            os.utime(path, (self._files, self._files))  # files are read in order of time
            self._files += 1

    def frame(self) -> Any:
        plain = self._spark.read.parquet(str(self._folder))
        reader = self._spark.readStream.schema(plain.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self._folder))


def ended(table: pa.Table, cuts: Sequence[int], **more: pa.Array) -> list[pa.Table]:
    """The rows with positions, cut into pieces each of which is out of order, and the end of the stream."""
    count = table.num_rows
    table = table.append_column("_seq", pa.array(range(5, 5 + count)))
    for name, values in ({"_boundary": pa.nulls(count, BOUNDARY)} | more).items():
        table = table.append_column(name, values)
    places = [0, *cuts, count]
    pieces = [table.slice(a, b - a) for a, b in pairwise(places)]
    last: dict[str, Any] = {name: [None] for name in table.column_names}
    last |= {"_seq": [5 + count], "_boundary": pa.array([FOREVER], BOUNDARY)}
    pieces.append(pa.table(last, table.schema))
    return [piece.take(pa.array(range(piece.num_rows))[::-1]) for piece in pieces]


class Written:
    """What streaming queries with one checkpoint write, by micro-batch: of several tries the last."""

    def __init__(self, spark: Any, checkpoint: Path) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self.batches: dict[int, pa.Table] = {}
        self.progress: list[Any] = []

    def run(self, answers: Any, *, fails: int | None = None) -> None:
        """Take all that is there; fail behind the micro-batch of that number, which then isn't written."""

        def each(frame: Any, number: int) -> None:
            came = frame.toArrow()
            if number == fails:
                raise RuntimeError("the sink failed")
            self.batches[number] = came

        writer = answers.together.writeStream.foreachBatch(each)
        query = writer.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            self.progress += query.recentProgress
            query.stop()

    def parts(self, answers: Any) -> dict[str, pa.Table]:
        tables = [self.batches[number] for number in sorted(self.batches)]
        # In one piece: of tables with empty pieces Spark takes a part.
        packed = self._spark.createDataFrame(pa.concat_tables(tables).combine_chunks())
        return {sink: rows.toArrow() for sink, rows in answers.parts(packed).items()}
