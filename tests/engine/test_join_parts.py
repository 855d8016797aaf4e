"""Joins over several threads leave in pieces: the rows of one thread, in order, in bounded memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import END_US, Boundary, Element, Train
from medusa.engine.core import output_pieces
from medusa.engine.fragment import Fragment
from medusa.engine.operators.joins import join
from medusa.engine.operators.joins.join import JoinBox
from medusa.engine.operators.joins.join_parts import JoinParts
from medusa.engine.operators.windows import window_parts
from medusa.errors import DataError, StateError
from medusa.runtime.machine.native_workers import ThreadWorkers
from tests.engine.queries import SCHEMA, batch_of, inputs, numbers
from tests.engine.test_join_properties import HOWS, joins
from tests.engine.test_properties import check
from tests.engine.test_sliced import joins as exploding
from tests.engine.test_sliced import left, rows
from tests.engine.test_threads import state_of
from tests.oracle.query import Promise, Push, answer


@pytest.fixture(autouse=True)
def _few_rows_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_parts, "PARALLEL_ROWS", 3)


@pytest.fixture(scope="module")
def workers() -> Iterator[Callable[[int], ThreadWorkers | None]]:
    made: dict[int, ThreadWorkers] = {}

    def of(count: int) -> ThreadWorkers | None:
        return None if count == 1 else made.setdefault(count, ThreadWorkers(count))

    yield of
    for each in made.values():
        each.close()


class Slices:
    """Feeds a fragment slice by slice, each as short as it can be, and keeps what leaves."""

    def __init__(self, q: md.Query, workers: ThreadWorkers | None) -> None:
        self.graph = q.graph
        self.fragment = Fragment(q.graph, workers=workers)
        self.batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in q.sinks}
        self.times: dict[str, list[int]] = {name: [] for name in q.sinks}
        self.stops = 0

    def feed(self, source: str, element: Element) -> None:
        done = self.fragment.feed_slice(source, element, lambda: True)
        while not done:
            self.stops += 1
            with pytest.raises(StateError, match="under way"):
                self.fragment.snapshot()
            self.drain()
            done = self.fragment.go_on(lambda: True)
        self.drain()

    def event(self, event: Push | Promise) -> None:
        if isinstance(event, Promise):
            self.feed(event.source, Boundary(event.time))
        else:
            self.feed(event.source, Train(batch=batch_of(event.rows)))

    def drain(self) -> None:
        for sink, batches in self.batches.items():
            for element in self.fragment.drain(sink):
                if isinstance(element, Train):
                    batches.append(element.batch)
                    if element.times is not None:
                        self.times[sink] += element.times.cast(pa.int64()).to_pylist()

    def reload(self, workers: ThreadWorkers | None) -> None:
        files = {name: bytes(data) for name, data in self.fragment.snapshot().items()}
        self.fragment = Fragment.restore(self.graph, files, workers=workers)

    def end(self) -> dict[str, pa.Table]:
        for source in self.fragment.sources:
            self.feed(source, Boundary(END_US))
        return {
            name: pa.Table.from_batches(batches, self.fragment.sink(name).schema)
            for name, batches in self.batches.items()
        }


def shorten(patch: pytest.MonkeyPatch, pairs: int, piece: int) -> None:
    patch.setattr(join, "PAIRS_MAX", pairs)
    patch.setattr(output_pieces, "ROWS_MAX", piece)


@settings(max_examples=120)
@given(st.data())
def test_random_joins_in_pieces(workers: Any, data: st.DataObject) -> None:
    """The rows are the oracle's; state between elements, and times, are those of one thread."""
    q = data.draw(joins())
    events = data.draw(inputs(["a", "b"]))
    counts = data.draw(st.tuples(*[st.sampled_from([3, 5, 8])] * 2))
    reload_at = data.draw(st.integers(-1, len(events)))
    several = Slices(q, workers(counts[0]))
    one = Slices(q, None)
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch, data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5)))
        for number, event in enumerate(events):
            if number == reload_at:
                several.reload(workers(counts[1]))
                one.reload(None)
            several.event(event)
            one.event(event)
            assert state_of(several.fragment) == state_of(one.fragment)
        tables = several.end()
    check(tables, answer(q.graph, events))
    one.end()
    assert several.times == one.times


def skewed(rng: random.Random, rows: int) -> list[dict[str, Any]]:
    """Half of all rows of one key, in crowds of equal times."""
    ts, made = 0, []
    for _ in range(rows):
        ts += rng.choice([0, 0, 0, 0, 1, 9])
        key = rng.choice([1, 1, 1, 2, 3, 4, None])
        text, number = rng.choice(["a", "b"]), rng.randrange(9)
        made.append({"ts": ts, "k": key, "v": rng.random(), "s": text, "n": number})
    return made


@pytest.mark.parametrize("how", [*HOWS, "asof left", "asof inner"])
@pytest.mark.parametrize("seed", range(3))
def test_skewed_joins_in_pieces(workers: Any, monkeypatch: pytest.MonkeyPatch, how: str, seed: int) -> None:
    shorten(monkeypatch, 7, 11)
    rng = random.Random(f"{how} {seed}")
    q = md.Query("skewed")
    a, b = (q.source(name, SCHEMA, time="ts", slack=0) for name in "ab")
    if how.startswith("asof"):
        made = a.asof_join(b, on="k", how=how[5:], within=rng.choice([None, 4]))
    else:
        made = a.join(b, on="k", within=rng.choice([0, 3, 20]), how=how)
    q.sink("o", made)
    events = [Push(source, skewed(rng, 90)) for source in "ab"]
    driver = Slices(q, workers(3))
    for event in events:
        driver.event(event)
    check(driver.end(), answer(q.graph, events))
    assert driver.stops > 5


