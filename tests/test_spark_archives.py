"""Folders of archives, and their replay, without Spark: what is refused, order, going on, speed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import medusa as md
from medusa.apps.pipeline import replay as replaying
from medusa.apps.pipeline.folder import (
    MANIFEST,
    ROWS,
    VERSION,
    ArchiveFile,
    Manifest,
    begin,
    discard,
    open_folder,
)
from medusa.apps.pipeline.replay import position_of, replay, rows_from
from medusa.cli.main import main
from medusa.query.boxes import Field
from medusa.testing import ManualClock

SCHEMA = (Field("ts", "int64"), Field("k", "int32"))


def write(folder: Path, files: Iterable[Iterable[int]], **more: Any) -> None:
    """An archive whose row number ``n`` has the time ``n`` and the key ``n % 7``."""
    draft = begin(folder, replace=False, made={})
    parts = []
    for number, seq in enumerate(files):
        seq = list(seq)
        path = f"{ROWS}/{number}.parquet"
        table = pa.table(
            {
                "ts": pa.array(seq, pa.int64()),
                "k": pa.array([n % 7 for n in seq], pa.int32()),
                "_seq": pa.array(seq, pa.int64()),
            }
        )
        pq.write_table(table, folder / path, row_group_size=16)
        size = (folder / path).stat().st_size
        parts.append(ArchiveFile(path=path, rows=len(seq), bytes=size, first=min(seq), last=max(seq)))
    options = {"time": "ts", "unit": "s", **more}
    draft.publish(
        Manifest(
            medusa_archive=VERSION,
            kind="archive",
            stream="cars",
            schema=SCHEMA,
            files=tuple(parts),
            **options,
        )
    )


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(md.DataError) as caught:
        open_folder(folder, **options)
    return str(caught.value)


def test_folders_that_are_no_whole_archive_are_refused_with_the_reason(tmp_path: Path) -> None:
    assert "there is no such folder" in refusal(tmp_path / "none")
    assert "has no _manifest.json" in refusal(tmp_path)
    folder = tmp_path / "cars"
    begin(folder, replace=False, made={})
    assert "is half-written" in refusal(folder)
    with pytest.raises(md.DataError, match="there is an archive already, half-written"):
        begin(folder, replace=False, made={})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(md.DataError, match="there is something else"):
        begin(tmp_path / "mine", replace=True, made={})
    assert (tmp_path / "mine" / "letter.txt").exists()


def test_a_file_that_is_missing_or_cut_off_is_told_and_one_that_is_not_listed_is_not_read(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "cars"
    write(folder, [range(10), range(10, 20)])
    (folder / ROWS / "stray.parquet").write_bytes((folder / ROWS / "0.parquet").read_bytes())
    assert sum(batch.num_rows for batch in rows_from(open_folder(folder))) == 20
    whole = (folder / ROWS / "1.parquet").read_bytes()
    (folder / ROWS / "1.parquet").write_bytes(whole[:-1])
    assert f"has {len(whole) - 1:,} bytes, and was written with {len(whole):,}" in refusal(folder)
    (folder / ROWS / "1.parquet").unlink()
    assert "rows/1.parquet is missing" in refusal(folder)


def test_what_is_written_again_is_half_written_until_it_is_published(tmp_path: Path) -> None:
    folder = tmp_path / "cars"
    write(folder, [range(10)])
    with pytest.raises(md.DataError, match="there is an archive already"):
        begin(folder, replace=False, made={})
    assert open_folder(folder).manifest.rows == 10
    draft = begin(folder, replace=True, made={})
    assert "is half-written" in refusal(folder)
    assert not list((folder / ROWS).iterdir())
    (folder / ROWS / "of-a-task-that-failed.parquet").write_bytes(b"PAR1")
    draft.publish(Manifest(medusa_archive=VERSION, kind="archive", stream="cars", schema=SCHEMA))
    assert open_folder(folder).manifest.rows == 0
    assert not list((folder / ROWS).iterdir())


def test_only_what_is_of_its_kind_is_replaced_and_only_by_one_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "cars"
    write(folder, [range(10)])
    with pytest.raises(md.DataError, match="holds an archive, and isn't replaced"):
        begin(folder, kind="table", replace=True, made={})
    assert open_folder(folder).manifest.rows == 10
    draft = begin(folder, replace=True, made={})
    with pytest.raises(md.DataError, match="another process writes into it"):
        begin(folder, replace=True, made={})
    draft.publish(Manifest(medusa_archive=VERSION, kind="archive", stream="cars", schema=SCHEMA))
    discard(begin(folder, replace=True, made={}))
    begin(folder, replace=True, made={}).close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"medusa_archive": 2}, "format 2, and this is Medusa for 1"),
        ({"kind": "table"}, "holds a table, expected an archive"),
        ({"rows": 11}, "its files have other rows than it says"),
        ({"schema": [{"name": "ts", "type": "int65"}]}, "there is no type 'int65'"),
        ({"schema": [{"name": "_seq", "type": "int64"}]}, "names with a meaning"),
        ({"time": "at"}, "there is no column 'at', the time"),
        ({"files": [{"path": "../x", "rows": 10, "bytes": 1, "first": 0, "last": 9}]}, "isn't in the folder"),
        ({"files": [{"path": "/x", "rows": 10, "bytes": 1, "first": 0, "last": 9}]}, "isn't in the folder"),
        ({"files": [{"path": "rows/0.parquet", "rows": 10, "bytes": 1}]}, "has no positions"),
        ({"files": [{"path": "rows/0.parquet", "rows": -1, "bytes": 1}]}, "is no manifest"),
        ({"more": 1}, "is no manifest"),
    ],
)
def test_a_manifest_is_not_trusted(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    write(tmp_path / "cars", [range(10)])
    path = tmp_path / "cars" / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert said in refusal(tmp_path / "cars")


def test_no_json_is_no_manifest(tmp_path: Path) -> None:
    write(tmp_path / "cars", [range(10)])
    (tmp_path / "cars" / MANIFEST).write_bytes(b"\xff{")
    assert "is no manifest" in refusal(tmp_path / "cars")


# Replay


def shuffled(rows: int, files: int, seed: int) -> list[list[int]]:
    """Positions with gaps over files that overlap, each file in order."""
    chance = np.random.default_rng(seed)
    numbers = np.flatnonzero(chance.random(2 * rows) < 0.5)
    near = numbers + chance.integers(0, rows // 4, len(numbers))
    owner = np.clip(near * files // (2 * rows), 0, files - 1)
    return [numbers[owner == each].tolist() for each in range(files) if (owner == each).any()]


@pytest.mark.parametrize("seed", range(4))
def test_rows_come_in_order_from_files_that_overlap_and_from_any_position_on(
    seed: int, tmp_path: Path
) -> None:
    files = shuffled(300, 6, seed)
    write(tmp_path / "cars", files)
    every = sorted(number for file in files for number in file)
    stored = open_folder(tmp_path / "cars")
    for start in (0, 1, every[-1], every[-1] + 1, every[len(every) // 2], every[len(every) // 3] + 1):
        came = [n for batch in rows_from(stored, start) for n in batch.column("_seq").to_pylist()]
        assert came == [number for number in every if number >= start]


def test_a_replay_gives_the_rows_of_the_stream_and_where_to_go_on(tmp_path: Path) -> None:
    write(tmp_path / "cars", [range(0, 40, 2), range(1, 40, 2), range(50, 60)])
    got: list[pa.RecordBatch] = []
    told: list[tuple[int, int]] = []
    assert replay(tmp_path / "cars", got.append, progress=lambda *each: told.append(each)) == 60
    assert got[0].schema.names == ["ts", "k"]
    assert [n for batch in got for n in batch.column("ts").to_pylist()] == [*range(40), *range(50, 60)]
    assert told[-1] == (50, 60)
    taken: list[int] = []

    def full_at_the_second(batch: pa.RecordBatch) -> None:
        if taken:
            raise md.FullError("full")
        taken.extend(batch.column("ts").to_pylist())

    told.clear()
    with pytest.raises(md.FullError):
        replay(tmp_path / "cars", full_at_the_second, progress=lambda *each: told.append(each))
    replay(tmp_path / "cars", lambda batch: taken.extend(batch.column("ts").to_pylist()), start=told[-1][1])
    assert taken == [*range(40), *range(50, 60)]


@pytest.mark.parametrize("seed", range(2))
def test_a_row_is_found_by_its_number(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "BATCH_ROWS", 16)
    files = [*shuffled(120, 4, seed), [900, 905], [910]]
    write(tmp_path / "cars", files)
    every = sorted(number for file in files for number in file)
    stored = open_folder(tmp_path / "cars")
    assert [position_of(stored, row) for row in range(len(every) + 1)] == [*every, 911]
    for row in (-1, len(every) + 1):
        with pytest.raises(md.DataError, match=f"shall go on with number {row}"):
            position_of(stored, row)
    write(tmp_path / "none", [])
    assert position_of(open_folder(tmp_path / "none"), 0) == 0


def test_a_replay_under_a_name_goes_on_with_the_row_that_the_node_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "BATCH_ROWS", 16)
    write(tmp_path / "cars", [range(0, 80, 2), range(1, 80, 2), range(100, 140)])
    q = md.Query("q")
    cars = q.source("cars", {"ts": "int64", "k": "int32"}, time="ts", unit="s")
    q.sink("out", cars.filter("ts >= 0", name="all"))
    address = f"ipc://{tmp_path}/a"
    config = {"name": "a", "listen": address, "data": str(tmp_path / "data")}

    def killed(pushed: int, following: int) -> None:
        if pushed > 30:
            raise RuntimeError("killed")

    with (
        md.node(config | {"limits": {"checkpoint_every": "50ms"}}),
        md.connect(address, timeout="30s") as fed,
    ):
        fed.deploy(q)
        with pytest.raises(RuntimeError, match="killed"), fed.publisher("q.cars", durable="a/7") as out:
            replay(tmp_path / "cars", out.publish, row=out.next_row, progress=killed)
        asked = ["pipeline", "replay", str(tmp_path / "cars"), "q.cars", "--node", address, "--json"]
        refused = CliRunner().invoke(main, [*asked, "--durable", "a/7", "--from", "3"])
        assert "leave --from out" in refused.stderr
        left = []
        for _ in range(2):
            done = CliRunner().invoke(main, [*asked, "--durable", "a/7"])
            assert done.exit_code == 0, done.output
            left.append(json.loads(done.stdout)["rows"])
            assert json.loads(done.stdout)["next"] == 140
        assert 80 <= left[0] <= 120
        assert left[1] == 0
        with fed.subscribe("q.out", from_="oldest") as trains:
            found: list[int] = []
            while len(found) < 120:
                found += trains.next("30s").batch["ts"].to_pylist()
        assert found == [*range(80), *range(100, 140)]


def test_a_replay_says_before_any_row_that_columns_do_not_fit_and_that_there_are_none(
    tmp_path: Path,
) -> None:
    write(tmp_path / "cars", [range(5)])
    write(tmp_path / "none", [])
    q = md.Query("q")
    for name, columns in (
        ("cars", {"ts": "int64", "k": "int32"}),
        ("others", {"ts": "int64", "name": "utf8"}),
    ):
        q.sink(f"{name}_out", q.source(name, columns, time="ts", unit="s"))
    config = {"name": "a", "listen": f"ipc://{tmp_path}/a", "data": str(tmp_path / "data")}
    with md.node(config), md.connect(config["listen"], timeout="30s") as fed:
        fed.deploy(q)

        def replayed(folder: str, stream: str, *more: str) -> Any:
            asked = ["pipeline", "replay", str(tmp_path / folder), stream, "--node", config["listen"], *more]
            return CliRunner().invoke(main, asked)

        for more in ((), ("--durable", "a/7"), ("--speed", "1x")):
            for folder in ("cars", "none"):
                done = replayed(folder, "q.others", *more)
                assert (done.exit_code, "name" in done.stderr) == (1, True), done.output
        done = replayed("none", "q.cars")
        assert (done.exit_code, "none has no rows" in done.stderr) == (0, True), done.output
        assert replayed("cars", "q.cars").stdout == "5 rows in q.cars; the next is 5\n"
        with fed.subscribe("q.cars_out", from_="oldest") as trains:
            assert trains.next("30s").batch.num_rows == 5


def test_a_replay_by_time_waits_for_each_row(tmp_path: Path) -> None:
    write(tmp_path / "cars", [range(0, 30)])
    clock, came = ManualClock(), []

    def push(batch: pa.RecordBatch) -> None:
        came.extend((ts, clock.monotonic_us()) for ts in batch.column("ts").to_pylist())

    def now() -> float:
        return clock.monotonic_us() / 1e6

    replay(
        tmp_path / "cars",
        push,
        speed=10.0,
        clock=now,
        sleep=lambda seconds: clock.sleep_until(clock.monotonic_us() + round(seconds * 1e6) + 1),
    )
    began = came[0][1]
    # Rows of a tenth of a second of the clock go together: the first of them has its time.
    assert all(at - began >= 100_000 * ts - 100_000 for ts, at in came)
    assert came[-1][1] - began >= 2_800_000
    with pytest.raises(md.DataError, match="speed is above 0"):
        replay(tmp_path / "cars", push, speed=0)


def test_rows_numbered_twice_stop_a_replay(tmp_path: Path) -> None:
    write(tmp_path / "cars", [range(10), range(9, 20)])
    with pytest.raises(md.DataError, match="are numbered twice, or out of order"):
        replay(tmp_path / "cars", lambda batch: None)


def test_what_needs_no_spark_to_be_seen_is_said_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(import_module("medusa.spark.session"), "session", started)
    (tmp_path / "file").write_text("")
    stream = ["archive", "a.out", "--gateway", "tcp://127.0.0.1:1"]
    new, within = str(tmp_path / "new"), str(tmp_path / "file" / "new")
    for arguments, said in (
        ([*stream, "--out", new, "--period", "1m"], "--period: '1m' is no duration"),
        ([*stream, "--out", new, "--trigger", "1x"], "--trigger: '1x' is no duration"),
        ([*stream, "--out", within], "file is no folder"),
        (["prepare", "netmon", "--out", new, "--period", "1m"], "--period: '1m' is no duration"),
        (["prepare", "netmon", "--out", within], "file is no folder"),
    ):
        done = CliRunner().invoke(main, ["pipeline", *arguments])
        assert (done.exit_code, said in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(find_spec("pyspark") is not None, reason="pyspark is installed here")
def test_without_pyspark_the_commands_say_what_to_install_and_write_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["pipeline", "prepare", "netmon", "--out", str(tmp_path / "flows")])
    assert done.exit_code == 1
    assert "pip install 'medusa-streams[spark]'" in done.stderr
    assert not (tmp_path / "flows").exists()
