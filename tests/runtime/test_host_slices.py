"""The engine's thread gives turns and keeps budgets: driven by hand, in time that only pieces take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import END_US, Boundary, Element, Train
from medusa.engine import pieces
from medusa.engine.boxes import join
from medusa.engine.checkpoint import unseal
from medusa.engine.fragment import Fragment
from medusa.query.boxes import Graph
from medusa.runtime import host as hosts
from medusa.runtime import openings
from medusa.runtime.budgets import NEVER, Bounds
from medusa.runtime.done import Failed, Persisted, Ran, Remade
from medusa.runtime.group_names import group_name
from medusa.runtime.host import FragmentHost
from medusa.sim.disk import Disk
from medusa.wire.outbox import Owned, Persist, Regroup, RunFragment

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "int64", "v": "int64"}
PIECE_US = 15_000
"""Two pieces are a slice."""


class Ticking:
    """A clock that moves when it is read: a piece takes ``PIECE_US``, whatever it does."""

    def __init__(self) -> None:
        self.us = 0
        self.step_us = PIECE_US

    def now_us(self) -> int:
        return self.us

    def monotonic_us(self) -> int:
        return self.us


class ByHand:
    """The workers: each job is done when the test says so. The engine's CPU time is that of the clock."""

    def __init__(self, clock: Ticking) -> None:
        self._clock = clock
        self.jobs: dict[str, deque[Callable[[], None]]] = {}

    def __call__(self, name: str) -> Any:
        return _Worker(self.jobs.setdefault(name, deque()), self._clock)

    def engine(self, most: int = 1 << 20) -> int:
        """Do that many jobs of the engine; how many there were."""
        jobs, done = self.jobs["medusa-engine"], 0
        while jobs and done < most:
            jobs.popleft()()
            done += 1
        return done

    def beside(self) -> None:
        while jobs := self.jobs.get("medusa-beside"):
            jobs.popleft()()

    def disk(self) -> None:
        while jobs := self.jobs["medusa-disk"]:
            jobs.popleft()()


class _Worker:
    def __init__(self, jobs: deque[Callable[[], None]], clock: Ticking) -> None:
        self._jobs, self._clock = jobs, clock

    @property
    def idle(self) -> bool:
        return not self._jobs

    def give(self, job: Callable[[], None]) -> None:
        self._jobs.append(job)

    def cpu_us(self) -> int:
        return self._clock.monotonic_us()

    def stop(self, timeout_s=None, *, last=None) -> bool:
        while self._jobs:
            self._jobs.popleft()()
        if last is not None:
            last()
        self._jobs.clear()
        return True


class Desk:
    """A host with fragments of queries, and what became of them."""

    def __init__(self, **bounds: int) -> None:
        unbounded = {"query_bytes": NEVER, "owner_bytes": NEVER, "piece_us": NEVER}
        self.clock, self.store = Ticking(), Disk("d")
        self.hands = ByHand(self.clock)
        self.host = FragmentHost(
            self.store,
            self.clock,
            wake=lambda: None,
            worker=self.hands,
            bounds=Bounds(**{**unbounded, **bounds}),
        )
        self.done: list[Any] = []

    def open(self, q: md.Query, owner: str = "o") -> None:
        self.host.owned(Owned(query=q.graph.name, owner=owner))
        self.host.open(q.graph.name, q.graph)
        self.work()

    def feed(self, name: str, *elements: Element) -> None:
        for element in elements:
            self.host.run(RunFragment(fragment=name, stream="rows", element=element))

    def work(self, most: int = 1 << 20) -> int:
        count = self.hands.engine(most)
        self.done += [e for e in self.host.finished() if isinstance(e, Ran | Failed | Persisted)]
        return count

    def of(self, name: str) -> list[Any]:
        return [each for each in self.done if getattr(each, "fragment", "") == name]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All that came out of a fragment so far."""
        return [row for each in self.of(name) if isinstance(each, Ran) for row in made(each)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A join gives a hundred pairs at a time, and each piece takes its time."""
    monkeypatch.setattr(join, "PAIRS_MAX", 100)
    monkeypatch.setattr(pieces, "ROWS_MAX", 100)


