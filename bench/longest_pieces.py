"""How long a removal waits for the piece that a query is at: python -m bench.longest_pieces [--keys 1000000].

Each kind of box gets that many keys, in trains of 20,000 rows, and then the end of its stream, in pieces as
the host of a node does it. Printed: CPU time of the longest piece, which a removal has to wait for at worst,
where it came, and what the query held at most.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

import medusa as md
from medusa.elements import END_US, Boundary, Element, Train
from medusa.engine.fragment import Fragment

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "int64", "v": "int64", "s": "utf8"}
TRAIN = 20_000
Build = Callable[[Any], Any]

KINDS: dict[str, Build] = {
    "window, each group its own": lambda s: s.window("1000 h").group_by("v").aggregate(n=md.count()),
    "window, by text": lambda s: s.window("1000 h").group_by("s").aggregate(n=md.count()),
    "window, median of all": lambda s: s.window("1000 h").aggregate(m=md.median("v")),
    "window, distinct of all": lambda s: s.window("1000 h").aggregate(m=md.count_distinct("s")),
    "sliding window": lambda s: s.window("100 s", "10 s").group_by("v").aggregate(n=md.count()),
    "session": lambda s: s.session("1000 h").group_by("v").aggregate(n=md.count()),
    "running": lambda s: s.group_by("v").running(n=md.count()),
    "distinct": lambda s: s.distinct("v", within="1000 h"),
    "join, each its partner": lambda s: s.join(s.select("v", w="k"), on="v", within="1000 h").select("v"),
    "join, many partners": lambda s: s.join(s.select("k", w="v"), on="k", within="2 s").select("k"),
    "sunion": lambda s: md.sunion(s, s.filter("v >= 0"), bucket="1000 h"),
    "sort with slack": lambda s: s.wsort("v", "1000 h"),
    "bounded sort": lambda s: s.bsort("k", 100_000),
    "bounded sort that holds all": lambda s: s.bsort("v", 10_000_000),
    "top of all": lambda s: s.window("1000 h").top(1_000_000, by="v"),
    "resample": lambda s: s.select("ts", "k", "v").resample("10 ms", by="k", gap="10 s"),
}


def elements(keys: int) -> Iterator[Element]:
    for first in range(0, keys, TRAIN):
        numbers = range(first, first + TRAIN)
        times = pa.array([number * 1_000 for number in numbers], pa.timestamp("us", "UTC"))
        columns = {"ts": times, "k": pa.array([number % 1_000 for number in numbers])}
        columns |= {"v": pa.array([number * 7_919 % 1_000_003 for number in numbers])}
        columns |= {"s": pa.array([f"key {number}" for number in numbers])}
        yield Train(batch=pa.record_batch(columns))
        yield Boundary((first + TRAIN - 1) * 1_000)
    yield Boundary(END_US)


@dataclass
class Longest:
    """The longest piece so far, and during what."""

    took_us: int = 0
    during: str = ""
    since_us: int = 0

    def begin(self) -> None:
        self.since_us = time.thread_time_ns() // 1_000

    def end(self, during: str) -> bool:
        now_us = time.thread_time_ns() // 1_000
        if now_us - self.since_us > self.took_us:
            self.took_us, self.during = now_us - self.since_us, during
        self.since_us = now_us
        return True


def run(build: Build, keys: int) -> tuple[Longest, int, int]:
    """The longest piece, the most bytes held, the pieces."""
    q = md.Query("q")
    q.sink("out", build(q.source("rows", SCHEMA, time="ts", slack="0s")))
    fragment, longest, most, pieces = Fragment(q.graph), Longest(), 0, 0
    waiting = deque(enumerate(elements(keys)))
    while waiting:
        number, element = waiting.popleft()
        during = "rows" if isinstance(element, Train) else "end" if not waiting else "boundary"
        during += f" {number}"
        longest.begin()
        rests = partial(longest.end, during)
        done = fragment.feed_slice("rows", element, rests)
        while not done:
            longest.begin()
            done = fragment.go_on(rests)
            pieces += 1
        longest.end(during)
        most = max(most, fragment.used_bytes())
        longest.begin()
        for _ in fragment.drain("out"):
            pass
        longest.end(f"drain {number}")
    return longest, most, pieces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="kinds that have this in their name")
    given = parser.parse_args()
    print(f"{'kind':30} {'longest':>10}  {'during':14} {'held':>10} {'pieces':>8}")
    for name, build in KINDS.items():
        if given.only not in name:
            continue
        longest, most, pieces = run(build, given.keys)
        took, held = f"{longest.took_us / 1e3:>7.1f} ms", f"{most / 1e6:>7.0f} MB"
        print(f"{name:30} {took}  {longest.during:14} {held} {pieces:>8}")


if __name__ == "__main__":
    main()
