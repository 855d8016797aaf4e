"""A program that runs a query with checkpoints and writes what it takes: the one that gets killed.

    python restored_run.py STATE OUT ROWS KILL_AFTER SEED

Rows are pushed from ``positions()``; every row taken is appended to OUT as a line
``sink number row``. After KILL_AFTER pushes it kills itself with SIGKILL (0: never), leaving what
the kernel has of its files. The last line of a program that came to its end is ``done``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import medusa as md
from tests.system.restored_query import SINKS, query, rows_of

warnings.simplefilter("ignore", md.LateWarning)


def main(state: str, out: str, total: int, kill_after: int, seed: int) -> None:
    cuts = random.Random(seed)
    if any(Path(state).glob("checkpoint-*[0-9]")):
        run = md.restore(state)
    else:
        run = md.start(query(), checkpoint=state, checkpoint_every="5ms")
    with open(out, "a", buffering=1) as lines:
        pushes = 0
        while True:
            positions = run.positions()
            left = [source for source, at in positions.items() if at < total]
            if not left:
                break
            source = cuts.choice(left)
            first = positions[source]
            count = cuts.randint(1, 400)
            run.push(source, rows_of(source, first, min(count, total - first)), first=first)
            pushes += 1
            if cuts.random() < 0.4:
                take(run, lines)
            if pushes == kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
        run.finish()
        take(run, lines)
        run.close()
        lines.write("done\n")


def take(run: Any, lines: Any, sinks: Sequence[str] = SINKS) -> None:
    """Append what has come, each row with its number."""
    for sink in sinks:
        first = run.taken(sink)
        table = run.take(sink)
        columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
        for number, row in enumerate(pa.table(columns, names=table.schema.names).to_pylist(), first):
            lines.write(f"{sink} {number} {json.dumps(row)}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
