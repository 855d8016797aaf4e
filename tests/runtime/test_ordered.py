"""Runs with an input queue and quality of service: the same answers, and the urgent output first.

Their clocks stand, so that nothing is ever thought to be too much, and shed.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.query.builder import Query
from medusa.runtime.embedded.ordered_worker import OrderedWorker
from medusa.runtime.embedded.queue_worker import QueueWorker
from medusa.testing import ManualClock

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("v", pa.int64())])
URGENT = md.QoS(latency=[(0, 1), ("1s", 0)])
PATIENT = md.QoS(latency=[(0, 1), ("60s", 0)])
WAIT_S = 30.0


def rows(first: int, count: int = 100) -> pa.RecordBatch:
    numbers = range(first, first + count)
    columns = [[n * 10_000 for n in numbers], [n % 5 for n in numbers], list(numbers)]
    arrays = [pa.array(values, type) for values, type in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def query(urgent: md.QoS | None = URGENT, *, divide: bool = False) -> Query:
    q = md.Query("two")
    cars = q.source("cars", {"ts": "timestamp", "k": "int64", "v": "int64"})
    q.sink("patient", cars.window("1s").group_by("k").aggregate(n=md.count(), s=md.sum("v")), qos=PATIENT)
    q.sink("urgent", cars.with_columns(w="1000 // (v - 250)" if divide else "v + 1"), qos=urgent)
    return q


def answers(run: Any) -> dict[str, Any]:
    run.finish()
    return {sink: run.take(sink) for sink in ("patient", "urgent")}


@pytest.mark.parametrize("queue", ["1 KiB", "64 MiB"])
def test_the_answers_are_those_of_a_run_without_a_queue(queue: str) -> None:
    with md.start(query()) as plain, md.start(query(), queue=queue, clock=ManualClock()) as run:
        assert type(run._intake._worker) is OrderedWorker
        for first in range(0, 6_000, 100):
            for each in (plain, run):
                each.push("cars", rows(first))
        run.boundary("cars", 70_000_000)
        plain.boundary("cars", 70_000_000)
        run.flush()
        assert run.positions() == plain.positions() == {"cars": 6_000}
        assert run.stats()["queue_bytes"].to_pylist()[0] == 0
        assert answers(run) == answers(plain)


@pytest.mark.parametrize(
    ("given", "why"),
    [({"spill": "s"}, "what spills"), ({"checkpoint": "c"}, "checkpoints"), ({}, "no latency graph")],
)
def test_other_runs_work_in_the_order_of_the_pushes(tmp_path: Path, given: dict[str, str], why: str) -> None:
    q = query(URGENT) if given else md.Query("plain")
    if not given:
        q.sink("one", q.source("cars", {"v": "int64"}, time=None), qos=md.QoS(loss=[(0, 0), (100, 1)]))
    options: Any = {name: tmp_path / folder for name, folder in given.items()}
    with md.start(q, queue="1 MiB", clock=ManualClock(), **options) as run:
        assert type(run._intake._worker) is QueueWorker, why


class Gate:
    """A callback that holds up the thread of a run until it is opened, and notes who was called."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.called: list[str] = []

    def __call__(self, sink: str) -> Any:
        def call(table: pa.Table) -> None:
            self.called.append(sink)
            self.reached.set()
            assert self.open.wait(WAIT_S)

        return call

    def hold(self, run: Any, firsts: range) -> None:
        """Push rows; the thread is held up at the first of them until all the others wait."""
        for sink in ("patient", "urgent"):
            run.on(sink, self(sink))
        for first in firsts:
            run.push("cars", rows(first))
            if first == firsts[0]:
                assert self.reached.wait(WAIT_S)
        self.open.set()
        run.flush()


def test_what_is_urgent_comes_first() -> None:
    """While the thread is held up at the first train, five more come: all of the urgent output go first."""
    gate = Gate()
    with md.start(query(), queue="64 MiB", clock=ManualClock()) as run:
        gate.hold(run, range(0, 600, 100))
        assert gate.called == ["urgent"] * 6 + ["patient"] * 5
        assert run.qos()["rows"].to_pylist() == [25, 600]


def test_rows_hold_their_place_in_the_queue_until_they_have_been_worked_through() -> None:
    gate = Gate()
    size = rows(0).nbytes
    with md.start(query(), queue=3 * size, clock=ManualClock()) as run:
        run.on("urgent", gate("urgent"))
        run.push("cars", rows(0))
        assert gate.reached.wait(WAIT_S)
        run.push("cars", rows(100), wait=False)
        run.push("cars", rows(200), wait=False)
        with pytest.raises(md.FullError, match="input queue"):
            run.push("cars", rows(300), wait=False)
        gate.open.set()
        run.push("cars", rows(300))
        run.flush()
        assert run._intake._belt.queue.held_bytes == 0
        assert run.positions() == {"cars": 400}


def test_a_failed_row_ends_the_run_and_says_what_was_left() -> None:
    run = md.start(query(divide=True), queue="64 MiB", on_error="stop", clock=ManualClock())
    run.push("cars", rows(0))
    run.flush()
    run.push("cars", rows(200))
    with pytest.raises(md.DataError, match="zero|stopped"):
        run.flush()
    with pytest.raises(md.DataError, match="has stopped"):
        run.push("cars", rows(300))
    assert run._intake._belt.queue.held_bytes == 0
    run.close()


def test_output_that_nobody_takes_stops_the_work_until_somebody_does() -> None:
    with md.start(query(), queue="64 MiB", memory=10_000, clock=ManualClock()) as run:
        for first in range(0, 3_000, 100):
            run.push("cars", rows(first))
        got = []
        while len(got) < 3_000:
            run.take("patient")
            urgent = run.take("urgent")
            assert urgent.nbytes < 10_000 + 2 * rows(0).nbytes
            got += urgent["v"].to_pylist()
        run.flush()
        assert got == list(range(3_000))


def test_a_query_changes_at_rest_and_is_ordered_by_its_new_graphs() -> None:
    gate = Gate()
    with md.start(query(), queue="64 MiB", clock=ManualClock()) as run:
        for first in range(0, 1_000, 100):
            run.push("cars", rows(first))
        later = md.QoS(latency=[(0, 1), ("1h", 0)])
        run.change(query(later))
        for sink in ("patient", "urgent"):
            run.take(sink)
        gate.hold(run, range(1_000, 1_500, 100))
        # One train was under way; of the others the one whose graph is steeper now is first.
        rest = gate.called[gate.called.index("urgent") + 1 :] if gate.called[0] == "urgent" else gate.called
        assert rest[:4] == ["patient"] * 4
        assert run.positions() == {"cars": 1_500}
