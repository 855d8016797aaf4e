"""Threads for native work, and the turns of callers of one run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.runtime.machine.native_workers import ThreadWorkers


@pytest.fixture
def workers() -> Iterator[ThreadWorkers]:
    made = ThreadWorkers(3)
    yield made
    made.close()


def test_parts_run_in_threads_of_their_own_and_the_caller_s(workers: ThreadWorkers) -> None:
    met = threading.Barrier(3, timeout=30)
    idents: list[int] = []

    def work(part: int) -> None:
        met.wait()  # all three are here at once
        idents.append(threading.get_ident())

    for _ in range(3):
        workers.map(work, range(3))
    assert len(set(idents)) == 3
    assert threading.get_ident() in idents
    done: list[int] = []
    workers.map(done.append, range(8))  # more parts than threads
    assert sorted(done) == list(range(8))


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_comes_out_when_all_have_ended(workers: ThreadWorkers, failing: int) -> None:
    ended: list[int] = []

    def work(part: int) -> None:
        ended.append(part)
        if part >= failing:
            raise ValueError(f"part {part}")

    with pytest.raises(ValueError, match=f"part {failing}"):
        workers.map(work, range(3))
    assert sorted(ended) == [0, 1, 2]
    ended.clear()
    workers.map(ended.append, range(3))  # and they go on
    assert sorted(ended) == [0, 1, 2]


def test_an_interrupt_waits_for_what_runs(workers: ThreadWorkers) -> None:
    begun, go_on = threading.Event(), threading.Event()
    ended: list[int] = []

    def work(part: int) -> None:
        if part == 0:
            assert begun.wait(30)
            go_on.set()
            raise KeyboardInterrupt
        begun.set()
        assert go_on.wait(30)
        ended.append(part)

    with pytest.raises(KeyboardInterrupt):
        workers.map(work, range(2))
    assert ended == [1]
    workers.map(ended.append, range(2))
    assert sorted(ended) == [0, 1, 1]


def test_close_ends_the_threads_and_a_fork_makes_new_ones() -> None:
    workers = ThreadWorkers(2)
    names: list[str] = []
    workers.map(lambda part: names.append(threading.current_thread().name), range(2))
    assert "medusa-worker-1" in names
    ours = [thread for thread in threading.enumerate() if thread.name == "medusa-worker-1"]
    workers._pid = -1  # as in the child of a fork, where no other thread is there
    workers.map(names.append, ["x", "y"])
    assert len(names) == 4
    workers.close()
    workers.close()
    assert len([t for t in threading.enumerate() if t.name == "medusa-worker-1" and t not in ours]) == 0
    assert os.getpid() == workers._pid


def counting(**options: Any) -> md.Query:
    q = md.Query("counting")
    cars = q.source("cars", {"ts": "int64", "k": "int64", "v": "float64"}, time="ts", unit="us", slack="1s")
    q.sink("out", cars.window(1000).group_by("k").aggregate(n=md.count(), s=md.sum("v")))
    q.sink("all", cars.select("k"))
    return q


def batch(start: int, rows: int, key: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"ts": np.arange(start, start + rows), "k": np.full(rows, key), "v": np.full(rows, 0.5)}
    )


def test_any_thread_may_push_and_take() -> None:
    """Five push, two take, one asks: every row is counted once, in windows and in order of arrival."""
    taken: list[pa.Table] = []
    errors: list[BaseException] = []
    ended = threading.Event()
    with md.start(counting(), threads=2) as run:

        def guarded(work: Any) -> threading.Thread:
            def call() -> None:
                try:
                    work()
                except BaseException as error:  # shown by the test
                    errors.append(error)

            return threading.Thread(target=call)

        def push(key: int) -> None:
            for number in range(12):
                run.push("cars", batch(number * 1000, 1000, key))

        def take() -> None:
            while not ended.is_set():
                taken.append(run.take("all"))

        def ask() -> None:
            while not ended.is_set():
                assert run.positions()["cars"] >= 0
                run.stats()

        pushing = [guarded(lambda key=key: push(key)) for key in range(5)]
        others = [guarded(take), guarded(take), guarded(ask)]
        for thread in pushing + others:
            thread.start()
        for thread in pushing:
            thread.join()
        ended.set()
        for thread in others:
            thread.join()
        assert errors == []
        run.finish()
        taken.append(run.take("all"))
        assert run.positions() == {"cars": 60_000}
        counts = run.take("out")
    assert sum(len(table) for table in taken) == 60_000
    assert sum(counts["n"].to_pylist()) == 60_000
    assert set(counts["n"].to_pylist()) == {1000}
    assert len(counts) == 60


def test_push_waits_for_room_and_for_its_turn_or_says_so() -> None:
    with md.start(counting(), threads=2, memory="1 KiB") as run:
        run.push("cars", batch(0, 1000, 1))
        with pytest.raises(md.FullError) as full:
            run.push("cars", batch(0, 1, 1), wait=False)
        assert full.value.code == "full.memory"
        assert run.positions() == {"cars": 1000}
        waiting = threading.Thread(target=lambda: run.push("cars", batch(0, 7, 1)))
        waiting.start()
        taken = 0
        while waiting.is_alive() or taken < 1007:  # it goes on as soon as there is room
            taken += len(run.take("all"))
        waiting.join()
        assert taken == 1007

        at_work, go_on, codes = threading.Event(), threading.Event(), []

        def seen(table: pa.Table) -> None:
            with pytest.raises(md.StateError) as busy:
                run.push("cars", batch(0, 1, 1))  # waiting for oneself would be for ever
            codes.append(busy.value.code)
            at_work.set()
            assert go_on.wait(30)

        run.on("all", seen)
        working = threading.Thread(target=lambda: run.push("cars", batch(0, 5, 1)))
        working.start()
        assert at_work.wait(30)
        with pytest.raises(md.FullError) as full:
            run.push("cars", batch(0, 1, 1), wait=False)
        assert full.value.code == "full.busy"
        go_on.set()
        working.join()
        assert codes == ["run.busy"]
        assert run.positions() == {"cars": 1012}


def test_whoever_waits_for_room_is_told_of_the_end() -> None:
    run = md.start(counting(), threads=2, memory="1 KiB")
    run.push("cars", batch(0, 1000, 1))
    codes = []

    def push() -> None:
        try:
            run.push("cars", batch(0, 1, 1))
        except md.StateError as error:
            codes.append(error.code)

    waiting = threading.Thread(target=push)
    waiting.start()
    run.close()
    waiting.join()
    assert codes == ["run.closed"]
    run.close()
