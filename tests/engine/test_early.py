"""Early results: beside brute force, at sinks only, gone when their window closes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import START_US, Boundary, Element, Kind, Train
from medusa.engine.fragment import Fragment

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "int64"}
ARROW = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("v", pa.int64())])
Row = tuple[int, int | None, int]


def query(size: int, advance: int | None, early: int) -> md.Query:
    q = md.Query("q")
    source = q.source("s", SCHEMA, slack=4)
    window = source.window(size, advance=advance).group_by("k")
    out = window.aggregate(n=md.count(), total=md.sum("v"), kinds=md.count_distinct("v"), early=early)
    q.sink("out", out)
    return q


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, t) for c, t in zip(columns, ARROW.types, strict=True)], schema=ARROW
    )


def plain(train: Train) -> list[tuple[Any, ...]]:
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in train.batch.columns]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


class Slow:
    """Windows as lists of rows; what changed since the last tick."""

    def __init__(self, size: int, advance: int, early: int) -> None:
        self.size, self.advance, self.early = size, advance, early
        self.rows: list[Row] = []
        self.told: dict[tuple[int, int | None], int] = {}
        self.boundary, self.tick = int(START_US), int(START_US) // early
        self.live: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # what was told of open windows

    def take(self, rows: list[Row], boundary: int) -> list[tuple[Any, ...]]:
        """Early rows of one push after which the boundary is there."""
        highest = max(self.boundary, boundary)
        self.rows += rows
        self.live = {group: row for group, row in self.live.items() if group[1] > highest}
        if highest <= self.boundary:
            return []
        self.boundary = highest
        if highest // self.early <= self.tick:
            return []
        self.tick = highest // self.early
        groups: dict[tuple[int, int | None], list[int]] = {}
        for time, key, value in self.rows:
            start = time // self.advance * self.advance
            while start > time - self.size:
                if start + self.size > highest:
                    groups.setdefault((start, key), []).append(value)
                start -= self.advance
        changed = {g: values for g, values in groups.items() if self.told.get(g, 0) != len(values)}
        self.told = {g: len(values) for g, values in groups.items()}
        told = [(s, s + self.size, k, len(v), sum(v), len(set(v))) for (s, k), v in changed.items()]
        self.live |= {row[:3]: row for row in told}
        return told


def watched(live: dict[tuple[Any, ...], tuple[Any, ...]], elements: list[Element]) -> None:
    """Keep the early rows that aren't void, as whoever reads a sink would."""
    for each in elements:
        if isinstance(each, Train):
            for row in plain(each):
                live[row[:3]] = row
                if each.kind is Kind.STABLE:
                    del live[row[:3]]
        elif isinstance(each, Boundary):
            for group in [group for group in live if group[1] - 1 < each.time_us]:
                del live[group]


