"""Connection points in fragments: whoever reads from a row and watches from then on misses no row and gets
none twice, at any moment, also after a restore; what leaves is what came."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import Boundary, Element, Kind, Train
from medusa.engine.fragment import Fragment
from medusa.errors import StateError
from tests.engine import kinds
from tests.engine.segments import Disk


def query(keep: str | int = "1h", keep_bytes: str | None = None) -> md.Query:
    q = md.Query("q")
    a = q.source("a", kinds.SCHEMA, time="ts", slack=5)
    q.sink("o", q.connection_point("x", a.filter("k >= 0"), keep=keep, keep_bytes=keep_bytes))
    return q


def fragment_of(q: md.Query, disk: Disk) -> Fragment:
    fragment = Fragment(q.graph, histories=lambda name: disk)
    fragment.connections.open()
    return fragment


def push(fragment: Fragment, start: int, end: int) -> None:
    batch = kinds.rows(start, end - start, "a")
    fragment.push_rows("a", [batch], fragment.check_rows("a", [batch]))


class Reader:
    """Keeps what it is told, checking numbers and promises."""

    def __init__(self, first: int) -> None:
        self.next = first
        self.boundary = -(1 << 62)
        self.rows: list[Any] = []

    def take(self, element: Element) -> None:
        if isinstance(element, Boundary):
            assert element.time_us >= self.boundary
            self.boundary = element.time_us
            return
        assert isinstance(element, Train)
        assert element.kind is Kind.STABLE
        assert element.first_seq == self.next, "a gap, or rows twice"
        self.next += len(element)
        assert element.times is not None
        late = element.late.to_pylist() if element.late is not None else [False] * len(element)
        times = element.times.cast(pa.int64()).to_pylist()
        assert all(is_late or time >= self.boundary for time, is_late in zip(times, late, strict=True))
        self.rows += zip(map(repr, element.batch.to_pylist()), times, late, strict=True)


def attach(fragment: Fragment, seq: int) -> Reader:
    """As ``medusa.engine.history.history`` says how."""
    box = fragment.connection("x")
    assert box.history is not None
    reader = Reader(seq)
    for each in box.history.read(seq):
        reader.take(each)
    assert reader.next == box.history.next_seq
    reader.take(Boundary(box.boundary_us))
    box.watch(reader.take)
    return reader


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.sampled_from(["", "", "", "attach", "reload", "sync"])), max_size=12
    ),
    st.integers(0, 1 << 30),
)
def test_readers_see_all_rows_once(steps: list[tuple[int, str]], seed: int) -> None:
    chance = random.Random(seed)
    q, disk = query(), Disk()
    fragment = fragment_of(q, disk)
    readers = [attach(fragment, 0)]
    at = 0
    for count, action in steps:
        push(fragment, at, at + count)
        at += count
        history = fragment.connection("x").history
        assert history is not None
        if action == "attach":
            readers.append(attach(fragment, chance.randint(0, history.next_seq)))
        elif action == "sync":
            fragment.connections.sync()
        elif action == "reload":
            files = {name: bytes(data) for name, data in fragment.snapshot().items()}
            push(fragment, at, at + 5)  # lost, and will come again
            disk.crash(chance)
            fragment = Fragment.restore(q.graph, files, histories=lambda name: disk)
            for reader in readers:
                del reader.rows[len(reader.rows) - max(0, reader.next - fragment.connection("x").rows_in) :]
                reader.next = min(reader.next, fragment.connection("x").rows_in)
                reader.boundary = min(reader.boundary, fragment.connection("x").boundary_us)
                fragment.connection("x").watch(reader.take)
    whole = fragment_of(q, Disk())
    everything = attach(whole, 0)
    push(whole, 0, at or 1)
    if at:
        for reader in readers:
            assert reader.rows == everything.rows[len(everything.rows) - len(reader.rows) :]
            assert reader.next == everything.next
            assert reader.boundary == everything.boundary


def test_who_follows_row_by_row_writes_nothing() -> None:
    disk = Disk()
    fragment = fragment_of(query(keep_bytes="1 MiB"), disk)
    history = fragment.connection("x").history
    assert history is not None
    reader = Reader(0)
    for at in range(40):
        push(fragment, at, at + 1)
        for each in history.read(reader.next):
            reader.take(each)
    assert reader.next == history.next_seq == 38
    assert sum(len(segment.entries) for segment in history.segments) <= 1, "but at the first boundary"


def shown(element: Element) -> Any:
    if not isinstance(element, Train):
        return element
    late = None if element.late is None else element.late.to_pylist()
    times = None if element.times is None else element.times.to_pylist()
    return repr(element.batch.to_pylist()), times, late, element.first_seq


def test_what_leaves_is_what_came() -> None:
    q, plain = query(), md.Query("q")
    plain.sink("o", plain.source("a", kinds.SCHEMA, time="ts", slack=5).filter("k >= 0"))
    given = []
    for each in (q, plain):
        fragment = Fragment(each.graph, histories=lambda name: Disk())
        elements = []
        for start in range(0, 100, 9):
            push(fragment, start, start + 9)
            fragment.promise("a", start)
            elements += fragment.drain("o")
        fragment.finish()
        elements += fragment.drain("o")
        given.append([shown(each) for each in elements])
    assert given[0] == given[1]


def test_early_results_pass_and_are_not_kept() -> None:
    q = md.Query("q")
    a = q.source("a", kinds.SCHEMA, time="ts", slack=5)
    wins = a.window(20).aggregate(n=md.count(), early=4)
    q.sink("o", q.connection_point("x", wins, keep="1h"))
    fragment = fragment_of(q, Disk())
    reader = attach(fragment, 0)
    push(fragment, 0, 90)
    fragment.finish()
    out = [each for each in fragment.drain("o") if isinstance(each, Train)]
    final = sum(len(each) for each in out if each.kind is Kind.STABLE)
    assert any(each.kind is Kind.TENTATIVE for each in out)
    history = fragment.connection("x").history
    assert history is not None
    assert history.next_seq == final == len(reader.rows) > 0


def test_a_write_that_fails_stops_the_fragment() -> None:
    disk = Disk()
    fragment = fragment_of(query(), disk)
    push(fragment, 0, 20)
    disk.fail_in = 0
    with pytest.raises(StateError, match="no space"):
        fragment.snapshot()
    assert fragment.stopped
    with pytest.raises(md.DataError, match="the run has stopped: disk:/0.rows couldn't be"):
        push(fragment, 20, 21)
    fragment.connections.close()  # which writes nothing more


def test_what_it_says_of_itself() -> None:
    fragment = fragment_of(query(), Disk())
    push(fragment, 0, 20)
    assert "connection_point x from filter-" in fragment.explain()
    assert "waits for rows; 19 rows kept from number 0 on, " in fragment.explain()
    plain = Fragment(query().graph)
    assert "passes rows on, keeps none" in plain.explain()
    fragment.finish()
    assert "finished" in fragment.explain()


def test_state_that_cant_be_is_refused() -> None:
    import json

    q = query()
    fragment = fragment_of(q, Disk())
    push(fragment, 0, 20)
    files = {name: bytes(data) for name, data in fragment.snapshot().items()}
    for wrong in ("soon", None, 1.5, True, 1 << 62, -(1 << 63)):
        document = json.loads(files["fragment.json"])
        document["boxes"]["x"]["meta"]["most_us"] = wrong
        changed = {**files, "fragment.json": json.dumps(document).encode()}
        with pytest.raises(StateError, match="not the state of this box: most_us is no time"):
            Fragment.restore(q.graph, changed)
