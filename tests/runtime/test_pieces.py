"""A large state is copied in pieces in the engine's thread: rows are fed in between, and aren't in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Train
from medusa.engine.fragment import Fragment
from medusa.engine.state.checkpoint import unseal
from medusa.nodes.reports import FragmentFailed, Persisted, Ran
from medusa.runtime.engine_host.group_names import group_name
from medusa.runtime.engine_host.host import EngineHost
from medusa.sim.world.disk import Disk
from medusa.wire.outbox import Persist, RunFragment
from tests.runtime.test_host import Clock

KEYS = 100_000


class Steps:
    """Workers whose jobs are done when the test says so."""

    def __init__(self) -> None:
        self.jobs: dict[str, list[Any]] = {}

    def __call__(self, name: str) -> Any:
        return _Worker(self.jobs.setdefault(name, []))

    def engine(self, most: int = 1 << 20) -> int:
        """Do that many jobs of the engine; how many there were."""
        jobs = self.jobs["medusa-engine"]
        done = 0
        while jobs and done < most:
            jobs.pop(0)()
            done += 1
        return done

    def disk(self) -> None:
        while jobs := self.jobs["medusa-disk"]:
            jobs.pop(0)()


class _Worker:
    idle = False

    def __init__(self, jobs: list[Any]) -> None:
        self._jobs = jobs

    def give(self, job: Any) -> None:
        self._jobs.append(job)

    def cpu_us(self) -> None:
        """Nobody knows."""

    def stop(self, timeout_s=None, *, last=None) -> bool:
        while self._jobs:
            self._jobs.pop(0)()
        if last is not None:
            last()
        self._jobs.clear()  # what is given from now on is never done
        return True


def query() -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", {"k": "int64", "v": "int64"}, time=None)
    q.sink("out", rows.group_by("k").running(n=md.count(), total=md.sum("v")))
    return q


def train(keys: Any, value: int) -> Train:
    keys = np.asarray(keys, dtype=np.int64)
    return Train(batch=pa.record_batch({"k": keys, "v": np.full(len(keys), value)}), times=None)


class Hosted:
    """A fragment with many groups."""

    def __init__(self) -> None:
        self.steps, self.store = Steps(), Disk("d")
        self.host = EngineHost(self.store, Clock(), wake=lambda: None, worker=self.steps)
        self.host.open("f", query().graph)
        self.feed(np.arange(KEYS), 1)
        self.steps.engine()
        self.steps.disk()
        self.host.finished()

    def feed(self, keys: Any, value: int) -> None:
        self.host.run(RunFragment(fragment="f", stream="rows", element=train(keys, value)))

    def persist(self, token: int) -> None:
        self.host.persist(Persist(token=token, fragment="f", files={}))

    def done(self) -> list[Any]:
        return [each for each in self.host.finished() if isinstance(each, Persisted | Ran | FragmentFailed)]

    def totals(self, token: int) -> dict[int, int]:
        """What a checkpoint says of each key."""
        _, files = unseal(self.store.read(group_name("f", token)))
        restored = Fragment.restore(query().graph, files)
        restored.feed("rows", train(np.arange(KEYS), 0))
        (out,) = [each for each in restored.drain("out") if isinstance(each, Train)]
        return dict(
            zip(out.batch.column("k").to_pylist(), out.batch.column("total").to_pylist(), strict=True)
        )


@pytest.fixture
def hosted() -> Hosted:
    return Hosted()


def test_rows_are_fed_between_the_pieces_and_are_not_in_the_checkpoint(hosted: Hosted) -> None:
    hosted.persist(1)
    for _ in range(5):
        hosted.feed(range(0, KEYS, 7), 10)
    given, taken, pieces = 6, 6, 5
    hosted.steps.engine(given + taken + pieces)
    assert [type(each) for each in hosted.done()] == [Ran] * 5, "fed before the state was copied"
    hosted.steps.engine()
    hosted.steps.disk()
    assert hosted.done() == [Persisted(1, True)]
    assert hosted.totals(1) == dict.fromkeys(range(KEYS), 1)
    hosted.persist(2)
    hosted.steps.engine()
    hosted.steps.disk()
    assert hosted.totals(2) == {key: 1 + 50 * (key % 7 == 0) for key in range(KEYS)}


def test_two_of_them_end_in_order(hosted: Hosted) -> None:
    hosted.persist(1)
    hosted.feed([5], 10)
    hosted.persist(2)
    hosted.feed([5], 100)
    hosted.steps.engine()
    hosted.steps.disk()
    assert [each for each in hosted.done() if isinstance(each, Persisted)] == [
        Persisted(1, True),
        Persisted(2, True),
    ]
    assert (hosted.totals(1)[5], hosted.totals(2)[5]) == (1, 11)


def test_a_host_that_stops_writes_what_it_was_told(hosted: Hosted) -> None:
    hosted.persist(1)
    hosted.steps.engine(2)
    hosted.feed([5], 10)
    assert hosted.host.stop()
    assert hosted.totals(1)[5] == 1


def test_what_is_closed_is_copied_no_further_and_deleted(hosted: Hosted) -> None:
    """However much it holds: whoever asked for the removal waits, and so do other fragments."""
    hosted.persist(1)
    hosted.steps.engine(3)
    hosted.host.close("f")
    hosted.steps.engine(2)
    hosted.steps.disk()
    assert hosted.done() == [Persisted(1, False, "it was closed")]
    assert hosted.store.names() == []


def test_a_copy_for_which_there_is_no_memory_is_told(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(keys: Any, ids: Any) -> None:
        raise MemoryError("out of memory")

    hosted.persist(1)
    hosted.steps.engine(1)
    with monkeypatch.context() as patched:
        patched.setattr("medusa.engine.operators.windows.groups.pick_keys", full)
        hosted.steps.engine()
    assert hosted.done() == [Persisted(1, False, "out of memory")]
    hosted.persist(2)
    hosted.steps.engine()
    hosted.steps.disk()
    assert hosted.done() == [Persisted(2, True)]
    assert hosted.totals(2) == dict.fromkeys(range(KEYS), 1)
