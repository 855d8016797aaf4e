"""The workers of a host driven by hand, in time that only pieces take, and queries to give it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Element, Train
from medusa.engine.core import output_pieces
from medusa.engine.fragment import Fragment
from medusa.engine.operators.joins import join
from medusa.nodes.reports import FragmentFailed, Persisted, Ran
from medusa.query.boxes import Graph
from medusa.runtime.engine_host.budgets import NEVER, EngineBounds
from medusa.runtime.engine_host.host import EngineHost
from medusa.sim.world.disk import Disk
from medusa.wire.outbox import Owned, RunFragment

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
        return EngineWorker(self.jobs.setdefault(name, deque()), self._clock)

    def engine(self, most: int = 1 << 20) -> int:
        """Do that many jobs of the engine; how many there were."""
        jobs, done = self.jobs["medusa-engine"], 0
        while jobs and done < most:
            jobs.popleft()()
            done += 1
        return done

    def beside(self) -> int:
        """Do all that waits beside; how many jobs there were."""
        done = 0
        while jobs := self.jobs.get("medusa-beside"):
            jobs.popleft()()
            done += 1
        return done

    def disk(self) -> None:
        while jobs := self.jobs["medusa-disk"]:
            jobs.popleft()()


class EngineWorker:
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
        self.host = EngineHost(
            self.store,
            self.clock,
            wake=lambda: None,
            worker=self.hands,
            bounds=EngineBounds(**{**unbounded, **bounds}),
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
        self.done += [e for e in self.host.finished() if isinstance(e, Ran | FragmentFailed | Persisted)]
        return count

    def settle(self) -> None:
        """Work until nothing is left, beside the engine's thread too."""
        self.work()
        while self.hands.beside():
            self.work()

    def of(self, name: str) -> list[Any]:
        return [each for each in self.done if getattr(each, "fragment", "") == name]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All that came out of a fragment so far."""
        return [row for each in self.of(name) if isinstance(each, Ran) for row in made(each)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A join gives a hundred pairs at a time, and each piece takes its time."""
    monkeypatch.setattr(join, "PAIRS_MAX", 100)
    monkeypatch.setattr(output_pieces, "ROWS_MAX", 100)


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
