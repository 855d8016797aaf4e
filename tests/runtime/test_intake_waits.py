"""Waits of those who call a run with an input queue: interrupted, and with others in between."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import medusa as md
from medusa.runtime.belt import LISTEN_AGAIN_S
from tests.runtime.test_intake import LONG_S, held, plain, rows


@pytest.mark.parametrize("call", ["flush", "finish"])
def test_an_interrupt_as_a_wait_begins_leaves_nothing_behind(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with md.start(plain(), queue="1 MiB") as run:
        gate = held(run)
        belt: Any = run._belt  # type: ignore[attr-defined]

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
        belt: Any = run._belt  # type: ignore[attr-defined]
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
        belt: Any = run._belt  # type: ignore[attr-defined]
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
        belt: Any = run._belt  # type: ignore[attr-defined]
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
