"""A program that runs the query of the demonstration with checkpoints and writes what it takes.

    python one_query_run.py STATE OUT KILL_AFTER SEED

Rows are pushed from ``positions()`` alone; the first position goes to standard output. After KILL_AFTER
pushes, and not before there is a checkpoint, it kills itself with SIGKILL (0: never).
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import medusa as md
from medusa.apps.workloads import netmon
from tests.system.restored_run import take

TRACE_SEED = 5


def arrivals() -> pa.Table:
    """All flows of the trace in the order of arrival that the jitter gives."""
    edges = netmon.deliveries(netmon.load_trace(), TRACE_SEED)
    order = np.argsort(np.concatenate([edge.at_us for edge in edges]), kind="stable")
    return pa.concat_tables([edge.rows for edge in edges]).take(order).combine_chunks()


def saved(state: str) -> bool:
    return any(Path(state).glob("checkpoint-*[0-9]"))


def main(state: str, out: str, kill_after: int, seed: int) -> None:
    cuts, flows = random.Random(seed), arrivals()
    if saved(state):
        run = md.restore(state)
    else:
        run = md.start(netmon.query(), checkpoint=state, checkpoint_every="5ms")
    print(run.positions()["flows"], flush=True)
    with open(out, "a", buffering=1) as lines:
        pushes = 0
        while (first := run.positions()["flows"]) < len(flows):
            run.push("flows", flows.slice(first, cuts.randint(1, 4_000)), first=first)
            pushes += 1
            if cuts.random() < 0.4:
                take(run, lines, netmon.SINKS)
            if 0 < kill_after <= pushes and saved(state):
                os.kill(os.getpid(), signal.SIGKILL)
        run.finish()
        take(run, lines, netmon.SINKS)
        run.close()
        lines.write("done\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
