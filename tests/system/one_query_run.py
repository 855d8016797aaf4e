"""A program that runs the query of the demonstration with checkpoints and writes what it takes.

    python one_query_run.py STATE OUT KILL_AFTER SEED

Rows are pushed from ``positions()`` alone; the first position goes to standard output. After KILL_AFTER
pushes, and not before there is a checkpoint of what it pushed, it kills itself with SIGKILL (0: never).
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


def saved(state: str) -> int:
    """The number of the newest checkpoint; 0: there is none."""
    return max(
        (int(path.name.rpartition("-")[2]) for path in Path(state).glob("checkpoint-*[0-9]")), default=0
    )


def main(state: str, out: str, kill_after: int, seed: int) -> None:
    cuts, flows = random.Random(seed), arrivals()
    if saved(state):
        run = md.restore(state)
    else:
        run = md.start(netmon.query(), checkpoint=state, checkpoint_every="5ms")
    print(run.positions()["flows"], flush=True)
    with open(out, "a", buffering=1) as lines:
        pushes, begun = 0, saved(state)
        while (first := run.positions()["flows"]) < len(flows):
            # Where the disk is slow it has to live on, and not to its end.
            most = 4_000 if kill_after == 0 or pushes < kill_after else 40
            run.push("flows", flows.slice(first, cuts.randint(1, most)), first=first)
            pushes += 1
            if cuts.random() < 0.4:
                take(run, lines, netmon.SINKS)
            # The one after the next was begun after the first push.
            if 0 < kill_after <= pushes and saved(state) > begun + 1:
                os.kill(os.getpid(), signal.SIGKILL)
        run.finish()
        take(run, lines, netmon.SINKS)
        run.close()
        lines.write("done\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
