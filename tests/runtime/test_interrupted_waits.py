"""Ctrl-C while a call of a run waits for async functions: the wait ends, and the run goes on."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.ports import Task
from medusa.runtime.interrupts import INTERRUPTS
from medusa.runtime.tasks import LoopTasks

DEADLINE_S = 60

gates: queue.Queue[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = queue.Queue()


@md.register("test.interrupted.answered")
async def answered(batch: pa.RecordBatch) -> dict[str, Any]:
    """Gives what came once its gate is opened."""
    loop = asyncio.get_running_loop()
    gate: asyncio.Future[None] = loop.create_future()
    gates.put((loop, gate))
    await gate
    return {"v": batch.column("v")}


def open_gates() -> None:
    while not gates.empty():
        loop, gate = gates.get()
        loop.call_soon_threadsafe(gate.set_result, None)


class Late(BaseException):
    pass


@pytest.fixture(autouse=True)
def _deadline() -> Iterator[None]:
    """What hangs is ended by alarms, also where they are deferred."""

    def late(number: int, frame: Any) -> None:
        open_gates()
        raise Late(f"nothing for {DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S, 2)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    open_gates()
    assert not INTERRUPTS.held


def started(**options: Any) -> Any:
    q = md.Query("waits")
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us", slack="1 s")
    q.sink("out", rows.apply(answered, {"v": "int64"}))
    return md.start(q, **options)


def part(first: int) -> dict[str, list[int]]:
    return {"ts": list(range(first, first + 3)), "v": list(range(first, first + 3))}


def pressed_while_waiting(call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C once the call waits for a function, which doesn't return before: KeyboardInterrupt comes out."""
    waits = threading.Event()
    rest = LoopTasks.rest

    def told(tasks: LoopTasks, task: Task) -> None:
        waits.set()
        rest(tasks, task)

    def press() -> None:
        if waits.wait(DEADLINE_S):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press, daemon=True)
    with monkeypatch.context() as patch:
        patch.setattr(LoopTasks, "rest", told)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            call()
    thread.join(DEADLINE_S)


@pytest.mark.parametrize("threads", [1, 2])
def test_finish(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(threads=threads) as run:
        run.push("rows", part(0))
        pressed_while_waiting(run.finish, monkeypatch)
        assert len(run.take("out")) == 0
        pressed_while_waiting(run.finish, monkeypatch)
        open_gates()
        run.finish()
        assert run.take("out")["v"].to_pylist() == [0, 1, 2]


def test_a_checkpoint_and_what_comes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None was written; rows enter as before, and a checkpoint after the answers holds all of them."""
    folder = tmp_path / "state"
    run = started(checkpoint=folder, checkpoint_every=None)
    before = sorted(path.name for path in folder.iterdir())
    run.push("rows", part(0))
    pressed_while_waiting(run.checkpoint, monkeypatch)
    assert sorted(path.name for path in folder.iterdir()) == before
    run.push("rows", part(3))
    pressed_while_waiting(run.finish, monkeypatch)
    assert run.positions() == {"rows": 6}
    with pytest.raises(md.DataError, match="ended"):
        run.push("rows", part(6))
    open_gates()
    run.finish()
    run.close()
    with md.restore(folder) as again:
        assert again.ended
        assert again.take("out")["v"].to_pylist() == [0, 1, 2, 3, 4, 5]


def test_close_waits_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody could call it again after a ``with``: the answers come, the last checkpoint is written, and then
    the interrupt is raised."""
    folder = tmp_path / "state"
    run = started(checkpoint=folder, checkpoint_every=None)
    run.push("rows", part(0))
    loop, gate = gates.get(timeout=DEADLINE_S)
    deferred = threading.Event()

    def press() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        deferred.set()
        loop.call_soon_threadsafe(gate.set_result, None)

    waiting = type(run._fragment).wait

    def waits(fragment: Any, *arguments: Any) -> bool:
        if not deferred.is_set():
            threading.Thread(target=press, daemon=True).start()
        return waiting(fragment, *arguments)

    monkeypatch.setattr(type(run._fragment), "wait", waits)
    with pytest.raises(KeyboardInterrupt):
        run.close()
    monkeypatch.undo()
    assert deferred.is_set()
    with md.restore(folder) as again:
        assert again.take("out")["v"].to_pylist() == [0, 1, 2]
