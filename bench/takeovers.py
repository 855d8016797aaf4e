"""Question: how long does a reader see nothing when the machine that runs a fragment is lost for good?

    python -m bench.takeovers [--quick] [--kills 10]

Data and streams as in ``bench.moves``: 10^3 to 10^6 open groups, then 20,000 rows/s, and a reader of a window
of 10 ms in the same fragment. Publisher and reader are clients of two other nodes. Once a secondary follows,
the process of the owner is killed with -9 and never started again; each kill has processes of its own.
*pause*: the longest gap between two arrivals from the kill until rows come again, less the usual gap.
The peer: the same query without standby, whose owner is started again at once after its kill, by fork.
Exact first: a kill counts only if all rows of both outputs come once and are right, at the end.
Not shown: machines of their own, where the loss of one leaves its processors to nobody else.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import medusa as md
from bench import machine, report
from bench.moves import QUICK, RESULTS, SIZES, Stream, query, undisturbed
from tests.system.nodes import ForkedNodes, until

KILLS = 10
NODES = ["a", "s", "c", "d"]
"""Owner, secondary, the node that is asked to deploy, witness: four voters."""

FRAGMENT = "q/rows"
BEFORE_S = 0.05


def guarded(orders: md.Federation) -> bool:
    """Whether a secondary may take the fragment over, as the coordinator knows."""
    replicas = orders.status()["queries"]["q"]["configuration"]["fragments"][FRAGMENT]
    return replicas["secondaries"]["s"]["state"] == "following"


@contextlib.contextmanager
def flowing(keys: int, *, standby: bool) -> Iterator[tuple[ForkedNodes, Stream]]:
    """Nodes with the query at ``a``, and rows that flow; in the end all is right."""
    with (
        tempfile.TemporaryDirectory(prefix="md") as folder,
        contextlib.closing(ForkedNodes(Path(folder), NODES)) as nodes,
    ):
        nodes.start()
        with (
            md.connect(nodes.addresses["c"], timeout="60s") as fed,
            md.connect(nodes.addresses["d"], timeout="60s") as other,
        ):
            until(lambda: set(fed.status()["peers"].values()) == {"up"})
            at = {"a": [box.id for box in query().graph.boxes]}
            if standby:
                fed.deploy(query(), at=at, standby={"a": ["s"]}, witness=["d"])
            else:
                fed.deploy(query(), at=at)
            stream = Stream(fed, other, keys)
            stream.begin()
            stream.going_on()
            if standby:
                until(lambda: guarded(fed), what="a secondary follows", deadline_s=120)
            yield nodes, stream
            stream.end()


def lose(keys: int) -> dict[str, float]:
    """The owner is killed and never comes back."""
    with flowing(keys, standby=True) as (nodes, stream):
        usual, _ = undisturbed(stream, 2)
        killed = time.perf_counter()
        nodes.kill("a")
        stream.going_on()
        return {"pause_s": stream.longest(killed - BEFORE_S, time.perf_counter()) - usual, "usual_s": usual}


def restart(keys: int) -> dict[str, float]:
    """The owner is killed and started again at once; nobody stands by."""
    with flowing(keys, standby=False) as (nodes, stream):
        usual, _ = undisturbed(stream, 2)
        killed = time.perf_counter()
        nodes.kill("a")
        nodes.start("a")
        stream.going_on()
        return {"pause_s": stream.longest(killed - BEFORE_S, time.perf_counter()) - usual, "usual_s": usual}


def measure(sizes: tuple[int, ...], kills: int) -> dict[str, Any]:
    """Figures by number of groups, the two ways in turns."""
    found: dict[str, Any] = {"kills": kills, **machine.describe(), "sizes": {}}
    for keys in sizes:
        lost, back = [], []
        for number in range(kills):
            lost.append(lose(keys))
            if number % 2 == 0:
                back.append(restart(keys))
            print(
                f"{keys:,} groups, kill {number + 1} of {kills}: {lost[-1]['pause_s'] * 1e3:.0f} ms",
                file=sys.stderr,
            )
        found["sizes"][str(keys)] = {"lost": lost, "restarted": back}
    found["load"] = os.getloadavg()[2]
    return found


def table(found: dict[str, Any]) -> str:
    """Markdown."""
    lines = [
        f"{report.machine_line(found)} {found['kills']} kills each, half as many restarts. "
        f"Load while it ran: {found['load']:.1f}.",
        "",
        "| groups | usual gap | taken over: pause p50 | max | started again: pause p50 | max |",
        f"|{'---|' * 6}",
    ]
    for size, at in found["sizes"].items():
        lost, back = ([each["pause_s"] for each in at[way]] for way in ("lost", "restarted"))
        usual = np.median([each["usual_s"] for each in at["lost"]])
        cells = [f"{int(size):,}", f"{usual * 1e3:.0f} ms"]
        for pauses in (lost, back):
            cells += [f"{np.median(pauses) * 1e3:,.0f} ms", f"{max(pauses) * 1e3:,.0f} ms"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("takeovers", found, table(found), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to 10,000 groups")
    parser.add_argument("--sizes", default="", help="instead: numbers of groups, by commas")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    sizes = tuple(int(size) for size in options.sizes.split(",") if size) or (
        QUICK if options.quick else SIZES
    )
    sys.stdout.write(write(measure(sizes, options.kills), options.out))


if __name__ == "__main__":
    main()
