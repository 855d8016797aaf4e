"""Boxes split and merged while they run, with their state: the answer is that of a run never split."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.engine.change import change_fragment
from medusa.engine.splitting import merge_running, split_running
from medusa.errors import QueryError
from medusa.query.boxes import KeyRouter
from tests.engine.queries import inputs
from tests.engine.test_properties import Driver
from tests.engine.test_splitting import BUILDS, ROWS, outcome, query
from tests.oracle.query import plain

EXAMPLES = 2


def split_now(driver: Driver, n: int, **options: Any) -> None:
    _change(driver, split_running(driver.fragment, "x", n, **{"ranges": "even", "block": 2} | options))


def merge_now(driver: Driver) -> None:
    _change(driver, merge_running(driver.fragment, "x"))


def _change(driver: Driver, made: Any) -> None:
    made.before()
    change_fragment(driver.fragment, made.graph, functions={}, given=made.given)
    driver.graph = made.graph


@pytest.mark.parametrize("kind", BUILDS)
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_split_and_merged_at_any_moment_nothing_changes(kind: str, data: st.DataObject) -> None:
    """Also with state taken out and put back while there are parts, and parts again later."""
    q = query(kind, data.draw(st.sampled_from([0, 3, 40])))
    events = data.draw(inputs(["a", "b"]))
    cuts = data.draw(st.sampled_from([[], [1], [2, 3, 7]]))
    steps = data.draw(
        st.lists(st.sampled_from(["nothing", "turn", "reload"]), min_size=len(events), max_size=len(events))
    )
    driver, parts = Driver(q), False
    for event, step in zip(events, steps, strict=True):
        driver.feed(event, cuts)
        if step == "turn":
            if parts:
                merge_now(driver)
            elif kind in ROWS or data.draw(st.booleans()):
                split_now(driver, data.draw(st.integers(2, 4)))
            else:
                hashes = st.lists(st.integers(1, (1 << 64) - 1), min_size=2, max_size=2, unique=True)
                split_now(driver, 3, ranges=sorted(data.draw(hashes)))
            parts = not parts
        elif step == "reload":
            driver.reload()
        driver.drain()
    driver.fragment.finish()
    driver.drain()
    got = {sink: plain(table.to_pylist()) for sink, table in driver.tables().items()}
    assert got == outcome(q, events, cuts)
