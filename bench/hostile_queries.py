"""A query that takes all of a node, beside an honest one: python -m bench.hostile_queries [--rows 5000].

5,000 rows of one key (ten times what was tried first) go through three and six self-joins: 10^14 rows
and more, were they made. Then 60,000 rows whose pairs all fail a condition: hours of the engine's time
and no memory. Beside them a client sends ten rows again and again and waits for each answer. Printed:
by what the node's memory grew, how long that client waited, whether the node's peer missed its
heartbeats, how the query ended, how long its removal took.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import medusa as md
from tests.system.nodes import Nodes, until

LIMITS = 'checkpoint_every = "200ms"\nsubscriber_timeout = "10min"\nquery_memory = "{}"'
SCHEMA = {"ts": "timestamp[us, UTC]", "k": "int64", "v": "int64"}


def rows(count: int, first: int = 0) -> pa.Table:
    times = pa.array([(first + number) * 1000 for number in range(count)], pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "k": pa.array([1] * count), "v": pa.array(range(first, first + count))})


def exploding(joins: int) -> md.Query:
    q = md.Query("attack")
    source = made = q.source("rows", SCHEMA, time="ts", slack="1 s")
    for _ in range(joins):
        made = made.join(source, on="k", within="1 h").select("k", v="v")
    q.sink("out", made)
    return q


def endless() -> md.Query:
    q = md.Query("attack")
    source = q.source("rows", SCHEMA, time="ts", slack="1 s")
    q.sink("out", source.join(source, on="k", within="1000 h", where="left.v + right.v < 0").select("k"))
    return q


def rss(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * 4096


@dataclass
class Seen:
    """What was measured while an attack ran.

    Attributes:
        waits_s: of the honest client, one for each ten rows.
        silent: the node's peer took it for gone.
    """

    grew_bytes: int = 0
    waits_s: list[float] = field(default_factory=list)
    silent: bool = False
    ended: str = ""
    undeploy_s: float = 0.0


class Honest:
    """Sends ten rows and waits for them, again and again, until it is told to stop."""

    def __init__(self, address: str, seen: Seen) -> None:
        self._address, self._seen = address, seen
        self._stopping = False
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        with md.connect(self._address, timeout="60s") as client:
            q = md.Query("honest")
            q.sink("out", q.source("rows", SCHEMA, time="ts", slack="0s").filter("v >= 0"))
            client.deploy(q)
            sent = got = 0
            with client.subscribe("honest.out", from_="oldest") as trains:
                read = iter(trains)
                while not self._stopping:
                    began = time.monotonic()
                    client.publish("honest.rows", rows(10, sent))
                    sent += 10
                    while got < sent:
                        got += len(next(read))
                    self._seen.waits_s.append(time.monotonic() - began)
            client.flush("60s")
            client.undeploy("honest")

    def stop(self) -> None:
        self._stopping = True
        self._thread.join()


@contextlib.contextmanager
def watched(nodes: Nodes, seen: Seen) -> Iterator[None]:
    """The node's memory, and whether its peer hears of it."""
    process = nodes.processes["a"].pid
    before, done = rss(process), threading.Event()

    def look() -> None:
        with md.connect(nodes.addresses["b"], timeout="60s") as peer:
            while not done.wait(0.02):
                seen.grew_bytes = max(seen.grew_bytes, rss(process) - before)
                seen.silent = seen.silent or peer.status()["peers"]["a"] != "up"

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def measured(nodes: Nodes, q: md.Query, count: int, lasts_s: float) -> Seen:
    """Attack node ``a`` for so long, or until the attack has ended; then undeploy it."""
    seen = Seen()
    honest = Honest(nodes.addresses["a"], seen)
    until(lambda: len(seen.waits_s) > 20, what="the honest query runs")
    with watched(nodes, seen):
        seen.waits_s.clear()
        client = md.connect(nodes.addresses["a"], timeout="60s")
        client.deploy(q)
        client.publish("attack.rows", rows(count))
        client.finish("attack.rows")
        end = time.monotonic() + lasts_s
        while not seen.ended and time.monotonic() < end:
            time.sleep(0.1)
            seen.ended = ", ".join(each["code"] for each in ended(client))
        began = time.monotonic()
        client.undeploy("attack")
        seen.undeploy_s = time.monotonic() - began
        with contextlib.suppress(md.LinkError):
            client.close()
        time.sleep(1.0)
    honest.stop()
    return seen


def ended(client: Any) -> list[dict[str, Any]]:
    return list(client.status()["queries"]["attack"]["ended"].values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000, help="of the attack by joins")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long an attack may last")
    parser.add_argument("--memory", default="128 MiB", help="what one query may hold: query_memory")
    given = parser.parse_args()
    attacks = {
        "three self-joins": (exploding(3), given.rows),
        "six self-joins": (exploding(6), given.rows),
        "pairs that fail a condition": (endless(), 60_000),
    }
    print(
        f"{'attack':30} {'memory':>10} {'p50 wait':>9} {'p99':>8} {'longest':>8}  peer   ended     undeploy"
    )
    for name, (q, count) in attacks.items():
        with tempfile.TemporaryDirectory() as folder:
            nodes = Nodes(Path(folder), ["a", "b"], limits=LIMITS.format(given.memory))
            try:
                nodes.start()
                seen = measured(nodes, q, count, given.seconds)
            finally:
                nodes.close()
        waits = sorted(seen.waits_s)
        p50, p99 = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
        print(
            f"{name:30} {seen.grew_bytes / 1e6:>+7.0f} MB {p50 * 1e3:>6.1f} ms {p99 * 1e3:>5.0f} ms"
            f" {waits[-1] * 1e3:>5.0f} ms  {'lost' if seen.silent else 'up':5}  {seen.ended or 'no':8}"
            f"  {seen.undeploy_s:.2f} s"
        )


if __name__ == "__main__":
    main()
