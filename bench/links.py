"""Question: what does a link that loses nothing cost, beside raw ZeroMQ and Arrow Flight?

    python -m bench.links [--rounds 15] [--full] [--only SUBSTRING]

Data: batches of an int64 and a float64 column, 64 KiB and 1 MiB, over TCP on this machine, sender and
receiver in processes of their own. The ways take turns; sums and counts are compared before a run counts.

``medusa``: a node's transport and the minds of both ends, with credit, acknowledgements and retention (a
row is durable once it was summed, as with ``store="memory"``). Each batch is encoded, cut to trains of 512
KiB, decoded with every check that a stranger's rows get, and one column is summed. ``bytes``: frames made
before, of the whole size, not decoded. ``pyzmq``: PUSH and PULL with their default marks, zero copy both
ways, of the same bytes; ``Arrow``: encoded, read without checks, summed. ``flight``: plain DoPut and DoGet,
summed. ``node``: a client publishes into a node that filters and writes checkpoints, until all is durable
(``store="disk"``).

``bench.hops``, in the same run: what a small train takes through one node and three. Not shown: a network.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from statistics import median
from typing import Any

import zmq

from bench import hops, machine, report

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).resolve().parent.parent
SIZES = (64 << 10, 1 << 20)
DEADLINE_S = 120.0
ROUNDS = 5
BYTES, FULL_BYTES = 256 << 20, 1 << 30

WAYS: dict[str, dict[str, Any]] = {
    "medusa": {"way": "medusa", "arrow": True},
    "medusa, bytes": {"way": "medusa", "arrow": False},
    "pyzmq": {"way": "pyzmq", "arrow": False},
    "pyzmq, Arrow": {"way": "pyzmq", "arrow": True},
    "flight, DoPut": {"way": "flight_put", "arrow": True},
    "flight, DoGet": {"way": "flight_get", "arrow": True},
    "medusa, CURVE": {"way": "medusa", "arrow": True, "curve": True},
    "medusa, bytes, CURVE": {"way": "medusa", "arrow": False, "curve": True},
    "pyzmq, CURVE": {"way": "pyzmq", "arrow": False, "curve": True},
    "pyzmq, Arrow, CURVE": {"way": "pyzmq", "arrow": True, "curve": True},
    "node, store=disk": {"way": "node"},
}
BESIDE = {
    "medusa": ("pyzmq", "pyzmq, Arrow", "flight, DoPut", "flight, DoGet"),
    "medusa, bytes": ("pyzmq",),
    "medusa, CURVE": ("pyzmq, CURVE", "pyzmq, Arrow, CURVE"),
    "medusa, bytes, CURVE": ("pyzmq, CURVE",),
}
GOAL = "Goal at 1 MiB: at least 0.8 of pyzmq, ahead of Flight."


class End:
    """A process that is one end of a link."""

    def __init__(self, plan: dict[str, Any], end: str, address: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.link_ends"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._timer = threading.Timer(DEADLINE_S, self._process.kill)
        self._timer.start()
        self._tell({**plan, "end": end, "address": address})

    def _tell(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def said(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("an end of the link ended without a word")
        return json.loads(line)

    def over(self) -> None:
        """The other end has said what it saw."""
        with contextlib.suppress(BrokenPipeError):
            self._tell("over")

    def close(self) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.communicate()


def one_run(way: str, size: int, total: int) -> dict[str, Any]:
    """Bytes per second, processor seconds and memory of both ends; checked."""
    plan = {"size": size, "bytes": total, "listen": "tcp://127.0.0.1:*", **WAYS[way]}
    if plan["way"] == "node":
        return hops.into_a_node(size, total)
    if plan.get("curve"):
        plan["keys"] = {
            end: [half.decode() for half in zmq.curve_keypair()] for end in ("sender", "receiver")
        }
    first, second = ("send", "receive") if plan["way"] == "flight_get" else ("receive", "send")
    ends = [End(plan, first)]
    try:
        ends.append(End(plan, second, ends[0].said()["address"]))
        said = {second: ends[1].said()}
        ends[0].over()
        said[first] = ends[0].said()
    finally:
        for end in ends:
            end.close()
    check(plan, said["receive"])
    return {
        "speed": said["receive"]["speed"],
        "cpu": {name: figures["cpu"] for name, figures in said.items()},
        "held": {name: figures["held"] for name, figures in said.items()},
        "copied": said["receive"]["copied"] / said["receive"]["frames"],
    }


def check(plan: dict[str, Any], figures: dict[str, Any]) -> None:
    """What came is what was sent."""
    from bench.link_ends import batches

    rotated = batches(plan["size"])
    count = plan["bytes"] // plan["size"]
    sums = [int(batch.column(0).to_numpy().sum()) for batch in rotated]
    expected = sum(sums) * (count // len(sums)) + sum(sums[: count % len(sums)]) if plan["arrow"] else 0
    assert figures["rows"] == count * (plan["size"] // 16), "rows are missing"
    assert figures["number"] == expected, "the sums differ"


def measure(rounds: int, total: int, only: str = "") -> dict[str, Any]:
    ways = [way for way in WAYS if only in way]
    found: dict[str, Any] = {**machine.describe(), "rounds": rounds, "bytes": total, "sizes": {}}
    runs: dict[str, dict[str, list[Any]]] = {str(size): {way: [] for way in ways} for size in SIZES}
    for turn in range(rounds):
        for size in SIZES:
            for way in ways if turn % 2 else reversed(ways):
                runs[str(size)][way].append(one_run(way, size, total))
    found["sizes"] = runs
    if not only:
        found["hops"] = hops.measure()
    found["load_after"] = os.getloadavg()[0]
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Medians, and how far apart the runs were."""
    speeds = [run["speed"] for run in runs]
    middle = median(speeds)
    return {
        "speed": middle,
        "spread": (max(speeds) - min(speeds)) / middle,
        "cpu": median(sum(run["cpu"].values()) for run in runs),
        **{f"held {end}": median(run["held"][end] for run in runs) for end in ("send", "receive")},
    }


