"""Threads that share the panes of a window, or go over to copies of it by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa._native import Window
from medusa.elements import Train
from medusa.engine.fragment import Fragment
from medusa.engine.operators.windows import window_panes, window_parts
from medusa.engine.operators.windows.aggregate import AggregateBox
from medusa.engine.operators.windows.window_panes import WindowPanes
from medusa.engine.operators.windows.window_parts import WindowParts
from tests.engine.test_threads import SCHEMA, bits, many_rows, query_of, state_of


@pytest.fixture(autouse=True)
def _small_work_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains of a few rows go to the threads too."""
    monkeypatch.setattr(window_parts, "PARALLEL_ROWS", 3)
    monkeypatch.setattr(window_panes, "CROWDED_TRAINS", 2)


class OneByOne:
    """Workers that run their parts in the caller's thread, the last one first; or stop at some call."""

    def __init__(self, count: int, stop_at: int = -1) -> None:
        self.count = count
        self.calls = 0
        self._stop_at = stop_at

    def map(self, work: Callable[[Any], None], parts: Sequence[Any]) -> None:
        self.calls += 1
        if self.calls == self._stop_at:
            raise KeyboardInterrupt
        for part in reversed(parts):
            work(part)


def window_of(fragment: Fragment) -> Any:
    (box,) = [box for box in fragment.boxes.values() if isinstance(box, AggregateBox)]
    return box._window


def push(fragment: Fragment, table: pa.Table) -> None:
    batch = table.combine_chunks().to_batches()[0]
    fragment.push_rows("rows", [batch], fragment.check_rows("rows", [batch]))


@pytest.mark.parametrize("keys", [[], ["k"], ["text", "f"]])
def test_threads_share_the_panes_of_a_train(keys: list[str]) -> None:
    table = many_rows(3_000, 30, 4)
    q = query_of(keys, 1000, None)
    workers = OneByOne(2)
    seen = []
    for fragment in (Fragment(q.graph), Fragment(q.graph, workers=workers)):
        push(fragment, table)
        seen.append(state_of(fragment))
        fragment.finish()
        seen.append(
            bits(pa.Table.from_batches([e.batch for e in fragment.drain("out") if isinstance(e, Train)]))
        )
    assert isinstance(window_of(fragment), WindowPanes)
    assert workers.calls == 2, "once for the groups, once for the values"
    assert seen[:2] == seen[2:]


def test_an_interrupt_between_groups_and_values_takes_nothing() -> None:
    table = many_rows(1_000, 30, 4)
    window = WindowPanes(size_us=1000, advance_us=500, keys=["l"], inputs=["g"], aggregates=[("sum", 0)])
    window.workers = OneByOne(2)
    rows = table.select(["ts", "k", "v"]).combine_chunks().to_batches()[0]
    window.add(rows.slice(0, 400))
    before = pa.record_batch(window.state()), window.position()
    window.workers = OneByOne(2, stop_at=2)
    with pytest.raises(KeyboardInterrupt):
        window.add(rows.slice(400))
    assert (pa.record_batch(window.state()), window.position()) == before
    window.add(rows.slice(400))
    assert window.position()[1] == 1_000


def test_an_interrupt_right_after_the_rows_were_looked_at_leaves_the_window_usable() -> None:
    """Ctrl-C is raised when a native call returns, before anything else runs."""

    class Interrupted(WindowPanes):
        def spread(self, *args: Any) -> int:
            super().spread(*args)
            raise KeyboardInterrupt

    window = Interrupted(size_us=1000, advance_us=1000, keys=["l"], inputs=[], aggregates=[("count", -1)])
    window.workers = OneByOne(2)
    rows = many_rows(1_000, 30, 4).select(["ts", "k"]).combine_chunks().to_batches()[0]
    with pytest.raises(KeyboardInterrupt):
        window.add(rows)
    assert window.position()[1] == 0
    assert window.rows_open() == 0


def test_a_window_that_fills_few_panes_goes_over_to_copies_by_key() -> None:
    """Once most rows of some trains in a row lie in one pane; with two threads copies would gain nothing."""
    table = many_rows(3_000, 30, 6)
    q = query_of(["k"], 100_000, None)
    one = Fragment(q.graph)
    push(one, table)
    for count, kind in [(2, "WindowPanes"), (3, "WindowParts")]:
        fragment = Fragment(q.graph, workers=OneByOne(count))
        for start in range(0, 3_000, 500):
            push(fragment, table.slice(start, 500))
        assert type(window_of(fragment)).__name__ == kind
        assert state_of(fragment) == state_of(one)
    kept = md.Query("kept")
    rows = kept.source("rows", SCHEMA, time="ts", unit="us", slack=60).filter("v > 100")
    kept.sink("out", rows.window(100_000).group_by("k").aggregate(n=md.count(), s=md.sum("v")))
    tables = []
    for workers in (None, OneByOne(3)):
        behind = Fragment(kept.graph, workers=workers)  # a chain: the filter's program and the window
        for start in range(0, 3_000, 500):
            push(behind, table.slice(start, 500))
        behind.finish()
        trains = [e.batch for e in behind.drain("out") if isinstance(e, Train)]
        tables.append(bits(pa.Table.from_batches(trains)))
    assert isinstance(window_of(behind), WindowParts)
    assert tables[0] == tables[1] != []
    spread = Fragment(query_of(["k"], 1000, None).graph, workers=OneByOne(3))
    for start in range(0, 3_000, 1_000):
        push(spread, table.slice(start, 1_000))
    assert isinstance(window_of(spread), WindowPanes), "every train has rows of many panes"


def test_the_calls_of_a_spread_are_checked() -> None:
    window = Window(size_us=10, advance_us=10, keys=["l"], inputs=[], aggregates=[("count", -1)])
    rows = pa.record_batch({"t": pa.array([1, 11, 12], pa.int64()), "k": pa.array([1, 2, 3], pa.int64())})
    with pytest.raises(ValueError, match="no rows are being spread"):
        window.spread_end()
    with pytest.raises(ValueError, match="no such place"):
        window.spread_map(0)
    assert window.spread(rows, None, 2) == 2
    with pytest.raises(ValueError, match="no such place"):
        window.spread_fill(2)
    with pytest.raises(RuntimeError):
        window.add(rows)
    window.spread_end()
    assert window.rows_open() == 0
    window.add(rows)
    assert window.rows_open() == 3
