"""Rates of the boxes of a node, from what the engine told of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec.structs import replace

import medusa as md
from medusa.nodes.placement.placement import cut
from medusa.nodes.status.fragment_status import FragmentRates, encoded, sources_of
from medusa.wire import limits
from medusa.wire.status_and_metrics import (
    BoxStatus,
    FragmentStatus,
    LinkStatus,
    LoadStatus,
    NodeStatus,
    PeerStatus,
    VisibleStatus,
    plain,
)


def told(rows: int, busy_us: int = 0) -> dict[str, Any]:
    boxes = {
        "a": {"rows_in": rows, "rows_out": rows // 2, "busy_us": 0},
        "b": {"rows_in": rows // 2, "rows_out": 0, "busy_us": busy_us},
    }
    return {"f": {"boxes": boxes}}


def rates_of(
    rates: FragmentRates, now_us: int, engine: dict[str, Any]
) -> dict[str, tuple[float, ...] | None]:
    names = ("rows_in_per_s", "rows_out_per_s", "load")
    found = rates.of_boxes(now_us, "f", engine["f"]["boxes"])
    return {id: tuple(box[name] for name in names) if "load" in box else None for id, box in found.items()}


def test_each_box_has_its_own_rate() -> None:
    rates = FragmentRates()
    rates.tick(0, [], told(0))
    rates.tick(1_000_000, [], told(1000, 500_000))
    assert rates_of(rates, 2_000_000, told(1000, 500_000)) == {"a": (500, 250, 0), "b": (250, 0, 0.25)}


def test_a_node_that_rests_has_no_rate() -> None:
    rates = FragmentRates()
    for tick in range(60):
        rates.tick(tick * 200_000, [], told(min(tick, 10) * 100))
    assert rates_of(rates, 12_000_000, told(1000)) == {"a": (0, 0, 0), "b": (0, 0, 0)}


def test_nothing_is_known_of_what_is_new_or_is_another_query() -> None:
    rates = FragmentRates()
    assert rates_of(rates, 5, told(10)) == {"a": None, "b": None}
    rates.tick(0, [], told(0))
    rates.tick(1_000_000, [], {"f": {"boxes": {"c": {"rows_in": 5, "rows_out": 5, "busy_us": 0}}}})
    assert rates_of(rates, 2_000_000, told(10)) == {"a": None, "b": None}
    rates.tick(2_000_000, [], {})
    rates.tick(3_000_000, [], told(10))
    assert rates_of(rates, 4_000_000, told(20)) == {"a": (10, 5, 0), "b": (5, 0, 0)}


def test_a_status_too_long_for_a_message_leaves_the_boxes_out() -> None:
    boxes = {id: BoxStatus(**figures) for id, figures in told(10)["f"]["boxes"].items()}
    status = NodeStatus(
        node="n", fragments=(FragmentStatus(fragment="q/f", query="q", boxes=boxes, arcs=(("a", "", "b"),)),)
    )
    whole = encoded(status)
    assert json.loads(whole) == plain(status)
    short = plain(NodeStatus(node="n", fragments=(FragmentStatus(fragment="q/f", query="q"),)))
    assert json.loads(encoded(status, most=len(whole) - 1)) == short


def test_of_very_many_peers_not_each_one_is_told() -> None:
    peers = [f"n{number}" for number in range(10)]
    links, said = dict.fromkeys(peers, LinkStatus()), dict.fromkeys(peers, PeerStatus())
    status = NodeStatus(node="n", load=LoadStatus(load=0.5, links=links, peers=said))
    whole = encoded(status)
    assert json.loads(whole) == plain(status)
    shorter = json.loads(encoded(status, most=len(whole) - 1))
    assert shorter == plain(NodeStatus(node="n", load=LoadStatus(load=0.5)))


def test_partitions_of_a_source_that_are_too_many_are_not_told() -> None:
    """A status with all of some sources was too long for a message."""

    def told_of(count: int) -> Any:
        q = md.Query("q")
        partitions = [f"meter {number:060}" for number in range(count)]
        schema = {"ts": "timestamp[us]", "meter": "utf8"}
        q.sink("out", q.source("rows", schema, time="ts", partition="meter", partitions=partitions))
        return sources_of(cut(q.graph, {"n": ["rows"]}).fragments)["q.rows"]

    assert told_of(2).partitions == tuple(f"meter {number:060}" for number in range(2))
    many = told_of(10_000)
    assert (many.partition, many.partitions) == ("meter", None)
    assert len(msgspec.json.encode(many)) < limits.BODY_BYTES_MAX
    few = replace(told_of(2), partitions=None)
    for status in (
        NodeStatus(node="n", sources={"q.rows": told_of(2)}),
        VisibleStatus(node="n", sources={"q.rows": told_of(2)}, streams=(), elsewhere={}, fragments=()),
    ):
        said = json.loads(encoded(status, most=len(encoded(status)) - 1))["sources"]["q.rows"]
        assert said == json.loads(msgspec.json.encode(few))
