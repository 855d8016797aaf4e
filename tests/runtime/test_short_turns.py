"""Who works beside a thread that others wait for lets it have its turn sooner."""

from __future__ import annotations

import os
import sys
import threading
from functools import partial

import pytest

from medusa.errors import QueryError
from medusa.runtime.machine import short_turns
from medusa.runtime.machine.short_turns import TURN_US, ShortTurns
from medusa.runtime.machine.worker_thread import WorkerThread
from medusa.runtime.node.graph_parser import GraphParser
from medusa.wire.outbox import Parse
from tests.runtime.test_forked import in_child

DEADLINE_S = 30.0
TURN_S = TURN_US / 1e6


@pytest.fixture(autouse=True)
def usual():
    """What was set before the test is set again, whatever it finds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield 0.005
    sys.setswitchinterval(before)


class AtOnce:
    """A worker that does what it is given here and now."""

    def give(self, job):
        job()


def test_turns_are_short_while_a_job_runs_and_as_before_when_it_failed(usual):
    seen = []

    def job():
        seen.append(sys.getswitchinterval())
        raise RuntimeError("as planned")

    with pytest.raises(RuntimeError, match="as planned"):
        ShortTurns(AtOnce()).give(job)
    assert seen == [pytest.approx(TURN_S)]
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_the_last_of_several_jobs_sets_the_interval_back(usual):
    first, second = threading.Event(), threading.Event()
    begun = threading.Semaphore(0)

    def waits_for(event):
        begun.release()
        assert event.wait(DEADLINE_S)

    failures = []
    threads = [WorkerThread(f"worker-{number}", failed=failures.append) for number in range(2)]
    workers = [ShortTurns(thread) for thread in threads]
    for worker, event in zip(workers, (first, second), strict=True):
        worker.give(partial(waits_for, event))
    for _ in workers:
        assert begun.acquire(timeout=DEADLINE_S)
    first.set()
    assert workers[0].stop(DEADLINE_S)
    assert sys.getswitchinterval() == pytest.approx(TURN_S)
    second.set()
    assert workers[1].stop(DEADLINE_S)
    assert sys.getswitchinterval() == pytest.approx(usual)
    assert failures == []


def test_a_shorter_interval_that_was_set_stays():
    sys.setswitchinterval(TURN_S / 5)
    seen = []
    ShortTurns(AtOnce()).give(lambda: seen.append(sys.getswitchinterval()))
    assert seen == [sys.getswitchinterval()]
    assert seen[0] < TURN_S / 2


def test_an_interval_that_the_program_sets_meanwhile_stays(usual):
    ShortTurns(AtOnce()).give(lambda: sys.setswitchinterval(0.02))
    assert sys.getswitchinterval() == pytest.approx(0.02)
    seen = []
    ShortTurns(AtOnce()).give(lambda: seen.append(sys.getswitchinterval()))
    assert seen == [pytest.approx(TURN_S)]
    assert sys.getswitchinterval() == pytest.approx(0.02)


def in_fork(does):
    """Whether it returned true in a child."""
    return in_child(lambda: sys.exit(0 if does() else 1)) == 0


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@needs_fork
def test_a_child_has_the_interval_that_was_usual_and_its_own_jobs(usual):
    """Whose thread works isn't there; one in its place works, and one is in the middle of beginning."""
    seen = []

    def child():
        first = sys.getswitchinterval()
        during = []
        ShortTurns(AtOnce()).give(lambda: during.append(sys.getswitchinterval()))
        found = [first, during[0], sys.getswitchinterval()]
        return found == [pytest.approx(usual), pytest.approx(TURN_S), pytest.approx(usual)]

    ShortTurns(AtOnce()).give(lambda: seen.append(in_fork(child)))
    assert seen == [True]
    assert sys.getswitchinterval() == pytest.approx(usual)
    with short_turns._INTERVAL._lock:
        assert in_fork(child)


@needs_fork
def test_a_job_that_goes_on_in_a_child_ends_there_without_a_trace(usual):
    """The thread that forks is the one that works."""

    def job():
        nested.append(os.fork())

    nested = []

    def child():
        ShortTurns(AtOnce()).give(job)
        if not nested[0]:
            interval = short_turns._INTERVAL
            os._exit(0 if (interval._working, sys.getswitchinterval()) == (0, pytest.approx(usual)) else 1)
        return os.waitstatus_to_exitcode(os.waitpid(nested[0], 0)[1]) == 0

    assert in_fork(child)


@needs_fork
def test_a_child_keeps_an_interval_that_the_program_has_set(usual):
    seen = []

    def job():
        sys.setswitchinterval(0.02)
        seen.append(in_fork(lambda: sys.getswitchinterval() == pytest.approx(0.02)))

    ShortTurns(AtOnce()).give(job)
    assert seen == [True]


def test_a_graph_is_read_in_short_turns(usual):
    woken = threading.Event()
    parser = GraphParser(wake=woken.set)
    seen = []

    def read():
        seen.append(sys.getswitchinterval())
        raise QueryError("no graph", code="query.codec")

    parser.parse(Parse(token=1, nbytes=1, read=read))
    assert woken.wait(DEADLINE_S)
    assert parser.stop(DEADLINE_S)
    assert seen == [pytest.approx(TURN_S)]
    assert [done.error.code for done in parser.finished()] == ["query.codec"]
    assert sys.getswitchinterval() == pytest.approx(usual)
