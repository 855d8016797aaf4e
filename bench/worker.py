"""One engine, one workload, one process: loads the events, then runs when told to.

Reads commands from stdin, answers each with a JSON line: ``run`` times one run, ``answer FILE``
writes the answer of the last one as an Arrow file, ``quit`` ends.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TICK_HZ = os.sysconf("SC_CLK_TCK")
MODULES = {
    "medusa": "bench.peers.medusa_",
    "medusa-push": "bench.peers.medusa_push",
    "polars": "bench.peers.polars_",
    "polars-streaming": "bench.peers.polars_streaming",
    "duckdb": "bench.peers.duckdb_",
    "datafusion": "bench.peers.datafusion_",
    "streamz": "bench.peers.streamz_",
    "bytewax": "bench.peers.bytewax_",
    "ubik-sql": "bench.peers.ubik_",
    "laminardb": "bench.peers.laminardb_",
    "pyclink": "bench.peers.pyclink_",
    "pathway": "bench.peers.pathway_",
    "csp": "bench.peers.csp_",
    "flink": "bench.peers.flink_",
    "spark": "bench.peers.spark_",
}


def memory(field: str, process: int | str = "self") -> int:
    """Bytes: ``VmRSS`` now, ``VmHWM`` the highest since ``forget_peak``."""
    path = Path(f"/proc/{process}/status")
    for line in path.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{path} has no {field}")


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


@dataclass(frozen=True)
class _Used:
    """CPU seconds of a process, and of its ended children that it has taken over."""

    parent: int
    own: float
    taken_over: float

    @property
    def all(self) -> float:
        return self.own + self.taken_over


class Spent:
    """CPU seconds of processes and of their children, also of those that have ended. Parents take over what
    they have used, but for Spark's daemon: that of its idle workers was gone when it ended them."""

    def __init__(self) -> None:
        self._seen: dict[int, _Used] = {}
        self._kept = 0.0

    def look(self, processes: Iterable[int]) -> float:
        """So far, of all that were ever looked at here."""
        found = {process: used for process in processes if (used := _used(process)) is not None}
        ended: dict[int, float] = defaultdict(float)
        for process, before in self._seen.items():
            if process not in found:
                ended[before.parent] += before.all
        for parent, lost in ended.items():
            was, now = self._seen.get(parent), found.get(parent)
            taken_over = now.taken_over - was.taken_over if was and now else 0.0
            self._kept += max(lost - taken_over, 0.0)
        self._seen = found
        return self._kept + sum(each.all for each in found.values())


def _used(process: int) -> _Used | None:
    """None: it isn't there."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        user, system, *children = (int(each) / TICK_HZ for each in fields[11:15])
        return _Used(int(fields[1]), user + system, sum(children))
    return None


_STARTED = Spent()


def processor_seconds() -> float:
    """Of this process and what it has started: the engines on the JVM run beside Python."""
    return time.process_time() + _STARTED.look(descendants(os.getpid()))


def descendants(process: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in path.read_text().split()]
    return found + [below for child in found for below in descendants(child)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=MODULES)
    parser.add_argument("workload")
    parser.add_argument("data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    for name in ("POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS", "TOKIO_WORKER_THREADS"):
        os.environ[name] = str(options.threads)

    from bench import data

    engine = importlib.import_module(MODULES[options.engine]).Engine(data.load(options.data), options.threads)
    held = memory("VmRSS")  # the input, the interpreter, the engine's library; no run's leavings
    say({"ready": True, "version": engine.version, "supported": options.workload in engine.supports})
    result = None
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "run":
            result = None
            forget_peak()
            cpu, wall = processor_seconds(), time.perf_counter()
            result = engine.run(options.workload)
            cpu, wall = processor_seconds() - cpu, time.perf_counter() - wall
            say({"cpu": cpu, "wall": wall, "input_bytes": held, "peak_bytes": memory("VmHWM")})
        elif command == "answer":
            data.save(engine.answer(options.workload, result), Path(argument))
            say({"written": argument})
        elif command == "quit":
            break


def say(message: dict[str, object]) -> None:
    print(json.dumps(message), file=OUT, flush=True)


OUT = sys.stdout

if __name__ == "__main__":
    # What an engine prints goes to the errors, so that answers stand alone on the pipe.
    OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main()
