"""Question: how long does a reader see nothing when a machine of a guarded query is lost or hangs?

    python -m bench.takeovers [--quick] [--kills 10] [--ways lost,hang,coordinator,two]

Data and streams as in ``bench.moves``: 10^3 to 10^6 open groups, then 20,000 rows/s, and a reader of a
window of 10 ms in the same fragment. Publisher and reader are clients of two other nodes. Once the
secondaries follow, one of these happens; each time with processes of its own:

- *lost*: the process of the owner is killed with -9 and never started again.
- *hang*: it is stopped (SIGSTOP), and goes on (SIGCONT) once another node has taken over: it has to step
  down, and follow.
- *coordinator*: the node that was asked to deploy is killed, which has nothing else of the query.
- *two*: the owner and the first of two secondaries are killed at once.

*pause*: the longest gap between two arrivals from then until rows come again (*coordinator*: until another
node has the role), less the usual gap. The peer of *lost*: the same query without standby, whose owner is
started again at once after its kill, by fork.
Exact first: a run counts only if all rows of both outputs come once and are right, at the end.
Not shown: machines of their own, where the loss of one leaves its processors to nobody else.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import medusa as md
from bench import machine, report
from bench.moves import QUICK, RESULTS, SIZES, Stream, query, undisturbed
from tests.system.nodes import ForkedNodes, until

KILLS = 10
OWNER, PUBLISHES, READS, DEPLOYS = "a", "c", "d", "k"
"""Nodes. ``DEPLOYS`` only where that is another one than ``PUBLISHES``. Secondaries are ``s`` and ``t``; who
deploys, these, the owner, and ``READS`` as the witness vote."""

FRAGMENT = "q/rows"
BEFORE_S = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """Rows flow.

    Attributes:
        orders: a client of the node that coordinates.
        other: one of the witness.
    """

    nodes: ForkedNodes
    stream: Stream
    orders: md.Federation
    other: md.Federation

    def follow(self, secondaries: Sequence[str]) -> bool:
        """Whether all of them may take the fragment over, as the coordinator knows."""
        replicas = self.orders.status()["queries"]["q"]["configuration"]["fragments"][FRAGMENT]
        states = {name: each["state"] for name, each in replicas["secondaries"].items()}
        return all(states.get(name) == "following" for name in secondaries)

    def until_follow(self, secondaries: Sequence[str]) -> None:
        until(lambda: self.follow(secondaries), what=f"{', '.join(secondaries)} follow", deadline_s=120)

    def pause(self, harm: Callable[[], None], *, over: Callable[[], Any] = lambda: True) -> dict[str, float]:
        """What a reader sees of this.

        Args:
            over: whether what it has others do is done.
        """
        usual, _ = undisturbed(self.stream, 2)
        began = time.perf_counter()
        harm()
        self.stream.going_on()
        until(over, what="others have done what is theirs")
        pause_s = self.stream.longest(began - BEFORE_S, time.perf_counter()) - usual
        return {"pause_s": pause_s, "usual_s": usual}


@contextlib.contextmanager
def flowing(keys: int, *, secondaries: Sequence[str] = ("s",), deploys: str = PUBLISHES) -> Iterator[Run]:
    """Nodes with the query at the owner, and rows that flow; in the end all is right."""
    names = list(dict.fromkeys((OWNER, *secondaries, PUBLISHES, READS, deploys)))
    with (
        tempfile.TemporaryDirectory(prefix="md") as folder,
        contextlib.closing(ForkedNodes(Path(folder), names)) as nodes,
    ):
        nodes.start()
        with (
            md.connect(nodes.addresses[PUBLISHES], timeout="60s") as fed,
            md.connect(nodes.addresses[READS], timeout="60s") as other,
            md.connect(nodes.addresses[deploys], timeout="60s") as orders,
        ):
            until(lambda: set(orders.status()["peers"].values()) == {"up"})
            at = {OWNER: [box.id for box in query().graph.boxes]}
            if secondaries:
                orders.deploy(query(), at=at, standby={OWNER: list(secondaries)}, witness=[READS])
            else:
                orders.deploy(query(), at=at)
            stream = Stream(fed, other, keys)
            stream.begin()
            stream.going_on()
            run = Run(nodes, stream, orders, other)
            if secondaries:
                run.until_follow(secondaries)
            yield run
            stream.end()


def lose(keys: int) -> dict[str, float]:
    """The owner is killed and never comes back."""
    with flowing(keys) as run:
        return run.pause(lambda: run.nodes.kill(OWNER))


def hang(keys: int) -> dict[str, float]:
    """The owner stands still, and goes on when another node has the fragment; it follows in the end."""
    with flowing(keys) as run:
        owner = run.nodes.processes[OWNER]
        found = run.pause(lambda: owner.send_signal(signal.SIGSTOP))
        woke = time.perf_counter()
        owner.send_signal(signal.SIGCONT)
        run.until_follow([OWNER])
        run.stream.going_on()
        woken_s = run.stream.longest(woke, time.perf_counter()) - found["usual_s"]
        return {**found, "woken_s": woken_s}


def lose_coordinator(keys: int) -> dict[str, float]:
    """Who coordinates is killed and never comes back; no row has to wait for it."""
    with flowing(keys, deploys=DEPLOYS) as run:

        def succeeded() -> bool:
            return [each["node"] for each in run.other.queries()] not in ([], [DEPLOYS])

        return run.pause(lambda: run.nodes.kill(DEPLOYS), over=succeeded)


def lose_two(keys: int) -> dict[str, float]:
    """The owner and who stands by first are killed at once."""
    with flowing(keys, secondaries=("s", "t")) as run:

        def harm() -> None:
            for name in (OWNER, "s"):
                run.nodes.processes[name].kill()
            for name in (OWNER, "s"):  # They end beside each other: that takes a while with much memory.
                run.nodes.kill(name)

        return run.pause(harm)


def restart(keys: int) -> dict[str, float]:
    """The owner is killed and started again at once; nobody stands by."""
    with flowing(keys, secondaries=()) as run:

        def again() -> None:
            run.nodes.kill(OWNER)
            run.nodes.start(OWNER)

        return run.pause(again)


WAYS: Mapping[str, tuple[str, Callable[[int], dict[str, float]]]] = {
    "lost": ("the owner is lost", lose),
    "hang": ("the owner hangs", hang),
    "coordinator": ("the coordinator is lost", lose_coordinator),
    "two": ("owner and first secondary are lost", lose_two),
}
"""What a table calls it, and what happens."""

PEERS: Mapping[str, tuple[str, Callable[[int], dict[str, float]]]] = {
    "restarted": ("without standby, started again", restart)
}


def measure(sizes: tuple[int, ...], kills: int, ways: Sequence[str] = tuple(WAYS)) -> dict[str, Any]:
    """Figures by number of groups and way, the ways in turns; *restarted*, beside *lost*, half as often."""
    found: dict[str, Any] = {"kills": kills, **machine.describe(), "sizes": {}}
    for keys in sizes:
        at: dict[str, list[dict[str, float]]] = {}
        for number in range(kills):
            peers = ["restarted"] if "lost" in ways and number % 2 == 0 else []
            for way in (*ways, *peers):
                made = (WAYS | PEERS)[way][1](keys)
                at.setdefault(way, []).append(made)
                told = f"{keys:,} groups, {way}, {number + 1} of {kills}: {made['pause_s'] * 1e3:.0f} ms"
                print(told, file=sys.stderr)
        found["sizes"][str(keys)] = at
    found["load"] = os.getloadavg()[2]
    return found


def table(found: dict[str, Any]) -> str:
    """Markdown."""
    lines = [
        f"{report.machine_line(found)} {found['kills']} of each, half as many restarts. "
        f"Load while it ran: {found['load']:.1f}.",
        "",
        "| groups | what happens | usual gap | pause p50 | max |",
        f"|{'---|' * 5}",
    ]

    def row(size: str, what: str, made: list[dict[str, float]], of: str) -> str:
        usual, pauses = (np.array([each[key] for each in made]) * 1e3 for key in ("usual_s", of))
        shown = f"{np.median(usual):.0f} ms | {np.median(pauses):,.0f} ms | {pauses.max():,.0f} ms"
        return f"| {int(size):,} | {what} | {shown} |"

    for size, at in found["sizes"].items():
        for way, made in at.items():
            what = (WAYS | PEERS)[way][0]
            lines.append(row(size, what, made, "pause_s"))
            if way == "hang":
                lines.append(row(size, f"{what}, then goes on", made, "woken_s"))
    return "\n".join(lines) + "\n"


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("takeovers", found, table(found), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to 10,000 groups")
    parser.add_argument("--sizes", default="", help="instead: numbers of groups, by commas")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--ways", default=",".join(WAYS), help="of %(default)s, by commas")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    ways = tuple(way for way in options.ways.split(",") if way)
    if unknown := [way for way in ways if way not in WAYS]:
        parser.error(f"--ways: {', '.join(unknown)} is none of {', '.join(WAYS)}")
    sizes = tuple(int(size) for size in options.sizes.split(",") if size) or (
        QUICK if options.quick else SIZES
    )
    sys.stdout.write(write(measure(sizes, options.kills, ways), options.out))


if __name__ == "__main__":
    main()