def parts_of(fragment: Fragment) -> list[JoinParts]:
    found = [box._join for box in fragment.boxes.values() if isinstance(box, JoinBox)]
    return [each for each in found if isinstance(each, JoinParts)]


def crowd(keys: Sequence[int]) -> pa.RecordBatch:
    times = pa.array(range(len(keys)), pa.timestamp("us", "UTC"))
    return pa.record_batch({"ts": times, "k": pa.array(keys), "v": pa.array(range(len(keys)))})


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("keys", [[1] * 60, [1, 2, 3] * 40, [5] * 50 + [6] * 50 + list(range(100))])
def test_pairs_held_are_bounded(
    workers: Any, monkeypatch: pytest.MonkeyPatch, count: int, keys: list[int]
) -> None:
    """However far one copy is ahead of the others in time."""
    limit = 100
    shorten(monkeypatch, limit, limit)
    fragment = Fragment(exploding(count).graph, workers=workers(3))
    found = parts_of(fragment)
    assert len(found) == count
    fragment.feed("rows", Train(batch=crowd(keys)))
    done = fragment.feed_slice("rows", Boundary(END_US), lambda: True)
    slices = leaving = 0
    while not done and (count == 1 or slices < 300):
        for parts in found:
            assert max(parts.ahead) <= 3 * limit
            assert parts.nbytes() >= 32 * sum(parts.ahead)
        assert fragment._scheduler.waiting_bytes() <= 2 * count * 3 * limit * 24
        leaving += left(fragment)
        slices += 1
        done = fragment.go_on(lambda: True)
    assert slices > 20
    if count == 1:
        assert done
        assert leaving + left(fragment) == sum(keys.count(key) ** 2 for key in set(keys))
        assert not any(sum(parts.ahead) for parts in found)


def test_wide_text_leaves_in_pieces(workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_pieces, "BYTES_MAX", 1000)
    q = md.Query("wide")
    source = q.source("rows", {"ts": "timestamp", "k": "int64", "v": "utf8"}, time="ts", slack="1 s")
    q.sink("out", source.join(source.select("k", w="v"), on="k", within="1 s"))
    batch = crowd([1, 2] * 10)
    batch = batch.set_column(2, "v", pa.array(["x" * 300] * 20))
    fragment = Fragment(q.graph, workers=workers(3))
    fragment.feed("rows", Train(batch=batch))
    done = fragment.feed_slice("rows", Boundary(END_US), lambda: True)
    found = []
    while True:
        found += [len(e) for e in fragment.drain("out") if isinstance(e, Train)]
        if done:
            break
        done = fragment.go_on(lambda: True)
    assert sum(found) == 2 * 10 * 10
    assert max(found) == 1


def test_a_checkpoint_after_each_push_of_a_join_that_explodes(workers: Any, tmp_path: Any) -> None:
    q = md.Query("kept")
    source = q.source("rows", {"ts": "timestamp", "k": "int64", "v": "int64"}, time="ts", slack="5 us")
    q.sink("out", source.join(source.select("k", w="v"), on="k", within="40 us"))
    data = crowd([1, 1, 1, 2, 3] * 40)
    whole = md.collect(q, rows=data).only
    found: list[pa.Table] = []
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch, 20, 20)
        run = md.start(q, threads=3, checkpoint=tmp_path / "state")
        for first in range(0, len(data), 50):
            run.push("rows", data.slice(first, 50))
            found.append(run.take("out"))
            run.checkpoint()
            run.close()
            run = md.restore(tmp_path / "state", threads=3 + first % 3)
        run.finish()
        found.append(run.take("out"))
        run.close()
    assert numbers(pa.concat_tables(found)) == numbers(whole)


class Failing:
    """Workers of which some work fails, in the thread that runs it."""

    def __init__(self, inner: ThreadWorkers, good: int) -> None:
        self.count = inner.count
        self._inner, self._good = inner, good

    def map(self, work: Callable[[Any], None], parts: Sequence[Any]) -> None:
        self._good -= 1

        def fails(part: Any) -> None:
            work(part)
            if self._good < 0 and part == parts[-1]:
                raise MemoryError("none left")

        self._inner.map(fails, parts)


@pytest.mark.parametrize("good", [2, 3, 5, 8, 13, 21])
def test_an_error_in_a_piece_stops_the_fragment_alone(
    workers: Any, monkeypatch: pytest.MonkeyPatch, good: int
) -> None:
    shorten(monkeypatch, 50, 50)
    fragment = Fragment(exploding(1).graph, workers=Failing(workers(3), good))

    def feed() -> None:
        fragment.feed("rows", Train(batch=crowd([1, 2, 3] * 30)))
        done = fragment.feed_slice("rows", Boundary(END_US), lambda: True)
        while not done:
            done = fragment.go_on(lambda: True)

    with pytest.raises(MemoryError, match="none left"):
        feed()
    assert fragment.stopped
    before = left(fragment)
    with pytest.raises(DataError, match="the run has stopped") as caught:
        fragment.feed("rows", Train(batch=rows(1)))
    assert caught.value.code == "data.stopped"
    assert left(fragment) == 0
    assert before < 3 * 30 * 30
    after = Fragment(exploding(1).graph, workers=workers(3))  # the threads go on
    after.feed("rows", Train(batch=rows(20)))
    after.finish()
    assert left(after) == 400
