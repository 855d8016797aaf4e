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
from medusa.runtime.machine.event_loop import LoopTasks
from medusa.runtime.machine.interrupts import INTERRUPTS

DEADLINE_S = 240

gates: queue.Queue[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = queue.Queue()


@md.register("test.interrupted.answered")
async def answered(batch: pa.RecordBatch) -> dict[str, Any]:
    """Gives what came once its gate is opened."""
    loop = asyncio.get_running_loop()
    gate: asyncio.Future[None] = loop.create_future()
    gates.put((loop, gate))
    await gate
    return {"v": batch.column("v")}


working = threading.Semaphore(1)


@md.register("test.interrupted.alone")
async def alone(batch: pa.RecordBatch) -> dict[str, Any]:
    """The same; fails where another call is under way."""
    assert working.acquire(blocking=False)
    try:
        return await answered(batch)
    finally:
        working.release()


def open_gates() -> None:
    while not gates.empty():
        loop, gate = gates.get()
        loop.call_soon_threadsafe(gate.set_result, None)


def open_one() -> None:
    loop, gate = gates.get(timeout=DEADLINE_S)
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


def started(function: Any = answered, calls: int | None = None, **options: Any) -> Any:
    q = md.Query("waits")
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us", slack="1 s")
    q.sink("out", rows.apply(function, {"v": "int64"}, in_flight=calls))
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


def opened_one_by_one(run: Any, count: int) -> list[int]:
    """What comes out while so many calls are answered, each once it was begun."""
    out: list[int] = []
    for _ in range(count):
        while gates.empty():  # the next one begins when somebody asks for what the last one gave
            out += run.take("out")["v"].to_pylist()
        open_one()
    return out


@pytest.mark.parametrize("threads", [1, 2])
def test_a_push_that_waits_for_room(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows have entered, and are called with when it is their turn; so are those of the next push."""
    with started(alone, 1, threads=threads) as run:
        run.push("rows", part(0))
        for number in (1, 2):
            pressed_while_waiting(lambda number=number: run.push("rows", part(3 * number)), monkeypatch)
            assert run.positions() == {"rows": 3 * number + 3}
        assert gates.qsize() == 1
        out = opened_one_by_one(run, 3)
        run.finish()
        assert out + run.take("out")["v"].to_pylist() == list(range(9))


def test_the_end_of_a_run_with_calls_that_wait_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last checkpoint waits for them too."""
    folder = tmp_path / "state"
    run = started(alone, 1, checkpoint=folder, checkpoint_every=None)
    run.push("rows", part(0))
    pressed_while_waiting(lambda: run.push("rows", part(3)), monkeypatch)
    opener = threading.Thread(target=lambda: [open_one() for _ in range(2)])
    opener.start()
    run.close()
    opener.join(DEADLINE_S)
    with md.restore(folder) as again:
        assert again.take("out")["v"].to_pylist() == list(range(6))


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
