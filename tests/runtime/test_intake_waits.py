"""Waits of those who call a run with an input queue: interrupted, and with others in between."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import medusa as md
from medusa.runtime.embedded.queue_state import LISTEN_AGAIN_S
from tests.runtime.test_intake import LONG_S, held, plain, rows


@pytest.mark.parametrize("call", ["flush", "finish"])
def test_an_interrupt_as_a_wait_begins_leaves_nothing_behind(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with md.start(plain(), queue="1 MiB") as run:
        gate = held(run)
        belt: Any = run._intake._belt  # type: ignore[attr-defined]

        def notify_all() -> None:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(belt.changed, "notify_all", notify_all)
        with pytest.raises(KeyboardInterrupt):
            getattr(run, call)()
        assert not belt.calls  # or output would have no bound any more
        assert len(belt.queue) == 1
        run.push("s", rows(2))  # the end was not pushed
        gate.open.set()
        run.flush()
        assert gate.seen == list(range(1, 12))


def test_an_interrupt_between_letting_go_and_waiting_leaves_the_lock_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with md.start(plain(), queue="1 MiB") as run:
        gate = held(run)
        belt: Any = run._intake._belt  # type: ignore[attr-defined]
        honest = belt.changed._release_save

        def release_save() -> Any:
            if threading.current_thread() is not threading.main_thread():
                return honest()
            monkeypatch.undo()
            honest()
            raise KeyboardInterrupt

        monkeypatch.setattr(belt.changed, "_release_save", release_save)
        with pytest.raises(KeyboardInterrupt):
            run.flush()
        assert not belt.calls
        assert not belt.changed._is_owned()
        gate.open.set()
        run.flush()
        assert gate.seen == [1]


def test_an_interrupt_that_wakes_nobody_is_heard_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes in the moment before the lock is waited for, as far as a test can make that moment."""
    with md.start(plain(), queue="1 MiB") as run:
        gate = held(run)
        belt: Any = run._intake._belt  # type: ignore[attr-defined]
        waits: list[float | None] = []

        def wait(timeout: float | None = None) -> bool:
            if threading.current_thread() is threading.main_thread():
                monkeypatch.undo()
                waits.append(timeout)
                raise KeyboardInterrupt
            return bool(honest(timeout))

        honest = belt.changed.wait
        monkeypatch.setattr(belt.changed, "wait", wait)
        with pytest.raises(KeyboardInterrupt):
            run.flush()
        gate.open.set()
        assert waits == [LISTEN_AGAIN_S]


def test_numbered_rows_that_came_while_one_waited_for_room_come_once() -> None:
    """Two threads push the same rows by number; both found them missing, and the second finds no room."""
    with md.start(plain(), queue=rows(0).nbytes + rows(0, 1).nbytes) as run:
        gate = held(run)
        belt: Any = run._intake._belt  # type: ignore[attr-defined]
        asked = threading.Event()
        has_room = belt.queue.has_room

        def watched(nbytes: int) -> bool:
            asked.set()
            return bool(has_room(nbytes))

        belt.queue.has_room = watched
        run.push("s", rows(2), first=1)
        asked.clear()
        both = [threading.Thread(target=run.push, args=("s", rows(12)), kwargs={"first": 11}) for _ in "ab"]
        for each in both:
            each.start()
        assert asked.wait(LONG_S)
        gate.open.set()
        for each in both:
            each.join(LONG_S)
        run.flush()
        assert gate.seen == list(range(1, 22))
        assert run.positions() == {"s": 21}


def test_rows_of_a_source_that_is_replaced_while_they_are_pushed_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were checked against what the source was, and numbered among its rows."""
    with md.start(plain(), queue="1 MiB") as run:
        run.push("s", rows(1))
        fragment: Any = run._fragment
        honest = fragment.check

        def check(*given: Any) -> Any:
            times = honest(*given)
            monkeypatch.undo()
            run.change(plain(), reset=["s", "f", "o"])
            return times

        run.flush()
        run.take("o")
        monkeypatch.setattr(fragment, "check", check)
        with pytest.raises(md.StateError, match="source 's' was changed while this was being pushed") as told:
            run.push("s", rows(11), first=10)
        assert told.value.code == "run.changed"
        assert run.positions() == {"s": 0}
        run.push("s", rows(11), first=0)
        run.flush()
        assert run.take("o").column("x").to_pylist() == list(range(11, 21))


def test_a_push_is_refused_when_the_state_is_larger_than_its_budget() -> None:
    q = md.Query("q")
    s = q.source("s", {"ts": "timestamp", "x": "int64"}, time="ts", slack=0)
    q.sink("o", s.window("1h").group_by("x").aggregate(n=md.count()))
    with md.start(q, queue="1 MiB", state_budget="256 KiB") as run:
        pushed = 0
        while run.memory().state <= 256 << 10:
            run.push("s", rows(pushed, 5_000))
            pushed += 5_000
            run.flush()
        with pytest.raises(md.StateError, match="the state holds .*, allowed are 256 KiB") as told:
            run.push("s", rows(pushed))
        assert told.value.code == "state.budget"
        assert run.positions() == {"s": pushed}
        run.finish()
        assert run.take("o")["n"].to_pylist() == [1] * pushed
