"""Output leaves in pieces: what waits between boxes is bounded, and a fragment stops between two of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import END_US, Boundary, Train
from medusa.engine import scheduler
from medusa.engine.core import output_pieces
from medusa.engine.fragment import Fragment
from medusa.engine.operators.joins import join
from medusa.errors import StateError

ROWS = 20


def rows(count: int) -> pa.RecordBatch:
    times = pa.array(range(count), pa.timestamp("us", "UTC"))
    return pa.record_batch({"ts": times, "k": pa.array([1] * count), "v": pa.array(range(count))})


def joins(count: int, where: str | None = None) -> md.Query:
    q = md.Query("joins")
    source = q.source("rows", {"ts": "timestamp", "k": "int64", "v": "int64"}, time="ts", slack="1 s")
    made = source
    for _ in range(count):
        made = made.join(source, on="k", within="1 s", where=where).select("k", v="v")
    q.sink("out", made)
    return q


def begun(q: md.Query, count: int = ROWS) -> Fragment:
    """A fragment whose first slice has ended."""
    fragment = Fragment(q.graph)
    fragment.feed("rows", Train(batch=rows(count)))
    assert not fragment.feed_slice("rows", Boundary(END_US), lambda: True)
    return fragment


def left(fragment: Fragment) -> int:
    """Rows that left by the sink since the last time."""
    return sum(len(each) for each in fragment.drain("out") if isinstance(each, Train))


@pytest.mark.parametrize("count", [3, 6])
def test_little_waits_between_exploding_joins(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "PAIRS_MAX", 500)
    monkeypatch.setattr(output_pieces, "ROWS_MAX", 500)
    fragment = begun(joins(count), 60)
    most = 0
    for _ in range(40):
        most = max(most, fragment._scheduler.waiting_bytes())
        assert not fragment.go_on(lambda: True)
    assert 0 < most <= 2 * count * 3 * 500 * 24


def test_output_leaves_while_more_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "PAIRS_MAX", 100)
    fragment = begun(joins(1), 100)
    found, slices = [left(fragment)], 1
    while not fragment.go_on(lambda: True):
        found.append(left(fragment))
        slices += 1
    assert sum(found) + left(fragment) == 100 * 100
    assert max(found) <= 300
    assert slices > 30


def test_pairs_that_fail_a_condition_end_slices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "PAIRS_MAX", 100)
    fragment = begun(joins(1, "left.v = right.v"), 100)
    slices = 1
    while not fragment.go_on(lambda: True):
        slices += 1
    assert left(fragment) == 100
    assert slices > 30


def test_there_is_no_state_between_two_slices() -> None:
    fragment = begun(joins(3))
    for ask in (fragment.snapshot, fragment.copying):
        with pytest.raises(StateError) as caught:
            ask()
        assert caught.value.code == "state.slice"


def test_parts_of_a_large_batch_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    q = md.Query("parts")
    source = q.source("rows", {"ts": "timestamp", "k": "int64", "v": "int64"}, time="ts")
    q.sink("out", source.join(source, on="k", within="3 us").select("k", v="v"))
    monkeypatch.setattr(join, "PAIRS_MAX", 5)
    found = []
    for rests in (False, True):
        fragment = Fragment(q.graph, train_rows_max=10)
        done = fragment.feed_slice("rows", Train(batch=rows(200)), lambda rests=rests: rests)
        assert done is not rests
        while not done:
            done = fragment.go_on(lambda: True)
        fragment.finish()
        found.append(pa.Table.from_batches([e.batch for e in fragment.drain("out") if isinstance(e, Train)]))
    assert found[0].equals(found[1])


def test_streams_that_meet_keep_the_order_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    q = md.Query("meets")
    source = q.source("rows", {"ts": "timestamp", "k": "int64", "v": "int64"}, time="ts", slack="1 s")
    pairs = source.join(source, on="k", within="1 s").select("k", v="v")
    q.sink("out", pairs.filter("v % 2 = 0").union(pairs.filter("v % 2 = 1"), source.select("k", "v")))

    def run() -> list[Any]:
        fragment = Fragment(q.graph)
        fragment.feed("rows", Train(batch=rows(60)))
        done = fragment.feed_slice("rows", Boundary(END_US), lambda: True)
        while not done:
            done = fragment.go_on(lambda: True)
        return [row for e in fragment.drain("out") if isinstance(e, Train) for row in e.batch.to_pylist()]

    whole = run()
    for module, name in ((join, "PAIRS_MAX"), (output_pieces, "ROWS_MAX"), (scheduler, "QUEUE_MAX")):
        monkeypatch.setattr(module, name, 4)
    assert run() == whole
