"""Early results of users' aggregates beside brute force: cut and restored anywhere, in one or two threads.

The aggregate here depends on the order of its rows, and its merge on the order of the panes, so that a pane
that is missing, doubled or in the wrong place shows in its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import START_US, Kind, Train
from medusa.engine.fragment import Fragment
from medusa.engine.operators.windows import window_parts
from medusa.runtime.machine.native_workers import ThreadWorkers

SCHEMA = {"ts": "timestamp", "k": "utf8", "a": "int64", "b": "float64"}
ARROW = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("a", pa.int64()), ("b", pa.float64())]
)
PRIME = 1_000_003
SLACK = 4
Row = tuple[int, str | None, int | None, float | None]


@md.register("test.early.Trace")
class Trace:
    """A number that tells the rows (those where neither argument is null) and their order."""

    inputs: ClassVar = ["int64", "float64"]
    state: ClassVar = {"trace": "int64", "shift": "int64", "any": "bool"}
    result = "int64"

    def init(self, groups: int) -> dict[str, Any]:
        return {
            "trace": np.zeros(groups, np.int64),
            "shift": np.ones(groups, np.int64),
            "any": np.zeros(groups, bool),
        }

    def add(self, state: Any, groups: Any, a: Any, b: Any) -> Any:
        for group, x, y in zip(groups, a, b, strict=True):
            state["trace"][group] = (state["trace"][group] * 31 + code(x, y)) % PRIME
            state["shift"][group] = state["shift"][group] * 31 % PRIME
            state["any"][group] = True
        return state

    def merge(self, state: Any, other: Any, groups: Any) -> Any:
        state["trace"][groups] = (state["trace"][groups] * other["shift"] + other["trace"]) % PRIME
        state["shift"][groups] = state["shift"][groups] * other["shift"] % PRIME
        state["any"][groups] |= other["any"]
        for array in other.values():
            array[:] = 0
        return state

    def finish(self, state: Any) -> Any:
        made = pa.array(state["trace"].copy(), mask=~state["any"])
        for array in state.values():  # as in merge: methods may change what they are given
            array[:] = 0
        return made


def code(a: int, b: float) -> int:
    return int(a) * 7 + int(b * 2) + 100


def traced(rows: list[Row]) -> int | None:
    codes = [code(a, b) for _, _, a, b in rows if a is not None and b is not None]
    trace = 0
    for each in codes:
        trace = (trace * 31 + each) % PRIME
    return trace if codes else None


def query(size: int, advance: int, early: int, *, keyed: bool) -> md.Query:
    q = md.Query("q")
    windows = q.source("s", SCHEMA, slack=SLACK).window(size, advance=advance)
    calls = {
        "n": md.count(),
        "mine": md.user(Trace, "a", "b"),
        "low": md.min("a"),
        "some": md.user(Trace, "a", "b", where="a > 1"),
    }
    grouped = windows.group_by("k").aggregate if keyed else windows.aggregate
    q.sink("out", grouped(calls, early=early))
    return q


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * 4
    return pa.record_batch([pa.array(c, t) for c, t in zip(columns, ARROW.types, strict=True)], schema=ARROW)


def told(elements: list[Any], kind: Kind) -> list[tuple[Any, ...]]:
    """(start, end, key, n, mine, low, some) of the rows of one kind."""
    found = []
    for element in elements:
        if isinstance(element, Train) and element.kind is kind:
            names = element.batch.schema.names
            columns = [
                column.cast(pa.int64()).to_pylist()
                if pa.types.is_timestamp(column.type)
                else column.to_pylist()
                for column in element.batch.columns
            ]
            if "k" not in names:
                columns.insert(2, [None] * len(element))
            found += zip(*columns, strict=True)
    return found


class Slow:
    """Rows in a list; every answer from all of them."""

    def __init__(self, size: int, advance: int, early: int, *, keyed: bool) -> None:
        self.size, self.advance, self.early, self.keyed = size, advance, early, keyed
        self.rows: list[Row] = []
        self.largest = self.boundary = int(START_US)
        self.restored()

    def restored(self) -> None:
        """Every open group counts as changed, and the next boundary tells them."""
        self.counts: dict[tuple[int, str | None], int] = {}
        self.tick = int(START_US)

    def pane(self, time: int) -> int:
        """The greatest start or end of a window, or multiple of the size, that isn't after it."""
        while time % self.advance and (time - self.size) % self.advance and time % self.size:
            time -= 1
        return time

    def groups(self) -> dict[tuple[int, str | None], list[Row]]:
        found: dict[tuple[int, str | None], list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: self.pane(row[0])):
            start = row[0] // self.advance * self.advance
            while start > row[0] - self.size:
                found.setdefault((start, row[1] if self.keyed else None), []).append(row)
                start -= self.advance
        return found

    def answer(self, group: tuple[int, str | None], rows: list[Row]) -> tuple[Any, ...]:
        low = min((a for _, _, a, _ in rows if a is not None), default=None)
        some = traced([row for row in rows if row[2] is not None and row[2] > 1])
        return (group[0], group[0] + self.size, group[1], len(rows), traced(rows), low, some)

    def push(self, rows: list[Row]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """The early and the final rows that follow from one train."""
        for row in rows:
            if row[0] >= self.largest - SLACK:
                self.rows.append(row)
            self.largest = max(self.largest, row[0])
        return self.reach(self.largest - SLACK)

    def reach(self, boundary: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        before, self.boundary = self.boundary, max(self.boundary, boundary)
        if self.boundary == before:
            return [], []
        groups = self.groups()
        ends = {group: group[0] + self.size for group in groups}
        final = [self.answer(g, rows) for g, rows in groups.items() if before < ends[g] <= self.boundary]
        if self.boundary // self.early <= self.tick:
            return [], final
        self.tick = self.boundary // self.early
        live = {group: rows for group, rows in groups.items() if ends[group] > self.boundary}
        changed = [self.answer(g, rows) for g, rows in live.items() if self.counts.get(g, 0) != len(rows)]
        self.counts = {group: len(rows) for group, rows in live.items()}
        return changed, final


ROWS = st.tuples(
    st.integers(0, 14),
    st.sampled_from([None, "x", "yy", ""]),
    st.sampled_from([None, 0, 1, 2, 3]),
    st.sampled_from([None, 0.5, -1.0, 2.0]),
)
TRAINS = st.lists(st.lists(ROWS, min_size=1, max_size=6), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def two() -> Iterator[ThreadWorkers]:
    made = ThreadWorkers(2)
    yield made
    made.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_early_and_final_rows_are_those_of_brute_force(
    threads: int, two: ThreadWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_parts, "PARALLEL_ROWS", 3)
    workers = two if threads == 2 else None
    seen = {"early": 0, "final": 0, "null": 0, "reloads": 0}

    @settings(max_examples=100 if threads == 1 else 50)
    @given(
        TRAINS,
        st.sampled_from([(10, 10), (10, 5), (10, 3), (12, 8), (1, 1)]),
        st.sampled_from([1, 4, 10]),
        st.booleans(),
        st.integers(0, 12),
        st.sampled_from([0, -1_000]),
    )
    def run(
        trains: list[list[Row]], window: tuple[int, int], early: int, keyed: bool, reload_at: int, start: int
    ) -> None:
        q = query(*window, early, keyed=keyed)
        fragment, slow = Fragment(q.graph, workers=workers), Slow(*window, early, keyed=keyed)
        for number, train in enumerate(trains):
            if number == reload_at:
                files = {name: bytes(data) for name, data in fragment.snapshot().items()}
                fragment = Fragment.restore(q.graph, files, workers=workers)
                slow.restored()
                seen["reloads"] += 1
            rows = [(time + start, *rest) for time, *rest in train]
            start += 5 * (number % 3)
            fragment.feed("s", Train(batch=batch(rows)))
            check(fragment, *slow.push(rows))
        fragment.finish()
        check(fragment, [], slow.reach(1 << 60)[1])
        assert fragment.dead() == []

    def check(fragment: Fragment, early: list[tuple[Any, ...]], final: list[tuple[Any, ...]]) -> None:
        elements = fragment.drain("out")
        found = told(elements, Kind.TENTATIVE)
        assert sorted(found, key=repr) == sorted(early, key=repr)
        assert sorted(told(elements, Kind.STABLE), key=repr) == sorted(final, key=repr)
        seen["early"] += len(early)
        seen["final"] += len(final)
        seen["null"] += sum(row[4] is None for row in early)

    run()
    assert min(seen.values()) > 10, seen


@md.register("test.early.Sour")
class Sour(Trace):
    def finish(self, state: Any) -> Any:
        if (state["shift"] != 31).any():  # two rows in a group
            raise ValueError("sour")
        return super().finish(state)


def test_what_an_aggregate_raises_for_an_early_row_ends_the_run_and_names_it() -> None:
    q = md.Query("q")
    rows = q.source("s", SCHEMA, slack=0).window(10)
    q.sink("out", rows.aggregate(mine=md.user(Sour, "a", "b"), early=2, name="w"))
    fragment = Fragment(q.graph)
    fragment.feed("s", Train(batch=batch([(1, None, 1, 0.5), (2, None, None, 0.5)])))
    assert len(told(fragment.drain("out"), Kind.TENTATIVE)) == 1
    with pytest.raises(
        md.DataError, match=r"aggregate 'w': aggregate 'mine': finish: ValueError: sour"
    ) as caught:
        fragment.feed("s", Train(batch=batch([(4, None, 1, 0.5)])))
    assert isinstance(caught.value.__cause__, ValueError)
