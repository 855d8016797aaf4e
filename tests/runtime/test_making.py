"""A run that can't be made leaves nothing open, whatever fails: no thread, no lock, no file, no port."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.recovery.decision_log import DecisionLog
from medusa.engine.run.gate import RunGate
from medusa.engine.state.checkpoint import Checkpoints
from medusa.runtime.embedded.memory_options import MemoryBounds
from medusa.runtime.embedded.resources import RunResources
from medusa.runtime.embedded.run import Run
from medusa.runtime.machine.event_loop import LoopTasks
from medusa.runtime.store.history_store import HistoryFolder
from medusa.testing import ManualClock

SYSTEM: list[tuple[Any, str]] = [
    *((os, name) for name in ("open", "mkdir", "listdir", "scandir", "unlink", "fsync")),
    (fcntl, "flock"),
    (threading.Thread, "start"),
    (socket.socket, "bind"),
]
"""What a run asks of the system while it is made."""

STEPS: list[tuple[Any, str]] = [
    (MemoryBounds, "open"),
    (LoggedFragment, "__init__"),
    (LoggedFragment, "record"),
    (LoggedFragment, "restore"),
    (HistoryFolder, "open"),
    (HistoryFolder, "segments"),
    (Checkpoints, "names"),
    (Checkpoints, "load"),
    (DecisionLog, "__init__"),
    (RunGate, "__init__"),
    (Run, "serve_metrics"),
]

KINDS: dict[str, tuple[set[str], dict[str, Any]]] = {
    "single": ({"checkpoint"}, {}),
    "plain": ({"spill", "history"}, {"threads": 2}),
    "queued": ({"spill"}, {"queue": "1 MiB"}),
    "ordered": ({"history"}, {"queue": "1 MiB", "threads": 2}),
    "durable": ({"checkpoint", "history", "spill"}, {"threads": 2}),
    "durable, queued": ({"checkpoint", "history"}, {"queue": "1 MiB"}),
}


class PlantedError(Exception):
    """What fails in these tests."""


class Fault:
    """Lets the ``kth`` of the calls fail, before it does anything or, ``late``, when it has done all."""

    def __init__(self, kth: int, *, late: bool = False, error: type[BaseException] = OSError) -> None:
        self.calls, self._kth, self._late, self._error = 0, kth, late, error

    def plant(self, patch: pytest.MonkeyPatch, place: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(place, name)

        def call(*given: Any, **named: Any) -> Any:
            self.calls += 1
            fails = self.calls == self._kth
            if fails and not self._late:
                raise self._error("planted")
            made = real(*given, **named)
            if fails:
                raise self._error("planted")
            return made

        patch.setattr(place, name, call)


def query() -> md.Query:
    q = md.Query("made")
    cars = q.source("cars", {"ts": "timestamp", "k": "int64"})
    kept = q.connection_point("recent", cars, keep="1h")
    latency = md.QoS(latency=[(0, 1), ("1s", 0)])
    q.sink("counts", kept.window("1s").group_by("k").aggregate(n=md.count()), qos=latency)
    q.sink("all", cars)
    return q


QUERY = query()


def rows(first: int) -> pa.Table:
    return pa.table({"ts": pa.array(range(first, first + 3), pa.timestamp("us")), "k": [1, 2, 1]})


def open_now() -> tuple[Counter[str], set[threading.Thread]]:
    """What is open in this process: files and sockets, and threads."""
    for thread in threading.enumerate():
        if "process_request" in thread.name:  # of the call that ends a server of metrics: it goes by itself
            thread.join()
    names: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        try:
            names[os.readlink(f"/proc/self/fd/{number}")] += 1
        except FileNotFoundError:  # of the listing itself
            continue
    return names, set(threading.enumerate())


@pytest.fixture(autouse=True)
def _at_work_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of workers and of async calls begin as soon as they could; the disk is quick."""
    make = RunResources.of

    async def nothing() -> None: ...

    def begun(held: ExitStack, **given: Any) -> RunResources:
        parts = make(held, **given)
        if parts.workers is not None:
            parts.workers.map(lambda part: None, range(parts.workers.count))
        work = nothing()
        try:
            parts.tasks.start(work).result()
        finally:
            work.close()
        return parts

    monkeypatch.setattr(RunResources, "of", begun)
    monkeypatch.setattr(os, "fsync", lambda number: None)
    monkeypatch.setattr(os, "fdatasync", lambda number: None)


