"""Splits and merges, as the client of a node orders them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from medusa.errors import LinkError
from medusa.nodes.move_orders import PATIENCE_US
from medusa.nodes.repartition.job import ASK_US
from medusa.runtime.client import splits


def client(listed, moves=None):
    following = SimpleNamespace(listed=lambda kind: listed, own=lambda name, slashes: name, orders=None)
    return splits.Splits(following, moves)


def test_a_merge_is_ordered_under_the_name_that_the_router_has_by_now(monkeypatch):
    """The catalog said so late that another box of the set had been merged."""
    names = iter(["q/box-router", "q/box-router"])
    made = client([])
    made._parted = lambda query, box: SimpleNamespace(
        router={"name": next(names, "q/other"), "node": "a"}, parts={"q/box-1": "a"}, merges={"q/box": "a"}
    )
    asked, waited = [], []

    def ask(loop, make, *, timeout_us):
        asked.append(make(1).fragment)
        waited.append(timeout_us)
        if asked[-1] == "q/box-router":
            raise LinkError("node 'a' knows no fragment 'q/box-router'", code="E_FRAGMENT")
        return {"fragments": ["q/box"], "node": "a", "pause_us": 5}

    monkeypatch.setattr(splits, "ask", ask)
    monkeypatch.setattr(splits, "LOOK_EVERY_S", 0)
    assert made.merge("q/box", timeout="1s") == {
        "fragment": "q/box",
        "node": "a",
        "pause_us": 5,
        "bytes": 0,
    }
    assert asked == ["q/box-router", "q/other"]
    assert min(waited) > 1_000_000 + max(ASK_US, PATIENCE_US), "who it waits for says why it can't be before"


def fragment(name, node, streams, boxes):
    streams = [f"q.{each}" for each in streams]
    return {"name": f"q/{name}", "query": "q", "node": node, "streams": streams, "boxes": boxes}


NESTED = [
    fragment("w-router", "b", ["w-router.1", "w-router.2"], ["s", "w-router"]),
    fragment("w-1-router", "a", ["w-1-router.1", "w-1-router.2"], ["w-1-router"]),
    fragment("w-1-1", "a", ["w-1-1"], ["w-1-1"]),
    fragment("w-1-2", "b", ["w-1-2"], ["w-1-2"]),
    fragment("w-1-out", "a", ["w-1"], ["w-1", "w-1-1", "w-1-2"]),
    fragment("w-2", "c", ["w-2"], ["w-2"]),
    fragment("w", "b", ["out"], ["w", "w-1", "w-2"]),
]


def test_a_merge_of_a_box_with_a_part_that_is_split_itself_moves_nothing_and_says_what_to_do_first():
    moved = []
    made = client(NESTED, SimpleNamespace(move=lambda *args: moved.append(args)))
    with pytest.raises(LinkError, match="while its part 'w-1' is split itself") as caught:
        made.merge("q/w", timeout="1s")
    assert (caught.value.code, caught.value.hint) == (
        "query.split",
        "first merge the part: medusa merge q/w-1",
    )
    assert moved == []
