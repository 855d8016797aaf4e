"""Where boxes of users' functions and tables may stand."""

from __future__ import annotations

from typing import Any

import pytest

import medusa as md
from medusa.nodes.placement.placement import cut
from medusa.nodes.spec.fragment_spec import check_fragment
from medusa.query import user_registry

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "float64"}


@md.register("node.same")
def same(batch: Any) -> Any:
    return batch


def query() -> tuple[md.Query, md.Stream]:
    q = md.Query("q")
    return q, q.source("a", SCHEMA, slack=0)


def refused(q: md.Query, at: dict[str, list[str]], says: str) -> None:
    with pytest.raises(md.QueryError) as caught:
        cut(q.graph, at)
    assert says in str(caught.value)


def test_functions_without_a_name_stay_at_home() -> None:
    q, a = query()
    q.sink("out", a.apply(lambda batch: batch, SCHEMA, name="mine"))
    refused(q, {"n": ["a"]}, "apply 'mine': its function is not registered, which deploying needs")


def test_async_functions_too() -> None:
    @md.register("node.async")
    async def call(batch: Any) -> Any: ...

    q, a = query()
    q.sink("out", a.apply(call, SCHEMA, name="mine"))
    refused(q, {"n": ["a"]}, "apply 'mine' runs an async function")


def test_a_table_and_its_look_ups_stand_together() -> None:
    q, a = query()
    acc = q.table("acc", key="k", schema={"k": "int64", "w": "float64"})
    q.sink("u", a.update(acc, set={"w": "v"}))
    q.sink("out", a.lookup(acc, name="found"))
    assert [len(cut(q.graph, {"n": ["a"]}).at("n"))] == [1]
    assert cut(q.graph, {"n": ["a"], "m": ["acc", "found"]}).nodes() == ("n", "m")
    refused(q, {"n": ["a"], "m": ["acc"]}, "'found'")
    refused(q, {"n": ["a", "found"], "m": ["acc"]}, "lookup 'found' is at n, its table 'acc' at m")
    refused(q, {"n": ["a", "acc", "found", "u"], "m": ["acc"]}, "table 'acc' is at several nodes")


def test_a_table_that_nothing_changes_must_be_named() -> None:
    q, a = query()
    acc = q.table("acc", key="k", schema={"k": "int64", "w": "float64"}, from_={"k": [1], "w": [2.0]})
    q.sink("out", a.lookup(acc, name="found"))
    refused(q, {"n": ["a"]}, "box 'acc' is at no node")
    (fragment,) = cut(q.graph, {"n": ["a", "acc"]}).at("n")
    check_fragment(fragment)


def test_a_node_refuses_what_it_has_not_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    q, a = query()
    q.sink("out", a.apply(same, SCHEMA, name="mine"))
    (fragment,) = cut(q.graph, {"n": ["a"]}).at("n")
    check_fragment(fragment)
    monkeypatch.setattr(user_registry, "_known", {})
    with pytest.raises(md.QueryError, match=r"nobody registered: 'node\.same' version 1 of apply 'mine'"):
        check_fragment(fragment)
