"""The engine's thread survives what fragments do; its jobs run here in the caller's thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import END_US, Boundary, Element, Train
from medusa.engine.fragment import Fragment
from medusa.engine.operators.windows.aggregate import CombineBox
from medusa.engine.state.checkpoint import seal
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.placement import placement
from medusa.query.boxes import Graph
from medusa.runtime.engine_host.group_names import group_name, group_token
from medusa.runtime.engine_host.host import EngineHost, FragmentFailed, Ran, Stats
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.repair.startup import recover
from medusa.runtime.store.folder_store import FolderStore
from medusa.sim.world.disk import Disk
from medusa.wire.outbox import Persist, RunFragment
from tests.engine.test_partials import altered, cut


class Clock:
    def now_us(self) -> int:
        return 0

    def monotonic_us(self) -> int:
        return 0


class AtOnce:
    """A worker that does each job when it is given."""

    idle = False

    def __init__(self, name: str) -> None:
        self.name = name

    def give(self, job: Callable[[], None]) -> None:
        job()

    def cpu_us(self) -> None:
        """Nobody knows."""

    def stop(self, timeout_s=None, *, last=None) -> bool:
        """Nothing is left."""
        return True


def hosting(graph: Graph, *names: str) -> EngineHost:
    host = EngineHost(Disk("d"), Clock(), wake=lambda: None, worker=AtOnce)
    for name in names:
        host.open(name, graph)
    return host


def run(host: EngineHost, fragment: str, element: Element, stream: str = "in0") -> list[Any]:
    host.run(RunFragment(fragment=fragment, stream=stream, element=element))
    return [done for done in host.finished() if isinstance(done, Ran | FragmentFailed)]


def test_malformed_partials_are_refused_and_the_fragment_goes_on() -> None:
    core, good = cut()
    host = hosting(core, "f")
    (refused,) = run(host, "f", altered(good, {"d.set": [b"x"] * 4}))
    assert isinstance(refused, Ran)
    assert "not partial results of window" in refused.refused
    assert refused.outputs == []
    (taken,) = run(host, "f", good)
    assert taken == Ran("f", [])
    run(host, "f", Boundary(END_US), "in1")
    (done,) = run(host, "f", Boundary(END_US))
    assert sum(len(each) for _, each in done.outputs if isinstance(each, Train)) == 4


def test_a_broken_box_stops_its_fragment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    core, good = cut()
    host = hosting(core, "f", "g")

    def broken(box: CombineBox, input: int, train: Train) -> None:
        raise ValueError("a box is broken")

    with monkeypatch.context() as patched:
        patched.setattr(CombineBox, "on_train", broken)
        assert run(host, "f", good) == [FragmentFailed("f", "ValueError: a box is broken")]
        assert run(host, "f", good) == []
    assert run(host, "g", good) == [Ran("g", [])]


def test_a_fragment_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    core, good = cut()

    def broken(*arguments: Any, **settings: Any) -> None:
        raise ValueError("can't be made")

    with monkeypatch.context() as patched:
        patched.setattr("medusa.runtime.engine_host.openings.Fragment", broken)
        host = hosting(core, "f")
    assert host.finished() == [FragmentFailed("f", "ValueError: can't be made")]
    assert run(host, "f", good) == []
    host.open("g", core)
    assert run(host, "g", good) == [Ran("g", [])]


def test_the_catalog_of_the_life_before_stays_beside_the_first_new_one(tmp_path: Path) -> None:
    """Where the new one turns out damaged there is one to fall back on."""
    data = Catalog("a").to_bytes()
    store = FolderStore(tmp_path / "data")
    store.write("life-000000000001", {})
    for token in (1, 2):
        store.write(group_name("", token), seal({CATALOG: data}, {"fragment": "", "token": token}))
    found = recover(store, SystemClock(), node="a", warn=pytest.fail)
    host = EngineHost(store, SystemClock(), wake=lambda: None, worker=AtOnce)
    found.resume(host)
    for token in (found.first_token, found.first_token + 1):
        host.persist(Persist(token=token, fragment="", files={CATALOG: data}))
        kept = {group_token("", name) for name in store.names()} - {None}
        assert kept == {token - 1, token}
    store.close()


def test_what_two_threads_have_done_at_once_wakes_the_loop() -> None:
    """Each took the other for the first, so the loop slept for as long as it may."""
    core, good = cut()
    woken = []
    host = EngineHost(Disk("d"), Clock(), wake=lambda: woken.append(1), worker=AtOnce)
    host.open("f", core)

    class Between(deque[Any]):
        """Another thread has done something just as one has."""

        others = 1

        def append(self, done: Any) -> None:
            super().append(done)
            if self.others:
                self.others = 0
                host.run(RunFragment(fragment="f", stream="in0", element=good))

    for _ in range(2):
        host.finished()
        woken.clear()
        host._done = Between()
        host.run(RunFragment(fragment="f", stream="in0", element=good))
        assert woken == [1]


class InLine(AtOnce):
    """A worker that does each job when it is asked to, as a thread that has more to do than time."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.jobs: deque[Callable[[], None]] = deque()

    @property
    def idle(self) -> bool:  # type: ignore[override]
        return not self.jobs

    def give(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def work(self) -> None:
        while self.jobs:
            self.jobs.popleft()()


def test_the_last_figures_are_told_whatever_the_engine_does_after_the_last_rows() -> None:
    """A checkpoint or another fragment's rows waited when the end was fed: status said for ever what had
    been before it."""
    core, good = cut()
    workers = {}

    def worker(name: str) -> InLine:
        return workers.setdefault(name, InLine(name))

    host = EngineHost(Disk("d"), Clock(), wake=lambda: None, worker=worker)
    for name in "fg":
        host.open(name, core)
    for name in "fg":
        host.run(RunFragment(fragment=name, stream="in0", element=good))
        for stream in ("in0", "in1"):
            host.run(RunFragment(fragment=name, stream=stream, element=Boundary(END_US)))
    host.persist(Persist(token=1, fragment="g"))
    workers["medusa-engine"].work()
    last = {each.fragment: each.counts for each in host.finished() if isinstance(each, Stats)}
    for name in "fg":
        assert all(box["finished"] for box in last[name]["boxes"].values()), name
        assert sum(box["rows_in"] for box in last[name]["boxes"].values()) > 0


def test_the_cpu_time_of_elements_is_told_where_the_worker_knows_it() -> None:
    """Not the time in which others have the processor, nor what checkpoints take: that is nobody's rows."""
    core, good = cut()
    workers = {}
    times: dict[str, int | None] = {"cpu": 0}

    class Counted(InLine):
        def cpu_us(self) -> int | None:  # type: ignore[override]
            """Each look takes 5 us."""
            if times["cpu"] is not None:
                times["cpu"] += 5
            return times["cpu"]

    def worker(name: str) -> InLine:
        return workers.setdefault(name, Counted(name))

    def told() -> list[int | None]:
        workers["medusa-engine"].work()
        return [each.counts["cpu_us"] for each in host.finished() if isinstance(each, Stats)]

    host = EngineHost(Disk("d"), Clock(), wake=lambda: None, worker=worker)
    host.open("f", core)
    host.run(RunFragment(fragment="f", stream="in0", element=good))
    one = told()[-1]
    assert one is not None
    assert 0 < one < times["cpu"]
    host.persist(Persist(token=1, fragment="f"))
    host.run(RunFragment(fragment="f", stream="in0", element=good))
    assert told()[-1] == 2 * one
    times["cpu"] = None
    host.run(RunFragment(fragment="f", stream="in0", element=good))
    assert told()[-1] is None


def test_a_late_row_counts_once_in_however_many_fragments_it_is() -> None:
    """One of 3 rows is late; a node with all three fragments said that 3 were."""
    schema = {"ts": "timestamp[us, UTC]", "v": "int64"}
    q = md.Query("q")
    some = q.source("a", schema, time="ts", slack="0s").filter("v > 0", name="some")
    q.sink("out", some.window("10us").aggregate(n=md.count(), name="w"))
    plan = placement.cut(q.graph, {"x": ["a"], "y": ["some"], "z": ["w"]})
    host = EngineHost(Disk("d"), Clock(), wake=lambda: None, worker=AtOnce)
    times = pa.array([50, 60, 1], pa.timestamp("us", "UTC"))
    elements = [Train(batch=pa.record_batch({"ts": times, "v": pa.array([1, 1, 1], pa.int64())}))]
    late, marked = {}, {}
    for spec in plan.fragments:
        host.open(spec.name, spec.graph)
        source = spec.graph.boxes[0].id
        fragment = host._running[spec.name].fragment
        assert fragment is not None
        for element in elements:
            fragment.feed(source, element)
        elements = [element for _, element in drained(fragment)]
        late[spec.name] = Stats.of(spec.name, fragment).counts["late"]
        marked[spec.name] = fragment.boxes[source].late
    assert marked == {"q/a": 1, "q/some": 1, "q/w": 1}, "each of them has it"
    assert late == {"q/a": 1, "q/some": 0, "q/w": 0}


def drained(fragment: Fragment) -> list[tuple[str, Element]]:
    return [(sink, element) for sink in fragment.sinks for element in fragment.drain(sink)]