pushes = st.lists(
    st.lists(
        st.tuples(st.integers(0, 14), st.sampled_from([None, 0, 1, 2]), st.integers(0, 3)),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=150)
@given(
    pushes=pushes,
    window=st.sampled_from([(10, 10), (10, 5), (10, 3), (12, 8), (1, 1)]),
    early=st.sampled_from([1, 4, 10]),
)
def test_early_rows_are_those_of_brute_force(
    pushes: list[list[Row]], window: tuple[int, int], early: int
) -> None:
    size, advance = window
    fragment, slow = Fragment(query(size, advance, early).graph), Slow(size, advance, early)
    without = Fragment(query(size, advance, 1 << 50).graph)
    now, live = 0, {}
    for number, push in enumerate(pushes):
        rows = [(time + now, key, value) for time, key, value in push]
        now += 5 * (number % 3)
        for each in (fragment, without):
            each.feed("s", Train(batch=batch(rows)))
        largest, kept = slow.boundary + 4, []
        for row in rows:  # as the source judges
            if row[0] >= largest - 4:
                kept.append(row)
            largest = max(largest, row[0])
        expected = slow.take(kept, largest - 4)
        elements = fragment.drain("out")
        found = [
            row for e in elements if isinstance(e, Train) and e.kind is Kind.TENTATIVE for row in plain(e)
        ]
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        assert [row[1] for row in found] == sorted(row[1] for row in found)
        assert final(elements) == final(without.drain("out"))
        watched(live, elements)
        assert live == slow.live
    for each in (fragment, without):
        each.finish()
    assert final(fragment.drain("out")) == final(without.drain("out"))
    assert fragment.stats()["rows_out"].to_pylist() == without.stats()["rows_out"].to_pylist()


def final(elements: list[Element]) -> list[Any]:
    """Final rows with their numbers, and boundaries."""
    return [
        (e.first_seq, plain(e)) if isinstance(e, Train) else e
        for e in elements
        if isinstance(e, Boundary) or (isinstance(e, Train) and e.kind is Kind.STABLE)
    ]


def feed(fragment: Fragment, *times: int) -> None:
    fragment.feed("s", Train(batch=batch([(time, 1, time) for time in times])))


def test_they_reach_sinks_through_boxes_without_state_only() -> None:
    q = md.Query("q")
    early = q.source("s", SCHEMA).window(10).group_by("k").aggregate(n=md.count(), early=5, name="w")
    q.sink(
        "out", early.filter("n > 1").select("k", "n", x="10 / (n - 3)").union(early.select("k", "n", x="0.5"))
    )
    q.sink("again", early.window(20).aggregate(m=md.sum("n"), name="again_w"))
    q.sink("both", early.join(early, on="k", within=1, name="j"))
    fragment = Fragment(q.graph)
    feed(fragment, 1, 2, 3, 6)
    kinds = {name: [e.kind for e in fragment.drain(name) if isinstance(e, Train)] for name in q.sinks}
    assert kinds == {"out": [Kind.TENTATIVE] * 2, "again": [], "both": []}
    stats = {row["box"]: row for row in fragment.stats().to_pylist()}
    assert stats["again_w"]["tentative"] == 1
    assert stats["j"]["tentative"] == 2
    assert stats["out"]["tentative"] == 2
    assert all(stats[name]["rows_in"] == 0 for name in ("out", "again_w", "j"))
    assert stats["w"]["rows_out"] == 0
    assert "2 early rows ignored" in fragment.explain()
    assert fragment.dead() == []
    fragment.finish()  # boxes with state have taken none of them: what they give is of final rows only
    (again,) = [e for e in fragment.drain("again") if isinstance(e, Train)]
    assert again.batch.column("m").to_pylist() == [4]
    assert sum(len(e) for e in fragment.drain("both") if isinstance(e, Train)) == 1


def test_what_fails_early_is_no_dead_row() -> None:
    q = md.Query("q")
    early = q.source("s", SCHEMA).window(10).aggregate(n=md.count(), early=5)
    q.sink("out", early.filter("1 // (n - 3) < 5"))
    fragment = Fragment(q.graph, on_error="stop")
    feed(fragment, 1, 2, 3)
    feed(fragment, 6)
    feed(fragment, 7, 8, 20)
    kinds = [e.kind for e in fragment.drain("out") if isinstance(e, Train)]
    assert kinds == [Kind.TENTATIVE, Kind.STABLE, Kind.TENTATIVE]
    assert fragment.stats()["dead"].to_pylist() == [0] * len(fragment.stats())


def test_at_a_sink_they_have_no_number_and_are_no_state() -> None:
    fragment = Fragment(query(10, 10, 1).graph)
    feed(fragment, 1, 2, 8)
    box = fragment.sink("out")
    assert (box.held_rows, box.next_seq) == (0, 0)
    assert box.queue_bytes() > 0
    restored = Fragment.restore(fragment.graph, {k: bytes(v) for k, v in fragment.snapshot().items()})
    assert not any(isinstance(e, Train) for e in restored.drain("out"))
    feed(fragment, 30)
    feed(restored, 30)
    assert final(fragment.drain("out"))[-2:] == final(restored.drain("out"))[-2:]
    # After a restore every open group counts as changed.
    feed(restored, 31)
    assert any(isinstance(e, Train) for e in restored.drain("out"))


def test_a_run_gives_them_among_the_changes_only() -> None:
    with md.start(query(10, 10, 5)) as run:
        called: list[pa.Table] = []
        run.push("s", batch(list(zip([1, 2, 11], [1, 1, 1], [1, 2, 3], strict=True))))
        (early, boundary) = run.take("out", changes=True)
        assert isinstance(early, Train)
        assert (early.kind, plain(early)) == (md.Kind.TENTATIVE, [(0, 10, 1, 2, 3, 2), (10, 20, 1, 1, 3, 1)])
        assert isinstance(boundary, Boundary)
        run.push("s", batch(list(zip([12, 17], [1, 2], [1, 1], strict=True))))
        run.on("out", called.append)
        assert run.take("out").num_rows == 1
        assert run.taken("out") == 1
        run.push("s", batch(list(zip([30], [1], [1], strict=True))))
        assert [table.num_rows for table in called] == [2]
    assert md.collect(query(10, 10, 5), s=batch([(1, 1, 1)])).only.num_rows == 1


def test_nodes_refuse_them() -> None:
    from medusa.nodes.spec.fragment_spec import refuse_undecided

    with pytest.raises(
        md.QueryError, match="aggregate 'aggregate-1-.*' has early=, which nodes don't do yet"
    ):
        refuse_undecided(query(10, 10, 5).graph)
