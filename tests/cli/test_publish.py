"""``medusa publish``: all rows in order, none before its time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import medusa as md
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.cli.main import main
from medusa.engine.input.ingest import normalise
from medusa.io.pacing import STEP_S, paced
from medusa.io.places import place_of
from medusa.io.readers import open_reader
from medusa.query.types import schema_from


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
        with md.connect(address, "60s") as fed:
            fed.deploy(q)
        arguments = ["publish", "counts.clicks", str(tmp_path / "clicks.csv"), "--node", address]
        done = run(main, [*arguments, "--finish", "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout) == {"stream": "counts.clicks", "rows": 3}
        with md.connect(address, "60s") as fed, fed.subscribe("counts.per_user", from_="oldest") as trains:
            rows = trains.table().to_pylist()
        assert [(row["user"], row["n"]) for row in rows] == [("a", 2), ("b", 1)]
        refused = run(main, [*arguments, "--speed", "1", "--time", "tss"])
        assert refused.exit_code == 1
        assert "there is no 'tss'" in refused.stderr


COLUMNS = {
    "ts": "timestamp[us, UTC]",
    "sym": "utf8",
    "price": "float64",
    "size": "int64",
    "cost": "decimal128(9, 2)",
}
HEAD = ",".join(COLUMNS)
NINE = "2026-01-05T09:00:00"
LINE = f'{{"ts": "{NINE}", "sym": "a"}}\n\n'


def read(path: Path, text: str) -> list[dict[str, Any]]:
    """The rows of a file as a source of ``COLUMNS`` takes them."""
    path.write_text(text + "\n")
    reader = open_reader(place_of(str(path)), types={}, known=COLUMNS, strict=True)
    reader.require("ts")
    schema = schema_from(COLUMNS, what="a source")
    try:
        fitted = [normalise(batch, schema) for batch in reader.batches()]
        return [row for batches in fitted for batch in batches for row in batch.to_pylist()]
    finally:
        reader.close()


def row(*values: Any) -> dict[str, Any]:
    return dict(zip(COLUMNS, (datetime(2026, 1, 5, 9, tzinfo=UTC), *values), strict=True))


PLAIN, BARE = row("7", 3.0, 2, Decimal("5.00")), row("7", None, None, None)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("whole.csv", f"{NINE},7,3,2,5", [PLAIN]),
        ("broken.csv", f"2026-01-05 10:00:00+01:00,7,3,2.0,5.0\n{NINE}Z,7,3.0,2,5", [PLAIN] * 2),
        ("empty.csv", f"{NINE},7,,,", [BARE]),
        ("zones.csv", f"{NINE},7,3,2,5\n{NINE}Z,7,3.0,2.0,5", [PLAIN] * 2),
        ("whole.jsonl", f'{{"ts": "{NINE}", "sym": "7", "price": 3, "size": 2, "cost": 5}}', [PLAIN]),
        ("broken.jsonl", f'{{"ts": "{NINE}Z", "sym": "7", "price": 3.0, "size": 2.0, "cost": 5}}', [PLAIN]),
        ("empty.jsonl", f'{{"ts": "{NINE}", "sym": "7", "price": null}}', [BARE]),
        ("zones.jsonl", f'{{"ts": "{NINE}Z", "sym": "7"}}\n\n{{"ts": "{NINE}", "sym": "7"}}', [BARE] * 2),
    ],
)
def test_whether_text_can_be_published_is_up_to_the_types_of_the_source(
    name: str, text: str, wanted: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert read(tmp_path / name, f"{HEAD}\n{text}" if name.endswith("csv") else text) == wanted


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.csv", f"{HEAD}\n{NINE},a,dear,2,5", "line 2: column 'price': expected float64, came 'dear'"),
        ("b.csv", f"{HEAD}\n{NINE},a,3,2.5,5", "line 2: column 'size': expected int64, came '2.5'"),
        ("c.csv", f"{HEAD}\nnoon,a,3,2,5", "line 2: column 'ts': expected timestamp[us, UTC], came 'noon'"),
        ("d.csv", f"{HEAD}\n,a,3,2,5", "line 2: column 'ts' is the time, and holds null"),
        ("e.csv", f"{HEAD},note", "line 1: column 'note' isn't in the schema"),
        ("f.csv", "ts,sym,price,size", "line 1: column 'cost' is missing"),
        ("a.jsonl", LINE + '{"price": "x"}', "line 3: column 'price': expected float64, came \"x\""),
        ("b.jsonl", LINE + '{"size": 2.5}', "line 3: column 'size': expected int64, came 2.5"),
        ("c.jsonl", LINE + '{"sym": 7}', "line 3: column 'sym': expected utf8, came 7"),
        ("d.jsonl", LINE + '{"ts": "x"}', "line 3: column 'ts': expected timestamp[us, UTC], came 'x'"),
        ("e.jsonl", LINE + '{"note": 1}', "line 3: column 'note' isn't in the schema"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_line_and_column(
    name: str, text: str, wanted: str, tmp_path: Path
) -> None:
    with pytest.raises(md.DataError) as refused:
        read(tmp_path / name, text)
    assert f"{name}, {wanted}" in refused.value.message


def test_text_is_published_with_the_types_that_the_node_says(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{HEAD}\n{NINE},7,3,2.0,5\n{NINE}Z,7,,,\n")
    with LocalNodes(["solo"], tmp_path) as nodes, md.connect(nodes.addresses["solo"], "60s") as fed:
        fed.define("trades", COLUMNS)
        assert fed.source("trades") == {"columns": COLUMNS, "time": "ts", "unit": None, "slack_us": None}
        arguments = ["trades", str(tmp_path / "t.csv"), "--node", nodes.addresses["solo"], "--finish"]
        done = CliRunner().invoke(main, ["publish", *arguments])
        assert done.exit_code == 0, done.output
        with fed.subscribe("trades", from_="oldest", timeout="20s") as trains:
            assert trains.table().to_pylist() == [PLAIN, row("7", None, None, None)]
