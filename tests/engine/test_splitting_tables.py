"""Keyed tables and look-ups in parts, each by itself or together: what a run gives that was never split."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.errors import QueryError
from medusa.query.boxes import Lookup, Table
from medusa.query.graph import check_graph
from medusa.query.rewrite.split import find_split, merge, split
from medusa.query.signature import differences, signatures
from tests.engine.queries import SCHEMA, inputs
from tests.engine.test_properties import Driver
from tests.engine.test_splitting import outcome
from tests.engine.test_splitting_run import long_stream, merge_now, split_now
from tests.engine.test_user_properties import ACCOUNT, FROM
from tests.oracle.query import Push, plain

BOXES = ("acc", "seen", "now")


def query(slack: int = 10, **more: Any) -> md.Query:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", slack=slack)
    b = q.source("b", SCHEMA, time="ts", slack=slack)
    acc = q.table("acc", key="k", schema=ACCOUNT, **more)
    changed = a.update(acc, set={"total": "v", "seen": "table.seen + 1"}, insert={"seen": "n"})
    q.sink("changed", changed.lookup(acc, suffix="_now", name="now"))
    q.sink("gone", b.filter("n = 5").delete(acc))
    q.sink("seen_out", b.lookup(acc, how="inner", suffix="_then", name="seen"))
    return q


def turn(driver: Driver, box: str, parts: set[str], n: int) -> None:
    """Split a box, or merge it where it is in parts."""
    _ = merge_now(driver, box) if box in parts else split_now(driver, n, box)
    parts.symmetric_difference_update({box})


@settings(max_examples=25)
@given(st.data())
def test_a_table_and_its_look_ups_are_split_and_merged_in_any_order(data: st.DataObject) -> None:
    more = {
        "from_": data.draw(st.sampled_from([None, FROM])),
        "expire": data.draw(st.sampled_from([None, 6])),
    }
    q = query(data.draw(st.sampled_from([0, 3, 40])), **more)
    events = data.draw(inputs(["a", "b"]))
    driver, parts = Driver(q), set[str]()
    for event in events:
        driver.feed(event, [2, 3, 7])
        for box in data.draw(st.lists(st.sampled_from(BOXES), max_size=3)):
            turn(driver, box, parts, data.draw(st.integers(2, 4)))
        if data.draw(st.integers(0, 3)) == 0:
            driver.reload()
        driver.drain()
    driver.fragment.finish()
    driver.drain()
    got = {sink: plain(table.to_pylist()) for sink, table in driver.tables().items()}
    assert got == outcome(q, events, [2, 3, 7])


@pytest.mark.parametrize("seed", range(3))
def test_a_longer_stream_with_many_turns(seed: int) -> None:
    draw = random.Random(seed)
    q, events = query(from_=FROM, expire=[None, 6, 30][seed]), long_stream(draw)
    driver, parts, turns = Driver(q), set[str](), 0
    for event in events:
        driver.feed(event, [2, 3, 7])
        if draw.random() < 0.5:
            turn(driver, draw.choice(BOXES), parts, draw.randrange(2, 5))
            turns += 1
        driver.drain()
    assert turns > 9
    driver.fragment.finish()
    driver.drain()
    got = {sink: plain(table.to_pylist()) for sink, table in driver.tables().items()}
    assert got == outcome(q, events, [2, 3, 7])
    assert min(map(len, got.values())) > 0
    assert sum(map(len, got.values())) > 60


@pytest.mark.parametrize("first", BOXES)
def test_merged_in_any_order_the_query_is_as_it_was(first: str) -> None:
    graph = query(from_=FROM).graph
    parts = graph
    for box in BOXES:
        parts = split(parts, box, 3)
    assert md.Query.from_json(md.Query.from_graph(parts).to_json()).graph == parts
    for box in (first, *(each for each in BOXES if each != first)):
        parts = merge(parts, box)
    assert {box.id: box for box in parts.boxes} == {box.id: box for box in graph.boxes}


def test_a_look_up_says_what_its_table_is_while_that_is_in_parts_and_is_the_same_box() -> None:
    """It keeps its copy of the table, so it must not count as another one."""
    graph = query(from_=FROM, expire="1h").graph
    parts = split(graph, "acc", 2)
    before, now = (signatures(check_graph(each)) for each in (graph, parts))
    boxes = {box.id: box for box in parts.boxes}
    whole = next(box for box in graph.boxes if isinstance(box, Table))
    for id in ("seen", "now"):
        looked = boxes[id]
        assert isinstance(looked, Lookup)
        assert looked.table is not None
        assert (looked.table.id, looked.table.keys, looked.table.rows) == ("acc", whole.keys, whole.rows)
        assert differences(before[id], now[id]) == []
    assert {box.id: box for box in merge(parts, "acc").boxes} == {box.id: box for box in graph.boxes}


def rows_of(driver: Driver, ids: list[str]) -> int:
    return sum(driver.fragment.boxes[id].save().tables["rows"].num_rows for id in ids)


@pytest.mark.parametrize("begins_in_parts", [False, True])
def test_parts_hold_what_is_stored_under_their_keys_and_a_merge_holds_all_of_it_once(
    begins_in_parts: bool,
) -> None:
    """Parts that begin with the query have all rows of before all time each."""
    given = dict.fromkeys(ACCOUNT, [None] * 50) | {"k": list(range(50))}
    q = query(0, from_=given)
    if begins_in_parts:
        for box in BOXES:
            q = q.split(box, 3)
    driver = Driver(q)
    for ts in (1, 9):
        rows = [{"ts": ts, "k": k, "v": 0.5, "s": "", "n": 1} for k in (3, 70, 80)]
        for source in "ab":
            driver.feed(Push(source, rows), [])
    for box in BOXES:
        if not begins_in_parts:
            assert rows_of(driver, [box]) == 52
            split_now(driver, 3, box)
            parts = [part.id for part in find_split(driver.graph, box).parts]
            assert rows_of(driver, parts) == 52
            assert min(rows_of(driver, [part]) for part in parts) > 5
        merge_now(driver, box)
        assert rows_of(driver, [box]) == 52


def test_a_part_of_a_table_is_not_split_again_and_a_part_of_a_look_up_is() -> None:
    parts = split(split(query().graph, "acc", 2), "seen", 2)
    with pytest.raises(QueryError, match="it is a part already, whose rows a merge orders: merge it"):
        split(parts, "acc-1", 2)
    again = split(parts, "seen-1", 2)
    assert merge(again, "seen-1") == parts


def test_a_look_up_that_says_of_its_table_what_it_is_not_is_refused() -> None:
    text = md.Query.from_graph(split(query(expire=7).graph, "acc", 2)).to_json()
    old = '"keys": [\n          "k"\n        ]'
    assert old in text
    with pytest.raises(QueryError, match="the key 'total'|expected the keys"):
        md.start(md.Query.from_json(text.replace(old, old.replace('"k"', '"total"'))))
    graph = query().graph
    boxes = {box.id: box for box in graph.boxes}
    table, seen = boxes["acc"], boxes["seen"]
    assert isinstance(table, Table)
    assert isinstance(seen, Lookup)
    for wrong in (
        msgspec.structs.replace(table, schema=table.schema[::-1], inputs=(), updates=()),
        table,
    ):
        other = msgspec.structs.replace(seen, table=wrong)
        every = tuple(other if box.id == "seen" else box for box in graph.boxes)
        with pytest.raises(QueryError, match="isn't its table"):
            check_graph(msgspec.structs.replace(graph, boxes=every))
