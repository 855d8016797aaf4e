"""Question: what do standbys cost while nothing fails, and what do other outputs notice of a takeover?

    python -m bench.standby_cost [--rounds 5] [--seconds 6] [--kills 5]

A chain of two nodes: ``e`` filters, ``m`` counts by key as rows pass; 100 rows each 5 ms from one client to
another, each row with the time at which it was published. *CPU*: user and system time of the process of
``m``, a row. *delay*: from publication to arrival, a row. Two shapes: m reads one stream (its rows come in
one order, so nothing is decided) or the union of two (their order is a decision, which the secondary has
before what depends on it leaves). The peer: the same chain without a standby, the two in turns, each with
processes of its own. *round trip*: a byte between two idle processes over ipc, by ZeroMQ alone.
A takeover: ``m`` is killed with -9 for good while a second query runs at two nodes that it never touches.
Its throughput and the p99 of its delay, in the 2 s before the kill and the 2 s after it.
Exact first: a run counts only if every row came once, and in order where the shape has one.
Not shown: machines of their own. Here the secondary's work has the same two cores as all else; the figure for
CPU is of one process and doesn't contain it, the delay does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zmq

import medusa as md
from bench import machine, report
from bench.takeovers import RESULTS
from tests.system.nodes import ForkedNodes, until

ROWS = 100
GAP_S = 0.005
KEYS = 1_000
WARM_S = 1.0
AROUND_S = 2.0
NODES = ["e", "m", "s", "w", "c", "d"]
COLUMNS = {"n": "int64", "k": "int64", "sent": "int64"}
SHAPES = {"one stream": 1, "a union of two": 2}
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
ECHO = """
import sys, zmq
socket = zmq.Context().socket(zmq.REP)
socket.bind(sys.argv[1])
print("ready", flush=True)
while True:
    socket.send(socket.recv())
