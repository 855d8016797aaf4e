"""What stats say of boxes: lag, cost, rows that wait; also after a restore."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.engine.core.box import Operator
from medusa.engine.fragment import Fragment
from medusa.engine.stats import STATS_SCHEMA, TIMED

SCHEMA = {"t": "int64", "k": "utf8"}


def batch(*rows: tuple[int, str]) -> pa.RecordBatch:
    t, k = zip(*rows, strict=True)
    return pa.record_batch({"t": pa.array(t, pa.int64()), "k": pa.array(k, pa.utf8())})


def push(fragment: Fragment, source: str, *rows: tuple[int, str]) -> None:
    batches = [batch(*rows)]
    fragment.push_rows(source, batches, fragment.check_rows(source, batches))


def stats(fragment: Fragment, now_us: int | None = None) -> dict[str, dict[str, Any]]:
    return {row["box"]: row for row in fragment.stats(now_us).to_pylist()}


def restored(fragment: Fragment) -> Fragment:
    return Fragment.restore(fragment.graph, fragment.snapshot(), clock=md.testing.ManualClock())


def lags(fragment: Fragment) -> dict[str, float | None]:
    rows = stats(fragment)
    return {id: None if row["lag_us"] is None else row["lag_us"] / 1e6 for id, row in rows.items()}


@pytest.mark.parametrize("partition", [None, "k"])
def test_lag_is_behind_the_newest_time_of_the_sources_above(partition: str | None) -> None:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="t", unit="s", slack="2s", partition=partition)
    b = q.source("b", SCHEMA, time="t", unit="s", slack="0s")
    q.sink("late", a.late)
    q.sink("out", a.filter("t > 0", name="f").union(b, name="u"))
    fragment = Fragment(q.graph)
    assert set(lags(fragment).values()) == {None}
    push(fragment, "a", (10, "x"), (30, "y"))
    held = 28 if partition is None else 8  # of both partitions x is behind
    expected = {"a": 30.0 - held, "f": 30.0 - held, "b": None, "u": None, "out": None, "late": None}
    assert lags(fragment) == expected
    push(fragment, "b", (5, "x"))
    expected |= {"b": 0.0, "u": 25.0, "out": 25.0}
    assert lags(fragment) == expected
    assert lags(restored(fragment)) == expected
    fragment.promise("a", 100_000_000)  # promised beyond what has come
    assert lags(fragment) | {"u": None, "out": None} == expected | {
        "a": 0.0,
        "f": 0.0,
        "u": None,
        "out": None,
    }
    fragment.finish()
    assert set(lags(fragment).values()) == {0.0}


def test_lag_of_what_was_judged_elsewhere_is_that_of_its_boundary() -> None:
    q = md.Query("q")
    q.sink("out", q.source("a", SCHEMA, time=None).filter("t > 0", name="f"))
    fragment = Fragment(q.graph)
    push(fragment, "a", (1, "x"))
    assert set(lags(fragment).values()) == {None}


def test_cost_is_of_the_rows_of_this_process() -> None:
    q = md.Query("q")
    q.sink("out", q.source("a", SCHEMA, time="t", unit="s", slack="0s").filter("t > 0", name="f"))
    untimed = Fragment(q.graph)
    push(untimed, "a", (1, "x"))
    assert stats(untimed)["f"]["cost_us"] is None
    fragment = Fragment(q.graph, clock=md.testing.ManualClock())
    push(fragment, "a", *[(1, "x")] * 10)
    fragment.boxes["f"].busy_us = 600
    assert stats(fragment)["f"]["cost_us"] == 60
    fragment = restored(fragment)
    assert stats(fragment)["f"]["cost_us"] is None
    push(fragment, "a", *[(2, "x")] * 3)
    fragment.boxes["f"].busy_us = 600
    row = stats(fragment)["f"]
    assert (row["rows_in"], row["cost_us"], row["selectivity"]) == (13, 200, 1)


def test_rates_need_a_time_and_do_not_count_what_was_restored() -> None:
    q = md.Query("q")
    q.sink("out", q.source("a", SCHEMA, time="t", unit="s", slack="0s"))
    fragment = Fragment(q.graph)
    fragment.at(0)
    push(fragment, "a", *[(1, "x")] * 1000)
    assert {row["rows_in_per_s"] for row in stats(fragment).values()} == {None}
    assert {row["rows_in_per_s"] for row in stats(fragment, 2_000_000).values()} == {500}
    fragment = restored(fragment)
    fragment.at(7)
    assert {row["rows_in_per_s"] for row in stats(fragment, 7).values()} == {None}
    push(fragment, "a", (1, "x"))
    assert {row["rows_in_per_s"] for row in stats(fragment, 1_000_007).values()} == {1}


def test_every_box_that_counts_bytes_that_wait_counts_their_rows() -> None:
    """By the classes: whoever has one of the two has the other."""

    def below(kind: type) -> list[type]:
        return [kind, *(each for child in kind.__subclasses__() for each in below(child))]

    kinds = below(Operator)
    assert len(kinds) > 15
    for kind in kinds:
        assert ("queue_bytes" in vars(kind)) == ("queue_rows" in vars(kind)), kind


def test_the_columns_that_were_there_keep_their_places() -> None:
    before = ["box", "kind", "rows_in", "rows_out", "late", "ahead", "tentative", "dead", "dropped"]
    before += ["state_bytes", "queue_bytes", "busy_us", "boundary", "finished"]
    assert STATS_SCHEMA.names[: len(before)] == before
    assert set(TIMED) < set(STATS_SCHEMA.names)
