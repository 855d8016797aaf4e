"""Rows/s of Spark's source and sink of streams, beside Spark's own Parquet. Part of ``bench.spark``."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import spark_ends
from bench.spark_ends import World

FEED_ROWS = 65_536
PARTS = 2
FEW = 10


def filled(spark: Any, world: World, name: str, table: pa.Table) -> Any:
    """The rows in the stream of a query, all of them at the gateway; read in batch."""
    stream = f"{name}.out"
    follow(world, stream)  # Before the rows, else the node keeps the last of them alone.
    for batch in table.to_batches(max_chunksize=FEED_ROWS):
        world.fed.publish(f"{name}.rows", batch)
    world.fed.flush(spark_ends.WAIT)
    wait(world, stream, len(table))
    return in_batch(spark, world, stream)


def in_batch(spark: Any, world: World, stream: str) -> Any:
    return spark.read.format("medusa").options(**world.where(stream)).load()


def follow(world: World, stream: str) -> Any:
    """Its rows are kept at the gateway from now on; tells how far they are."""
    from medusa.spark.data_source_reader import StreamFollower
    from medusa.spark.options import options_from

    follower = StreamFollower(options_from(world.where(stream)))
    follower.columns()
    return follower


def wait(world: World, stream: str, count: int) -> None:
    """Until so many rows are at the gateway."""
    follower = follow(world, stream)
    end_s = time.monotonic() + 300
    while (there := follower.state()[1]) < count:
        if time.monotonic() > end_s:
            raise SystemExit(f"{stream}: {there:,} of {count:,} rows are at the gateway")
        time.sleep(0.05)


def sums(frame: Any) -> tuple[Any, ...]:
    """Of all columns: says whether rows are missing, twice or others."""
    return tuple(
        frame.selectExpr(
            "count(*)",
            "sum(number)",
            "sum(value)",
            f"sum(unix_micros(at) - {spark_ends.START_US})",
            "sum(length(name))",
            "sum(crc32(name))",
        ).first()
    )


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def stream_noop(frame: Any) -> None:
    """All that is there, by a streaming query with a checkpoint of its own."""
    with tempfile.TemporaryDirectory(prefix="medusa-noop-") as folder:
        writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
        writer.trigger(availableNow=True).start().awaitTermination()


def parquet(frame: Any, path: Path) -> None:
    """Written and synced: Spark itself leaves that to the system."""
    shutil.rmtree(path, ignore_errors=True)
    frame.write.parquet(str(path))
    for each in [*path.iterdir(), path]:
        handle = os.open(each, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def measure(spark: Any, count: int, rounds: int) -> dict[str, Any]:
    """Source and sink, each exact before it is timed."""
    table = spark_ends.rows(count)
    with spark_ends.world("a", "b", "few") as world:
        path = world.folder / "rows.arrow"
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table.combine_chunks(), max_chunksize=FEED_ROWS)
        ours = filled(spark, world, "a", table)
        filled(spark, world, "few", table.slice(0, FEW))
        spark.dataSource.register(spark_ends.floor(path, FEED_ROWS, ours.rdd.getNumPartitions()))
        floor = spark.read.format("floor").load()
        files = world.folder / "source.parquet"
        floor.repartition(PARTS).write.parquet(str(files))
        few = world.folder / "few.parquet"
        floor.limit(FEW).write.parquet(str(few))
        theirs = spark.read.parquet(str(files))
        if not sums(ours) == sums(floor) == sums(theirs):
            raise SystemExit(f"other rows: {sums(ours)}, {sums(floor)}, {sums(theirs)}")

        def stream(name: str) -> Any:
            return spark.readStream.format("medusa").options(**world.where(f"{name}.out")).load()

        def files_stream(folder: Path) -> Any:
            return spark.readStream.schema(theirs.schema).parquet(str(folder))

        ways: dict[str, tuple[int, Any]] = {
            "medusa": (count, lambda: noop(ours)),
            "floor": (count, lambda: noop(floor)),
            "parquet": (count, lambda: noop(theirs)),
            "medusa, stream": (count, lambda: stream_noop(stream("a"))),
            "floor, stream": (count, lambda: stream_noop(spark.readStream.format("floor").load())),
            "parquet, stream": (count, lambda: stream_noop(files_stream(files))),
            f"medusa, stream of {FEW} rows": (FEW, lambda: stream_noop(stream("few"))),
            f"parquet, stream of {FEW} rows": (FEW, lambda: stream_noop(files_stream(few))),
        }
        return {
            "rows": count,
            "source": spark_ends.in_turns(ways, world, rounds),
            "sink": _sink(spark, world, theirs, count, rounds),
        }


def _sink(spark: Any, world: World, theirs: Any, count: int, rounds: int) -> dict[str, Any]:
    follow(world, "b.out")
    held = theirs.repartition(PARTS).cache()
    wanted = sums(held)
    written = 0
    to = world.folder / "sink.parquet"

    def ours() -> None:
        nonlocal written
        held.write.format("medusa").options(**world.where("b.rows")).mode("append").save()
        written += 1

    def floor() -> None:
        held.write.format("floor").mode("append").save()

    found = spark_ends.in_turns(
        {"medusa": (count, ours), "floor": (count, floor), "parquet": (count, lambda: parquet(held, to))},
        world,
        rounds,
        lambda: wait(world, "b.out", count * written),
    )
    wait(world, "b.out", count * written)
    back = sums(in_batch(spark, world, "b.out"))
    if back != tuple(each * written for each in wanted) or sums(spark.read.parquet(str(to))) != wanted:
        raise SystemExit(f"{back} came of {written} times {wanted}")
    held.unpersist()
    return found
