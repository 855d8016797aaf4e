"""Several threads give the same rows in the same order with the same bits, whatever their number, the
cuts of the input, and the number that wrote the checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import Boundary, Kind, Train
from medusa.engine.fragment import Fragment
from medusa.engine.operators.joins import join
from medusa.engine.operators.windows import window_panes, window_parts
from medusa.engine.operators.windows.window_parts import WindowParts, merge_batches
from medusa.runtime.machine.native_workers import ThreadWorkers
from tests.engine.queries import batch_of, inputs, queries
from tests.engine.user_functions import Total
from tests.oracle.query import Promise

COUNTS = (1, 2, 3, 5)


@pytest.fixture(autouse=True)
def _small_work_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains of a few rows go to the threads too."""
    monkeypatch.setattr(window_parts, "PARALLEL_ROWS", 3)
    monkeypatch.setattr(window_panes, "CROWDED_TRAINS", 2)


@pytest.fixture(scope="module")
def workers() -> Iterator[Callable[[int], ThreadWorkers | None]]:
    made: dict[int, ThreadWorkers] = {}

    def of(count: int) -> ThreadWorkers | None:
        return None if count == 1 else made.setdefault(count, ThreadWorkers(count))

    yield of
    for each in made.values():
        each.close()


def bits(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows with floats as their bits, so that NaN, signs of zero and last bits count."""
    columns = []
    for column in table.combine_chunks().columns:
        if column.type == pa.float64():
            nulls = column.is_null().to_pylist()
            words = column.fill_null(0.0).to_numpy().view(np.int64).tolist()
            columns.append([None if null else word for null, word in zip(nulls, words, strict=True)])
        else:
            columns.append(
                column.cast(pa.int64()).to_pylist()
                if pa.types.is_timestamp(column.type)
                else column.to_pylist()
            )
    return list(zip(*columns, strict=True))


def state_of(fragment: Fragment) -> dict[str, bytes]:
    """All of it but rows not taken, which stand there in the batches in which they came."""
    return {name: bytes(file) for name, file in fragment.snapshot().items() if ".held." not in name}


class Feeder:
    """Feeds a fragment and keeps what comes out, final and early rows apart."""

    def __init__(self, q: md.Query, workers: ThreadWorkers | None) -> None:
        self.graph = q.graph
        self.fragment = Fragment(q.graph, workers=workers)
        self.final: dict[str, list[pa.RecordBatch]] = {name: [] for name in q.sinks}
        self.early: dict[str, list[Any]] = {name: [] for name in q.sinks}
        self.boundaries: list[tuple[str, int]] = []

    def push(self, source: str, rows: list[dict[str, Any]], cuts: Sequence[int]) -> None:
        edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
        for start, end in pairwise(edges):
            self.fragment.feed(source, Train(batch=batch_of(rows[start:end])))

    def drain(self) -> None:
        for sink in self.final:
            for element in self.fragment.drain(sink):
                if isinstance(element, Boundary):
                    self.boundaries.append((sink, element.time_us))
                elif element.kind is Kind.STABLE:
                    self.final[sink].append(element.batch)
                else:
                    self.early[sink] += bits(pa.Table.from_batches([element.batch]))

    def reload(self, workers: ThreadWorkers | None) -> None:
        files = {name: bytes(data) for name, data in self.fragment.snapshot().items()}
        self.fragment = Fragment.restore(self.graph, files, workers=workers)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        return {
            sink: bits(pa.Table.from_batches(batches, self.fragment.sink(sink).schema))
            for sink, batches in self.final.items()
        }


@settings(max_examples=60)
@given(st.data())
def test_any_number_of_threads_gives_the_same(workers: Any, data: st.DataObject) -> None:
    """Random queries of windows and joins; state moves between runs of different numbers of threads."""
    q = data.draw(queries(unions=False))
    events = data.draw(inputs(list(q.sources)))
    cuts = data.draw(st.sampled_from([[], [1], [2, 3, 7], [5]]))
    counts = data.draw(st.tuples(*[st.sampled_from(COUNTS)] * 2))
    reload_at = data.draw(st.integers(-1, len(events)))
    one, several = Feeder(q, None), Feeder(q, workers(counts[0]))
    for number, event in enumerate(events):
        if number == reload_at:
            one.reload(None)
            several.reload(workers(counts[1]))
        for feeder in (one, several):
            if isinstance(event, Promise):
                feeder.fragment.feed(event.source, Boundary(event.time))
            else:
                feeder.push(event.source, event.rows, [] if feeder is one else cuts)
    if not cuts:  # the state says nothing of threads
        assert state_of(several.fragment) == state_of(one.fragment)
    for feeder in (one, several):
        feeder.fragment.finish()
        feeder.drain()
    assert several.rows() == one.rows()
    assert several.fragment.dead() == one.fragment.dead()


AGGREGATES = {
    "n": md.count(),
    "s": md.sum("v"),
    "spread": md.stddev("v"),
    "first": md.first("text"),
    "last": md.last("v"),
    "low": md.min("text"),
    "kinds": md.count_distinct("text"),
    "about": md.approx_count_distinct("v"),
    "middle": md.quantile("v", 0.5),
    "near": md.approx_quantile("v", 0.9),
}
SCHEMA = pa.schema(
    [("ts", pa.int64()), ("k", pa.int64()), ("f", pa.float64()), ("text", pa.string()), ("v", pa.float64())]
)


def many_rows(rows: int, keys: int, seed: int) -> pa.Table:
    """Disordered rows of keys of all kinds with nulls, NaN and both zeros, and values whose sums round."""
    rng = np.random.default_rng(seed)
    texts = np.array([None, "", "a", "bb", "a longer text than sixteen bytes"], dtype=object)
    floats = np.array([0.0, -0.0, np.nan, 1.5, np.inf])
    return pa.table(
        {
            "ts": np.arange(rows) * 20_000 // rows + rng.integers(0, 50, rows),
            "k": pa.array(rng.integers(-keys, keys, rows), mask=rng.random(rows) < 0.02),
            "f": floats[rng.integers(0, 5, rows)],
            "text": texts[rng.integers(0, 5, rows)].tolist(),
            "v": pa.array(rng.random(rows) * 1e3, mask=rng.random(rows) < 0.1),
        },
        schema=SCHEMA,
    )


def query_of(keys: Sequence[str], size: int, advance: int | None, early: int | None = None) -> md.Query:
    q = md.Query("parts")
    rows = q.source("rows", SCHEMA, time="ts", unit="us", slack=60)
    window = rows.window(size, advance=advance)
    if keys:
        window = window.group_by(*keys)
    q.sink("out", window.aggregate(**AGGREGATES, **({"early": early} if early else {})))
    return q


@pytest.mark.parametrize("keys", [["k"], ["f"], ["text"], ["k", "text"], ["f", "k"]])
@pytest.mark.parametrize(("size", "advance"), [(1000, None), (900, 300), (1000, 333)])
def test_large_trains_of_all_kinds_of_keys(
    workers: Any, keys: list[str], size: int, advance: int | None
) -> None:
    table = many_rows(9_000, 400, 3)
    q = query_of(keys, size, advance)
    results = []
    for count, cut in [(1, 9_000), (2, 9_000), (3, 4_096), (5, 2_500)]:
        fragment = Fragment(q.graph, workers=workers(count))
        for start in range(0, len(table), cut):
            batch = table.slice(start, cut).combine_chunks().to_batches()[0]
            fragment.push_rows("rows", [batch], fragment.check_rows("rows", [batch]))
        fragment.finish()
        trains = [e for e in fragment.drain("out") if isinstance(e, Train)]
        results.append(bits(pa.Table.from_batches([train.batch for train in trains])))
        times = [time for train in trains for time in train.times.cast(pa.int64()).to_pylist()]
        assert times == sorted(times)
    assert len(results[0]) > 20
    for result in results[1:]:
        assert result == results[0]


def test_windows_of_many_groups_leave_with_their_own_buffers(workers: Any) -> None:
    """Beyond 8,192 groups a window's buffers are handed over, others share a batch."""
    rng = np.random.default_rng(5)
    sizes = [40_000, 50, 40, 30_000, 20]
    ts = np.concatenate([np.full(size, 1000 * place) for place, size in enumerate(sizes)])
    keys = rng.integers(0, 1 << 40, len(ts))
    table = pa.table({"ts": ts, "k": keys, "v": rng.random(len(ts))})
    q = md.Query("large")
    rows = q.source("rows", table.schema, time="ts", unit="us", slack=0)
    columns = {"n": md.count(), "s": md.sum("v"), "lo": md.min("v"), "mean": md.avg("v")}
    q.sink("out", rows.window(1000).group_by("k").aggregate(**columns))
    tables = [md.collect(q, rows=table, threads=count).only for count in (1, 2, 3)]
    assert len(tables[0]) > 69_000
    for other in tables[1:]:
        assert other.equals(tables[0])


def test_early_results_are_the_same(workers: Any) -> None:
    table = many_rows(3_000, 20, 8)
    for size, advance in [(1000, None), (900, 300), (1000, 333)]:
        q = query_of(["k"], size, advance, early=100)
        early = []
        for count in (1, 2, 3):
            feeder = Feeder(q, workers(count))
            for start in range(0, len(table), 500):
                batch = table.slice(start, 500).combine_chunks().to_batches()[0]
                feeder.fragment.push_rows("rows", [batch], feeder.fragment.check_rows("rows", [batch]))
                feeder.drain()
            early.append(feeder.early["out"])
        assert len(early[0]) > 200
        assert early[1] == early[0] == early[2]


def test_failed_groups_are_buried_in_the_same_order(workers: Any) -> None:
    schema = {"ts": "int64", "k": "int64", "v": "int64", "w": "int64"}
    q = md.Query("sums")
    window = q.source("rows", schema, time="ts", unit="us", slack=0).window(10).group_by("k")
    q.sink("out", window.aggregate(a=md.sum("v"), b=md.sum("w")))
    huge, rows = (1 << 62), []
    for ts in (1, 2, 3, 11, 12, 13):
        rows += [
            {"ts": ts, "k": k, "v": huge if k % 3 else 1, "w": huge if k % 2 else 1}
            for k in (9, 4, 7, 1, 8, 2)
        ]
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([(name, pa.int64()) for name in schema]))
    seen = []
    for count in COUNTS:
        fragment = Fragment(q.graph, workers=workers(count))
        fragment.push_rows("rows", [batch], fragment.check_rows("rows", [batch]))
        fragment.finish()
        trains = [e.batch for e in fragment.drain("out") if isinstance(e, Train)]
        seen.append((fragment.dead(), pa.Table.from_batches(trains, fragment.sink("out").schema)))
    assert len(seen[0][0]) == 12, "six groups of each window, two of which fail in both sums"
    for dead, table in seen[1:]:
        assert dead == seen[0][0]
        assert table.equals(seen[0][1])


