"""A program that spills and checkpoints, in processes that kill themselves while they write.

    python spilled_killed.py FOLDER KEYS SEED KILLS [window | running]

Each process goes on from the last checkpoint, compares whatever it takes with what must leave at its
number, and in the middle of a random write to the spill folder kills itself with SIGKILL. The one after so
many kills comes to its end. The last line tells how many there were.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

import medusa as md
from medusa.ports import Buffer
from medusa.runtime.embedded import memory_options
from medusa.runtime.store.spill import FolderSpill
from tests.system import spilled_run
from tests.system.spilled_run import STEP, rows_of

BUDGET = "128 KiB"
MEMORY = "32 KiB"
PUSH_ROWS = 1_000


def running_query() -> md.Query:
    q = md.Query("spilled")
    rows = q.source("rows", {"ts": "timestamp", "k": "int64", "v": "int64"}, time="ts")
    q.sink("out", rows.group_by("k").running(n=md.count(), s=md.sum("v"), before=md.lag("v")))
    return q


def running_check(table: pa.Table, first: int, keys: int) -> None:
    """Each row leaves as it comes, with what its key had before."""
    number = np.arange(first, first + table.num_rows)
    again = number >= keys
    assert np.array_equal(table["k"].to_numpy(), number * STEP % keys)
    assert np.array_equal(table["n"].to_numpy(), 1 + again)
    assert np.array_equal(table["s"].to_numpy(), number + np.where(again, number - keys, 0))
    assert np.array_equal(table["before"].fill_null(-1).to_numpy(), np.where(again, number - keys, -1))


QUERIES = {"window": (spilled_run.query, spilled_run.check, 1), "running": (running_query, running_check, 2)}
"""Of each: the query, what its rows must be, how many each key has."""


class DeadlySpill(FolderSpill):
    """Dies in the middle of a write."""

    writes = 0
    kill_at = 0

    def append(self, name: str, parts: Sequence[Buffer]) -> None:
        DeadlySpill.writes += 1
        if DeadlySpill.writes == DeadlySpill.kill_at:
            super().append(name, [memoryview(parts[-1]).cast("B")[: len(memoryview(parts[-1])) // 2]])
            os.kill(os.getpid(), signal.SIGKILL)
        super().append(name, parts)


def live(kind: str, state: str, spill: str, keys: int, kill_at: int) -> None:
    query, check, times = QUERIES[kind]
    DeadlySpill.kill_at = kill_at
    if any(Path(state).glob("checkpoint-*[0-9]")):
        run = md.restore(state, spill=spill)
    else:
        bounds = {"spill": spill, "memory": MEMORY, "state_budget": BUDGET, "at_limit": "spill"}
        run = md.start(query(), checkpoint=state, checkpoint_every=None, **bounds)
    while (start := run.positions()["rows"]) < 2 * keys:
        run.push("rows", rows_of(start, min(start + PUSH_ROWS, 2 * keys), keys), first=start)
        if start // PUSH_ROWS % 4 == 3:
            run.checkpoint()
    run.finish()
    got = run.taken("out")
    while got < times * keys:
        table = run.take("out", at_most="32 KiB")
        check(table, got, keys)
        got += table.num_rows
        if times * keys // 3 <= got < times * keys // 2:
            run.checkpoint()
    assert got == times * keys
    assert run.take("out").num_rows == 0
    run.close()


def forked(kind: str, state: str, spill: str, keys: int, kill_at: int) -> int:
    """The status of a process that lives once: a fork, as imports take longer than most lives."""
    child = os.fork()
    if child == 0:
        try:
            live(kind, state, spill, keys, kill_at)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: str, keys: int, seed: int, kills: int, kind: str) -> None:
    memory_options.FolderSpill = DeadlySpill  # type: ignore[misc]
    state, spill = f"{folder}/state", f"{folder}/spill"
    chance = random.Random(seed)
    killed = ended = 0
    while killed < kills:
        status = forked(kind, state, spill, keys, chance.randint(1, 24))
        assert status in (0, -signal.SIGKILL), status
        if status == 0:  # it was through before its moment came: from the beginning
            ended += 1
            assert ended < kills
            shutil.rmtree(state)
            continue
        killed += 1
        assert len(os.listdir(spill)) > 1  # what it left
    assert forked(kind, state, spill, keys, 0) == 0
    assert os.listdir(spill) == ["spill.lock"]
    print(f"{killed} killed, {ended + 1} ended")


if __name__ == "__main__":
    kind = sys.argv[5] if len(sys.argv) > 5 else "window"
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), kind)
