"""Question: what does Medusa hold and what does a call cost that does next to nothing?

    python -m bench.footprint [--full]

Data: the aggregate of W1 (count, sum, min, max, avg of a float64) over one open window, one row a key.
Bytes a key by the run's own ``state_bytes`` and by the growth of the process (which also has what was
loaded meanwhile, so it falls with the keys). Memory at rest: resident bytes of processes that only start.
Calls: ``push`` of an empty batch and of one row, ``take`` when nothing is there; 2,000 of each, in us.
Not shown: keys of text, windows in which only few rows fall.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import medusa as md
from bench import machine, report
from bench.worker import memory

RESULTS = Path(__file__).parent / "results"
CALLS = 2_000
STARTS = {
    "python alone": "",
    "import pyarrow": "import pyarrow",
    "import medusa": "import medusa",
    "a run that waits": (
        "import medusa as md; q = md.Query('a'); s = q.source('s', {'t': 'int64'}, time='t', unit='s'); "
        "q.sink('o', s.filter('t > 0')); run = md.start(q); run.push('s', {'t': [0, 1]}); run.take('o')"
    ),
}


def query() -> md.Query:
    q = md.Query("footprint")
    events = q.source(
        "events", {"ts": "int64", "key": "int64", "value": "float64"}, time="ts", unit="us", slack=0
    )
    columns = {"s": md.sum("value"), "lo": md.min("value"), "hi": md.max("value"), "mean": md.avg("value")}
    q.sink("out", events.window("1h").group_by("key").aggregate(n=md.count(), **columns))
    return q


def rows(first: int, count: int) -> pa.RecordBatch:
    keys = np.arange(first, first + count)
    return pa.record_batch({"ts": np.zeros(count, np.int64), "key": keys, "value": keys / 3})


def bytes_a_key(keys: int) -> dict[str, float]:
    """Of this process; call it in a fresh one."""
    with md.start(query(), memory="8 GiB") as run:
        run.push("events", rows(0, 1_000))
        before = memory("VmRSS")
        for first in range(1_000, keys, 50_000):
            run.push("events", rows(first, min(50_000, keys - first)))
        grown = memory("VmRSS") - before
        held = pc.sum(run.stats()["state_bytes"]).as_py()
    return {"state_bytes": held / keys, "resident": grown / keys}


def in_a_fresh_process(call: str) -> Any:
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def at_rest(program: str) -> int:
    return int(in_a_fresh_process(f"{program}\nfrom bench.worker import memory\nprint(memory('VmRSS'))"))


def calls() -> dict[str, dict[str, float]]:
    """us: p50 and p99 of each call."""
    empty, one = rows(0, 0), rows(0, 1)
    with md.start(query(), checkpoint_every=None) as run:
        cases: dict[str, Callable[[], Any]] = {
            "push, empty": lambda: run.push("events", empty),
            "push, 1 row": lambda: run.push("events", one),
            "take, nothing there": lambda: run.take("out"),
        }
        return {name: quantiles(case) for name, case in cases.items()}


def quantiles(call: Callable[[], Any]) -> dict[str, float]:
    took = np.empty(CALLS)
    for number in range(CALLS):
        begin = time.perf_counter_ns()
        call()
        took[number] = time.perf_counter_ns() - begin
    took = took[CALLS // 10 :] / 1e3
    return {"p50": float(np.median(took)), "p99": float(np.percentile(took, 99))}


def measure(sizes: tuple[int, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {**machine.describe(), "keys": {}}
    for keys in sizes:
        call = f"import json; from bench.footprint import bytes_a_key; print(json.dumps(bytes_a_key({keys})))"
        found["keys"][str(keys)] = in_a_fresh_process(call)
    found["at_rest"] = {name: at_rest(program) for name, program in STARTS.items()}
    found["calls"] = calls()
    return found


def table(found: dict[str, Any]) -> str:
    lines = [
        report.machine_line(found),
        "",
        "| keys | state_bytes a key | resident bytes a key |",
        "|---|---|---|",
    ]
    lines += [
        f"| {int(keys):,} | {held['state_bytes']:.0f} | {held['resident']:.0f} |"
        for keys, held in found["keys"].items()
    ]
    lines += ["", "Goal: below 80 bytes a key.", "", "| process | MB resident |", "|---|---|"]
    lines += [f"| {name} | {size / 1e6:.0f} |" for name, size in found["at_rest"].items()]
    lines += ["", "| call | p50 us | p99 us |", "|---|---|---|"]
    lines += [f"| {name} | {took['p50']:.1f} | {took['p99']:.1f} |" for name, took in found["calls"].items()]
    return "\n".join(lines) + "\n"


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("footprint", found, table(found), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--full", action="store_true", help="10,000,000 keys too")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.chdir(Path(__file__).resolve().parent.parent)
    sizes = (10_000, 100_000, 1_000_000, *([10_000_000] if options.full else []))
    sys.stdout.write(write(measure(sizes), options.out))


if __name__ == "__main__":
    main()
