"""Random queries give what the oracle gives, wherever batches are cut, rows come late, or state is
taken out and put back."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import Boundary, Train
from medusa.engine.fragment import Fragment
from tests.engine.queries import ARROW, batch_of, inputs, numbers, queries
from tests.oracle.query import Answer, Promise, Push, answer, plain

EXAMPLES = 150


def close_to(got: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Equal as sequences; variances, whose last bits depend on the formula, within 1e-9."""
    assert len(got) == len(expected)
    for a, b in zip(plain(got), plain(expected), strict=True):
        for name in a:
            if name.startswith("spread") and isinstance(a[name], float) and isinstance(b[name], float):
                a[name] = pytest.approx(a[name], rel=1e-9, abs=1e-9)
        assert a == b


def check(tables: dict[str, pa.Table], expected: Answer) -> None:
    assert set(tables) == set(expected.sinks)
    for sink, rows in expected.sinks.items():
        close_to(numbers(tables[sink]), rows)


class Driver:
    """Feeds a fragment event by event and keeps what comes out, checking every header."""

    def __init__(self, q: md.Query) -> None:
        self.graph = q.graph
        self.fragment = Fragment(q.graph)
        self.rows: dict[str, list[pa.RecordBatch]] = {name: [] for name in q.sinks}
        self.next = dict.fromkeys(q.sinks, 0)
        self.boundary = dict.fromkeys(q.sinks, -(1 << 62))

    def feed(self, event: Push | Promise, cuts: list[int]) -> None:
        if isinstance(event, Promise):
            self.fragment.feed(event.source, Boundary(event.time))
            return
        edges = sorted({0, len(event.rows), *(c for c in cuts if c < len(event.rows))})
        for start, end in pairwise(edges):
            self.fragment.feed(event.source, Train(batch=batch_of(event.rows[start:end])))

    def elements(self, sink: str) -> list[Any]:
        return list(self.fragment.drain(sink))

    def drain(self) -> None:
        for sink in self.rows:
            for element in self.elements(sink):
                if isinstance(element, Boundary):
                    assert (
                        element.time_us >= self.boundary[sink]
                    )  # the last one is told again after a restore
                    self.boundary[sink] = element.time_us
                    continue
                assert element.first_seq == self.next[sink]
                self.next[sink] += len(element)
                self.rows[sink].append(element.batch)
                if element.times is not None and element.late is None:
                    assert min(element.times.cast(pa.int64()).to_pylist()) >= self.boundary[sink]

    def reload(self) -> None:
        """Take the state out and put it into a new fragment."""
        files = {name: bytes(data) for name, data in self.fragment.snapshot().items()}
        self.fragment = Fragment.restore(self.graph, files)

    def tables(self) -> dict[str, pa.Table]:
        return {
            name: pa.Table.from_batches(batches, self.fragment.sink(name).schema)
            for name, batches in self.rows.items()
        }


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_a_fragment_gives_what_the_oracle_gives(data: st.DataObject) -> None:
    """Also with state taken out and put back at a random moment, and output drained or left there."""
    q = data.draw(queries())
    events = data.draw(inputs(list(q.sources)))
    cuts = data.draw(st.sampled_from([[], [1], [2, 3, 7], list(range(1, 12))]))
    reload_at = data.draw(st.integers(-1, len(events)))
    drain_often = data.draw(st.booleans())
    if any(box.__class__.__name__ == "Union" for box in q.graph.boxes):
        cuts = []  # the order of arrival is that of the trains
    driver = Driver(q)
    for number, event in enumerate(events):
        if number == reload_at:
            driver.reload()
        driver.feed(event, cuts)
        if drain_often:
            driver.drain()
    if reload_at == len(events):
        driver.reload()
    driver.fragment.finish()
    driver.drain()
    expected = answer(q.graph, events)
    check(driver.tables(), expected)
    assert {n: s.late for n, s in driver.fragment.sources.items()} == expected.late


@settings(max_examples=EXAMPLES // 2)
@given(st.data())
def test_collect_gives_what_the_oracle_gives(data: st.DataObject) -> None:
    q = data.draw(queries(unions=False))
    events = [e for e in data.draw(inputs(list(q.sources))) if isinstance(e, Push)]
    rows = {name: [row for e in events if e.source == name for row in e.rows] for name in q.sources}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", md.LateWarning)
        got = md.collect(q, **{name: pa.Table.from_pylist(each, ARROW) for name, each in rows.items()})
    check(dict(got), answer(q.graph, events))


@settings(max_examples=EXAMPLES // 2)
@given(st.data())
def test_measured_slack_keeps_every_row(data: st.DataObject) -> None:
    """``slack=None`` over bounded input is just enough: nothing is late, and with 1 us less one is."""
    events = [e for e in data.draw(inputs(["a"])) if isinstance(e, Push)]
    rows = [row for e in events for row in e.rows]
    from medusa.engine.bounded_run import measured_slack_us

    slack = measured_slack_us([e for e in [batch_of(rows).column(0)] if len(e)])
    for tried, some_late in ((slack, False), (slack - 1, True)):
        if tried < 0:
            continue
        q = md.Query("q")
        q.sink(
            "o", q.source("a", {"ts": "timestamp"}, time="ts", slack=tried).window(5).aggregate(n=md.count())
        )
        late = answer(q.graph, [Push("a", [{"ts": row["ts"]} for row in rows])]).late["a"]
        assert (late > 0) == some_late