def test_the_state_is_that_of_one_window(workers: Any) -> None:
    q = query_of(["k", "text"], 900, 300)
    table = many_rows(2_000, 30, 1).combine_chunks().to_batches()[0]
    states = []
    for count in COUNTS:
        fragment = Fragment(q.graph, workers=workers(count))
        fragment.push_rows("rows", [table], fragment.check_rows("rows", [table]))
        files = fragment.snapshot()
        states.append(state_of(fragment))
        assert fragment.stats().column("state_bytes").to_pylist()[1] > 0
        assert "the oldest open one starts" in fragment.explain()
    for state in states[1:]:
        assert state == states[0]
    for count in COUNTS:
        again = Fragment.restore(q.graph, files, workers=workers(count))
        assert state_of(again) == states[0]


@given(
    st.lists(st.lists(st.tuples(st.integers(-3, 3), st.integers(-1, 4)), max_size=12), min_size=1, max_size=5)
)
@settings(max_examples=100)
def test_merging_sorts(workers: Any, lists: list[list[tuple[int, int]]]) -> None:
    """By several keys, -1 last where it is told so; equal rows by batch; whatever the number of ranges."""
    order = lambda pair: (pair[0], pair[1] % 1000)  # noqa: E731
    batches = [
        pa.record_batch(
            {
                "a": pa.array([a for a, _ in sorted(rows, key=order)], pa.int64()),
                "b": pa.array([b for _, b in sorted(rows, key=order)], pa.int64()),
                "text": pa.array([f"{place}{i}" if i % 3 else None for i in range(len(rows))], pa.string()),
                "flag": pa.array([i % 2 == 0 for i in range(len(rows))], pa.bool_()),
            }
        )
        for place, rows in enumerate(lists)
    ]
    wanted = sorted(
        (row for batch in batches for row in batch.to_pylist()), key=lambda r: order((r["a"], r["b"]))
    )
    for count in (1, 2, 4):
        merged = merge_batches(batches, [(0, False), (1, True)], 4, workers(count))
        assert [row for batch in merged for row in batch.to_pylist()] == wanted