"""


def query(name: str, sources: int) -> md.Query:
    """``sources`` streams that are filtered at one node, and counted by key at the next."""
    q = md.Query(name)
    kept = [
        q.source(f"rows{number}", COLUMNS, time=None).filter("n >= 0", name=f"kept{number}")
        for number in range(sources)
    ]
    both = kept[0] if sources == 1 else kept[0].union(kept[1], name="both")
    counted = both.group_by("k").running(rows=md.count(), name="counted")
    q.sink("out", counted)
    return q


def placed(name: str, sources: int, first: str, second: str) -> dict[str, list[str]]:
    """Sources and filters at the first node, the rest at the second."""
    boxes = [box.id for box in query(name, sources).graph.boxes]
    ahead = [box for box in boxes if box.startswith(("rows", "kept"))]
    return {first: ahead, second: [box for box in boxes if box not in ahead]}


class Flow:
    """Rows at their pace into a query, and a reader that notes when each came."""

    def __init__(self, publishes: md.Federation, reads: md.Federation, name: str, sources: int) -> None:
        self._publishes, self._name, self._sources = publishes, name, sources
        self._reader = reads.subscribe(f"{name}.out", from_="oldest", timeout="120s")
        self._over = threading.Event()
        self.failed: list[BaseException] = []
        self.trains = 0
        self.came: list[tuple[float, pa.RecordBatch]] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(job,), daemon=True)
            for job in (self._publish, self._read)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, job: Any) -> None:
        try:
            job()
        except BaseException as error:
            self.failed.append(error)

    def _publish(self) -> None:
        due = time.perf_counter()
        while not self._over.is_set():
            numbers = np.arange(self.trains * ROWS, (self.trains + 1) * ROWS)
            sent = np.full(ROWS, time.perf_counter_ns())
            batch = pa.record_batch({"n": numbers, "k": numbers % KEYS, "sent": sent})
            self._publishes.publish(f"{self._name}.rows{self.trains % self._sources}", batch)
            self.trains += 1
            due += GAP_S
            time.sleep(max(due - time.perf_counter(), 0))
        for number in range(self._sources):
            self._publishes.finish(f"{self._name}.rows{number}")

    def _read(self) -> None:
        for train in self._reader:
            self.came.append((time.perf_counter(), train.batch))

    def going_on(self) -> None:
        """Until rows come (again)."""
        seen = len(self.came)
        until(lambda: self.failed or len(self.came) > seen + 20, what="rows come", deadline_s=120)
        assert not self.failed, self.failed

    def end(self) -> None:
        """Nothing more is published.

        Raises:
            AssertionError: a row is missing, came twice or is wrong.
        """
        self._over.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "the reader waits for rows that never come"
        assert not self.failed, self.failed
        whole = pa.Table.from_batches([batch for _, batch in self.came])
        numbers, expected = whole["n"].to_numpy(), np.arange(self.trains * ROWS)
        assert (np.sort(numbers) == expected).all(), "a row is missing or came twice"
        for number in range(self._sources):
            mine = numbers[(numbers // ROWS) % self._sources == number]
            assert (np.diff(mine) > 0).all(), "rows of one stream in another order"
        # All rows of a key are of one stream.
        assert (whole["rows"].to_numpy() == numbers // KEYS + 1).all(), "another count"

    def delays(self, begin: float, end: float) -> np.ndarray:
        """Of the rows that came between these times, seconds."""
        found = [at - batch.column("sent").to_numpy() / 1e9 for at, batch in self.came if begin <= at <= end]
        return np.concatenate(found)


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


@contextlib.contextmanager
def chain(sources: int, *, standby: bool) -> Iterator[tuple[ForkedNodes, list[md.Federation], Flow]]:
    """Nodes with the query, and rows that flow; in the end all is right."""
    with (
        tempfile.TemporaryDirectory(prefix="md") as folder,
        contextlib.closing(ForkedNodes(Path(folder), NODES)) as nodes,
        contextlib.ExitStack() as held,
    ):
        nodes.start()
        # Not at m: clients of a node that is killed would wait to connect again, which is another question.
        feds = [
            held.enter_context(md.connect(nodes.addresses[name], timeout="60s"))
            for name in ("e", "w", "c", "d")
        ]
        until(lambda: set(feds[1].status()["peers"].values()) == {"up"})
        # Who is asked to deploy votes: with m and s that makes three.
        guard = {"m": ["s"]} if standby else None
        feds[1].deploy(query("q", sources), at=placed("q", sources, "e", "m"), standby=guard)
        flow = Flow(feds[0], feds[1], "q", sources)
        flow.going_on()
        if standby:
            until(lambda: all_follow(feds[1]), what="a secondary follows", deadline_s=120)
        yield nodes, feds, flow
        flow.end()


def all_follow(orders: md.Federation) -> bool:
    """Whether a secondary may take over all that is guarded."""
    fragments = orders.status()["queries"]["q"]["configuration"]["fragments"]
    return all(each["secondaries"]["s"]["state"] == "following" for each in fragments.values())


def cost(sources: int, seconds: float, *, standby: bool) -> dict[str, float]:
    """CPU of the primary for a row, and how long a row took, while nothing fails."""
    with chain(sources, standby=standby) as (nodes, _, flow):
        time.sleep(WARM_S)
        pid = nodes.processes["m"].pid
        begin, spent, trains = time.perf_counter(), cpu_s(pid), flow.trains
        time.sleep(seconds)
        end = time.perf_counter()
        rows = (flow.trains - trains) * ROWS
        cpu_us = (cpu_s(pid) - spent) / rows * 1e6
        p50, p99 = np.percentile(flow.delays(begin, end), [50, 99])
    return {"cpu_us": cpu_us, "p50_s": float(p50), "p99_s": float(p99)}


def survivors() -> dict[str, float]:
    """What a query that doesn't pass the lost node had before and after it was killed."""
    with chain(1, standby=True) as (nodes, feds, flow):
        _, orders, publishes, reads = feds
        orders.deploy(query("p", 1), at=placed("p", 1, "c", "d"))
        other = Flow(publishes, reads, "p", 1)
        other.going_on()
        time.sleep(WARM_S + AROUND_S)
        killed = time.perf_counter()
        nodes.kill("m")
        time.sleep(AROUND_S)
        flow.going_on()
        before = other.delays(killed - AROUND_S, killed)
        after = other.delays(killed, killed + AROUND_S)
        other.end()
    return {
        "throughput": len(after) / len(before),
        "before_p99_s": float(np.percentile(before, 99)),
        "after_p99_s": float(np.percentile(after, 99)),
    }


