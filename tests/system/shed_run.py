"""A program that leaves rows out, whose lives end by SIGKILL at random moments until one comes to its end.

    python -m tests.system.shed_run STATE OUT ROWS KILLS SEED

Each life is a fork that pushes rows from ``positions()``, and appends every row that it takes to OUT as a
line ``sink number row``; the last writes what it counted, and ``done``.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from pathlib import Path
from typing import Any

import medusa as md
import medusa.runtime.embedded.embedded_run  # read once, before the first fork
from tests.system.decided_run import await_end, die, live_and_die
from tests.system.restored_run import take
from tests.system.shed_query import SINKS, query, rows_of


def decide_at_random(run: Any, rng: random.Random) -> None:
    """In place of what would be measured: how much is left out changes all the time."""
    drops = run._shedding.shedder.drops

    def control(now_us: int, queue: object) -> None:
        if rng.random() < 0.1:
            drops.decide([rng.choice([0.0, 0.2, 0.5, 0.8]) for _ in drops.valves])

    run._shedding.shedder.control = control


def live(state: str, out: str, total: int, seed: int, *, killed: bool) -> None:
    rng = random.Random(seed)
    if any(Path(state).glob("checkpoint-*[0-9]")):
        run: Any = md.restore(state)
    else:
        every = rng.choice(["60ms", "1s"])
        run = md.start(query(), checkpoint=state, checkpoint_every=every, queue="64 KiB")
    decide_at_random(run, rng)
    ready = threading.Semaphore(0)
    if killed:
        threading.Thread(
            target=die, args=(ready, rng.randrange(40), rng.random() * 0.02), daemon=True
        ).start()
    with open(out, "a", buffering=1) as lines:
        while left := [source for source, at in run.positions().items() if at < total]:
            source = rng.choice(left)
            first = run.positions()[source]
            run.push(source, rows_of(source, first, min(rng.randint(1, 60), total - first)), first=first)
            ready.release()
            if rng.random() < 0.3:
                take(run, lines, SINKS)
        if killed:
            await_end(ready)
        run.finish()
        take(run, lines, SINKS)
        counted = {each["box"]: each["shed"] for each in run.stats().to_pylist()}
        places = [(each["box"], each["seen"], each["shed"]) for each in run.shedding().to_pylist()]
        run.close()
        lines.write(f"counted 0 {json.dumps([counted, places])}\ndone\n")


if __name__ == "__main__":
    query()  # read once, before the first fork
    live_and_die(live, sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
