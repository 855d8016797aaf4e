"""The same windowed query embedded, by ``md.spark.stream`` and by Spark itself. Part of ``bench.spark``.

Tumbling windows of 10 s, 10,000 keys, count and sum; a tenth of the rows comes up to 100 ms after its time,
which is within the slack, so that all three have the same answer: it is compared, every window, every run.
Spark's ways read the same Parquet files, one a micro-batch, and hand their windows to this process. Timed
from the end of the second micro-batch on: what a query costs to start is in none of the figures.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import medusa as md
from bench import data
from bench.worker import processor_seconds

KEYS = 10_000
FILES = 10
LEFT_OUT = 2
"""Micro-batches that aren't timed."""

END_US = 86_400_000_000
WINDOW = "10 seconds"
SCHEMA = {"at": "timestamp", "key": "int64", "value": "float64"}
STORE = "spark.sql.streaming.stateStore.providerClass"
OWN_STORE = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def rows(count: int) -> pa.Table:
    """With their positions; the last lies a day ahead and closes all other windows."""
    events = data.events(count, KEYS)
    at = events["ts"].to_numpy().copy()
    at[-1] += END_US
    return pa.table(
        {
            "_seq": np.arange(count),
            "at": pa.array(at, pa.timestamp("us", tz="UTC")),
            "key": events["key"],
            # Whole numbers: a sum of them is the same in any order.
            "value": np.floor(events["value"].to_numpy() * 1000),
        }
    )


def query() -> md.Query:
    q = md.Query("q")
    source = q.source("rows", SCHEMA, time="at", slack=data.DELAY_US)
    windows = source.window("10s").group_by("key").aggregate(n=md.count(), total=md.sum("value"))
    q.sink("out", windows.select("window_start", "key", "n", "total"))
    return q


def write(table: pa.Table, folder: Path) -> list[Path]:
    """A file for each micro-batch, read in the order of their times."""
    folder.mkdir()
    each = -(-len(table) // FILES)
    paths = []
    for number in range(FILES):
        paths.append(folder / f"{number:04}.parquet")
        pq.write_table(table.slice(number * each, each), paths[-1])
        os.utime(paths[-1], (number, number))
    return paths


def wanted(table: pa.Table) -> pa.Table:
    """By numpy."""
    table = table.slice(0, len(table) - 1)
    at, key = table["at"].cast(pa.int64()).to_numpy(), table["key"].to_numpy()
    start = at // 10_000_000
    groups, place, counts = np.unique(start * KEYS + key, return_inverse=True, return_counts=True)
    totals = np.bincount(place, table["value"].to_numpy())
    return pa.table(
        {
            "window_start": pa.array(groups // KEYS * 10_000_000, pa.timestamp("us", tz="UTC")),
            "key": groups % KEYS,
            "n": counts,
            "total": totals,
        }
    )


def check(way: str, answer: pa.Table, right: pa.Table) -> None:
    """Whether these are the windows, in any order."""
    answer = (
        answer.select(right.column_names)
        .cast(right.schema)
        .sort_by([("window_start", "ascending"), ("key", "ascending")])
    )
    if not answer.equals(right):
        raise SystemExit(f"{way}: {len(answer):,} windows that aren't the {len(right):,} right ones")


def embedded(paths: list[Path]) -> tuple[pa.Table, list[tuple[float, float]]]:
    """The answer, and (time, CPU seconds) after each file."""
    parts, marks = [], []
    with md.start(query(), checkpoint_every=None) as run:
        for path in paths:
            run.push("rows", pq.read_table(path, columns=list(SCHEMA), use_threads=False))
            parts.append(run.take("out"))
            marks.append((time.perf_counter(), processor_seconds()))
    return pa.concat_tables([pa.table(each) for each in parts]), marks


def on_spark(frame: Any) -> tuple[pa.Table, list[tuple[float, float]]]:
    """The same of a streaming DataFrame, after each micro-batch."""
    parts: list[pa.Table] = []
    marks: list[tuple[float, float]] = []

    def each(batch: Any, number: int) -> None:
        parts.append(batch.toArrow())
        marks.append((time.perf_counter(), processor_seconds()))

    with tempfile.TemporaryDirectory(prefix="medusa-windows-") as folder:
        writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", folder)
        writer.trigger(availableNow=True).start().awaitTermination()
    return pa.concat_tables(parts), marks


def by_medusa(spark: Any, frame: Any, shards: int) -> Any:
    return md.spark.stream(query(), spark, {"rows": frame}, shards=shards)["out"]


def by_spark(frame: Any) -> Any:
    from pyspark.sql import functions as f

    grouped = frame.withWatermark("at", f"{data.DELAY_US // 1000} milliseconds").groupBy(
        f.window("at", WINDOW), "key"
    )
    counted = grouped.agg(f.count("*").alias("n"), f.sum("value").alias("total"))
    return counted.selectExpr("window.start AS window_start", "key", "n", "total")


def measure(spark: Any, count: int, rounds: int) -> dict[str, Any]:
    """Rows a second and a CPU second of each way; every answer is compared first."""
    table = rows(count)
    right = wanted(table)
    timed_rows = count - LEFT_OUT * -(-count // FILES)
    with tempfile.TemporaryDirectory(prefix="medusa-windows-") as base:
        folder = Path(base) / "rows"
        paths = write(table, folder)
        schema = spark.read.parquet(str(folder)).schema

        def frame() -> Any:
            return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))

        ways: dict[str, Any] = {
            "medusa, embedded": lambda: embedded(paths),
            "md.spark.stream, shards=1": lambda: on_spark(by_medusa(spark, frame(), 1)),
            "md.spark.stream, shards=2": lambda: on_spark(by_medusa(spark, frame(), 2)),
            "Spark, RocksDB": lambda: on_spark(by_spark(frame())),
            "Spark, its own store": lambda: with_store(spark, OWN_STORE, lambda: on_spark(by_spark(frame()))),
        }
        found: dict[str, Any] = {name: {"wall_s": [], "cpu_s": []} for name in ways}
        for _ in range(rounds):
            for name, does in ways.items():
                answer, marks = does()
                check(name, answer, right)
                (wall, cpu), (wall_end, cpu_end) = marks[LEFT_OUT - 1], marks[-1]
                found[name]["wall_s"].append(wall_end - wall)
                found[name]["cpu_s"].append(cpu_end - cpu)
    for each in found.values():
        each["rows_per_s"] = timed_rows / median(each["wall_s"])
        each["rows_per_cpu_s"] = timed_rows / median(each["cpu_s"])
        each["spread"] = (max(each["cpu_s"]) - min(each["cpu_s"])) / median(each["cpu_s"])
    return {"rows": count, "timed_rows": timed_rows, "rounds": rounds, "keys": KEYS, "ways": found}


def with_store(spark: Any, store: str, does: Any) -> Any:
    before = spark.conf.get(STORE)
    spark.conf.set(STORE, store)
    try:
        return does()
    finally:
        spark.conf.set(STORE, before)