def round_trip_s(times: int = 2_000) -> float:
    """p50 of a byte there and back between two idle processes."""
    with tempfile.TemporaryDirectory(prefix="md") as folder:
        address = f"ipc://{folder}/echo"
        process = subprocess.Popen([sys.executable, "-c", ECHO, address], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            with zmq.Context() as context, context.socket(zmq.REQ) as socket:
                socket.connect(address)
                found = []
                for _ in range(times):
                    begin = time.perf_counter()
                    socket.send(b"x")
                    socket.recv()
                    found.append(time.perf_counter() - begin)
        finally:
            process.kill()
            process.communicate()
    return float(np.median(found))


def measure(rounds: int, seconds: float, kills: int) -> dict[str, Any]:
    """All figures, guarded and not in turns."""
    found: dict[str, Any] = {
        **machine.describe(),
        "rounds": rounds,
        "round_trip_s": round_trip_s(),
        "shapes": {},
    }
    for shape, sources in SHAPES.items():
        pairs = []
        for number in range(rounds):
            pairs.append(
                {way: cost(sources, seconds, standby=way == "guarded") for way in ("alone", "guarded")}
            )
            print(f"{shape}, round {number + 1} of {rounds}: {pairs[-1]}", file=sys.stderr)
        found["shapes"][shape] = pairs
    found["survivors"] = []
    for number in range(kills):
        found["survivors"].append(survivors())
        print(f"kill {number + 1} of {kills}: {found['survivors'][-1]}", file=sys.stderr)
    found["load"] = os.getloadavg()[2]
    return found


def _spread(values: list[float], unit: str, factor: float = 1.0) -> str:
    low, middle, high = np.percentile(np.array(values) * factor, [0, 50, 100])
    return f"{middle:.2f}{unit} ({low:.2f} to {high:.2f})"


def table(found: dict[str, Any]) -> str:
    """Markdown."""
    lines = [
        f"{report.machine_line(found)} {found['rounds']} rounds, medians (smallest to largest). "
        f"Load while it ran: {found['load']:.1f}. Round trip {found['round_trip_s'] * 1e3:.3f} ms.",
        "",
        "| m reads | CPU a row, alone | guarded | ratio "
        "| delay p50, alone | guarded | more by | p99, alone | guarded |",
        f"|{'---|' * 9}",
    ]
    for shape, pairs in found["shapes"].items():
        ways = {way: [pair[way] for pair in pairs] for way in ("alone", "guarded")}
        cpu = [_spread([each["cpu_us"] for each in ways[way]], " us") for way in ways]
        ratio = _spread([pair["guarded"]["cpu_us"] / pair["alone"]["cpu_us"] for pair in pairs], "")
        p50 = [_spread([each["p50_s"] for each in ways[way]], " ms", 1e3) for way in ways]
        more = _spread([pair["guarded"]["p50_s"] - pair["alone"]["p50_s"] for pair in pairs], " ms", 1e3)
        p99 = [_spread([each["p99_s"] for each in ways[way]], " ms", 1e3) for way in ways]
        lines.append(f"| {shape} | {' | '.join([*cpu, ratio, *p50, more, *p99])} |")
    kills = found["survivors"]
    if kills:
        lines += [
            "",
            f"Of {len(kills)} kills, a query elsewhere: throughput after / before "
            f"{_spread([each['throughput'] for each in kills], '')}; p99 before "
            f"{_spread([each['before_p99_s'] for each in kills], ' ms', 1e3)}, after "
            f"{_spread([each['after_p99_s'] for each in kills], ' ms', 1e3)}.",
        ]
    return "\n".join(lines) + "\n"


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("standby_cost", found, table(found), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    sys.stdout.write(write(measure(options.rounds, options.seconds, options.kills), options.out))


if __name__ == "__main__":
    main()
