"""A fragment has lost all its checkpoints, and an operator has it begin anew: what readers take then."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.runtime.engine_host.group_names import GroupName
from tests.system.nodes import ForkedNodes, until

pytestmark = pytest.mark.system

AT = {"a": ["rows", "f"], "b": ["g"]}
LIMITS = 'checkpoint_every = "50ms"'


@pytest.fixture
def nodes(tmp_path_factory):
    made = ForkedNodes(tmp_path_factory.mktemp("anew"), ["a", "b"], limits=LIMITS)
    yield made
    made.close()


def query():
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="s", slack="0s")
    counted = rows.filter("v >= 0", name="f").window("10 s").aggregate(n="count(*)", name="g")
    q.sink("out", counted)
    return q


def seconds(first, last):
    return {"ts": list(range(first, last)), "v": list(range(first, last))}


def destroy_checkpoints(folder):
    """Of the fragment, not of the node itself."""
    destroyed = 0
    for group in folder.iterdir():
        positions = group / "positions"
        if GroupName.of(group.name).kind == "checkpoint" and positions.exists():
            positions.write_bytes(b"x")
            destroyed += 1
    assert destroyed


def test_no_row_that_comes_afterwards_is_taken_for_one_that_came_before(nodes):
    nodes.start("a")
    nodes.start("b")
    with md.connect(nodes.addresses["a"], timeout="30s") as fed:
        fed.deploy(query(), at=AT)
        fed.publish("q.rows", seconds(0, 95))
        fed.flush()
        until(
            lambda: any(
                each["durable_row"] >= 95 for each in fed.status()["fragments"][0]["outputs"][0]["receivers"]
            ),
            what="the other node has all rows in a checkpoint",
        )
    assert nodes.stop("a") == 0
    destroy_checkpoints(nodes.data("a"))
    shown = CliRunner().invoke(main, ["repair", str(nodes.config("a")), "--json"])
    [fragment] = json.loads(shown.stdout)["fragments"]
    assert fragment["state"] == "lost"
    done = CliRunner().invoke(main, ["repair", str(nodes.config("a")), "--begin-anew", fragment["name"]])
    assert done.exit_code == 0, done.output
    nodes.start("a")
    with md.connect(nodes.addresses["a"], timeout="30s") as fed:
        fed.publish("q.rows", seconds(95, 150))  # fewer than came before
        fed.finish("q.rows")
        fed.flush("60s")
    with md.connect(nodes.addresses["b"], timeout="30s") as fed:
        trains = fed.subscribe("q.out", from_="oldest", timeout="60s")
        counts = [n for train in trains for n in train.batch.column("n").to_pylist()]
    assert counts == [10] * 15
    assert "stream begins anew" in nodes.log("b")
