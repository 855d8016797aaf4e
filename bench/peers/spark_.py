"""Spark's structured streaming in one JVM, over ten Parquet files taken one a trigger, into its memory sink.

A last row far ahead closes the windows, as its append mode gives closed ones only; an inner join needs none.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench import data

FILES = 10
FAR_US = data.START_US + 10_000_000_000
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "OFF",
}


class Engine:
    version = pyspark.__version__
    supports = frozenset({"W1", "W2", "W3", "W4", "W5"})

    def __init__(self, table: pa.Table, threads: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="medusa-bench-"))
        builder = SparkSession.builder.master(f"local[{threads}]")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        far = pa.table({"ts": [FAR_US], "key": [0], "value": [0.0]})
        self.write("events", table, far)
        for name, side in zip(("left", "right"), data.sides(table), strict=True):
            self.write(name, side)

    def write(self, name: str, rows: pa.Table, *more: pa.Table) -> None:
        folder = self.folder / name
        folder.mkdir()
        share = -(-len(rows) // FILES)
        parts = [rows.slice(number * share, share) for number in range(FILES)]
        for number, part in enumerate([*parts, *more]):
            time = part["ts"].cast(pa.timestamp("us", tz="UTC"))
            pq.write_table(part.append_column("t", time), folder / f"{number}.parquet")
            os.utime(
                folder / f"{number}.parquet", (1e9 + number, 1e9 + number)
            )  # files are taken oldest first

    def stream(self, name: str) -> Any:
        path = str(self.folder / name)
        reader = self.spark.readStream.schema(self.spark.read.parquet(path).schema)
        return reader.option("maxFilesPerTrigger", 1).parquet(path).withWatermark("t", "200 milliseconds")

    def run(self, workload: str) -> pa.Table:
        writer = self.query(workload).writeStream.format("memory").queryName("answers").outputMode("append")
        writer.trigger(availableNow=True).start().awaitTermination()
        return self.spark.table("answers").toArrow()

    def query(self, workload: str) -> Any:
        if workload == "W4":
            left, right = self.stream("left").alias("l"), self.stream("right").alias("r")
            near = "l.key = r.key AND l.t BETWEEN r.t - INTERVAL 1 SECOND AND r.t + INTERVAL 1 SECOND"
            names = ("l.key", "l.ts", "l.value", "r.ts AS ts_right", "r.value AS value_right")
            return left.join(right, f.expr(near)).selectExpr(*names)
        events = self.stream("events")
        if workload == "W3":
            kept = events.where("value > 0.5").selectExpr("t", "value * 2.0D + 1.0D AS x", "value * key AS y")
            grouped = kept.groupBy(f.window("t", "1000 seconds"))
            return grouped.agg(f.count("*").alias("n"), f.sum("x").alias("x"), f.sum("y").alias("y"))
        window = f.window("t", "10 seconds", "1 second") if workload == "W2" else f.window("t", "1 second")
        columns = [f.count("*").alias("n"), f.avg("value").alias("mean")]
        if workload != "W2":
            columns += [f.sum("value").alias("s"), f.min("value").alias("lo"), f.max("value").alias("hi")]
        grouped = events.groupBy(window, "key").agg(*columns)
        return grouped.selectExpr("unix_micros(window.start) AS start", "*")

    def answer(self, workload: str, result: pa.Table) -> pa.Table:
        return result.drop_columns([name for name in ("window",) if name in result.column_names])

    def __del__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
