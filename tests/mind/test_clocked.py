"""Nodes that decide by their clock: what they decided holds after a crash, and one program agrees."""

from __future__ import annotations

import pytest

import medusa as md
from medusa.mind.clocked import decides
from tests.mind.clocked_run import SCHEMA, SPAN_US, ClockedRun, rows


def guarded() -> md.Query:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", slack="1s", ahead="1s")
    q.sink("rows", cars)
    q.sink("ahead", cars.ahead)
    q.sink("counts", cars.window("100ms").group_by("k").aggregate(n=md.count()))
    return q


@pytest.mark.parametrize(("seed", "kills"), [(1, 0), (2, 3), (3, 3), (4, 6)])
def test_rows_ahead_of_the_clock_of_their_node_are_the_same_after_a_crash(seed, kills, monkeypatch):
    """Every row is near the limit, so a train that came again and was judged anew would be cut otherwise."""
    run = ClockedRun(seed, guarded(), monkeypatch)
    start_us = run.federation.world.now_us
    count = 400
    at_us = [start_us + 50_000 + SPAN_US * number // count for number in range(count)]
    data = rows([at + 1_000_000 + run.dice.randrange(-300_000, 300_000) for at in at_us], run.dice)
    run.publish("cars", data, {begin: at_us[begin] for begin in range(0, count, 10)})
    run.kill(kills)
    found = run.answer()
    assert sorted(row["v"] for row in [*found["rows"], *found["ahead"]]) == list(range(count))
    assert 50 < len(found["ahead"]) < 350
    assert found == run.embedded()
    counts = run.node.brain.commands.engine["q/cars"]["boxes"]
    assert counts["cars"]["ahead"] == len(found["ahead"])


def test_only_sources_whose_arrival_no_column_says_are_the_nodes_decision():
    assert decides(guarded().graph)
    q = md.Query("q")
    cars = q.source("cars", SCHEMA | {"at": "timestamp[us, UTC]"}, time="ts", ahead="1s", arrival="at")
    q.sink("rows", cars)
    assert not decides(q.graph)
