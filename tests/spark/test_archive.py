"""A stream of a real node into an archive, by a real gateway and a real Spark: each row once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import medusa as md
from medusa.apps.pipeline.growing import CHECKPOINT, Growing
from medusa.cli.main import main
from tests.gateway.here import with_gateway
from tests.spark.driver import Driver
from tests.system.nodes import until

WAIT = "60s"
ROWS = 300
EPOCH = 2
SCHEMA = {"ts": "int64", "k": "int32", "v": "float64"}


def query() -> md.Query:
    q = md.Query("cars")
    rows = q.source("rows", SCHEMA, time="ts", unit="s", slack="5s")
    q.sink("taken", rows)
    q.sink("means", rows.window("20s").group_by("k").aggregate(n=md.count(), v=md.avg("v")))
    return q


def traffic(low: int, high: int) -> dict[str, list[Any]]:
    """Every ninth row comes long behind its time."""
    seq = range(low, high)
    return {
        "ts": [n - 50 if n % 9 == 8 and n > 60 else n for n in seq],
        "k": [n % 4 for n in seq],
        "v": [n / 7 for n in seq],
    }


def embedded(rows: int) -> pa.Table:
    """What the query answers in one process."""
    table = pa.table(traffic(0, rows)).cast(pa.schema([("ts", "int64"), ("k", "int32"), ("v", "float64")]))
    return md.collect(query(), rows=table)["means"]


def is_late(n: int) -> bool:
    return n % 9 == 8 and n > 60


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    with with_gateway(tmp_path, query()) as made:
        yield made


def test_a_stream_is_archived_once_over_failed_epochs_and_a_restart(
    spark: Any, world: tuple[Any, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    fed, gateway = world
    folder = tmp_path / "cars"
    add = Growing.add
    failures = [(1, "before"), (2, "behind")]

    def failing(self: Growing, epoch: int, parts: Any) -> Any:
        if (epoch, "before") in failures:
            failures.remove((epoch, "before"))
            raise RuntimeError("the disk failed")
        made = add(self, epoch, parts)
        if (epoch, "behind") in failures:
            failures.remove((epoch, "behind"))
            raise RuntimeError("the driver failed")
        return made

    monkeypatch.setattr(Growing, "add", failing)
    told: list[tuple[str, int, int]] = []

    def archived() -> md.spark.Stored:
        return md.spark.archive(
            "cars.taken",
            spark,
            folder,
            gateway=gateway,
            query=query(),
            epoch_rows=70,
            period="1min",
            progress=lambda *each: told.append(each),
        )

    fed.publish("cars.rows", traffic(0, 200))
    fed.flush(WAIT)
    with pytest.raises(md.DataError, match="the disk failed"):
        archived()
    assert seqs(folder) == list(range(70))
    with pytest.raises(md.DataError, match="the driver failed"):
        archived()
    assert seqs(folder) == list(range(200)), "it is in the manifest, and Spark hasn't heard of it"
    stored = archived()
    assert seqs(folder) == list(range(200))
    assert (stored.manifest.complete, stored.manifest.epoch, failures) == (False, 2, [])

    # What is there so far: answers of a stream that still runs.
    answers = embedded(200)
    pq.write_table(answers, tmp_path / "means.parquet")
    given: dict[str, Any] = {"archive": folder, "answers": {"means": tmp_path / "means.parquet"}}
    report = md.spark.validate(query(), spark, until=180_000_000, **given)
    assert report.equal, str(report)
    assert report.late == {"rows": sum(map(is_late, range(200)))}

    fed.publish("cars.rows", traffic(200, ROWS))
    fed.finish("cars.rows")
    fed.flush(WAIT)
    gateway.wait("cars.taken", ROWS, stored.manifest.made["reader"])
    until(lambda: archived().manifest.complete, what="the stream has ended", deadline_s=120)
    rows = pq.read_table(folder).sort_by("_seq")
    assert rows["_seq"].to_pylist() == list(range(ROWS))
    assert rows.drop_columns(["_seq", "_late"]).to_pydict() == traffic(0, ROWS)
    assert rows["_late"].to_pylist() == [is_late(n) for n in range(ROWS)]
    listed = md.spark.open_archive(folder)
    assert {each.name for each in (folder / "rows").iterdir()} == {Path(each).name for each in listed.files}
    assert all(part.from_us // 60_000_000 == part.to_us // 60_000_000 for part in listed.manifest.files)
    assert gateway.status()["readers"] == [], "nobody holds the stream up"
    assert told[-1] == ("archiving cars.taken", ROWS, ROWS)
    replayed: list[Any] = []
    md.spark.replay(folder, lambda batch: replayed.extend(batch["k"].to_pylist()))
    assert replayed == traffic(0, ROWS)["k"]


def seqs(folder: Path) -> list[int]:
    stored = md.spark.open_archive(folder)
    return sorted(seq for file in stored.files for seq in pq.read_table(file)["_seq"].to_pylist())


def test_its_driver_is_killed_between_reading_and_writing_and_another_goes_on(
    spark: Any, world: tuple[Any, Any], tmp_path: Path
) -> None:
    fed, gateway = world
    folder, flag = tmp_path / "cars", tmp_path / "written"
    fed.publish("cars.rows", traffic(0, ROWS))
    fed.flush(WAIT)
    command = ["pipeline", "archive", "cars.taken", "--gateway", gateway.address, "--out", str(folder)]
    command += ["--epoch-rows", "70", "--json"]
    driver = Driver(tmp_path / "log", "tests.spark.archiving", str(EPOCH), str(flag), *command)
    try:
        assert driver.wait(flag.exists), "it went through"
    finally:
        driver.kill()
    assert seqs(folder) == list(range(70 * EPOCH))
    written = {each.name for each in (folder / "rows").iterdir()}
    assert written > {Path(each).name for each in md.spark.open_archive(folder).files}, "of the epoch"
    said = CliRunner().invoke(main, command)
    assert said.exit_code == 0, said.output
    assert seqs(folder) == list(range(ROWS))
    rows = pq.read_table(folder).sort_by("_seq")
    assert rows.drop_columns(["_seq", "_late"]).to_pydict() == traffic(0, ROWS)
    listed = {Path(each).name for each in md.spark.open_archive(folder).files}
    assert {each.name for each in (folder / "rows").iterdir()} == listed, "nothing is left of the death"


def test_two_archives_by_command_one_of_them_until_the_stream_ends(
    spark: Any, world: tuple[Any, Any], tmp_path: Path
) -> None:
    fed, gateway = world
    live, once = tmp_path / "live", tmp_path / "once"
    made: list[Any] = []
    thread = threading.Thread(
        target=lambda: made.append(
            md.spark.archive("cars.means", spark, live, gateway=gateway.address, trigger="200ms")
        )
    )
    thread.start()
    command = [
        "pipeline",
        "archive",
        "cars.means",
        "--gateway",
        gateway.address,
        "--out",
        str(once),
        "--json",
    ]

    def archived() -> bool:
        said = CliRunner().invoke(main, command)
        assert said.exit_code == 0, said.output
        return bool(json.loads(said.stdout)["complete"])

    # What all readers hold the node lets go, so both are there before the first row.
    assert not archived()
    until(lambda: len(gateway.status()["readers"]) == 2, what="both read", deadline_s=120)
    fed.publish("cars.rows", traffic(0, ROWS))
    fed.flush(WAIT)
    assert not archived()
    fed.finish("cars.rows")
    fed.flush(WAIT)
    thread.join(120)
    until(archived, what="the stream has ended", deadline_s=120)
    answers = embedded(ROWS)
    assert made[0].manifest.complete
    for folder in (live, once):
        rows = pq.read_table(folder).sort_by("_seq").drop_columns(["_seq", "_late"])
        assert rows.to_pylist() == answers.to_pylist()
    assert (live / CHECKPOINT).is_dir()


def test_what_is_wrong_is_said_and_nothing_is_begun(
    spark: Any, world: tuple[Any, Any], tmp_path: Path
) -> None:
    _, gateway = world
    for options, why in (
        ({"stream": "cars.token"}, "no stream 'cars.token'"),
        ({"period": "1min"}, "rows have no time to be cut by"),
        ({"start": "yesterday"}, "startingPosition"),
        ({"stream": "cars.means", "query": query()}, "has other columns than stream 'cars.means'"),
        ({"time": "at"}, "at"),
    ):
        given = {"stream": "cars.taken", "gateway": gateway} | options
        with pytest.raises(md.MedusaError, match=why):
            md.spark.archive(spark=spark, folder=tmp_path / "a", **given)
        with pytest.raises(md.DataError):
            md.spark.open_archive(tmp_path / "a")
