"""Question: how long does a train of 64 rows take through a filter, a window and a join, in process?

    python -m bench.latency [--full]

Data: trains 1 ms apart in event time, 100 keys. ``filter``, ``window`` (10 ms, so every tenth push closes
one) and ``join`` (with a stream that has a row per key and second, within 1 s) alone, and ``all``:
filter, then window, its rows joined. Timed: ``push`` and ``take``; the other side of the join is pushed
between. ``at half the peak``: trains come on a clock at half the rate that pushing without a pause
reached, and wait where one is late; their time counts from when they were due. Peer: csp, the same steps
as its Python nodes, a tick a train, replayed (it has no live figure here); its prices stand still, so it
keeps no state for its join.
Not shown: links (docs/nodes.md) and the disk; a machine that does nothing
else.
"""

from __future__ import annotations

import argparse
import gc
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

import medusa as md
from bench import machine, report
from bench.peers import install

ROWS = 64
KEYS = 100
STEP_US = 1_000
RESULTS = Path(__file__).parent / "results"
SCHEMA = {"ts": "int64", "key": "int64", "value": "float64"}


def trains(count: int) -> list[pa.RecordBatch]:
    rng = np.random.default_rng(7)
    keys, values = rng.integers(0, KEYS, (count, ROWS)), rng.random((count, ROWS))
    return [
        pa.record_batch({"ts": np.full(ROWS, number * STEP_US), "key": keys[number], "value": values[number]})
        for number in range(count)
    ]


def query(shape: str) -> md.Query:
    q = md.Query(shape)
    stream = q.source("events", SCHEMA, time="ts", unit="us", slack=0)
    if shape in ("filter", "all"):
        stream = stream.filter("value > 0.5")
    if shape in ("window", "all"):
        stream = stream.window("10ms").group_by("key").aggregate(n=md.count(), s=md.sum("value"))
    if shape in ("join", "all"):
        prices = q.source(
            "prices", {"at": "int64", "key": "int64", "price": "float64"}, time="at", unit="us", slack=0
        )
        stream = stream.join(prices, on="key", within="1s")
    q.sink("out", stream)
    return q


class Steps:
    """A live run; ``step`` is what is timed, ``between`` is not."""

    def __init__(self, shape: str, batches: list[pa.RecordBatch]) -> None:
        self.run = md.start(query(shape), checkpoint_every=None)
        self.batches = batches
        self.joined = shape in ("join", "all")
        self.rows = 0

    def between(self, number: int) -> None:
        if not self.joined:
            return
        if number % 1_000 == 0:
            at = np.full(KEYS, number * STEP_US)
            self.run.push("prices", pa.record_batch({"at": at, "key": np.arange(KEYS), "price": at / 7.0}))
        # Prices up to the train are complete, so that what the train makes doesn't wait for them.
        self.run.boundary("prices", number * STEP_US + STEP_US)

    def step(self, number: int) -> None:
        self.run.push("events", self.batches[number])
        self.rows += len(self.run.take("out"))


def pushed(steps: Steps, count: int) -> np.ndarray:
    """us a train, without a pause between them."""
    took = np.empty(count)
    clock = time.perf_counter_ns
    for number in range(count):
        steps.between(number)
        begin = clock()
        steps.step(number)
        took[number] = clock() - begin
    return took / 1e3


def on_a_clock(steps: Steps, count: int, gap_us: float) -> np.ndarray:
    """us from when a train was due until its answer was taken."""
    took = np.empty(count)
    clock = time.perf_counter_ns
    start = clock() + 1_000_000
    for number in range(count):
        steps.between(number)
        due = start + int(number * gap_us * 1e3)
        while clock() < due:
            pass
        steps.step(number)
        took[number] = clock() - due
    return took / 1e3


def figures(took: np.ndarray) -> dict[str, float]:
    took = took[len(took) // 10 :]  # the first trains load what is loaded on first use
    return {"p50": float(np.median(took)), "p99": float(np.percentile(took, 99)), "max": float(took.max())}


def without_collector(timed: Callable[..., np.ndarray], *arguments: Any) -> np.ndarray:
    """Python's cycle collector would stop some trains for as long as it likes: off, as a user may have it."""
    gc.collect()
    gc.disable()
    try:
        return timed(*arguments)
    finally:
        gc.enable()


def measure(count: int, shapes: tuple[str, ...] = ("filter", "window", "join", "all")) -> dict[str, Any]:
    batches = trains(count)
    found: dict[str, Any] = {"trains": count, "rows": ROWS, **machine.describe(), "shapes": {}}
    for shape in shapes:
        steps = Steps(shape, batches)
        free = without_collector(pushed, steps, count)
        steps.run.close()
        assert steps.rows > 0, f"{shape} gave no row"
        steps = Steps(shape, batches)
        paced = without_collector(on_a_clock, steps, count, 2 * float(np.mean(free)))
        steps.run.close()
        found["shapes"][shape] = {"pushed": figures(free), "at half the peak": figures(paced)}
    found["csp"] = by_csp(count)
    return found


def by_csp(count: int) -> dict[str, Any]:
    """Its figures, in its own process; ``trouble`` where there are none."""
    python = install.python("csp")
    if python is None:
        return {"trouble": "not installed: python -m bench.peers.install csp"}
    command = [python, "-m", "bench.peers.csp_latency", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        return {"trouble": (done.stderr.strip().splitlines() or ["ended without a word"])[-1]}
    return {"pushed": figures(np.array(json.loads(done.stdout.splitlines()[-1])))}


def table(found: dict[str, Any]) -> str:
    lines = [
        f"Trains of {found['rows']} rows, {found['trains']:,} of them. {report.machine_line(found)}",
        "",
        "| us a train | p50 | p99 | p50 at half the peak | p99 at half the peak |",
        "|---|---|---|---|---|",
    ]
    rows = {f"medusa, {shape}": result for shape, result in found["shapes"].items()}
    if "pushed" in found["csp"]:
        rows["csp, all"] = found["csp"]
    for name, result in rows.items():
        cells = [
            f"{result[way][part]:,.0f}" if way in result else "-"
            for way in ("pushed", "at half the peak")
            for part in ("p50", "p99")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    if "trouble" in found["csp"]:
        lines += ["", f"csp: {found['csp']['trouble']}."]
    return "\n".join([*lines, "", "Goal for `all`: p50 below 50 us, p99 below 500 us."]) + "\n"


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("latency", found, table(found), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--full", action="store_true", help="100,000 trains instead of 4,000")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.stdout.write(write(measure(100_000 if options.full else 4_000), options.out))


if __name__ == "__main__":
    main()
