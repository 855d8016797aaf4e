"""A fragment goes to Spark and back while rows flow: the rows are those of a run in which nothing moved."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.errors import ConfigError
from medusa.spark.overflow.on_spark import OnSpark
from medusa.spark.session import running
from tests.overflow.many_keys import KINDS, there_and_back
from tests.spark.placed import Reading, node_of
from tests.system.nodes import until

KEYS = 101_000
ROWS = 2_000
DEADLINE_S = 300


def query() -> md.Query:
    q = md.Query("q")
    rows = q.source(
        "rows", {"ts": "int64", "k": "int64", "v": "float64"}, time="ts", unit="us", slack="500us"
    )
    fast = rows.filter("v < 0.999", name="fast")
    q.sink("kept", fast.window("1s").group_by("k").aggregate(n=md.count(), v=md.sum("v"), name="per_k"))
    q.sink("late", rows.late)
    return q


def table(begin: int, rows: int) -> pa.Table:
    """Each key once in the first ``KEYS`` rows; some rows are late."""
    numbers = range(begin, begin + rows)
    return pa.table(
        {
            "ts": [n - (900 if n % 997 == 0 else n * 37 % 400) if n > 1000 else n for n in numbers],
            "k": [n * 7919 % KEYS for n in numbers],
            "v": [n * 31 % 1009 / 1009 for n in numbers],
        }
    )


def held(part: pa.Table) -> set[int]:
    """Keys of the rows that are neither late nor too fast."""
    times, fast = part["ts"].to_numpy(), part["v"].to_numpy() >= 0.999
    late = np.append(False, times[1:] < np.maximum.accumulate(times)[:-1] - 500)
    return set(part["k"].to_numpy()[~late & ~fast].tolist())


def test_a_window_of_100_000_keys_goes_to_spark_and_comes_back_with_every_row(
    spark: Any, tmp_path: Path
) -> None:
    parts = [table(0, KEYS)] + [table(KEYS + number * ROWS, ROWS) for number in range(60)]
    assert len(held(parts[0])) > 100_000
    far = md.spark.participant(node_of(tmp_path, "spark1", "a", spark={"shards": 2}), spark)
    with (
        md.node(node_of(tmp_path, "a", "spark1")) as near,
        far,
        near.connect("60s") as fed,
        far.connect("60s") as other,
    ):
        answers: list[dict[str, Any]] = []
        fed.deploy(query(), at={"a": ["rows"]})
        kept, late = Reading(other, "q.kept"), Reading(fed, "q.late")
        fed.publish("q.rows", parts[0])
        moved = threading.Thread(
            target=lambda: answers.append(fed.move("q/rows", to="spark1", timeout="120s"))
        )
        moved.start()
        for part in parts[1:30]:  # on while it moves
            fed.publish("q.rows", part)
        moved.join(DEADLINE_S)
        assert [answer["node"] for answer in answers] == ["spark1"]
        until(lambda: far.status()["fragments"][0]["state_bytes"] > KEYS, what="its state is counted there")
        for part in parts[30:]:
            fed.publish("q.rows", part)
        assert other.move("q/rows", to="a", timeout="120s")["node"] == "a"
        told = far.status()["runs_on"]
        assert told["cores"] == 2
        assert 0 < told["latency_us"][0] <= told["latency_us"][1]
        fed.finish("q.rows")
        got = {"kept": kept.all(), "late": late.all()}
    want = md.collect(query(), rows=pa.concat_tables(parts))
    for sink, rows in got.items():
        assert rows.num_rows == want[sink].num_rows
        assert rows.equals(want[sink].cast(rows.schema))
    assert set(got["kept"]["k"].to_pylist()) == held(pa.concat_tables(parts))
    assert got["late"].num_rows > 10


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_there_and_back_again(spark: Any, kind: str) -> None:
    there_and_back(kind, OnSpark(spark), keys=10_000 if kind == "process" else 100_000)


@pytest.mark.full
@pytest.mark.issue(7)
def test_every_key_of_a_class_of_users(spark: Any) -> None:
    there_and_back("process", OnSpark(spark))


@pytest.mark.full
@pytest.mark.issue(7)
def test_its_process_is_killed_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """It has a Java of its own, which dies with it."""
    config = tmp_path / "spark1.toml"
    config.write_text(
        f'name = "spark1"\nlisten = "ipc://{tmp_path}/spark1.sock"\ndata = "spark1"\n'
        f'[peers]\na = "ipc://{tmp_path}/a.sock"\n[limits]\ncheckpoint_every = "500ms"\n'
        '[spark]\nmaster = "local[2]"\nconf = {"spark.sql.codegen.wholeStage" = "false"}\n'
    )
    near = node_of(tmp_path, "a", "spark1")
    parts = [table(number * ROWS, ROWS) for number in range(60)]
    process = _started(config)
    try:
        with md.node(near) as node, node.connect("120s") as fed:
            fed.deploy(query(), at={"a": ["rows"]})
            kept = Reading(fed, "q.kept")
            fed.publish("q.rows", parts[0])
            assert fed.move("q/rows", to="spark1", timeout="120s")["node"] == "spark1"
            for number, part in enumerate(parts[1:], start=1):
                fed.publish("q.rows", part)
                if number in (15, 35, 55):
                    fed.flush("120s")  # it has taken all, and what comes now is after its checkpoint
                if number in (20, 40):
                    process.kill()
                    process.communicate()
                    process = _started(config)
            assert fed.move("q/rows", to="a", timeout="120s")["node"] == "a"
            fed.finish("q.rows")
            got = kept.all()
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    want = md.collect(query(), rows=pa.concat_tables(parts))["kept"]
    assert got.num_rows == want.num_rows
    assert got.equals(want.cast(got.schema))


def _started(config: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "medusa", "spark-participant", str(config)]
    made = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    line = made.stdout.readline()
    assert line.startswith("node spark1 listening on ipc://"), line
    return made


def test_the_session_of_the_program_is_used_and_left_as_it_is(spark: Any, tmp_path: Path) -> None:
    """A node looks for it in its own thread, where no session is active."""
    found: list[Any] = []
    looking = threading.Thread(target=lambda: found.append(running()))
    looking.start()
    looking.join()
    assert found == [spark]
    before = dict(spark.conf.getAll)
    rules = {"master": "local[7]", "conf": {"spark.sql.codegen.wholeStage": "true"}}
    config = {"name": "a", "listen": "tcp://127.0.0.1:*", "data": tmp_path / "a", "spark": rules}
    with md.spark.participant(config) as node:
        assert node.status()["runs_on"]["cores"] == spark.sparkContext.defaultParallelism
    assert running() is spark
    assert dict(spark.conf.getAll) == before


def test_without_its_table_it_does_not_begin(spark: Any, tmp_path: Path) -> None:
    config = {"name": "a", "listen": "tcp://127.0.0.1:*", "data": tmp_path / "a"}
    with pytest.raises(ConfigError, match="has no table"), md.spark.participant(config, spark):
        pass
    with pytest.raises(ConfigError, match="keeps nothing"):
        md.spark.participant(
            {"name": "a", "listen": "tcp://127.0.0.1:*", "store": "memory", "spark": {}}, spark
        ).start()
