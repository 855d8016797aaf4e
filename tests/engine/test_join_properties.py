"""Random joins of every kind give what the oracle gives, wherever batches are cut or state is reloaded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.engine.operators.joins import join
from tests.engine.queries import SCHEMA, inputs
from tests.engine.test_properties import Driver, check
from tests.oracle.query import answer

ONS: list[Any] = ["k", "s", "v", ["k", "s"], {"k": "n"}, {"n": "k"}]
WHERES = [None, "left.n <= right.n", "left.v > right.v or left.s = 'b'", "right.n < 5", "left.n % 2 = 0"]
HOWS = ["inner", "left", "right", "full", "semi", "anti"]


@st.composite
def joins(draw: st.DrawFn) -> md.Query:
    """A join of two sources, or of one with itself."""
    q = md.Query("joins")
    slack = draw(st.sampled_from([0, 3, 10, 40]))
    a = q.source("a", SCHEMA, time="ts", slack=slack)
    b = q.source("b", SCHEMA, time="ts", slack=draw(st.sampled_from([0, 5])))
    other = draw(st.sampled_from([b, b, b, a]))
    on, where = draw(st.sampled_from(ONS)), draw(st.sampled_from(WHERES))
    kind = draw(st.sampled_from(["join", "join", "asof"]))
    if kind == "join":
        within = draw(st.sampled_from([0, 1, 4, 15, 60]))
        made = a.join(other, on=on, within=within, where=where, how=draw(st.sampled_from(HOWS)))
    else:
        both = where is not None and "left" in where and "right" in where
        within_or_none = draw(st.sampled_from([0, 2, 9, 60] if both else [None, None, 0, 2, 9]))
        how = draw(st.sampled_from(["left", "inner"]))
        made = a.asof_join(other, on=on, within=within_or_none, where=where, how=how)
    q.sink("o", made)
    if other is a:
        q.sink("rest", b)
    if draw(st.booleans()):  # the times of results
        q.sink("w", made.select(at="epoch_us(tuple_time)"))
    return q


def run(q: md.Query, events: list[Any], cuts: list[int], reload_at: int) -> Driver:
    driver = Driver(q)
    for number, event in enumerate(events):
        if number == reload_at:
            driver.reload()
        driver.feed(event, cuts)
        driver.drain()
    if reload_at == len(events):
        driver.reload()
    driver.fragment.finish()
    driver.drain()
    return driver


@settings(max_examples=200)
@given(st.data())
def test_joins_give_what_the_oracle_gives(data: st.DataObject) -> None:
    q = data.draw(joins())
    events = data.draw(inputs(["a", "b"]))
    cuts = data.draw(st.sampled_from([[], [1], [2, 3, 7], list(range(1, 12))]))
    driver = run(q, events, cuts, data.draw(st.integers(-1, len(events))))
    check(driver.tables(), answer(q.graph, events))


@settings(max_examples=80)
@given(st.data())
def test_small_limits_change_nothing(data: st.DataObject) -> None:
    """Steps of one pair, keys and rows forgotten all the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "PAIRS_MAX", 1)
        patch.setattr(join, "KEYS_SPARE", 0)
        patch.setattr(join, "ROWS_SPARE", 0)
        q = data.draw(joins())
        events = data.draw(inputs(["a", "b"]))
        driver = run(q, events, [1, 2, 3, 5, 8], data.draw(st.integers(-1, len(events))))
        check(driver.tables(), answer(q.graph, events))
