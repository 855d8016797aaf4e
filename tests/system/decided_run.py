"""A program whose lives end by SIGKILL at random moments, until the last one comes to its end.

    python -m tests.system.decided_run STATE OUT ROWS KILLS SEED

Each life is a fork that pushes rows from ``positions()`` in an order of its own, and appends every row
that it takes to OUT as a line ``sink number row``; the last writes ``done``. All before it are killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import medusa as md
import medusa.runtime.embedded.embedded_run  # read once, before the first fork
from tests.system.decided_query import SINKS, query, rows_of
from tests.system.restored_run import take

warnings.simplefilter("ignore", md.LateWarning)


def live(state: str, out: str, total: int, seed: int, *, killed: bool) -> None:
    rng = random.Random(seed)
    if any(Path(state).glob("checkpoint-*[0-9]")):
        run = md.restore(state)
    else:
        run = md.start(query(), checkpoint=state, checkpoint_every=rng.choice(["60ms", "1s"]))
    ready = threading.Semaphore(0)
    if killed:
        threading.Thread(
            target=die, args=(ready, rng.randrange(30), rng.random() * 0.01), daemon=True
        ).start()
    with open(out, "a", buffering=1) as lines:
        while left := [source for source, at in run.positions().items() if at < total]:
            source = rng.choice(left)
            first = run.positions()[source]
            table = rows_of(source, first, min(rng.randint(1, 40), total - first))
            arrival = int(time.time() * 1e6) if source == "b" else None
            run.push(source, table, first=first, arrival=arrival)
            if rng.random() < 0.2:
                run.boundary("a", (run.positions()["a"] - 3) * 1_000)
            ready.release()
            if rng.random() < 0.4:
                take(run, lines, SINKS)
        if killed:
            await_end(ready)
        run.finish()
        take(run, lines, SINKS)
        run.close()
        lines.write("done\n")


def await_end(ready: threading.Semaphore) -> None:
    """Who is to be killed is: where the machine is busy the rows may come to their end before that."""
    while True:
        ready.release()
        threading.Event().wait(0.001)


def die(ready: threading.Semaphore, pushes: int, after_s: float) -> None:
    """End this process, whatever it is at: so long after so many pushes."""
    for _ in range(pushes):
        ready.acquire()
    threading.Event().wait(after_s)
    os.kill(os.getpid(), signal.SIGKILL)


def live_and_die(live: Callable[..., None], state: str, out: str, total: int, kills: int, seed: int) -> None:
    """Lives as forks, one after the other, until one comes to its end; prints how many were killed."""
    killed = 0
    for number in range(kills + 1):
        child = os.fork()
        if child == 0:
            live(state, out, total, seed * 1_000 + number, killed=killed < kills)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status == 0:
            break
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, status
        killed += 1
    print(killed)


if __name__ == "__main__":
    query()  # read once, before the first fork
    live_and_die(live, sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
