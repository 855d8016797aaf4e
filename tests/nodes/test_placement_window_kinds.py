"""Sessions, row and value windows, running aggregates and top-N stand whole on one node."""

from __future__ import annotations

from typing import Any

import pytest

import medusa as md
from medusa.errors import QueryError
from medusa.nodes.placement.placement import cut

KINDS: dict[str, Any] = {
    "session": lambda s: s.session("3us").group_by("k").aggregate(n=md.count(), name="kind"),
    "window_rows": lambda s: s.group_by("k").window_rows(2).aggregate(n=md.count(), name="kind"),
    "window_values": lambda s: s.group_by("k").window_values("k", 2).aggregate(n=md.count(), name="kind"),
    "running": lambda s: s.group_by("k").running(n=md.count(), name="kind"),
    "top": lambda s: s.window("3us").top(1, by="k", name="kind"),
}


def query(kind: str) -> md.Query:
    q = md.Query("q")
    q.sink("out", KINDS[kind](q.source("a", {"ts": "timestamp", "k": "int64"}, time="ts")))
    return q


@pytest.mark.parametrize("kind", KINDS)
def test_on_one_node_it_is_placed(kind: str) -> None:
    plan = cut(query(kind).graph, {"e1": ["a"], "c": ["kind"]}, nodes=["e1", "c"])
    assert [box.id for fragment in plan.at("c") for box in fragment.graph.boxes][1:] == ["kind", "out"]


@pytest.mark.parametrize("kind", KINDS)
def test_on_two_nodes_it_is_refused_by_name(kind: str) -> None:
    both = {"e1": ["a", "kind"], "e2": ["a", "kind"], "c": ["out"]}
    with pytest.raises(QueryError, match="'kind' is named at 2 nodes"):
        cut(query(kind).graph, both, nodes=["e1", "e2", "c"])