@pytest.fixture
def desk(small: None, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return timed(Desk(), monkeypatch)


def timed(made: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Each step of a box takes a while."""
    step = join.JoinBox.step

    def slow(box: join.JoinBox) -> None:
        made.clock.us += made.clock.step_us
        step(box)

    monkeypatch.setattr(join.JoinBox, "step", slow)
    return made


def made(each: Ran) -> list[dict[str, Any]]:
    """Rows that came of an element."""
    trains = [element for _, element in each.outputs if isinstance(element, Train)]
    return [row for train in trains for row in train.batch.to_pylist()]


def rows(count: int, first: int = 0) -> Train:
    times = pa.array(range(first, first + count), pa.timestamp("us", "UTC"))
    columns = {"ts": times, "k": pa.array([1] * count), "v": pa.array(range(first, first + count))}
    return Train(batch=pa.record_batch(columns))


def passing(name: str) -> md.Query:
    q = md.Query(name)
    q.sink("out", q.source("rows", SCHEMA, time="ts", slack="0s").filter("v >= 0"))
    return q


def joins(name: str, count: int = 1) -> md.Query:
    q = md.Query(name)
    source = made = q.source("rows", SCHEMA, time="ts", slack="1 s")
    for _ in range(count):
        made = made.join(source, on="k", within="1 s").select("k", v="v")
    q.sink("out", made)
    return q


def whole(graph: Graph, *elements: Element) -> list[dict[str, Any]]:
    """What a fragment gives that nothing interrupts."""
    fragment = Fragment(graph)
    for element in elements:
        fragment.feed("rows", element)
    return [row for e in fragment.drain("out") if isinstance(e, Train) for row in e.batch.to_pylist()]


def test_an_element_in_slices_gives_what_it_gives_whole(desk: Desk) -> None:
    q = joins("heavy")
    desk.open(q)
    elements = [rows(30), Boundary(END_US)]
    desk.feed("heavy", *elements)
    assert desk.work() > 5
    assert desk.rows("heavy") == whole(q.graph, *elements)


def test_a_light_query_waits_for_a_slice_and_not_for_an_element(desk: Desk) -> None:
    desk.open(joins("heavy"), "mallory")
    desk.open(passing("light"), "alice")
    desk.feed("heavy", rows(100), Boundary(END_US))
    desk.work(4)
    assert len(desk.of("heavy")) == 1, "the boundary is under way"
    for number in range(5):
        desk.feed("light", rows(1, number))
        desk.work(2)  # it is put into the line, and the slice ends that is in the thread
        desk.work(1)
        assert len(desk.of("light")) == number + 1
    assert len(desk.of("heavy")) == 1
    desk.work()
    assert len(desk.of("heavy")) == 2


def test_owners_share_the_thread_however_many_queries_they_have(desk: Desk) -> None:
    """Ten of one owner, one of another: while all have something to do each owner gets half of the time."""
    desk.open(joins("alone"))
    desk.feed("alone", rows(60), Boundary(END_US))
    desk.work()
    alone_us, desk.clock.us = desk.clock.us, 0
    for number in range(10):
        desk.open(joins(f"many{number}"), "mallory")
    desk.open(joins("one"), "alice")
    for name in (*(f"many{number}" for number in range(10)), "one"):
        desk.feed(name, rows(60), Boundary(END_US))
    while not desk.rows("one"):
        assert desk.work(1)
    assert desk.clock.us < 3 * alone_us, "not eleven times as long"


def test_queries_of_an_owner_share_what_it_gets(desk: Desk) -> None:
    for name in ("a", "b"):
        desk.open(joins(name))
    desk.feed("a", rows(100), Boundary(END_US))
    desk.feed("b", rows(20), Boundary(END_US))
    while not desk.rows("b"):
        assert desk.work(1)
    assert not desk.rows("a")


def test_many_small_elements_do_not_hold_up_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-four elements are given to the engine at once; none of them is long enough for a slice."""
    run = FragmentHost._run

    def slow(host: FragmentHost, effect: RunFragment) -> None:
        desk.clock.us += 1_000
        run(host, effect)

    monkeypatch.setattr(FragmentHost, "_run", slow)
    desk.open(passing("bulk"), "mallory")
    desk.open(passing("light"), "alice")
    desk.feed("bulk", *(rows(1, number) for number in range(64)))
    desk.work(65)  # all are in the line, and one is done
    desk.feed("light", rows(1))
    desk.work(3)
    assert len(desk.of("light")) == 1
    assert len(desk.of("bulk")) < 5
    desk.work()
    assert [row["v"] for row in desk.rows("bulk")] == list(range(64)), "in order"


def test_a_removed_query_gives_up_its_element_and_what_waits(desk: Desk) -> None:
    desk.open(joins("heavy", 3))
    desk.feed("heavy", rows(100), Boundary(END_US))
    desk.work(10)
    desk.host.persist(Persist(token=1, fragment="heavy"))
    desk.host.close("heavy")
    began_us = desk.clock.us
    desk.work()
    assert desk.clock.us - began_us <= PIECE_US, "what is under way ends with its piece"
    desk.hands.disk()
    assert desk.store.names() == []
    assert [each.ok for each in desk.done if isinstance(each, Persisted)] == [False]
    desk.open(joins("heavy"))
    desk.feed("heavy", rows(3), Boundary(END_US))
    desk.work()
    assert len(desk.rows("heavy")) == 9, "another of that name begins with nothing"


def test_a_checkpoint_is_between_two_elements(desk: Desk) -> None:
    q = joins("heavy")
    desk.open(q)
    desk.feed("heavy", rows(40), Boundary(30))
    desk.host.persist(Persist(token=1, fragment="heavy"))
    desk.feed("heavy", Boundary(END_US))
    desk.work()
    desk.hands.disk()
    _, files = unseal(desk.store.read(group_name("heavy", 1)))
    restored = Fragment.restore(q.graph, files)
    restored.feed("rows", Boundary(END_US))
    rest = [row for e in restored.drain("out") if isinstance(e, Train) for row in e.batch.to_pylist()]
    first, second = filter(None, map(made, desk.of("heavy")))
    assert rest == second
    assert first + second == whole(q.graph, rows(40), Boundary(30), Boundary(END_US))


def test_a_host_that_stops_finishes_what_it_was_given(desk: Desk) -> None:
    desk.open(joins("heavy"))
    desk.feed("heavy", rows(40), Boundary(END_US))
    desk.work(4)
    desk.host.persist(Persist(token=1, fragment="heavy"))
    assert desk.host.stop()
    desk.work()
    assert len(desk.rows("heavy")) == 1600
    assert [each.ok for each in desk.done if isinstance(each, Persisted)] == [True]


# --- budgets ----------------------------------------------------------------------------------------


def bounded(monkeypatch: pytest.MonkeyPatch, **bounds: int) -> Desk:
    monkeypatch.setattr(hosts, "WEIGH_EVERY_US", 0)
    monkeypatch.setattr(hosts, "WEIGH_SHARE", 0)
    return timed(Desk(**bounds), monkeypatch)


def test_a_query_over_its_budget_ends_alone(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = bounded(monkeypatch, query_bytes=200_000)
    desk.open(joins("heavy", 3), "mallory")
    desk.open(passing("light"), "alice")
    desk.feed("heavy", rows(100), Boundary(END_US))
    desk.feed("light", rows(3))
    desk.work()
    failed = [each for each in desk.of("heavy") if isinstance(each, Failed)]
    assert [each.code for each in failed] == ["E_MEMORY"]
    assert "query 'heavy' holds" in failed[0].why
    assert "allowed are 195.3 KiB (query_memory)" in failed[0].why
    assert desk.host._running["heavy"].fragment is None, "it gave back what it held"
    desk.feed("heavy", rows(1))
    desk.feed("light", rows(3, 3))
    desk.host.persist(Persist(token=1, fragment="heavy"))
    desk.work()
    assert [each for each in desk.of("heavy") if isinstance(each, Failed)] == failed
    assert [row["v"] for row in desk.rows("light")] == list(range(6))
    assert [each.ok for each in desk.done if isinstance(each, Persisted)] == [False]


def test_fragments_of_one_query_share_its_budget(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = bounded(monkeypatch, query_bytes=80_000)
    q = joins("heavy")
    desk.host.owned(Owned(query="heavy", owner="o"))
    for name in ("heavy/a", "heavy/b"):
        desk.host.open(name, q.graph)
    desk.work()
    desk.feed("heavy/a", rows(400))
    desk.work()
    assert not [each for each in desk.done if isinstance(each, Failed)], "one fits"
    desk.feed("heavy/b", rows(400))
    desk.work()
    assert sorted(each.fragment for each in desk.done if isinstance(each, Failed)) == ["heavy/a", "heavy/b"]


def test_of_an_owner_that_has_too_much_the_largest_query_ends(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = bounded(monkeypatch, query_bytes=100_000, owner_bytes=120_000)
    for name, owner in (("large", "mallory"), ("small", "mallory"), ("other", "alice")):
        desk.open(joins(name), owner)
    desk.feed("large", rows(800))
    desk.feed("other", rows(800))
    desk.feed("small", rows(400))
    desk.work()
    failed = [each for each in desk.done if isinstance(each, Failed)]
    assert [(each.fragment, each.code) for each in failed] == [("large", "E_MEMORY")]
    assert "the queries of 'mallory' hold" in failed[0].why
    for name in ("small", "other"):
        desk.feed(name, rows(1, 800))
    desk.work()
    assert [len(desk.of(name)) for name in ("large", "small", "other")] == [2, 2, 2]


def test_what_is_gone_counts_no_more(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = bounded(monkeypatch, query_bytes=100_000, owner_bytes=100_000)
    for number in range(5):
        desk.open(joins(f"q{number}"))
        desk.feed(f"q{number}", rows(800))
        desk.work()
        desk.host.close(f"q{number}")
        desk.work()
    assert not [each for each in desk.done if isinstance(each, Failed)]


def test_a_piece_that_holds_the_thread_too_long_ends_its_query(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = bounded(monkeypatch, piece_us=5_000_000)
    desk.open(joins("heavy"), "mallory")
    desk.open(passing("light"), "alice")
    desk.clock.step_us = 4_900_000
    desk.feed("heavy", rows(20), Boundary(10))
    desk.work()
    assert not [each for each in desk.done if isinstance(each, Failed)], "long, but allowed"
    desk.clock.step_us = 5_100_000
    desk.feed("heavy", Boundary(END_US))
    desk.feed("light", rows(2))
    desk.work()
    (failed,) = [each for each in desk.done if isinstance(each, Failed)]
    assert (failed.fragment, failed.code) == ("heavy", "E_BUSY")
    assert (
        failed.why == "query 'heavy' held the engine for 5.1 s without a pause, allowed are 5s (piece_time)"
    )
    assert len(desk.rows("light")) == 2


def test_a_process_that_was_stopped_for_a_while_ends_nobody(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock went on; its thread had no time."""
    desk = bounded(monkeypatch, piece_us=5_000_000)
    monkeypatch.setattr(_Worker, "cpu_us", lambda worker: 0)
    desk.open(joins("heavy"))
    desk.clock.step_us = 60_000_000
    desk.feed("heavy", rows(10), Boundary(END_US))
    desk.work()
    assert len(desk.rows("heavy")) == 100


# --- what takes long to make ----------------------------------------------------------------------


def large(name: str) -> md.Query:
    q = md.Query(name)
    made = q.source("rows", SCHEMA, time="ts", slack="0s")
    for _ in range(openings.BOXES_MAX):
        made = made.filter("v >= 0")
    q.sink("out", made)
    return q


@pytest.fixture
def opening(desk: Desk) -> Desk:
    """A large fragment is being made, and has been given rows."""
    desk.open(passing("light"))
    desk.open(large("large"))
    desk.feed("large", rows(3), rows(3, 3))
    desk.work()
    return desk


def test_rows_of_others_do_not_wait_for_a_fragment_that_takes_long_to_make(opening: Desk) -> None:
    opening.feed("light", rows(2))
    opening.work()
    assert len(opening.rows("light")) == 2
    assert opening.of("large") == []
    opening.hands.beside()
    opening.feed("large", rows(3, 6))
    opening.work()
    assert [row["v"] for row in opening.rows("large")] == list(range(9))


def test_one_that_is_closed_while_it_is_made_answers_nothing_but_checkpoints(opening: Desk) -> None:
    opening.host.persist(Persist(fragment="large", token=7, files={}, keep=()))
    opening.host.close("large")
    opening.open(large("large"))
    opening.feed("large", rows(1, 50))
    opening.hands.beside()
    opening.work()
    assert [row["v"] for row in opening.rows("large")] == [50]
    [persisted] = [each for each in opening.done if isinstance(each, Persisted)]
    assert (persisted.token, persisted.ok) == (7, False)


def test_what_cannot_be_made_beside_says_why(desk: Desk) -> None:
    desk.host.open("large", large("large").graph, {"fragment.json": b"?"})
    desk.feed("large", rows(1))
    desk.work()
    desk.hands.beside()
    desk.work()
    [failed] = desk.of("large")
    assert isinstance(failed, Failed)
    assert "fragment.json" in failed.why


def test_parts_are_made_of_one_that_is_still_being_made_once_it_is(opening: Desk) -> None:
    merging = Regroup(
        token=9, box="b", merges=True, gone=("large",), whole=large("large").graph, opened={}, arcs={}
    )
    opening.host.regroup(merging)
    opening.hands.engine()
    assert not [each for each in opening.host.finished() if isinstance(each, Remade)]
    opening.hands.beside()
    opening.hands.engine()
    told = [each for each in opening.host.finished() if isinstance(each, Ran | Remade)]
    assert [type(each).__name__ for each in told] == ["Ran", "Ran", "Remade"]


def test_a_host_that_stops_makes_what_is_not_made_yet(opening: Desk) -> None:
    opening.host.stop()
    opening.done += [each for each in opening.host.finished() if isinstance(each, Ran)]
    assert len(opening.rows("large")) == 6
