"""Runs with an input queue: the same answers, bounds that hold, errors that are told, ends in good order."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.testing import ManualClock
from tests.engine.queries import numbers
from tests.runtime.test_embedded import SINKS, query
from tests.runtime.test_embedded import rows as cars

LONG_S = 20  # a test that waits so long has failed


def plain(**source: Any) -> md.Query:
    q = md.Query("plain")
    s = q.source("s", {"ts": "timestamp", "x": "int64"}, time="ts", slack=0, **source)
    q.sink("o", s.filter("10 // x >= -100 or true", name="f"))
    return q


def rows(start: int, count: int = 10) -> pa.RecordBatch:
    at = range(start, start + count)
    return pa.record_batch({"ts": pa.array(at, pa.timestamp("us")), "x": pa.array(at, pa.int64())})


class Gate:
    """A callback that holds the thread of the run until it is opened."""

    def __init__(self, run: Any) -> None:
        self.inside, self.open = threading.Event(), threading.Event()
        self.seen: list[int] = []
        run.on("o", self)

    def __call__(self, table: pa.Table) -> None:
        self.seen += table.column("x").to_pylist()
        self.inside.set()
        assert self.open.wait(LONG_S)


def held(run: Any, count: int = 1) -> Gate:
    """A run whose thread stands in a callback."""
    gate = Gate(run)
    run.push("s", rows(1, count))
    assert gate.inside.wait(LONG_S)
    return gate


def fill(run: Any, pushed: int, step: int, **options: Any) -> int:
    """Push until it is refused; how many rows have entered."""
    try:
        while True:
            run.push("s", rows(pushed + 1, step), **options)
            pushed += step
    except md.FullError:
        return pushed


@pytest.mark.filterwarnings("ignore::medusa.LateWarning", "ignore::medusa.DeadRowWarning")
@pytest.mark.parametrize("threads", [1, 2])
def test_the_answers_are_those_of_a_run_without_a_queue(threads: int) -> None:
    found = []
    for options in ({}, {"queue": 4000, "threads": threads}):
        with md.start(query(), **options) as run:
            for start in range(0, 400, 40):
                for name in ("cars", "vans"):
                    run.push(name, cars(start))
                run.boundary("cars", start)
            run.finish()
            found.append({sink: numbers(run.take(sink)) for sink in SINKS})
            found.append({each["box"]: each["late"] for each in run.stats().to_pylist()})
    assert found[0] == found[2]
    assert found[1] == found[3]


def test_what_is_refused_changes_nothing() -> None:
    with md.start(plain(), queue="1 MiB") as run:
        run.push("s", rows(1))
        run.boundary("s", 50)
        for wrong in ({"ts": [1]}, {"ts": [None], "x": [1]}, {"ts": [1], "x": ["a"]}):
            with pytest.raises(md.DataError):
                run.push("s", wrong)
        with pytest.raises(md.DataError, match="no source"):
            run.push("t", rows(1))
        with pytest.raises(md.DataError, match="decrease"):
            run.boundary("s", 40)
        with pytest.raises(md.DataError, match="missing"):
            run.push("s", rows(1), first=12)
        run.push("s", rows(51, 4), first=8)  # of which two are held already
        assert run.positions() == {"s": 12}
        run.finish()
        with pytest.raises(md.DataError, match="ended"):
            run.push("s", rows(99))
        assert run.take("o").column("x").to_pylist() == [*range(1, 11), 53, 54]


def test_a_boundary_that_waits_counts_for_those_that_follow() -> None:
    with md.start(plain(), queue="1 MiB") as run:
        gate = held(run)
        run.boundary("s", 50)
        with pytest.raises(md.DataError, match="decrease"):
            run.boundary("s", 40)
        gate.open.set()


def test_a_full_queue_refuses_or_waits_and_drops_nothing() -> None:
    with md.start(plain(), queue=rows(1).nbytes * 3) as run:
        gate = held(run)
        pushed = fill(run, 1, 10, wait=False)
        with pytest.raises(md.FullError, match="wait in the input queue") as caught:
            run.push("s", rows(pushed + 1), wait=False)
        assert caught.value.code == "full.queue"
        assert run.positions() == {"s": pushed}
        waiter = threading.Thread(target=run.push, args=("s", rows(pushed + 1)))
        waiter.start()
        gate.open.set()
        waiter.join(LONG_S)
        run.flush()
        assert gate.seen == list(range(1, pushed + 11))


def test_a_push_larger_than_the_queue_enters_when_nothing_waits() -> None:
    with md.start(plain(), queue=1) as run:
        for start in range(1, 101, 10):
            run.push("s", rows(start))
        run.flush()
        assert run.take("o").column("x").to_pylist() == list(range(1, 101))


def test_what_waits_is_in_the_stats() -> None:
    with md.start(plain(), queue="1 MiB") as run:
        gate = held(run)
        run.push("s", rows(2))
        gate.open.set()
        run.flush()
        [source, *_] = run.stats().to_pylist()
        assert (source["queue_rows"], source["queue_bytes"], source["rows_in"]) == (0, 0, 11)
        belt = run._intake._belt  # type: ignore[attr-defined]
        with belt.changed:
            belt.queue.rows["s"], belt.queue.nbytes["s"] = 7, 70
        [source, *_] = run.stats().to_pylist()
        assert (source["queue_rows"], source["queue_bytes"]) == (7, 70)


def test_output_that_nobody_takes_stops_the_work_and_a_take_lets_it_go_on() -> None:
    size = rows(1, 100).nbytes
    with md.start(plain(), queue=2 * size, memory=size) as run:
        pushed = fill(run, 0, 100)
        with pytest.raises(md.FullError, match="take") as caught:
            run.push("s", rows(pushed + 1, 100))
        assert caught.value.code == "full.memory"
        assert run.positions()["s"] == pushed
        taken = run.take("o").num_rows
        run.flush()  # makes room for what waits, whatever is allowed
        taken += run.take("o").num_rows
        assert taken == pushed
        run.push("s", rows(pushed + 1, 100))
        run.flush()
        assert run.take("o").num_rows == 100


def test_with_several_threads_push_waits_until_another_takes() -> None:
    size = rows(1, 100).nbytes
    with md.start(plain(), queue=2 * size, memory=size, threads=2) as run:
        got: list[int] = []

        def take() -> None:
            while len(got) < 3000:
                got.extend(run.take("o").column("x").to_pylist())

        taker = threading.Thread(target=take)
        taker.start()
        for start in range(1, 3001, 100):
            run.push("s", rows(start, 100))
        taker.join(LONG_S)
        assert got == list(range(1, 3001))


def test_a_callback_that_raises_is_told_to_the_next_caller_and_its_rows_come_again() -> None:
    seen: list[list[int]] = []

    def call(table: pa.Table) -> None:
        seen.append(table.column("x").to_pylist())
        if len(seen) == 1:
            raise RuntimeError("full disk")

    with md.start(plain(), queue="1 MiB") as run:
        run.on("o", call)
        run.push("s", rows(1, 2))
        with pytest.raises(RuntimeError, match="full disk"):
            run.flush()
        run.push("s", rows(3, 1))
        run.flush()
    assert seen == [[1, 2], [1, 2, 3]]


def test_a_failed_row_that_stops_the_run_is_told_with_what_was_left() -> None:
    q = md.Query("q")
    s = q.source("s", {"ts": "timestamp", "x": "int64"}, time="ts", slack=0)
    q.sink("o", s.filter("10 // (x - 5) > -100"))
    run = md.start(q, queue="1 MiB", on_error="stop")
    gate = held(run)
    run.push("s", rows(5, 1))
    run.push("s", rows(6, 3))
    gate.open.set()
    with pytest.raises(md.DataError) as caught:
        run.flush()
    assert any("3 of 's'" in note for note in caught.value.__notes__)
    for call in (run.flush, run.finish, lambda: run.push("s", rows(9))):
        with pytest.raises(md.DataError, match="has stopped"):
            call()
    assert run.positions()["s"] == 2  # the rows that went in
    run.close()


def test_leaving_the_block_works_everything_off() -> None:
    with md.start(plain(), queue="1 MiB") as run:
        gate = held(run)
        for start in range(2, 102, 10):
            run.push("s", rows(start))
        gate.open.set()
    assert gate.seen == list(range(1, 102))
    with pytest.raises(md.StateError, match="closed"):
        run.push("s", rows(1))
    with pytest.raises(md.StateError, match="closed"):
        run.flush()


def test_what_went_wrong_last_is_told_by_close() -> None:
    def call(table: pa.Table) -> None:
        raise RuntimeError("gone")

    run = md.start(plain(), queue="1 MiB")
    run.on("o", call)
    run.push("s", rows(1))
    with pytest.raises(RuntimeError, match="gone"):
        run.close()
    with pytest.raises(md.StateError, match="closed"):
        run.take("o")


def test_an_error_on_its_way_out_ends_the_work_and_tells_what_was_left() -> None:
    gates: list[Gate] = []

    def work() -> None:
        with md.start(plain(), queue="1 MiB") as run:
            gates.append(held(run))
            run.push("s", rows(2, 7))
            run._intake._belt.stopping = True  # type: ignore[attr-defined]  # as if it had come in the same moment
            gates[0].open.set()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        work()
    assert caught.value.__notes__ == ["rows (7 of 's') waited in the input queue and were not worked through"]
    assert gates[0].seen == [1]


def test_an_interrupt_ends_a_wait_and_loses_nothing() -> None:
    with md.start(plain(), queue="1 MiB") as run:
        gate = held(run)
        run.push("s", rows(2))

        def interrupt() -> None:
            while not run._intake._belt.calls:  # type: ignore[attr-defined]
                pass
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        other = threading.Thread(target=interrupt)
        other.start()
        with pytest.raises(KeyboardInterrupt):
            run.flush()
        other.join(LONG_S)
        gate.open.set()
        run.flush()
        assert gate.seen == list(range(1, 12))


def test_callbacks_may_push_but_not_wait() -> None:
    errors: list[str] = []

    def call(table: pa.Table) -> None:
        last = table.column("x").to_pylist()[-1]
        if last < 5:
            run.push("s", rows(last + 1, 1))
        for wait in (run.flush, run.finish, run.checkpoint, run.close, lambda: run.take("o")):
            try:
                wait()
            except md.StateError as error:
                errors.append(error.code)
        try:
            run.push("s", rows(100, 100_000))
        except md.FullError as error:
            errors.append(error.code)

    with md.start(plain(), queue="1 KiB") as run:
        run.on("o", call)
        run.push("s", rows(1, 1))
        run.flush()
        while run.positions()["s"] < 5:
            run.flush()
    assert set(errors) == {"run.busy", "full.queue"}
    assert len(errors) == 5 * 6


def test_many_threads_push_and_every_row_comes_once() -> None:
    with md.start(plain(), queue="2 KiB") as run:

        def push(number: int) -> None:
            for _ in range(50):
                run.push("s", {"ts": pa.array([0] * 7, pa.timestamp("us")), "x": [number] * 7})

        threads = [threading.Thread(target=push, args=(number,)) for number in range(1, 5)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(LONG_S)
        run.flush()
        assert sorted(run.take("o").column("x").to_pylist()) == sorted([1, 2, 3, 4] * 350)


def test_numpy_columns_may_be_written_to_at_once() -> None:
    with md.start(plain(), queue="1 MiB") as run:
        gate = held(run)
        x = np.arange(2, 5)
        run.push("s", {"ts": pa.array([2, 3, 4], pa.timestamp("us")), "x": x})
        x[:] = 0
        gate.open.set()
        run.flush()
        assert gate.seen == [1, 2, 3, 4]


def test_late_rows_warn_where_the_caller_is() -> None:
    q = md.Query("q")
    q.sink("o", q.source("s", {"ts": "timestamp"}, time="ts", slack=1).window(10).aggregate(n=md.count()))
    with md.start(q, queue="1 MiB") as run:
        run.push("s", {"ts": pa.array([10, 5, 12], pa.timestamp("us"))})
        with pytest.warns(md.LateWarning, match="slack='5us'") as caught:
            run.flush()
        assert caught[0].filename == __file__


@pytest.mark.filterwarnings("ignore::medusa.LateWarning", "ignore::medusa.DeadRowWarning")
def test_a_restored_run_has_its_queue_again(tmp_path: Path) -> None:
    def work(run: Any, starts: range, into: dict[str, list[Any]]) -> None:
        for start in starts:
            for name in ("cars", "vans"):
                run.push(name, cars(start), first=start)
        run.flush()
        for sink in SINKS:
            into.setdefault(sink, []).extend(numbers(run.take(sink)))

    whole: dict[str, list[Any]] = {}
    with md.start(query(), queue=5000) as run:
        work(run, range(0, 400, 40), whole)
    found: dict[str, list[Any]] = {}
    with md.start(query(), queue=5000, checkpoint=tmp_path) as run:
        work(run, range(0, 120, 40), found)
        run.push("cars", cars(120))
        assert run.checkpoint()
        run.push("cars", cars(160))
    with md.restore(tmp_path) as run:
        assert run.positions() == {"cars": 200, "vans": 120}
        run.push("cars", cars(0, 240), first=0)
        work(run, range(120, 400, 40), found)
    assert found == whole


def test_rows_that_wait_are_no_silence() -> None:
    """A source is silent from when its last row was pushed, not while rows of it wait."""
    q = md.Query("q")
    a, b = (q.source(name, {"ts": "timestamp"}, time="ts", slack=0, idle="1s") for name in "ab")
    q.sink("o", a.window(10).aggregate(n=md.count()).join(b.window(10).aggregate(m=md.count()), on="window"))
    q.sink("each", b)
    clock = ManualClock()

    def at(us: int) -> dict[str, Any]:
        return {"ts": pa.array([us], pa.timestamp("us"))}

    def late(run: Any) -> int:
        return next(row["late"] for row in run.stats().to_pylist() if row["box"] == "a")

    with md.start(q, queue="1 MiB", clock=clock) as run:
        inside, go_on = threading.Event(), threading.Event()

        def hold(table: pa.Table) -> None:
            inside.set()
            assert go_on.wait(LONG_S)

        run.push("a", at(5))
        run.flush()
        run.on("each", hold)
        run.push("b", at(100))
        assert inside.wait(LONG_S)
        run.push("b", at(101))  # behind it time passes, but not beyond what came next
        clock.advance("900ms")
        run.push("a", at(6))  # it waits while a second passes
        clock.advance("200ms")
        go_on.set()
        run.flush()
        run.tick()
        assert late(run) == 0
        clock.advance("900ms")  # a second after that row
        run.tick()
        run.push("a", at(7))
        with pytest.warns(md.LateWarning):
            run.flush()
        assert late(run) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_after_a_fork_is_told() -> None:
    with md.start(plain(), queue="1 MiB") as run:
        gate = held(run)
        run.push("s", rows(2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            codes = set()
            for call in (run.flush, run.stats, run.positions, lambda: run.push("s", rows(1))):
                try:
                    call()
                except md.StateError as error:
                    codes.add(error.code)
            run.close()
            os._exit(0 if codes == {"run.forked"} else 1)
        assert os.waitpid(child, 0)[1] == 0
        gate.open.set()
        run.flush()
        assert gate.seen == list(range(1, 12))


def test_a_run_that_is_lost_says_so() -> None:
    runs: list[Any] = [md.start(plain(), queue="1 MiB")]
    thread = runs[0]._intake._worker._thread
    with runs[0]._intake._belt.changed:  # the thread can take nothing out
        runs[0].push("s", rows(1))
        with pytest.warns(ResourceWarning, match="10 of 's'"):
            runs.clear()
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_asyncio_waits_for_room_and_streams() -> None:
    async def push(run: Any) -> None:
        for start in range(1, 1001, 10):
            await run.push_async("s", rows(start))
        await asyncio.to_thread(run.finish)

    async def main() -> list[int]:
        seen: list[int] = []
        with md.start(plain(), queue=rows(1).nbytes * 2) as run:
            task = asyncio.create_task(push(run))
            async for table in run.stream("o"):
                seen += table.column("x").to_pylist()
            await task
        return seen

    assert asyncio.run(asyncio.wait_for(main(), LONG_S)) == list(range(1, 1001))


def test_flush_of_a_run_without_a_queue_has_nothing_to_wait_for() -> None:
    with md.start(plain()) as run:
        run.push("s", rows(1))
        run.flush()
        assert run.take("o").num_rows == 10
    with pytest.raises(md.StateError, match="closed"):
        run.flush()


def test_sizes_are_sizes() -> None:
    with pytest.raises(md.QueryError, match="queue"):
        md.start(plain(), queue="many")