@pytest.mark.parametrize("keys", [[1], [1, 2], [1, 2, 3, 4]])
def test_no_thread_gets_a_range_without_rows(
    workers: Any, monkeypatch: pytest.MonkeyPatch, keys: list[int]
) -> None:
    """Fewer results than threads, of a user's aggregate, which knows no columns of no rows."""
    monkeypatch.setattr(window_parts, "PARALLEL_ROWS", 1)
    monkeypatch.setattr(window_panes, "CROWDED_TRAINS", 1)
    q = md.Query("few")
    window = q.source("rows", {"ts": "int64", "k": "int64"}, time="ts", unit="us").window(10).group_by("k")
    q.sink("out", window.aggregate(total=md.user(Total, "k"), rows=md.count()))
    batch = pa.record_batch({"ts": pa.array([1] * len(keys), pa.int64()), "k": pa.array(keys, pa.int64())})
    for count in COUNTS:
        fragment = Fragment(q.graph, workers=workers(count))
        fragment.feed("rows", Train(batch=batch))
        fragment.finish()
        trains = [e.batch for e in fragment.drain("out") if isinstance(e, Train)]
        assert all(len(train) for train in trains)
        rows = [row for train in trains for row in train.select(["k", "total", "rows"]).to_pylist()]
        assert rows == [{"k": k, "total": k, "rows": 1} for k in keys]


