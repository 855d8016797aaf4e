"""Question: how many events per second of one core does each engine take on W1 to W5?

    python -m bench.engines [--quick] [--peers polars,duckdb] [--threads 2] [--workloads W1,W5]

Data: ``bench.data.events``, 10,000,000 rows (1,000,000 with ``--quick``), the same Arrow table for
all. Each engine has its own process per workload; runs alternate between the engines, so that a
change of the machine's speed meets all of them; first every answer is compared with numpy's.
CPU time is that of the whole process. Memory is the highest resident size during a run minus the
resident size before the first one, so the input is not in it, the answer is.

What it does not show: the cost of reading files or sockets; how batch engines would do if the
events came one by one (they would have to run again); more than one machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import data, machine, report
from bench.peers import install
from bench.worker import MODULES
from bench.workloads import WORKLOADS, Workload, difference, reference

BATCH_PEERS = ("polars", "polars-streaming", "duckdb", "datafusion")
STREAMING_PEERS = tuple(install.NEEDS)
LIMIT_S = 120.0  # for one answer of a worker


class Contestant:
    """A worker process; every method blocks until it has answered.

    Args:
        checkout: the folder of another version of Medusa, with a ``.venv`` of its own, that runs the
            worker; None: this one.
    """

    def __init__(
        self,
        engine: str,
        workload: str,
        path: Path,
        threads: int,
        limit_s: float = LIMIT_S,
        checkout: Path | None = None,
    ) -> None:
        self.engine = engine
        self.limit_s = limit_s
        self.runs: list[dict[str, Any]] = []
        self.trouble = ""
        self.version = "?"
        python = install.python(engine) if checkout is None else checkout / ".venv/bin/python"
        if python is None:
            self.trouble = f"not installed: python -m bench.peers.install {engine}"
            return
        command = [
            str(python),
            "-m",
            "bench.worker",
            engine,
            workload,
            str(path),
            "--threads",
            str(threads),
        ]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in close()
        self.process = subprocess.Popen(
            command,
            cwd=checkout,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            start_new_session=True,  # so that what it starts ends with it
        )
        hello = self.hear()
        self.version = hello.get("version", "?")
        if not self.trouble and not hello["supported"]:
            self.trouble = "can't express it"

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], self.limit_s)
        if not ready:
            self.trouble = f"no answer within {self.limit_s:.0f} s"
            self.kill()
            return {}
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            said = [text for text in self.errors.read().splitlines() if text.strip()]
            self.trouble = (said or ["ended without a word"])[-1].strip()[:200]
            return {}
        return dict(json.loads(line))

    def ask(self, command: str) -> dict[str, Any]:
        if self.trouble:
            return {}
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.hear()

    def run(self) -> None:
        if figures := self.ask("run"):
            self.runs.append(figures)

    def check(self, workload: Workload, wanted: Any, folder: Path) -> None:
        """Run once, unrecorded, and compare; an engine that is wrong takes no part in the figures."""
        path = folder / f"{self.engine}.arrow"
        if self.ask("run") and self.ask(f"answer {path}"):
            got = data.load(path)
            self.trouble = difference(workload.name, got, wanted)
            self.trouble = self.trouble and f"inexact: {self.trouble}"
            if self.trouble and len(got) != len(wanted):
                self.trouble = f"inexact: {len(got) / len(wanted):.1%} of the rows"
            path.unlink()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if hasattr(self, "process"):
            self.kill()
            for stream in (self.process.stdin, self.process.stdout, self.errors):
                with contextlib.suppress(BrokenPipeError):
                    assert stream is not None
                    stream.close()


def contest(
    workload: Workload, engines: list[str], rows: int, rounds: int, threads: int, limit_s: float = LIMIT_S
) -> dict[str, Any]:
    """All engines on one workload: figures per engine."""
    with tempfile.TemporaryDirectory(prefix="medusa-bench-") as name:
        folder = Path(name)
        path = folder / "events.arrow"
        table = workload.table(rows)
        rows = len(table)
        data.save(table, path)
        wanted = reference(workload.name, table)
        del table
        contestants: list[Contestant] = []
        try:
            for engine in engines:
                contestants.append(Contestant(engine, workload.name, path, threads, limit_s))
                contestants[-1].check(workload, wanted, folder)
                print(f"  {engine}: {contestants[-1].trouble or 'exact'}", file=sys.stderr, flush=True)
            for number in range(rounds):
                turn = number % len(contestants)
                for contestant in contestants[turn:] + contestants[:turn]:
                    contestant.run()
            return {contestant.engine: summary(contestant, rows) for contestant in contestants}
        finally:
            for contestant in contestants:
                contestant.close()


def summary(contestant: Contestant, rows: int) -> dict[str, Any]:
    if contestant.trouble or not contestant.runs:
        return {"version": contestant.version, "trouble": contestant.trouble or "gave no figure"}
    cpu = [run["cpu"] for run in contestant.runs]
    wall = [run["wall"] for run in contestant.runs]
    return {
        "version": contestant.version,
        "exact": True,
        "events_per_cpu_s": rows / statistics.median(cpu),
        "events_per_s": rows / statistics.median(wall),
        "cpu_s": cpu,
        "wall_s": wall,
        "peak_beyond_input_bytes": max(
            0, *(run["peak_bytes"] - run["input_bytes"] for run in contestant.runs)
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1,000,000 rows")
    parser.add_argument("--rows", type=int, help="another number of rows")
    parser.add_argument("--rounds", type=int, default=5, help="runs per engine (default 5)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workloads", default="W1,W2,W3,W4,W5")
    parser.add_argument("--peers", default=",".join(BATCH_PEERS), help=f"also: {', '.join(STREAMING_PEERS)}")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    engines = ["medusa", "medusa-push", *filter(None, options.peers.split(","))]
    if unknown := [engine for engine in engines if engine not in MODULES]:
        parser.error(f"unknown peer {', '.join(unknown)}; there are {', '.join(MODULES)}")
    rows = options.rows or (1_000_000 if options.quick else 10_000_000)
    found = measure(options.workloads.split(","), engines, rows, options.rounds, options.threads)
    print(write(found, options.out))


def measure(
    workloads: list[str], engines: list[str], rows: int, rounds: int, threads: int = 1
) -> dict[str, Any]:
    """All engines on all workloads, one workload after the other."""
    found = {"rows": rows, "threads": threads, "rounds": rounds, **machine.describe(), "workloads": {}}
    for name in workloads:
        print(f"{name}: {WORKLOADS[name].title}, {rows:,} events", file=sys.stderr, flush=True)
        found["workloads"][name] = contest(WORKLOADS[name], engines, rows, rounds, threads)
    return found


def write(found: dict[str, Any], folder: Path) -> str:
    """JSON, table and plot into ``folder``; the table."""
    rows, threads = found["rows"], found["threads"]
    stem = "engines" if rows == 10_000_000 else f"engines-{rows}"
    stem += f"-{threads}threads" if threads > 1 else ""
    text = report.save(stem, found, report.engines_table(found), folder)
    report.engines_plot(found, folder / f"{stem}.svg")
    return text


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    main()
