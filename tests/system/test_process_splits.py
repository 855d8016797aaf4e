"""Classes of users with timers are split over processes and merged again while rows flow: all is exact."""

from __future__ import annotations

import pytest

import medusa as md
from medusa.errors import QueryError
from medusa.sim.actors import keyed_timers
from tests.system.nodes import TIMEOUT, ForkedNodes, ordered, until
from tests.system.test_deployed_splits import Stream, fragments
from tests.system.test_splits import ROWS, SCHEMA

pytestmark = pytest.mark.system

OUT = keyed_timers.OUT | {"k": "int64"}
PARTS = ["q/rings-1", "q/rings-2", "q/rings-3"]


def query() -> md.Query:
    """A class with one input, and one with three."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="s", slack="40 s")
    made, state = keyed_timers.Reminders, keyed_timers.STATE
    q.sink("out", rows.process(made, OUT, by="k", state=state, name="rings"))
    few = {
        "all": rows,
        "low": rows.filter("v < 0.1", name="low"),
        "high": rows.filter("v > 0.9", name="high"),
    }
    q.sink("all", md.process(made, few, OUT, by="k", state=state, name="several"))
    return q


def is_a_row(got: dict[str, object]) -> bool:
    return got["what"] == "row all"


@pytest.fixture
def nodes(tmp_path):
    made = ForkedNodes(tmp_path, ["a", "b", "c", "d"])
    for name in "abc":
        config = made.config(name)
        config.write_text(f'functions = ["medusa.sim.actors.keyed_timers"]\n{config.read_text()}')
    yield made
    made.close()


def test_a_class_with_timers_is_split_over_three_nodes_and_merged_again_under_a_stream(nodes):
    """The end too: timers that set themselves again stop at the last row, which one part has."""
    nodes.start()
    with md.connect(nodes.addresses["a"], timeout=TIMEOUT) as fed:
        fed.deploy(query(), at={"a": ["rows"], "c": ["low", "high", "rings", "several"]})
        stream = Stream(nodes, query, is_a_row, ahead=2 * ROWS)
        stream.goes_on()
        told = ordered(lambda: fed.split("q/rings", 3, at=["a", "b", "c"]))
        assert told["parts"] == dict(zip(PARTS, "abc", strict=True))
        # Where it was asked for again, on a busy machine, nothing was left to split.
        assert sum(told["shares"]) == pytest.approx(1) or not told["shares"]
        stream.goes_on()
        told = ordered(lambda: fed.split("q/several", 2, ranges="weight", at=["b", "c"]))
        assert told["parts"] == {"q/several-1": "b", "q/several-2": "c"}
        assert max(told["shares"], default=0) < 0.9
        stream.goes_on()
        assert ordered(lambda: fed.merge("q/rings"))["node"] == "c"
        stream.goes_on()
        ordered(lambda: fed.split("q/rings", 2, at=["a", "c"]))
        stream.goes_on()
        assert ordered(lambda: fed.merge("q/several"))["node"] == "c"
        stream.goes_on()
        stream.end()
        assert sum(row["what"].startswith("ring") for row in stream.got["out"]) > 1_000


def test_parts_outlive_their_nodes_and_do_not_go_where_their_class_is_unknown(nodes):
    nodes.start()
    with md.connect(nodes.addresses["b"], timeout=TIMEOUT) as fed:
        fed.deploy(query(), at={"a": ["rows"], "c": ["low", "high", "rings", "several"]})
        stream = Stream(nodes, query, is_a_row, ahead=2 * ROWS)
        stream.goes_on()
        why = "'q/rings-2' can't be moved to 'd': .*functions that nobody registered: 'medusa.sim.Reminders'"
        with pytest.raises(QueryError, match=why):
            ordered(lambda: fed.split("q/rings", 3, at=["a", "d", "b"]))
        placed = {"q/rings-1": ["a"], "q/rings-2": ["c"], "q/rings-3": ["c"]}
        until(lambda: placed.items() <= fragments(fed).items())
        stream.goes_on()
        told = ordered(lambda: fed.split("q/rings", 3, at=["a", "b", "c"]))
        assert told["parts"] == dict(zip(PARTS, "abc", strict=True))
        for name in ("c", "b", "a"):
            nodes.kill(name)
            nodes.start(name)
            if name != "a":  # where the publisher is
                stream.goes_on()
        with md.connect(nodes.addresses["b"], timeout=TIMEOUT) as again:
            assert ordered(lambda: again.merge("q/rings"))["node"] == "c"
        stream.goes_on()
        nodes.kill("c")
        nodes.start("c")
        stream.goes_on()
        stream.end()
