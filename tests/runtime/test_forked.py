"""A fork while a run goes on: nothing that is on disk has two writers."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import medusa as md

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


def test_a_run_in_memory_goes_on_in_both() -> None:
    with md.start(query()) as run:
        run.push("s", rows(0))

        def child() -> None:
            run.push("s", rows(10))
            sys.exit(run.take("all").num_rows)

        assert in_child(child) == 20
        assert run.take("all").num_rows == 10
