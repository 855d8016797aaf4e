"""What each box of a node is said to wait for: the cause is one that the test has made."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.errors import LinkError
from medusa.nodes.status.blocking_reasons import UnmovedBoundaries, explained
from medusa.runtime.client.status.overview import explanation
from medusa.sim.actors.federation import Federation
from medusa.wire.messages.links import OLDEST, Attach
from tests.nodes.test_decided_output import Life, union

SCHEMA = {"ts": "timestamp[us, UTC]", "v": "int64"}
AT = {"e1": ["a", "fa"], "e2": ["b", "fb"], "core": ["meet", "out"]}


def joined() -> md.Query:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", slack="0s").filter("v > 0", name="fa")
    b = q.source("b", SCHEMA, time="ts", slack="0s").filter("v > 0", name="fb")
    q.sink("out", a.join(b, on="v", within="1s", name="meet"))
    return q


def rows(*times: int) -> pa.Table:
    stamps = pa.array(times, pa.timestamp("us", tz="UTC"))
    return pa.table({"ts": stamps, "v": pa.array([1] * len(times), pa.int64())})


class Three:
    """A join at one node of what comes from two others."""

    def __init__(self) -> None:
        self.federation = Federation(7, ["e1", "e2", "core"])
        self.federation.start()
        reader = self.federation.client("reader", "core")
        reply, _ = self.federation.answer(reader, reader.deploy(joined(), AT))
        assert reply.code == "", reply
        self.columns = next(box.schema for box in joined().graph.boxes if box.id == "a")

    def publish(self, node: str, source: str, *times: int) -> None:
        name = f"pub-{node}"
        client = self.federation.clients.get(name) or self.federation.client(name, node)
        client.publish(f"q.{source}", rows(*times), self.columns)

    def passes(self, us: int) -> None:
        self.federation.run(for_us=us)

    def why(self, node: str) -> dict[str, dict[str, Any]]:
        at = self.federation.nodes[node]
        status = at.brain.status(at.clock.monotonic_us())
        return {each["box"]: each for each in explanation([status], "q")}


def test_the_node_that_has_not_sent_is_named_where_the_join_stands():
    three = Three()
    three.publish("e1", "a", 1_000_000, 2_000_000)
    three.passes(3_000_000)
    here = three.why("e1")
    assert here["a"]["waits_for"] == "rows or a boundary from publisher 'pub-e1'"
    assert here["fa"]["waits_for"] == f"rows; source a waits for {here['a']['waits_for']}"
    assert three.why("e2")["b"]["waits_for"] == "a publisher"
    at_core = three.why("core")
    meet = at_core["meet"]
    assert meet["held_by"] == "fb"
    assert meet["waits_for"].startswith("the boundaries of both inputs to pass the later time of the pair; ")
    assert meet["waits_for"].endswith("source fb waits for rows or a boundary from node 'e2'")
    assert meet["boundary_us"] is None
    assert 2_000_000 <= meet["since_us"] <= 3_500_000
    assert at_core["fa"]["boundary_us"] == 2_000_000
    assert " ".join(meet) == "query fragment node box kind waits_for held_by since_us boundary_us lag_us"


def test_a_dead_node_is_named_with_the_time_for_which_it_is_silent():
    three = Three()
    three.publish("e1", "a", 1_000_000)
    three.passes(1_000_000)
    three.federation.nodes["e2"].crash()
    three.passes(6_000_000)
    assert "node 'e2', which is silent for 5s" in three.why("core")["meet"]["waits_for"]
    three.federation.restart("e2")
    three.passes(2_000_000)
    assert "rows or a boundary from node 'e2'" in three.why("core")["meet"]["waits_for"]


def test_the_last_publisher_is_named_as_long_as_it_is_gone():
    three = Three()
    three.publish("e1", "a", 1_000_000)
    three.publish("e2", "b", 1_000_000)
    three.passes(1_000_000)
    three.federation.clients["pub-e2"].dead = True
    three.passes(6_000_000)
    assert three.why("e2")["b"]["waits_for"].startswith("publisher 'pub-e2', which is silent for ")
    three.passes(20_000_000)
    waits = three.why("e2")["b"]["waits_for"]
    gone = re.fullmatch(
        r"a publisher: 'pub-e2', the last one, is gone for (\d+)s without having finished", waits
    )
    assert gone is not None, waits
    assert 20 <= int(gone[1]) <= 26
    three.federation.client("other", "e2").publish("q.b", rows(2_000_000), three.columns)
    three.passes(1_000_000)
    assert three.why("e2")["b"]["waits_for"].endswith(" from publisher 'other'")


def test_a_node_that_refuses_our_key_is_not_called_silent():
    three = Three()
    three.publish("e1", "a", 1_000_000)
    three.passes(1_000_000)
    three.federation.nodes["e2"].crash()
    core = three.federation.nodes["core"]
    for _ in range(6):
        three.passes(1_000_000)
        core.brain.orders.moves.away.refused(core.clock.monotonic_us(), "e2", "refuses our key")
    assert three.why("core")["meet"]["waits_for"].endswith("node 'e2', which refuses our key, for 5 s")


def test_a_box_whose_end_has_come_waits_for_nothing():
    three = Three()
    for node, source in (("e1", "a"), ("e2", "b")):
        three.publish(node, source, 1_000_000)
        three.federation.clients[f"pub-{node}"].finish(f"q.{source}", three.columns)
    three.passes(3_000_000)
    for node in AT:
        for box in three.why(node).values():
            assert box["waits_for"] == "nothing: it has ended"
            assert box["since_us"] is None


def said(life: Life) -> dict[str, dict[str, Any]]:
    figures = {each.pop("box"): each for each in life.engine.figures()}
    return explained(life.hosted, figures, UnmovedBoundaries(), 0)


def test_output_that_waits_for_the_disk_says_so():
    life = Life(union())
    life.offers("pa", "a")
    life.offers("pb", "b")
    while life.logs:
        life.log()
    life.publishes("pa", "a", 1)
    assert said(life)["out"]["waits_for"].startswith("the disk: ")
    life.log()
    assert "the disk" not in said(life)["out"]["waits_for"]


def test_a_reader_whose_credit_is_used_up_is_named():
    q = md.Query("q")
    q.sink("out", q.source("a", SCHEMA, time="ts").filter("v > 0", name="f"))
    life = Life(q)
    slow = Attach(stream="q.out", epoch=1, next_seq=OLDEST, durable=0, granted=200, plain=True)
    life.hosted.from_reader(0, "out", "slow", slow, owner="", others=0)
    life.offers("p", "a")
    life.publishes("p", "a", 1)
    life.publishes("p", "a", 2)
    assert (
        "reader 'slow' to take more: 2 rows wait, and its credit is used up" in said(life)["out"]["waits_for"]
    )
    assert "reader 'reader' to take more" not in said(life)["out"]["waits_for"]


def test_a_fragment_in_the_last_step_of_a_move_says_so():
    life = Life(union())
    life.hosted.freeze()
    assert said(life)["a"]["waits_for"] == "the end of its move: another node may be its owner"
    assert said(life)["both"]["waits_for"].endswith("source a waits for " + said(life)["a"]["waits_for"])


def test_a_fragment_that_has_failed_says_why_at_every_box():
    life = Life(union())
    life.hosted.fail("a broken invariant")
    assert {each["waits_for"] for each in said(life).values()} == {
        "nothing: its fragment has failed: a broken invariant"
    }


def test_since_when_a_boundary_stands():
    unmoved, box = UnmovedBoundaries(), {"boundary": None, "finished": False}
    assert unmoved.since_us("f", "b") is None
    unmoved.note(5, {"f": {"b": box}})
    unmoved.note(9, {"f": {"b": box}})
    assert unmoved.since_us("f", "b") == 5
    unmoved.note(11, {"f": {"b": {**box, "boundary": 3}}})
    assert unmoved.since_us("f", "b") == 11
    unmoved.note(12, {})
    assert unmoved.since_us("f", "b") is None


def test_what_has_ended_or_is_in_doubt_is_explained_too():
    ended = {"node": "far", "code": "E_MEMORY", "why": "query 'big' holds too much", "at_us": None}
    status = {
        "node": "n",
        "rows_in": 0,
        "fragments": [],
        "queries": {"big": {"state": "ended", "ended": {"big/a": ended}}},
        "remote": {"ended": {"long/b": {"query": "long", "code": "E_BUSY", "why": "it took too long"}}},
        "in_doubt": {"fragments": {"cars/in": {"query": "cars", "why": "no state of it is here"}}},
    }
    [big], [long], [cars] = (explanation([status], query) for query in ("big", "long", "cars"))
    assert (big["fragment"], big["node"], big["box"]) == ("big/a", "far", "")
    assert big["waits_for"] == "nothing: it has ended: query 'big' holds too much (E_MEMORY)"
    assert (long["node"], "it took too long (E_BUSY)" in long["waits_for"]) == ("n", True)
    assert cars["waits_for"] == "an end of the doubt about it: no state of it is here"
    assert len(explanation([status], None)) == 3


def test_who_asks_for_a_query_that_is_not_there_hears_the_near_one():
    status = {
        "node": "n",
        "rows_in": 0,
        "fragments": [{"query": "tolls", "fragment": "tolls/a", "boxes": {}}],
    }
    assert explanation([status], None) == []
    with pytest.raises(LinkError, match="no fragment of a query 'tols' at n") as caught:
        explanation([status], "tols")
    assert "tolls" in caught.value.hint
    with pytest.raises(LinkError, match="shows this client no boxes"):
        explanation([{"node": "n", "fragments": []}], None)