@pytest.mark.parametrize("how", ["left", "inner"])
def test_as_of_joins_forget_superseded_rows_in_every_copy(
    workers: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The rows kept are numbered anew, for all copies at once."""
    monkeypatch.setattr(join, "ROWS_SPARE", 4)
    q = md.Query("asof")
    schema = {"ts": "int64", "k": "int64", "v": "int64"}
    left, right = (q.source(name, schema, time="ts", unit="us", slack=0) for name in "ab")
    q.sink("out", left.asof_join(right, on="k", how=how))
    rng = np.random.default_rng(3)
    results = []
    for start in range(0, 400, 20):
        ts = np.sort(rng.integers(start, start + 20, 60))
        results.append(
            pa.record_batch({"ts": ts, "k": rng.integers(0, 6, 60), "v": np.arange(60) + start * 3})
        )
    seen = []
    for count in COUNTS:
        fragment = Fragment(q.graph, workers=workers(count))
        for place, batch in enumerate(results):
            for source in ("a", "b"):
                fragment.push_rows(source, [batch], fragment.check_rows(source, [batch]))
            if place == 10:
                fragment = Fragment.restore(q.graph, fragment.snapshot(), workers=workers(6 - count))
        fragment.finish()
        trains = [e.batch for e in fragment.drain("out") if isinstance(e, Train)]
        seen.append(bits(pa.Table.from_batches(trains, fragment.sink("out").schema)))
    assert len(seen[0]) > 1000
    assert seen.count(seen[0]) == len(seen)


def test_an_error_in_a_thread_comes_out(workers: Any) -> None:
    parts = WindowParts(
        workers(3), keys=["l"], inputs=[], aggregates=[("count", -1)], size_us=10, advance_us=10
    )
    parts.close(100)
    rows = pa.record_batch({"t": pa.array(range(95, 105)), "k": pa.array(range(10))})
    with pytest.raises(ValueError, match="row 0: time 95 us is below the boundary"):
        parts.add(rows)
    parts.add(rows.slice(5))
    assert parts.rows_open() == 5


def test_collect_and_start_take_the_number(tmp_path: Any) -> None:
    q = query_of(["k"], 1000, None)
    table = many_rows(4_000, 50, 2)
    tables = [md.collect(q, rows=table, threads=count).only for count in (1, 2)]
    assert bits(tables[0]) == bits(tables[1])
    for wrong in (0, -1, True, 1.0, "2", 65):
        with pytest.raises(md.QueryError, match="threads"):
            md.collect(q, rows=table, threads=wrong)
        with pytest.raises(md.QueryError, match="threads"):
            md.start(q, threads=wrong)
    rows = [batch.to_pylist() for batch in table.to_batches(max_chunksize=700)]
    with md.start(q, threads=3, checkpoint=tmp_path / "c") as run:
        for each in rows[:3]:
            run.push("rows", pa.Table.from_pylist(each, SCHEMA))
        first = run.take("out")
    with md.restore(tmp_path / "c", threads=2) as run:
        run.push("rows", table.slice(run.positions()["rows"]))
        run.finish()
        assert bits(pa.concat_tables([first, run.take("out")])) == bits(tables[0])


def test_a_source_may_be_named_threads() -> None:
    q = md.Query("named")
    q.sink("out", q.source("threads", {"a": "int64"}, time=None).filter("a > 1"))
    assert md.collect(q, threads=pa.table({"a": [1, 2]})).only.to_pylist() == [{"a": 2}]


def test_windows_without_keys_and_other_boxes_run_in_one_copy(workers: Any) -> None:
    q = md.Query("one")
    rows = q.source("rows", SCHEMA, time="ts", unit="us", slack=60)
    q.sink("all", rows.window(500).aggregate(s=md.sum("v")))
    q.sink("sessions", rows.session(40).group_by("k").aggregate(s=md.sum("v")))
    table = many_rows(2_000, 9, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [md.collect(q, rows=table, threads=count) for count in (1, 3)]
    for sink in ("all", "sessions"):
        assert bits(found[0][sink]) == bits(found[1][sink])