def ratio(runs: dict[str, list[Any]], mine: str, other: str, what: str = "speed") -> float:
    """The median of the ratios of neighbours in time: a machine that others use is as slow for both."""
    if what == "cpu":
        pairs = zip(runs[mine], runs[other], strict=True)
        return median(sum(b["cpu"].values()) / sum(a["cpu"].values()) for a, b in pairs)
    return median(a["speed"] / b["speed"] for a, b in zip(runs[mine], runs[other], strict=True))


def table(found: dict[str, Any]) -> str:
    lines = [
        report.machine_line(found),
        f"Medians of {found['rounds']} rounds of {found['bytes'] >> 20} MiB. "
        f"Load after: {found['load_after']:.1f}.",
        "",
    ]
    for size, runs in found["sizes"].items():
        lines += [
            f"Batches of {int(size) >> 10:,} KiB:",
            "",
            "| way | MB/s | spread | CPU ms / MB, both ends | MB held, sender | receiver |",
            "|---|---|---|---|---|---|",
        ]
        for way, each in runs.items():
            it = summary(each)
            cpu = it["cpu"] * 1e3 / (found["bytes"] / 1e6)
            lines.append(
                f"| {way} | {it['speed'] / 1e6:,.0f} | {it['spread']:.0%} | {cpu:.2f} "
                f"| {it['held send'] / 1e6:.0f} | {it['held receive'] / 1e6:.0f} |"
            )
        lines += ["", "| ratio of neighbours | MB/s | bytes per CPU second |", "|---|---|---|"]
        for mine, others in BESIDE.items():
            for other in others:
                if mine in runs and other in runs:
                    by_cpu = ratio(runs, mine, other, "cpu")
                    lines.append(f"| {mine} / {other} | {ratio(runs, mine, other):.2f} | {by_cpu:.2f} |")
        lines.append("")
    lines.append(GOAL)
    if "hops" in found:
        lines += ["", *hops.lines(found["hops"])]
    return "\n".join(lines) + "\n"


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("links", found, table(found), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--full", action="store_true", help="1 GiB a run instead of 256 MiB")
    parser.add_argument("--only", default="", help="ways whose name has this in it; saves nothing")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    found = measure(options.rounds, FULL_BYTES if options.full else BYTES, options.only)
    sys.stdout.write(table(found) if options.only else write(found, options.out))


if __name__ == "__main__":
    main()
