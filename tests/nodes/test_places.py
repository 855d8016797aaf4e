"""A box of a query is found by its name, whole and in parts, wherever these are."""

from __future__ import annotations

import json

import pytest

from medusa.nodes.spec.part_locations import having, parted
from medusa.wire.messages.directory import Lookup
from medusa.wire.messages.move import Move
from tests.nodes.parted import Parting


@pytest.fixture(scope="module")
def world():
    return Parting(every=0)


def find(world, name, kind=""):
    number = world.orderer.mind.request(lambda n: Lookup(request=n, name=name, kind=kind))
    world.orderer.do(lambda mind: None)
    reply, told = world.fed.answer(world.orderer, number)
    return reply.code or json.loads(bytes(told))


def test_a_box_is_found_with_the_fragment_that_has_it(world):
    assert find(world, "q/nothing") == "E_STREAM"
    found = find(world, "q/all_rows")
    assert (found["kind"], found["node"], found["fragment"]) == ("box", "e", "q/rows")
    assert (found["parts"], found["holders"], found["epoch"]) == ({}, ["e"], 1)
    assert found["address"] == "ipc:///e"
    assert find(world, "local/q/last")["node"] == "c"
    whole = find(world, "q/box")
    assert (whole["kind"], "parts" in whole) == ("fragment", False)
    assert find(world, "q/box", "box")["fragment"] == "q/box", "not the one that reads what it sends"


def test_a_box_that_is_split_is_where_its_parts_are(world):
    world.publish(0, 40)
    assert world.told(world.split(3))[0].code == ""
    move = world.orderer.mind.request(lambda n: Move(request=n, fragment="q/box-2", to="e", timeout_ms=5_000))
    world.orderer.do(lambda mind: None)
    assert world.told(move)[0].code == ""
    world.fed.run(for_us=3_000_000)
    found = find(world, "q/box")
    assert found["parts"] == {"q/box-1": "m", "q/box-2": "e", "q/box-3": "m"}
    assert (found["kind"], found["node"], found["fragment"]) == ("box", "m", "q/box-router")
    assert find(world, "q/box-2")["node"] == "e"


def fragment(name, boxes, streams, node="m", query="q"):
    return {"name": name, "boxes": boxes, "streams": streams, "node": node, "query": query}


ROUTER = fragment("q/b-router", ["x", "b-router"], ["q.b-router", "q.b-router.1"])
PARTS = [
    fragment(f"q/b-{n}", [f"b-router-{n}", f"b-{n}"], [f"q.b-{n}"], node) for n, node in ((1, "e"), (2, "f"))
]
MERGE = fragment("q/b", ["b-1", "b-2", "b", "out"], ["q.out"], "c")
READER = fragment("q/r", ["b", "r"], ["q.r"])


def test_parts_are_those_of_the_query_and_all_of_them():
    found = parted("q", "b", [PARTS[1], MERGE, READER, ROUTER, PARTS[0]])
    assert found is not None
    assert (found.router, found.parts, found.merges) == (ROUTER, {"q/b-1": "e", "q/b-2": "f"}, {"q/b": "c"})
    assert parted("q", "b", [*PARTS, MERGE]) is None
    assert parted("q", "b", [*PARTS, ROUTER, READER]) is None
    assert parted("q", "b", [PARTS[1], ROUTER, MERGE]) is None
    assert parted("p", "b", [*PARTS, ROUTER, MERGE]) is None
    sends = fragment("q/s", ["b"], ["q.b"])
    assert having("q", "b", [READER, sends]) == [sends]
    assert having("q", "c", [READER, sends]) == []
    assert having("q", "b", [{**READER, "feeds": ["b"]}]) == [], "it stands for what is elsewhere"
