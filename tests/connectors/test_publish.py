"""``medusa publish``: all rows in order, none before its time."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli import main
from medusa.connectors.publish import STEP_S, paced
from medusa.workloads.local_nodes import LocalNodes


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("speed", [0.5, 1.0, 60.0])
@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_rows_come_at_their_time(speed: float, size: int) -> None:
    clock = Clock()
    seconds = [n * 3 - n % 4 for n in range(100)]
    table = pa.table({"ts": pa.array([s * 10**6 for s in seconds], pa.timestamp("us")), "n": range(100)})
    came = []
    for part in paced(iter(table.to_batches(size)), "ts", speed, clock=clock, sleep=clock.sleep):
        for row in part.to_pylist():
            due = (seconds[row["n"]] - seconds[0]) / speed
            came.append(row["n"])
            assert clock.now - 1_000 >= due - STEP_S - 1e-6
    assert came == list(range(100))
    assert clock.now - 1_000 == pytest.approx((max(seconds) - seconds[0]) / speed, abs=STEP_S + 1e-6)


def test_a_column_that_is_no_time_is_refused() -> None:
    clock = Clock()
    batches = iter(pa.table({"ts": [1, 2]}).to_batches())
    with pytest.raises(md.DataError, match="expected timestamps"):
        list(paced(batches, "ts", 1.0, clock=clock, sleep=clock.sleep))


def test_a_file_goes_into_a_node(tmp_path: Path) -> None:
    q = md.Query("counts")
    clicks = q.source("clicks", {"ts": "int64", "user": "utf8"}, time="ts", unit="us", slack="0s")
    q.sink("per_user", clicks.window("1 min").group_by("user").aggregate(n=md.count()))
    (tmp_path / "clicks.csv").write_text("ts,user\n0,a\n1,a\n60000000,b\n")
    run = CliRunner().invoke
    with LocalNodes(["solo"], tmp_path) as nodes:
        address = nodes.addresses["solo"]
        with md.connect(address) as fed:
            fed.deploy(q)
        arguments = ["publish", "counts.clicks", str(tmp_path / "clicks.csv"), "--node", address]
        done = run(main, [*arguments, "--finish", "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout) == {"stream": "counts.clicks", "rows": 3}
        with md.connect(address) as fed, fed.subscribe("counts.per_user", from_="oldest") as trains:
            rows = trains.table().to_pylist()
        assert [(row["user"], row["n"]) for row in rows] == [("a", 2), ("b", 1)]
        refused = run(main, [*arguments, "--speed", "1", "--time", "tss"])
        assert refused.exit_code == 1
        assert "there is no 'tss'" in refused.stderr
