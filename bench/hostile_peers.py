"""Question: what do other clients of a node notice while a peer sends what no peer of ours would?

    python -m bench.hostile_peers [--only parts deploy] [--seconds 20]

Two nodes of one participant with keys, in processes of their own. An honest client of one of them publishes
trains of 64 rows, reads what comes of them, asks for the status, deploys and undeploys small queries.
Meanwhile a hostile peer, with a key that is let in, sends messages of many parts, graphs of 4 MiB, or small
messages as fast as they go. Measured: resident memory of the node, the longest wait of the honest client,
nodes that took each other for silent, how long an undeployment took, and what the hostile peer heard.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import medusa as md
from bench import machine, report
from bench.hostile_attacks import KINDS, run
from bench.hostile_place import Place

RESULTS = Path(__file__).parent / "results"
LONG = ("define", "deploy")
"""Last six times as long."""

ROWS = 64
EVERY_S = 0.02


# --- the honest client ------------------------------------------------------------------------------


class Honest:
    """Publishes, reads, asks, deploys and undeploys, each in a thread, and notes how long it waited (s)."""

    def __init__(self, place: Place, name: str = "h") -> None:
        self.waits: dict[str, list[float]] = {"rows": [], "status": [], "undeploy": []}
        self.failures: list[str] = []
        self._read_all, self._over = threading.Event(), threading.Event()
        self._sent: dict[int, float] = {}
        self._name = name
        self._feds = [place.connect() for _ in range(3)]
        fed = self._feds[0]
        fed.deploy(small_query(name), at={"a": ["s"]})
        self._trains = fed.subscribe(f"{name}.o", from_="oldest")
        jobs = [self._publish, self._read, self._status, self._undeploy]
        self._threads = [threading.Thread(target=self._guarded, args=(job,), daemon=True) for job in jobs]
        self._reader = self._threads[1]
        for thread in self._threads:
            thread.start()

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            while not (self._read_all if job == self._read else self._over).is_set():
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
        train = self._trains.next("60s")
        assert train is not None
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
        """The reader ends first: what it waits for then is published."""
        self._read_all.set()
        self._reader.join(70)
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


# --- measuring --------------------------------------------------------------------------------------


def one(kind: str, seconds: float) -> dict[str, Any]:
    """One attack on a new node."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        place = Place(Path(folder))
        stack.callback(place.close)
        spawn = multiprocessing.get_context("spawn")
        pipe, far = spawn.Pipe()
        attacker = spawn.Process(target=run, args=(place, kind, far))
        attacker.start()
        far.close()  # So that its end is seen here.
        stack.callback(attacker.join)
        stack.callback(attacker.kill)
        assert pipe.recv() == "ready"
        for node in ("a", "b"):
            place.start(node)
        honest = Honest(place)
        stack.callback(honest.stop)
        time.sleep(3)
        honest.forget()
        before, logs = place.memory_mb(), {node: len(place.log(node)) for node in ("a", "b")}
        load_before = os.getloadavg()[0]
        pipe.send(6 * seconds if kind in LONG else seconds)
        told = pipe.recv()
        time.sleep(1)
        grown = place.memory_mb("VmHWM") - before
        honest.stop()
        lines = [line for node, begin in logs.items() for line in place.log(node)[begin:].splitlines()]
        down = sum("peer down" in line and "peer=e" not in line for line in lines)
        longest = {name: max(waits, default=float("nan")) for name, waits in honest.waits.items()}
        counts = {name: len(waits) for name, waits in honest.waits.items()}
        return {
            "attack": KINDS[kind],
            "told": told,
            "load_before": load_before,
            "grown_mb": grown,
            "longest_s": longest,
            "counts": counts,
            "peers_down": down,
            "failures": honest.failures,
        }


def measure(only: list[str], seconds: float) -> dict[str, Any]:
    told = []
    machine_before = machine.describe()
    for kind in only or KINDS:
        told.append(one(kind, seconds))
        sys.stderr.write(f"{told[-1]}\n")  # Each takes a minute or more.
    return machine_before | {"attacks": told}


def table(found: dict[str, Any]) -> str:
    lines = [report.machine_line(found), ""]
    lines += [
        "| attack | load before | memory, MB more | longest wait (s): rows | status | undeploy | peers down |"
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    for each in found["attacks"]:
        waits = [f"{each['longest_s'][what]:.3f}" for what in ("rows", "status", "undeploy")]
        before = f"{each['load_before']:.1f}"
        cells = [each["attack"], before, f"{each['grown_mb']:.0f}", *waits, str(each["peers_down"])]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [""]
    lines += [f"- {each['attack']}: {each['told']}; honest: {each['counts']}" for each in found["attacks"]]
    lines += [f"- failed: {text}" for each in found["attacks"] for text in each["failures"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], choices=KINDS, help="these alone; saves nothing")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    found = measure(options.only, options.seconds)
    text = table(found)
    sys.stdout.write(text if options.only else report.save("hostile_peers", found, text, options.out))


if __name__ == "__main__":
    main()
