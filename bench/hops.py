"""Small trains through real node processes, timed; many into one, until all is durable.

Part of ``bench.links``. Each node runs a filter that keeps all; the client is one process. The peer: a
relay of PULL and PUSH per node, with Arrow at both ends. Nodes and relays talk over ipc. ``one at a time``:
the next train leaves when the last one has come. ``paced``: one each 5 ms, its time counts from when it was
due.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zmq

import medusa as md
from bench.link_ends import batches
from bench.worker import Spent, forget_peak, memory

ROOT = Path(__file__).resolve().parent.parent
ROWS = 1024 // 16
SCHEMA = pa.schema([("number", pa.int64()), ("value", pa.float64())])
COLUMNS = {"number": "int64", "value": "float64"}
TRAINS = 1_000
GAP_S = 0.005
HOPS = (1, 3)
NODE = "import sys; from medusa.cli.main import main; sys.argv[0] = 'medusa'; main()"
RELAY = """
import sys, zmq
context = zmq.Context()
pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
pull.bind(sys.argv[1])
push.connect(sys.argv[2])
print("ready", flush=True)
while True:
    push.send(pull.recv(copy=False), copy=False)
"""


def train(number: int) -> pa.RecordBatch:
    """1 KiB that says which it is."""
    return pa.record_batch([np.full(ROWS, number), np.arange(ROWS, dtype=np.float64)], schema=SCHEMA)


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


@contextlib.contextmanager
def processes(commands: list[list[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Started, and gone at the end; each has said its first line."""
    started: list[subprocess.Popen[str]] = []
    try:
        started.extend(_start(command) for command in commands)
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline(), "a node or relay ended without a word"
        yield started
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.communicate()


@contextlib.contextmanager
def nodes(count: int) -> Iterator[tuple[list[str], list[int]]]:
    """Addresses and processes of nodes that know each other."""
    with tempfile.TemporaryDirectory(prefix="md") as folder:
        names = [f"n{number}" for number in range(1, count + 1)]
        address = {name: f"ipc://{folder}/{name}" for name in names}
        for name in names:
            peers = "".join(f'{other} = "{address[other]}"\n' for other in names if other != name)
            text = f'name = "{name}"\nlisten = "{address[name]}"\ndata = "{name}.data"\n[peers]\n{peers}'
            Path(folder, f"{name}.toml").write_text(text)
        with processes(
            [[sys.executable, "-c", NODE, "node", f"{folder}/{name}.toml"] for name in names]
        ) as started:
            yield list(address.values()), [process.pid for process in started]


def one_by_one(send: Callable[[int], None], receive: Callable[[], int], count: int) -> np.ndarray:
    """Milliseconds a train; the next leaves when the last has come."""
    took = np.empty(count)
    for number in range(count):
        begin = time.perf_counter()
        send(number)
        assert receive() == number, "another train came"
        took[number] = time.perf_counter() - begin
    return took * 1e3


def paced(send: Callable[[int], None], receive: Callable[[], int], count: int) -> np.ndarray:
    """Milliseconds from when a train was due until it came."""
    start = time.perf_counter() + 0.05

    def feed() -> None:
        for number in range(count):
            time.sleep(max(start + number * GAP_S - time.perf_counter(), 0))
            send(number)

    feeder = threading.Thread(target=feed)
    feeder.start()
    took = np.empty(count)
    for number in range(count):
        assert receive() == number, "another train came"
        took[number] = time.perf_counter() - (start + number * GAP_S)
    feeder.join()
    return took * 1e3


def both(send: Callable[[int], None], receive: Callable[[], int]) -> dict[str, Any]:
    found = {}
    for name, way in (("one at a time", one_by_one), ("paced", paced)):
        took = way(send, receive, TRAINS)[TRAINS // 10 :]
        found[name] = {"p50": float(np.median(took)), "p99": float(np.percentile(took, 99))}
    return found


def by_nodes(hops: int) -> dict[str, Any]:
    q = md.Query("hops")
    stream = q.source("rows", COLUMNS, time=None)
    for number in range(1, hops + 1):
        stream = stream.filter(f"value >= -{number}", name=f"f{number}")
    q.sink("out", stream)
    at = {f"n{number}": [f"f{number}"] for number in range(1, hops + 1)}
    at["n1"].insert(0, "rows")
    at[f"n{hops}"].append("out")
    with nodes(hops) as (addresses, _), md.connect(addresses[0]) as first, md.connect(addresses[-1]) as last:
        first.deploy(q, at=at)
        with last.subscribe("hops.out", timeout="30s") as out:

            def receive() -> int:
                came = out.next()
                assert came is not None
                assert len(came.batch) == ROWS
                return int(came.batch.column(0)[0].as_py())

            return both(lambda number: first.publish("hops.rows", train(number)), receive)


def by_relays(hops: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="md") as folder:
        address = [f"ipc://{folder}/{number}" for number in range(hops + 1)]
        context = zmq.Context()
        pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        pull.bind(address[-1])
        commands = [[sys.executable, "-c", RELAY, *address[number : number + 2]] for number in range(hops)]
        with processes(commands):
            push.connect(address[0])

            def receive() -> int:
                batch = pa.ipc.read_record_batch(pa.py_buffer(pull.recv(copy=False).buffer), SCHEMA)
                return int(batch.column(0)[0].as_py())

            found = both(lambda number: push.send(train(number).serialize()), receive)
        context.destroy(linger=0)
        return found


def measure() -> dict[str, Any]:
    """Percentiles by way and number of nodes."""
    found: dict[str, Any] = {}
    for count in HOPS:
        found[f"medusa, {count} node{'s' * (count > 1)}"] = by_nodes(count)
        found[f"pyzmq, {count} relay{'s' * (count > 1)}"] = by_relays(count)
    return found


def lines(found: dict[str, Any]) -> list[str]:
    """Markdown."""
    out = [
        f"Trains of 1 KiB, {TRAINS:,} of them, ms from publish to the reader:",
        "",
        "| through | p50, one at a time | p99 | p50, one each 5 ms | p99 |",
        "|---|---|---|---|---|",
    ]
    for name, ways in found.items():
        cells = [f"{ways[way][part]:.2f}" for way in ("one at a time", "paced") for part in ("p50", "p99")]
        out.append(f"| {name} | {' | '.join(cells)} |")
    return out


def into_a_node(size: int, total: int) -> dict[str, Any]:
    """A client publishes as fast as it can into a node that filters all away, until all is durable."""
    rotated = batches(size)
    count = total // size
    q = md.Query("disk")
    q.sink("out", q.source("rows", COLUMNS, time=None).filter("number < 0"))
    with nodes(1) as ([address], [process]), md.connect(address) as client:
        client.deploy(q)
        held = memory("VmRSS", process)
        mine = memory("VmRSS")
        forget_peak()
        cpu, own = Spent().look([process]), time.process_time()
        begin = time.perf_counter()
        for turn in range(count):
            client.publish("disk.rows", rotated[turn % len(rotated)])
        client.flush("120s")
        took = time.perf_counter() - begin
        cpu, own = Spent().look([process]) - cpu, time.process_time() - own
        rows = client.status()["fragments"][0]["inputs"][0]["durable_row"]
        assert rows == count * (size // 16), "rows are missing"
        return {
            "speed": total / took,
            "cpu": {"send": own, "receive": cpu},
            "held": {
                "send": memory("VmHWM") - mine,
                "receive": memory("VmHWM", process) - held,
            },
            "copied": 0,
        }
