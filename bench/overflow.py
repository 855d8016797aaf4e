"""Question: how long does a fragment take to Spark and back while rows flow, and how long does it rest?

    .venv-spark/bin/python -m bench.overflow [--groups 100000] [--rounds 4] [--shards 2]

Data: a window of an hour with so many open groups (count, sum), then 400 rows fifty times a second. Both
nodes, the publisher and Spark share this machine. *pause*: the owner fed nothing for so long (``pause_us``).
Exact: in the end all rows that were published are counted, each once, in as many groups as there are.
Not shown: a cluster of several machines. Needs Java 17 and the extra ``spark``.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import medusa as md

TRAIN_ROWS = 400
TRAINS_PER_S = 50
STAYS_S = 3.0
PATIENCE = "120s"


def query() -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "k": "int64", "v": "float64"}, time="ts", unit="us")
    counted = rows.window("1 h").group_by("k").aggregate(n=md.count(), v=md.sum("v"), name="per_k")
    q.sink("out", counted)
    return q


def rows(begin: int, count: int, groups: int) -> pa.Table:
    numbers = range(begin, begin + count)
    return pa.table(
        {"ts": numbers, "k": [n * 7919 % groups for n in numbers], "v": [n % 97 / 97 for n in numbers]}
    )


class Stream:
    """Publishes at a steady rate, as far as it is taken."""

    def __init__(self, fed: md.Federation, groups: int) -> None:
        self._fed, self._groups = fed, groups
        self.published = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def begin(self) -> None:
        self._fed.publish("q.rows", rows(0, self._groups, self._groups))
        self.published = self._groups
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(1 / TRAINS_PER_S):
            self._fed.publish("q.rows", rows(self.published, TRAIN_ROWS, self._groups))
            self.published += TRAIN_ROWS

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def moved(fed: md.Federation, stream: Stream, to: str) -> dict[str, Any]:
    """One move: how long it took, how long the fragment rested, what was sent, rows/s meanwhile."""
    before, began = stream.published, time.perf_counter()
    figures = fed.move("q/rows", to=to, timeout=PATIENCE)
    took = time.perf_counter() - began
    return {
        "took_s": took,
        "pause_ms": figures["pause_us"] / 1000,
        "mb": figures["bytes"] / 1e6,
        "rows_per_s": (stream.published - before) / took,
    }


def measure(spark: Any, groups: int, rounds: int, shards: int = 2) -> dict[str, Any]:
    """Every move there and back, and the latency of triggers in the end."""
    found: dict[str, Any] = {"groups": groups, "there": [], "back": []}
    with tempfile.TemporaryDirectory(prefix="medusa-overflow-") as base:
        places = {name: f"ipc://{base}/{name}.sock" for name in ("near", "far")}
        configs: dict[str, dict[str, Any]] = {
            name: {
                "name": name,
                "listen": places[name],
                "data": Path(base) / name,
                "peers": {other: place for other, place in places.items() if other != name},
                "limits": {"checkpoint_every": "2s"},
            }
            for name in places
        }
        there = md.spark.participant({**configs["far"], "spark": {"shards": shards}}, spark)
        with md.node(configs["near"]) as near, there, near.connect(PATIENCE) as fed:
            fed.deploy(query(), at={"near": ["rows"]})
            stream = Stream(fed, groups)
            stream.begin()
            for _ in range(rounds):
                for to, way in (("far", "there"), ("near", "back")):
                    found[way].append(moved(fed, stream, to))
                    time.sleep(STAYS_S)
            stream.end()
            fed.finish("q.rows")
            out = [train.batch for train in fed.subscribe("q.out", from_="oldest")]
            counted = sum(sum(batch["n"].to_pylist()) for batch in out)
            if counted != stream.published or sum(len(batch) for batch in out) != groups:
                raise SystemExit(f"{counted:,} rows of {stream.published:,} were counted")
            found["trigger_us"] = there.status()["runs_on"]["latency_us"]
    return found


def main() -> None:
    """Print a line for each move, and the latency of triggers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--shards", type=int, default=2)
    asked = parser.parse_args()
    spark = md.spark.session("local[2]", memory="1g")
    found = measure(spark, asked.groups, asked.rounds, asked.shards)
    print("way    took s  pause ms  sent MB  rows/s")
    for moves in zip(found["there"], found["back"], strict=True):
        for way, each in zip(("there", "back"), moves, strict=True):
            print(
                f"{way:5} {each['took_s']:7.1f} {each['pause_ms']:9.0f} {each['mb']:8.1f}"
                f" {each['rows_per_s']:7.0f}"
            )
    p50_us, p99_us = found["trigger_us"]
    print(f"a trigger: p50 {p50_us / 1e6:.2f} s, p99 {p99_us / 1e6:.2f} s")
    spark.stop()


if __name__ == "__main__":
    main()
