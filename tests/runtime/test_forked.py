"""A fork while a run goes on: nothing that is on disk has two writers."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from medusa.runtime.machine import locks
from medusa.runtime.store.folder_store import FolderStore
from medusa.runtime.store.spill import FolderSpill

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

CARS = {"ts": "int64", "v": "int64"}


def query() -> md.Query:
    q = md.Query("q")
    recent = q.connection_point("recent", q.source("s", CARS, time="ts", unit="s"), keep="1h")
    q.sink("all", recent)
    return q


def look() -> md.Query:
    q = md.Query("look")
    q.sink("all", q.source("recent", CARS, time="ts", unit="s"))
    return q


def rows(first: int) -> dict[str, list[int]]:
    return {"ts": list(range(first, first + 10)), "v": [first] * 10}


def in_child(does: Callable[[], object]) -> int:
    """What a child returns that does something and ends as programs do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        status = 99
        try:
            does()
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def child_until_closed(reads: int, ends: int) -> int:
    """Fork a child that does nothing until its parent closes the end ``ends`` of a pipe; its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os.close(ends)
        os.read(reads, 1)
        os._exit(0)
    return child


def codes(*calls: Callable[[], object]) -> set[str | None]:
    found: set[str | None] = set()
    for call in calls:
        try:
            call()
        except md.StateError as error:
            found.add(error.code)
        else:
            found.add(None)
    return found


@pytest.mark.parametrize("given", [("checkpoint", "history"), ("history",), ("spill",)])
def test_what_is_on_disk_is_the_parents(tmp_path: Path, given: tuple[str, ...]) -> None:
    folders: dict[str, Any] = {name: tmp_path / name for name in given}
    bounds = {"memory": "1 KiB"} if "spill" in given else {}
    with md.start(query(), **folders, **bounds) as run:
        attached = run.attach(look(), at="recent")
        for first in range(0, 100, 10):
            run.push("s", rows(first))

        def child() -> None:
            found = codes(
                lambda: run.push("s", rows(1000)),
                lambda: run.take("all"),
                lambda: run.view("recent"),
                lambda: attached.take("all"),
                run.stats,
                run.tick,
            )
            if found == {"run.forked"}:
                run.__exit__(None, None, None)  # the child ends within the block that its parent opened
                sys.exit(7)

        assert in_child(child) == 7
        run.push("s", rows(100))
        for each in (run, attached):
            assert each.take("all")["ts"].to_pylist() == list(range(110))
        assert run.view("recent").num_rows == 110
    if "checkpoint" in given:
        with md.restore(folders["checkpoint"], history=folders["history"]) as run:
            assert run.positions() == {"s": 110}
            assert run.view("recent").num_rows == 110


@pytest.mark.parametrize("kind", ["checkpoint", "history", "spill"])
def test_a_folder_is_free_when_its_run_ends_though_a_forked_child_lives_on(tmp_path: Path, kind: str) -> None:
    """A child has what was open when it was forked, and with that the lock of the folder."""
    folder: dict[str, Any] = {kind: tmp_path / kind}
    if kind == "spill":
        folder["memory"] = "1 KiB"
    reads, ends = os.pipe()
    with md.start(query(), **folder) as run:
        run.push("s", rows(0))
        child = child_until_closed(reads, ends)
    try:
        again = md.start(query(), **folder) if kind == "spill" else None
        if kind == "checkpoint":
            again = md.restore(folder[kind])
        elif kind == "history":
            with pytest.raises(md.StateError, match="holds history already"):  # So it was opened.
                md.start(query(), **folder).__enter__()
        if again is not None:
            with again as run:
                assert run.positions() == {"s": 10 if kind == "checkpoint" else 0}
    finally:
        os.close(ends)
        os.close(reads)
        assert os.waitpid(child, 0)[1] == 0


def test_a_folder_is_free_when_its_process_is_killed_though_a_forked_child_lives_on(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from medusa.runtime.store.folder_store import FolderStore\n"
        "store = FolderStore(sys.argv[1])\n"
        "came, begun = os.pipe()\n"
        "if not os.fork():\n"
        "    os.write(begun, b'x')\n"
        "    os.read(int(sys.argv[2]), 1)\n"
        "    os._exit(0)\n"
        "os.read(came, 1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    reads, ends = os.pipe()
    try:
        command = [sys.executable, "-c", program, str(tmp_path / "s"), str(reads)]
        assert subprocess.run(command, pass_fds=[reads], check=False).returncode == -signal.SIGKILL
        FolderStore(tmp_path / "s").close()
    finally:
        os.close(ends)
        os.close(reads)


def test_a_folder_that_cannot_be_locked_says_what_the_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(number: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", none)
    for opens in (lambda: FolderStore(tmp_path / "s"), lambda: FolderSpill(tmp_path / "p")):
        with pytest.raises(md.StateError, match="No locks available"):
            opens()


def test_a_child_that_ends_its_copy_of_a_lock_leaves_it_with_its_parent(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "s")

    def child() -> None:
        store.close()
        sys.exit(0)

    assert in_child(child) == 0
    with pytest.raises(md.StateError, match="is in use"):
        FolderStore(tmp_path / "s")
    store.close()
    FolderStore(tmp_path / "s").close()


def test_a_run_in_memory_goes_on_in_both() -> None:
    with md.start(query()) as run:
        run.push("s", rows(0))

        def child() -> None:
            run.push("s", rows(10))
            sys.exit(run.take("all").num_rows)

        assert in_child(child) == 20
        assert run.take("all").num_rows == 10