def made(kind: str, folder: Path) -> Any:
    folders, options = KINDS[kind]
    where: Any = {name: folder / name for name in folders}
    return md.start(QUERY, clock=ManualClock(), metrics="127.0.0.1:0", **where, **options)


def restored(kind: str, folder: Path) -> Any:
    folders, options = KINDS[kind]
    where: Any = {name: folder / name for name in folders - {"checkpoint"}}
    where["threads"] = options.get("threads", 1)
    return md.restore(folder / "checkpoint", clock=ManualClock(), metrics="127.0.0.1:0", **where)


def check_steps(
    make: Callable[[str, Path], Any], kind: str, folder: Callable[[str], Path], *, again: bool = True
) -> Counter[str]:
    """Let each call of the system and each of our steps fail in turn; how often each did.

    Args:
        again: make the run right after each failure. Else the next one is in the same folders.
    """
    failed: Counter[str] = Counter()
    plans = [(place, name, OSError, False) for place, name in SYSTEM]
    plans += [(place, name, PlantedError, late) for place, name in STEPS for late in (False, True)]
    for place, name, error, late in plans:
        kth = 0
        while True:
            kth += 1
            fault = Fault(kth, late=late, error=error if place is not threading.Thread else RuntimeError)
            at = folder(f"{getattr(place, '__name__', '')}-{name}-{late:d}-{kth}")
            before, run, caught = open_now(), None, None
            with pytest.MonkeyPatch.context() as patch:
                fault.plant(patch, place, name)
                try:
                    run = make(kind, at)
                except (OSError, RuntimeError, md.MedusaError, PlantedError) as came:
                    caught = came  # and with it all that it went through: nothing is collected yet
            if caught is not None:
                assert open_now() == before, (name, kth, late, caught)
                failed[name] += 1
            if caught is None or again:
                check_works(run or make(kind, at))
            if fault.calls < kth:
                break
    return failed


def check_works(run: Any) -> None:
    before = run.positions()["cars"]
    run.push("cars", rows(before), first=before)
    run.flush()
    assert run.positions() == {"cars": before + 3}
    run.close()


@pytest.mark.parametrize("kind", KINDS)
def test_start(kind: str, tmp_path: Path) -> None:
    def folder(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    before = open_now()
    failed = check_steps(made, kind, folder)
    assert open_now() == before
    assert {"bind", "start", "__init__", "serve_metrics"} <= set(failed)
    assert {"open", "flock"} <= set(failed)
    assert failed["listdir"] + failed["scandir"]


def test_restore(tmp_path: Path) -> None:
    """One and the same folders, again and again: also a failure leaves them as they were."""
    kind = "durable"
    with made(kind, tmp_path) as run:
        run.push("cars", rows(0))
    before = open_now()
    failed = check_steps(restored, kind, lambda name: tmp_path, again=False)
    assert open_now() == before
    assert {"open", "flock", "bind", "start", "load", "restore", "record"} <= set(failed)


def test_what_fails_while_closing_does_not_hide_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close = MemoryBounds.close

    def fails(self: MemoryBounds) -> None:
        close(self)
        raise md.StateError("couldn't be emptied")

    with monkeypatch.context() as patch:
        Fault(1, error=PlantedError).plant(patch, RunGate, "__init__")
        patch.setattr(MemoryBounds, "close", fails)
        with pytest.raises(PlantedError) as error:
            made("plain", tmp_path)
    assert error.value.__notes__ == ["besides, closing what was open failed: couldn't be emptied"]
    made("plain", tmp_path).close()


def test_what_fails_while_closing_keeps_nothing_else_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, told = open_now(), []
    with monkeypatch.context() as patch:
        Fault(1, late=True, error=PlantedError).plant(patch, LoopTasks, "close")
        run = made("single", tmp_path)
        with run.output.watching(lambda: told.append("closed")), pytest.raises(PlantedError):
            run.close()
    assert told, "who waits for rows sees that none will come"
    assert open_now() == before
    restored("single", tmp_path).close()
