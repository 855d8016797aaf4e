"""Streams into Spark and out of it, by a real node, a real gateway and a real Spark: each row once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from tests.spark.copying import copied
from tests.system.nodes import until

WAIT = "60s"
ROWS = 200


def query(name: str) -> md.Query:
    q = md.Query(name)
    q.sink("out", q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us", slack="1h"))
    return q


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
    address = f"ipc://{tmp_path}/n"
    settings: dict[str, Any] = {"name": "n", "listen": address, "data": str(tmp_path / "n.data")}
    settings["limits"] = {"checkpoint_every": "50ms"}
    with md.node(settings), md.connect(address, timeout=WAIT) as fed:
        fed.deploy(query("a"))
        fed.deploy(query("b"))
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
            commit = made.commit

            def fails(messages: Any, batch: int) -> None:
                commit(messages, batch)
                if batch == 2 and not os.path.exists(f"{flag}-commit"):
                    open(f"{flag}-commit", "w").close()
                    raise RuntimeError("this commit fails")

            made.commit = fails
            return made

    spark.dataSource.register(Failing)

    def failing_query() -> Any:
        read = spark.readStream.format("medusa").option("endpoint", endpoint).option("stream", "a.out")
        df = read.option("maxRowsPerBatch", 40).load().mapInArrow(failing, "ts long, v long")
        write = df.selectExpr("ts", "v * 2 as v").writeStream.format("medusa_failing")
        return write.options(endpoint=endpoint, stream="b.rows", checkpointLocation=checkpoint)

    with pytest.raises(Exception, match="this task fails"):
        run(failing_query())
    assert world.copied() == []
    with pytest.raises(Exception, match="this commit fails"):
        run(failing_query())
    assert world.copied() == EXPECTED[:120], "what is published outlives Spark's abort"
    run(failing_query())
    assert world.copied() == EXPECTED
    assert world.gateway.status()["staged_bytes"] == 0


def test_the_driver_is_killed_and_another_goes_on(spark: Any, world: World) -> None:
    checkpoint = str(world.folder / "checkpoint")
    command = [sys.executable, "-m", "tests.spark.copying", world.gateway.address, checkpoint]
    with open(world.folder / "log", "w") as log:
        driver = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:

        def published() -> int:
            assert driver.poll() is None, (world.folder / "log").read_text()[-2000:]
            sources = world.gateway.status()["sources"]
            return int(sources["b.rows"]["published"]) if "b.rows" in sources else 0

        until(lambda: published() >= 40, what="the first batch is published", deadline_s=240)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Python, Java and its workers: as the power goes.
        driver.wait()
    assert len(world.copied()) < ROWS
    run(copied(spark, world.gateway.address, checkpoint))
    assert world.copied() == EXPECTED


def test_tables(spark: Any, world: World) -> None:
    endpoint = world.gateway.address
    read = spark.read.format("medusa").options(endpoint=endpoint, stream="a.out", meta="true")
    df = read.load()
    assert df.dtypes == [("ts", "bigint"), ("v", "bigint"), ("_seq", "bigint"), ("_late", "boolean")]
    world.gateway.wait("a.out", ROWS)
    assert df.where("not _late and _seq = v").count() == ROWS
    q = query("a")
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
        ({"endpoint": endpoint, "stream": "a.outt"}, "no stream 'a.outt'"),
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


RUNS = 40
LIVES_MAX = 8


@pytest.mark.full
@pytest.mark.issue(7)
@pytest.mark.parametrize("seed", range(RUNS))
def test_each_row_is_there_once(spark: Any, world: World, seed: int) -> None:
    chance = random.Random(seed)
    flags, checkpoint = str(world.folder / "failed"), str(world.folder / "checkpoint")
    address = world.gateway.address
    source = failing_source(flags, f"medusa_failing_{seed}", chance.randrange(5))
    spark.dataSource.register(source)
    task = chance.randrange(200)

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if task in batch["v"].to_pylist() and not os.path.exists(f"{flags}-task"):
                open(f"{flags}-task", "w").close()
                raise RuntimeError("this task fails")
            yield batch

    def query() -> Any:
        read = spark.readStream.format("medusa").option("endpoint", address).option("stream", "a.out")
        df = read.option("maxRowsPerBatch", 40).load().mapInArrow(failing, "ts long, v long")
        write = df.selectExpr("ts", "v * 2 as v").writeStream.format(source.name())
        return write.options(endpoint=address, stream="b.rows", checkpointLocation=checkpoint)

    stop = threading.Event()

    def restarts() -> None:
        """The gateway ends in the middle, and another goes on from its folder."""
        if not stop.wait(chance.uniform(0.5, 6)):
            world.gateway.close()
            path = f"ipc://{world.folder}/n"
            world.gateway = md.spark.gateway(path, world.folder / "gateway", listen=address)

    thread = threading.Thread(target=restarts)
    thread.start()
    try:
        for _ in range(LIVES_MAX):
            with contextlib.suppress(Exception):  # Spark's, of many kinds; the next life goes on.
                run(query())
                break
    finally:
        stop.set()
        thread.join()
    run(query())
    assert world.copied() == EXPECTED
    assert os.path.exists(f"{flags}-task")
    assert os.path.exists(f"{flags}-commit")
    assert world.gateway.status()["staged_bytes"] == 0


def failing_source(flags: str, called: str, at: int) -> Any:
    """The data source, whose commit of an epoch fails once, after it has published or before."""
    from pyspark_medusa import DefaultSource

    class Failing(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return called

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            made = super().streamWriter(schema, overwrite)
            commit = made.commit

            def fails(messages: Any, batch: int) -> None:
                if at % 2:
                    commit(messages, batch)
                if batch == at and not os.path.exists(f"{flags}-commit"):
                    open(f"{flags}-commit", "w").close()
                    raise RuntimeError("this commit fails")
                commit(messages, batch)

            made.commit = fails
            return made

    return Failing
