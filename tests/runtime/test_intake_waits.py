"""Waits of those who call a run with an input queue: interrupted, and with others in between."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import medusa as md
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
