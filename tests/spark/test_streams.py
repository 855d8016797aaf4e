"""Streams into Spark and out of it, by a real node, a real gateway and a real Spark: each row once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from tests.gateway.here import running, timed
from tests.spark.copying import ROWS_PER_BATCH, copied
from tests.spark.driver import Driver

WAIT = "60s"
ROWS = 200
EPOCH = 2


@dataclass
class World:
    fed: Any
    gateway: Any
    folder: Path
    trains: Any
    found: list[int]

    def copied(self) -> list[int]:
        """What is in the stream behind the source that Spark writes to.

        One reader from the beginning on: what all readers hold the node lets go.
        """
        self.gateway.flush(WAIT)
        count = self.gateway.status()["sources"].get("b.rows", {"published": 0})["published"]
        while len(self.found) < count:
            self.found += self.trains.next(WAIT).batch["v"].to_pylist()
        return list(self.found)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with running(tmp_path, timed("a", slack="1h"), timed("b", slack="1h")) as (fed, address):
        fed.publish("a.rows", {"ts": list(range(ROWS)), "v": list(range(ROWS))})
        fed.flush(WAIT)
        gateway = md.spark.gateway(address, tmp_path / "gateway")
        made = World(fed, gateway, tmp_path, fed.subscribe("b.out", from_="oldest"), [])
        try:
            yield made
        finally:
            made.trains.close()
            made.gateway.close()  # Perhaps not the one that it began with.


EXPECTED = [2 * number for number in range(ROWS)]


def run(query: Any) -> None:
    query.trigger(availableNow=True).start().awaitTermination()


def test_a_stream_through_spark_into_a_stream(spark: Any, world: World) -> None:
    checkpoint = str(world.folder / "checkpoint")
    write = copied(spark, world.gateway.address, checkpoint)
    world.gateway.wait("a.out", ROWS, "copy")
    started = write.trigger(availableNow=True).start()
    started.awaitTermination()
    assert len(started.recentProgress) == ROWS // 40, "batches are as large as was asked for"
    assert world.copied() == EXPECTED
    world.fed.publish("a.rows", {"ts": [ROWS], "v": [ROWS]})
    world.fed.flush(WAIT)
    world.gateway.wait("a.out", ROWS + 1, "copy")
    run(copied(spark, world.gateway.address, checkpoint))
    assert world.copied() == [*EXPECTED, 2 * ROWS]


def test_a_task_fails_and_then_a_commit_that_had_published(spark: Any, world: World) -> None:
    from pyspark_medusa import DefaultSource

    checkpoint, flag = str(world.folder / "checkpoint"), str(world.folder / "failed")
    endpoint = world.gateway.address

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not os.path.exists(f"{flag}-task"):
            open(f"{flag}-task", "w").close()
            raise RuntimeError("this task fails")

    class Failing(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "medusa_failing"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            made = super().streamWriter(schema, overwrite)
            commit, abort = made.commit, made.abort

            def aborts(messages: Any, batch: int) -> None:
                abort(messages, batch)
                open(f"{flag}-abort-{batch}", "w").close()

            def fails(messages: Any, batch: int) -> None:
                commit(messages, batch)
                if batch == 2 and not os.path.exists(f"{flag}-commit"):
                    open(f"{flag}-commit", "w").close()
                    raise RuntimeError("this commit fails")

            made.commit, made.abort = fails, aborts
            return made

    spark.dataSource.register(Failing)

    def failing_query() -> Any:
        read = spark.readStream.format("medusa").option("endpoint", endpoint).option("stream", "a.out")
        df = read.option("maxRowsPerBatch", 40).load().mapInArrow(failing, "ts long, v long")
        write = df.selectExpr("ts", "v * 2 as v").writeStream.format("medusa_failing")
        return write.options(endpoint=endpoint, stream="b.rows", checkpointLocation=checkpoint)

    query = failing_query()
    world.gateway.wait("a.out", ROWS)
    with pytest.raises(Exception, match="this task fails"):
        run(query)
    assert world.copied() == []
    with pytest.raises(Exception, match="this commit fails"):
        run(failing_query())
    assert os.path.exists(f"{flag}-abort-2")
    assert world.copied() == EXPECTED[:120], "what is published outlives Spark's abort"
    run(failing_query())
    assert world.copied() == EXPECTED
    assert world.gateway.status()["staged_bytes"] == 0


def test_the_driver_is_killed_between_publishing_and_its_log_and_another_goes_on(
    spark: Any, world: World
) -> None:
    """The other way is in test_archive: killed between reading and committing."""
    checkpoint, flag = world.folder / "checkpoint", world.folder / "published"
    endpoint = world.gateway.address
    driver = Driver(
        world.folder / "log", "tests.spark.copying", endpoint, str(checkpoint), str(EPOCH), str(flag)
    )
    try:
        assert driver.wait(flag.exists), "it went through"
    finally:
        driver.kill()
    before = ROWS_PER_BATCH * (EPOCH + 1)
    assert world.copied() == EXPECTED[:before]
    assert (checkpoint / "offsets" / str(EPOCH)).exists()
    assert not (checkpoint / "commits" / str(EPOCH)).exists(), "Spark hasn't heard that it is published"
    run(copied(spark, endpoint, str(checkpoint)))
    assert world.copied() == EXPECTED


def test_tables(spark: Any, world: World) -> None:
    endpoint = world.gateway.address
    read = spark.read.format("medusa").options(endpoint=endpoint, stream="a.out", meta="true")
    df = read.load()
    assert df.dtypes == [("ts", "bigint"), ("v", "bigint"), ("_seq", "bigint"), ("_late", "boolean")]
    world.gateway.wait("a.out", ROWS)
    assert df.where("not _late and _seq = v").count() == ROWS
    q = timed("a", slack="1h")
    assert md.spark.batch(q, spark, {"rows": df}).only.count() == ROWS
    write = df.select("v", "ts").repartition(3).write.format("medusa").mode("append")
    for _ in range(2):  # The same epoch of the same writer: nothing is written twice.
        write.options(endpoint=endpoint, stream="b.rows", writer="report", epoch="7").save()
    assert sorted(world.copied()) == list(range(ROWS))
    write.options(endpoint=endpoint, stream="b.rows").save()
    assert len(world.copied()) == ROWS, "the option writer was still there"
    df.select("v", "ts").write.format("medusa").mode("append").options(
        endpoint=endpoint, stream="b.rows"
    ).save()
    assert len(world.copied()) == 2 * ROWS


def test_what_is_wrong_is_said(spark: Any, world: World) -> None:
    endpoint = world.gateway.address
    for options, why in (
        ({"stream": "a.out"}, "needs the option 'endpoint'"),
        ({"endpoint": endpoint, "stream": "a.outt"}, "no stream is called 'a.outt'"),
        (
            {"endpoint": endpoint, "stream": "a.out", "maxRowsPerBatches": "1"},
            "did you mean 'maxRowsPerBatch'",
        ),
    ):
        with pytest.raises(Exception, match=why):
            spark.read.format("medusa").options(**options).load()
    df = spark.createDataFrame(pa.table({"ts": [1], "v": ["a"]}))
    write = df.write.format("medusa").options(endpoint=endpoint, stream="b.rows")
    with pytest.raises(Exception, match="column 'v': expected int64 for int64, came string"):
        write.mode("append").save()
    with pytest.raises(Exception, match="rows can only be added"):
        write.mode("overwrite").save()
