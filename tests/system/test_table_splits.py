"""A table, a look-up and a function are split over processes and merged while rows flow: all is exact."""

from __future__ import annotations

import pytest

import medusa as md
from medusa.sim.actors.row_copies import copies
from tests.system.nodes import ForkedNodes, until
from tests.system.test_deployed_splits import Stream, fragments
from tests.system.test_splits import ROWS, SCHEMA

pytestmark = pytest.mark.system

PARTS = ["q/held-1", "q/held-2", "q/held-3"]
HELD = {"k": SCHEMA["k"], "n": "int64", "last": "float64"}


def query() -> md.Query:
    """Every row changes the table; some are looked up, and copied as often as their key had come."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="s", slack="40 s")
    held = q.table("held", key="k", schema=HELD, expire="10 min")
    changed = rows.update(held, set={"n": "table.n + 1", "last": "v"}, insert={"n": "1", "last": "v"})
    q.sink("all", changed)
    found = rows.filter("v < 0.5", name="low").lookup(held, name="found").with_columns(k="CAST(k AS utf8)")
    q.sink("out", found.apply(copies, {"k": "utf8", "copy": "int64"}, by="k", name="copied"))
    return q


@pytest.fixture
def nodes(tmp_path):
    made = ForkedNodes(tmp_path, ["a", "b", "c"])
    for name in "abc":
        config = made.config(name)
        config.write_text(f'functions = ["medusa.sim.actors.row_copies"]\n{config.read_text()}')
    yield made
    made.close()


def test_a_table_its_look_up_and_a_function_are_split_and_merged_and_outlive_their_nodes(nodes):
    nodes.start()
    with md.connect(nodes.addresses["a"]) as fed:
        fed.deploy(query(), at={"a": ["rows"], "c": ["low", "held", "found", "copied"]})
        stream = Stream(nodes, query, ahead=2 * ROWS)
        stream.goes_on()
        told = fed.split("q/held", 3, at=["a", "b", "c"])
        assert told["parts"] == dict(zip(PARTS, "abc", strict=True))
        assert sum(told["shares"]) == pytest.approx(1)
        stream.goes_on()
        told = fed.split("q/found", 2, ranges="weight", at=["b", "c"])
        assert told["parts"] == {"q/found-1": "b", "q/found-2": "c"}
        assert max(told["shares"]) < 0.9
        told = fed.split("q/copied", 2, at=["c", "b"])
        assert told["parts"] == {"q/copied-1": "c", "q/copied-2": "b"}
        stream.goes_on()
        for name in "cb":
            nodes.kill(name)
            nodes.start(name)
            stream.goes_on()
    with md.connect(nodes.addresses["b"]) as fed:
        until(lambda: {"q/held-1": ["a"], "q/held-2": ["b"]}.items() <= fragments(fed).items())
        for box in ("copied", "found", "held"):
            assert fed.merge(f"q/{box}")["node"] == "c"
            stream.goes_on()
        stream.end()
        assert len(stream.got["out"]) > 1_000
