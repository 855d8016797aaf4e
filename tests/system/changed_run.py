"""A program that changes its query while it runs, and is killed with -9 in the middle of a change.

    python -m tests.system.changed_run FOLDER MOMENTS SEED

For each of MOMENTS moments: one process runs and is killed at a call, drawn at random, that it makes while
it changes the query, and another one goes on from its checkpoint, to the end. What all of them took is in
FOLDER/MOMENT/out, and of each second process which query it found in FOLDER/MOMENT/found.

Both are forked, so that a moment doesn't cost a start of Python.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import medusa as md
import medusa.runtime.embedded.embedded_run
from tests.runtime.changed_query import query, rows

TOTAL = 160
FIRST = ["pairs"]
"""What the first query adds to the one that stays: the last adds nothing, and no two queries are equal."""
CHANGES = {40: ["few", "wide", "point"], 80: ["wide", "behind", "again"], 120: []}
"""At which row of each source what is added to the query that stays."""

Plan = list[tuple[int, md.Query]]


@functools.cache
def plan() -> Plan:
    return [(at, query(extras, 1)) for at, extras in CHANGES.items()]


@functools.cache
def first_query() -> md.Query:
    return query(FIRST, 0)


def take_all(run: Any, lines: Any) -> None:
    for sink in run._fragment.sinks:
        first = run.taken(sink)
        for number, row in enumerate(run.take(sink).to_pylist(), first):
            lines.write(f"{sink} {number} {json.dumps(row, default=str)}\n")


def go_on(run: Any, steps: Plan, lines: Any, cuts: random.Random, change: Any) -> None:
    """From where the run stands to the end."""
    for at, changed in [*steps, (TOTAL, None)]:
        while any(run.positions()[source] < at for source in "ab"):
            for source in "ab":
                first = run.positions()[source]
                count = min(cuts.choice([9, 23, 40]), at - first)
                if count > 0:
                    run.push(source, rows(first, count, source), first=first)
        take_all(run, lines)
        if changed is not None:
            change(run, changed)
    run.finish()
    take_all(run, lines)
    run.close()


class Killer:
    """Kills the process at a call out of those that changes make; without one it counts them."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.calls = 0

    def __call__(self, run: Any, changed: md.Query) -> None:
        sys.setprofile(self._see)
        try:
            run.change(changed)
        finally:
            sys.setprofile(None)

    def _see(self, frame: Any, event: str, argument: Any) -> None:
        self.calls += 1
        if self.calls == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def first_life(folder: Path, seed: int, kill_at: int | None) -> int:
    """The calls that it made in changes."""
    killer = Killer(kill_at)
    folder.mkdir()
    run = md.start(
        first_query(), checkpoint=folder / "state", checkpoint_every="300ms", history=folder / "history"
    )
    run.checkpoint()
    with open(folder / "out", "a", buffering=1) as lines:
        go_on(run, plan(), lines, random.Random(seed), killer)
    return killer.calls


def second_life(folder: Path, seed: int) -> None:
    steps = plan()
    run = md.restore(folder / "state", history=folder / "history")
    graphs = [first_query().graph, *(changed.graph for _, changed in steps)]
    [found] = [number for number, graph in enumerate(graphs) if graph == run._fragment.graph]
    positions = run.positions()
    (folder / "found").write_text(json.dumps({"query": found, "positions": positions}))
    with open(folder / "out", "a", buffering=1) as lines:
        go_on(run, steps[found:], lines, random.Random(seed), lambda run, changed: run.change(changed))


def forked(work: Any, *arguments: Any) -> int:
    """Run it in a process of its own; its status as ``os.waitpid`` gives it."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    status = 1
    try:
        work(*arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main(folder: str, moments: int, seed: int) -> None:
    warnings.simplefilter("ignore", md.LateWarning)
    place, draw = Path(folder), random.Random(seed)
    first_query(), plan()  # once for all that are forked
    calls = place / "calls"
    status = forked(lambda: calls.write_text(str(first_life(place / "whole", seed, None))))
    assert status == 0, "the undisturbed run failed"
    for moment in range(moments):
        here = place / str(moment)
        status = forked(first_life, here, seed + moment, 1 + draw.randrange(int(calls.read_text()) - 1))
        if os.WIFSIGNALED(status):
            assert forked(second_life, here, seed - moment) == 0, f"moment {moment}"
        else:  # it made fewer calls than the run that was counted
            assert status == 0, f"moment {moment}"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
