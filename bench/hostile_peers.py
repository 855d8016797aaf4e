"""Question: what do other clients of a node notice while a peer sends what no peer of ours would?

    python -m bench.hostile_peers [--only WORDS] [--seconds 20]

Two nodes of one participant with keys, in processes of their own. An honest client of one of them publishes
trains of 64 rows, reads what comes of them, asks for the status, deploys and undeploys small queries.
Meanwhile a hostile peer, with a key that is let in, sends messages without a last part, or graphs of 4 MiB.
Measured: resident memory of the node, the longest wait of the honest client, nodes that took each other for
silent, how long an undeployment took, and what the hostile peer heard.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import zmq

import medusa as md
from bench import machine, report
from medusa.mind.placement import cut
from medusa.mind.spec import SPEC_BYTES_MAX, fragment_to
from medusa.query.codec import graph_to_msgpack
from medusa.runtime.keys import CurveKey, ParticipantKey, read_curve_key, read_public, write_key
from medusa.wire import limits
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages import Deploy, Heartbeat, Hello, Message, Reply
from medusa.wire.messages_remote import DefineRemote, KeepRemote
from medusa.wire.statement import client_name

RESULTS = Path(__file__).parent / "results"
RUN = "import sys; from medusa.cli import main; sys.argv[0] = 'medusa'; main()"
MIB = 1 << 20
ROWS = 64
EVERY_S = 0.02
PARTS = 40_000
TINY_PARTS = 30_000_000
GRAPHS = 40
"""Ten times what stood when it was found: 4,000 parts of 1 MiB, 3,000,000 of one byte, 4 graphs."""

COLUMNS, BOXES = 200, 460
"""A graph of nearly 4 MiB that takes longest to check: wide boxes in a row."""


def large_graph(name: str, boxes: int = BOXES) -> md.Query:
    """Each box names all columns, so each is looked up."""
    columns = [f"c{number}" for number in range(COLUMNS)]
    query = md.Query(name)
    rows = query.source("s", pa.schema([(each, pa.int64()) for each in columns]), time=None)
    for _ in range(boxes):
        rows = rows.select(*columns)
    query.sink("o", rows)
    return query


# --- nodes ------------------------------------------------------------------------------------------


class Place:
    """Nodes a and b of alice, each with a key; bob's node e is hostile, and maker the honest client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}
        for node in ("a", "b", "e"):
            write_key(folder / f"{node}.key", "node", CurveKey.new())
        for client in ("maker", "nobody", "deployer"):
            write_key(folder / f"{client}.key", "client", CurveKey.new())
        for participant in ("alice", "bob"):
            write_key(folder / f"{participant}.key", "participant", ParticipantKey.new())
        self.ports = {node: _free_port() for node in ("a", "b", "e")}

    def address(self, node: str) -> str:
        return f"tcp://127.0.0.1:{self.ports[node]}"

    def public(self, name: str) -> str:
        return read_public(self.folder / f"{name}.pub")

    def key(self, name: str) -> CurveKey:
        return read_curve_key(self.folder / f"{name}.key")

    def start(self, node: str) -> None:
        """Start it and wait until it listens."""
        lines = [f'name = "{node}"', f'listen = "{self.address(node)}"', f'data = "{node}.data"']
        lines += ['participant = "alice"', 'federation = "f"', "[keys]", f'node = "{node}.key"']
        for name in ("alice", "bob"):
            lines += [f"[participants.{name}]", f'key = "{self.public(name)}"']
        for other, owner in (("a", "alice"), ("b", "alice"), ("e", "bob")):
            if other != node:
                lines += [f"[peers.{other}]", f'address = "{self.address(other)}"']
                lines += [f'participant = "{owner}"', f'key = "{self.public(other)}"']
        lines += ["[clients.nobody]", f'key = "{self.public("nobody")}"']
        lines += ["[clients.deployer]", f'key = "{self.public("deployer")}"', 'deploy = ["*"]']
        lines += ["[clients.maker]", f'key = "{self.public("maker")}"', "status = true"]
        lines += ['deploy = ["*"]', 'publish = ["*"]', 'subscribe = ["*"]']
        lines += ["[offers.bob]", 'boxes = ["filter"]']
        config = self.folder / f"{node}.toml"
        config.write_text("\n".join(lines) + "\n")
        with open(self.folder / f"{node}.log", "a") as log:
            command = [sys.executable, "-c", RUN, "node", str(config)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.processes[node] = process
        assert process.stdout is not None
        process.stdout.readline()

    def connect(self, name: str = "maker", node: str = "a") -> md.Federation:
        keys = {"key": self.folder / f"{name}.key", "server_key": self.folder / f"{node}.pub"}
        return md.connect(self.address(node), timeout="60s", **keys)

    def log(self, node: str) -> str:
        return (self.folder / f"{node}.log").read_text()

    def memory_mb(self, what: str = "VmRSS") -> float:
        """Of node a."""
        text = Path(f"/proc/{self.processes['a'].pid}/status").read_text()
        line = next(each for each in text.splitlines() if each.startswith(what))
        return int(line.split()[1]) / 1024

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _free_port() -> int:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as each:
        return each.bind_to_random_port("tcp://127.0.0.1")


# --- the honest client ------------------------------------------------------------------------------


class Honest:
    """Publishes, reads, asks, deploys and undeploys, each in a thread, and notes how long it waited (s)."""

    def __init__(self, place: Place, name: str = "h") -> None:
        self.waits: dict[str, list[float]] = {"rows": [], "status": [], "undeploy": []}
        self.failures: list[str] = []
        self._over = threading.Event()
        self._sent: dict[int, float] = {}
        self._name = name
        self._feds = [place.connect() for _ in range(3)]
        fed = self._feds[0]
        fed.deploy(small_query(name), at={"a": ["s"]})
        self._trains = fed.subscribe(f"{name}.o", from_="oldest")
        jobs = [self._publish, self._read, self._status, self._undeploy]
        self._threads = [threading.Thread(target=self._guarded, args=(job,), daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            while not self._over.is_set():
                job()
        except Exception as error:
            self.failures.append(f"{job.__name__}: {type(error).__name__}: {error}"[:200])

    def _publish(self) -> None:
        number = len(self._sent)
        self._sent[number] = time.monotonic()
        times = range(number * ROWS, (number + 1) * ROWS)
        self._feds[0].publish(f"{self._name}.s", {"ts": list(times), "v": [number] * ROWS})
        self._over.wait(EVERY_S)

    def _read(self) -> None:
        train = self._trains.next("60s") if not self._over.is_set() else None
        if train is not None:
            now = time.monotonic()
            for number in set(train.batch.column("v").to_pylist()):
                self.waits["rows"].append(now - self._sent[number])

    def _status(self) -> None:
        begun = time.monotonic()
        self._feds[1].status()
        self.waits["status"].append(time.monotonic() - begun)
        self._over.wait(5 * EVERY_S)

    def _undeploy(self) -> None:
        name = f"u{len(self.waits['undeploy'])}"
        self._feds[2].deploy(small_query(name), at={"a": ["s"]})
        begun = time.monotonic()
        self._feds[2].undeploy(name)
        self.waits["undeploy"].append(time.monotonic() - begun)
        self._over.wait(5 * EVERY_S)

    def forget(self) -> None:
        """Count from here."""
        for waits in self.waits.values():
            waits.clear()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(70)
        for fed in self._feds:
            fed.close()


def small_query(name: str) -> md.Query:
    query = md.Query(name)
    rows = query.source("s", {"ts": "int64", "v": "int64"}, time="ts", unit="us")
    query.sink("o", rows.filter("v >= 0"))
    return query


# --- hostile peers ----------------------------------------------------------------------------------


class Hostile:
    """A socket of ZeroMQ with a key of the node's, and what it heard."""

    def __init__(self, place: Place, key: str, *, node: str = "") -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, 8)
        own = place.key(key)
        own.lock(self.socket, server_key=place.public("a"))
        self.socket.connect(place.address("a"))
        self.heard: Counter[str] = Counter()
        name = node or client_name(own.public, "1")
        self.say(
            Hello(version=limits.PROTOCOL_VERSION, node=name, incarnation=1, client=not node, answer=True)
        )

    def say(self, message: Message, payload: bytes | None = None) -> None:
        self.socket.send_multipart([bytes(part) for part in encode_frame(message, payload)])
        self.hear(0)

    def hear(self, timeout_ms: int) -> None:
        while self.socket.poll(timeout_ms):
            message, _ = decode_frame([memoryview(each) for each in self.socket.recv_multipart()])
            if isinstance(message, Reply):
                self.heard[message.code or "done"] += 1
            if isinstance(message, Hello | Heartbeat):
                self.socket.send_multipart([bytes(part) for part in encode_frame(Heartbeat(incarnation=1))])

    def close(self) -> None:
        self._context.destroy(linger=0)


def parts(place: Place, body: bytes, count: int, seconds: float) -> str:
    """One message of so many parts, without a last one; again with what is left where the connection ends."""
    with _hostile(place, "nobody") as peer:
        monitor = peer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        sent, cuts, end = 0, 0, time.monotonic() + seconds
        while sent < count and time.monotonic() < end:
            try:
                for _ in range(64):
                    peer.socket.send(body, zmq.SNDMORE | zmq.NOBLOCK)
                    sent += 1
            except zmq.Again:
                time.sleep(0.001)
            while monitor.poll(0):
                monitor.recv_multipart()
                cuts += 1
        return f"{sent:,} parts sent, connection ended {cuts} times"


def graphs(
    place: Place, key: str, make: Callable[[int], Message], payload: Callable[[int], bytes], seconds: float
) -> str:
    """So many graphs at once, and what the answers were."""
    node = "e" if key == "e" else ""
    with _hostile(place, key, node=node) as peer:
        for number in range(1, GRAPHS + 1):
            peer.say(make(number), payload(number))
        end = time.monotonic() + seconds
        while time.monotonic() < end and (node or peer.heard.total() < GRAPHS):
            peer.hear(100)
        told = ", ".join(f"{code} {count}" for code, count in sorted(peer.heard.items()))
        return f"{GRAPHS} graphs sent; heard {told or 'nothing'}"


@contextmanager
def _hostile(place: Place, key: str, *, node: str = "") -> Iterator[Hostile]:
    peer = Hostile(place, key, node=node)
    try:
        yield peer
    finally:
        peer.close()


def attacks(place: Place, seconds: float) -> dict[str, Callable[[], str]]:
    """By name: does it for about so long, and says how it went."""
    query = large_graph("q")
    graph = graph_to_msgpack(query.graph)
    [spec] = cut(query.graph, {"a": ["s"]}).fragments
    kept = fragment_to(spec)
    assert 3.5 * MIB < len(graph) < len(kept) <= SPEC_BYTES_MAX, (len(graph), len(kept))
    at = (("a", ("s",)), ("b", ("o",)))

    def define(number: int) -> Message:
        return DefineRemote(request=number, name=f"d{number}", node="b", at=at)

    return {
        "nothing": lambda: time.sleep(seconds) or "",
        f"A1: a message of {PARTS:,} parts of 1 MiB, a key without rights": lambda: parts(
            place, bytes(MIB), PARTS, seconds
        ),
        f"A1: a message of {TINY_PARTS:,} parts of one byte, a key without rights": lambda: parts(
            place, b"x", TINY_PARTS, seconds
        ),
        f"A3: {GRAPHS} DefineRemote of 4 MiB, a key without rights": lambda: graphs(
            place, "nobody", define, lambda number: graph, seconds
        ),
        f"A3: {GRAPHS} DefineRemote of 4 MiB, a key that may deploy": lambda: graphs(
            place, "deployer", define, lambda number: graph, 6 * seconds
        ),
        f"A3: {GRAPHS} KeepRemote of 4 MiB, a node of another participant": lambda: graphs(
            place,
            "e",
            lambda number: KeepRemote(request=number, name=f"k{number}"),
            lambda number: kept,
            seconds,
        ),
        f"A3: {GRAPHS} Deploy of 4 MiB that run, a key that may deploy": lambda: graphs(
            place,
            "deployer",
            lambda number: Deploy(request=number, at=(("a", ("s",)),)),
            lambda number: graph_to_msgpack(large_graph(f"w{number}").graph),
            6 * seconds,
        ),
    }


# --- measuring --------------------------------------------------------------------------------------


def one(what: str, seconds: float) -> dict[str, Any]:
    """One attack on a new node."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        place = Place(Path(folder))
        stack.callback(place.close)
        for node in ("a", "b"):
            place.start(node)
        attack = attacks(place, seconds)[what]
        honest = Honest(place)
        stack.callback(honest.stop)
        time.sleep(3)
        honest.forget()
        before, logs = place.memory_mb(), {node: len(place.log(node)) for node in ("a", "b")}
        told = attack()
        time.sleep(1)
        grown = place.memory_mb("VmHWM") - before
        honest.stop()
        lines = [line for node, begin in logs.items() for line in place.log(node)[begin:].splitlines()]
        down = sum("peer down" in line and "peer=e" not in line for line in lines)
        longest = {name: max(waits, default=float("nan")) for name, waits in honest.waits.items()}
        counts = {name: len(waits) for name, waits in honest.waits.items()}
        return {
            "attack": what,
            "told": told,
            "grown_mb": grown,
            "longest_s": longest,
            "counts": counts,
            "peers_down": down,
            "failures": honest.failures,
        }


def measure(only: str, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        names = [name for name in attacks(Place(Path(folder)), seconds) if only in name]
    found = machine.describe()
    found["attacks"] = [one(name, seconds) for name in names]
    return found


def table(found: dict[str, Any]) -> str:
    lines = [report.machine_line(found), ""]
    lines += [
        "| attack | memory, MB more | rows, longest wait (s) | status (s) | undeploy (s) | peers down |"
    ]
    lines += ["|---|---|---|---|---|---|"]
    for each in found["attacks"]:
        waits = [f"{each['longest_s'][what]:.3f}" for what in ("rows", "status", "undeploy")]
        cells = [each["attack"], f"{each['grown_mb']:.0f}", *waits, str(each["peers_down"])]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [""]
    lines += [f"- {each['attack']}: {each['told']}; honest: {each['counts']}" for each in found["attacks"]]
    lines += [f"- failed: {text}" for each in found["attacks"] for text in each["failures"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="attacks whose name has this in it; saves nothing")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    found = measure(options.only, options.seconds)
    text = table(found)
    sys.stdout.write(text if options.only else report.save("hostile_peers", found, text, options.out))


if __name__ == "__main__":
    main()
