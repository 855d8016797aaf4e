"""Question: how long does a reader see nothing when a machine of a guarded query is lost or hangs?

    python -m bench.takeovers [--quick] [--kills 10] [--ways lost,hang,coordinator,two,moving,...]

Data and streams as in ``bench.moves``: 10^3 to 10^6 open groups, then 20,000 rows/s, and a reader of a
window of 10 ms in the same fragment. Publisher and reader are clients of two other nodes. Once the
secondaries follow, one of these happens; each time with processes of its own:

- *lost*: the process of the owner is killed with -9 and never started again.
- *hang*: it is stopped (SIGSTOP), and goes on (SIGCONT) once another node has taken over: it has to step
  down, and follow.
- *coordinator*: the node that was asked to deploy is killed, which has nothing else of the query.
- *two*: the owner and the first of two secondaries are killed at once.
- *moving*: the owner is killed while its fragment goes to a node that hasn't followed it.
- *splitting*: it is killed while the keyed window is split in two. From the moment at which that is decided
  nobody stands by (docs/standby.md), so where no row has come for a while it is started again: ``returned``.
- *checkpointing*: it is killed while it writes a checkpoint: what it had begun lies in its folder.

A kill of these three counts only if it came before the order was answered, or the checkpoint was whole. When
it came later the run is made again.

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
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import medusa as md
from bench import machine, report
from bench.moves import QUICK, RESULTS, SIZES, Stream, query, undisturbed
from medusa.runtime.engine_host.group_names import GroupName
from tests.system.nodes import ForkedNodes, until

KILLS = 10
OWNER, PUBLISHES, READS, DEPLOYS = "a", "c", "d", "k"
"""Nodes. ``DEPLOYS`` only where that is another one than ``PUBLISHES``. Secondaries are ``s`` and ``t``; who
deploys, these, the owner, and ``READS`` as the witness vote."""

FRAGMENT = "q/rows"
TARGET = "g"
"""To it the fragment goes while it is moved: no secondary, and no voter before."""

BEFORE_S = 0.05
AMID_S = 0.4
"""So long at most after an order shows at the owner that is killed; half of it where that was too late."""

RETURNS_S = 3.0
"""An owner whose fragment nobody has taken over by then is started again, where that is promised."""

ORDER = "30s"
TRIES = 10


T = TypeVar("T")


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
        found, _ = self.pause_of(harm, over=over)
        return found

    def pause_of(
        self,
        harm: Callable[[], T],
        *,
        over: Callable[[], Any] = lambda: True,
    ) -> tuple[dict[str, float], T]:
        """As ``pause``, and what ``harm`` gives."""
        usual, _ = undisturbed(self.stream, 2)
        began = time.perf_counter()
        gave = harm()
        self.stream.going_on()
        until(over, what="others have done what is theirs")
        pause_s = self.stream.longest(began - BEFORE_S, time.perf_counter()) - usual
        return {"pause_s": pause_s, "usual_s": usual}, gave

    def comes_within(self, seconds: float) -> bool:
        """Whether rows come."""
        seen, end = len(self.stream.came), time.perf_counter() + seconds
        while len(self.stream.came) <= seen + 20 and time.perf_counter() < end:
            time.sleep(BEFORE_S)
        return len(self.stream.came) > seen + 20


@contextlib.contextmanager
def flowing(
    keys: int, *, secondaries: Sequence[str] = ("s",), deploys: str = PUBLISHES, others: Sequence[str] = ()
) -> Iterator[Run]:
    """Nodes with the query at the owner, and rows that flow; in the end all is right.

    Args:
        others: nodes that have nothing of the query.
    """
    names = list(dict.fromkeys((OWNER, *secondaries, PUBLISHES, READS, deploys, *others)))
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


class Order:
    """What is ordered of nodes, one of which dies before it answers, maybe."""

    def __init__(self, give: Callable[[], Any]) -> None:
        self._give = give
        self._thread = threading.Thread(target=self._given)

    def _given(self) -> None:
        # Whether it was done is said or not; that all rows are right in the end is looked at either way.
        with contextlib.suppress(md.MedusaError):
            self._give()

    def begin(self) -> None:
        self._thread.start()

    @property
    def open(self) -> bool:
        """It isn't answered."""
        return self._thread.is_alive()

    def end(self) -> None:
        self._thread.join(120)
        assert not self.open, "what was ordered is never answered"


def lose_amid(
    keys: int,
    give: Callable[[md.Federation], Any],
    under_way: Callable[[Mapping[str, Any]], object],
    others: Sequence[str] = (),
    *,
    returns: bool = False,
) -> dict[str, float]:
    """The owner is killed for good while something is done that was ordered.

    Args:
        give: the order, to who coordinates.
        under_way: whether the owner's status has it.
        returns: it is started again where nobody takes over.
    """
    for number in range(TRIES):
        delay_s = random.random() * AMID_S / 2**number
        with (
            flowing(keys, others=others) as run,
            md.connect(run.nodes.addresses[OWNER], timeout="60s") as owner,
        ):
            order = Order(partial(give, run.orders))

            def harm(
                run: Run = run, order: Order = order, owner: md.Federation = owner, delay_s: float = delay_s
            ) -> tuple[bool, bool]:
                order.begin()
                until(lambda: not order.open or under_way(owner.status()), what="it begins", every_s=0.001)
                time.sleep(delay_s)
                amid = order.open
                run.nodes.kill(OWNER)
                back = returns and not run.comes_within(RETURNS_S)
                if back:
                    run.nodes.start(OWNER)
                return amid, back

            found, (amid, back) = run.pause_of(harm)
            order.end()
        if amid:
            return {**found, "returned": float(back)}
    raise AssertionError(f"what was ordered was done before the kill, {TRIES} times")


def lose_moving(keys: int) -> dict[str, float]:
    """The owner is killed while its fragment goes to another node."""
    return lose_amid(
        keys,
        lambda orders: orders.move(FRAGMENT, to=TARGET, timeout=ORDER),
        lambda status: status["moves"]["going"],
        [TARGET],
    )


def lose_splitting(keys: int) -> dict[str, float]:
    """The owner is killed while a box of its fragment is split."""
    return lose_amid(
        keys,
        lambda orders: orders.split("q/groups", 2, timeout=ORDER),
        lambda status: status["splits"],
        returns=True,
    )


def lose_checkpointing(keys: int) -> dict[str, float]:
    """The owner is killed while it writes a checkpoint."""
    for _ in range(TRIES):
        with flowing(keys) as run:

            def harm(run: Run = run) -> bool:
                until(lambda: drafts(run.nodes.data(OWNER)), what="a checkpoint begins", every_s=0)
                run.nodes.kill(OWNER)
                return bool(drafts(run.nodes.data(OWNER)))

            found, amid = run.pause_of(harm)
        if amid:
            return found
    raise AssertionError(f"the checkpoint was whole before the kill, {TRIES} times")


def drafts(data: Path) -> list[str]:
    """Checkpoints in a node's folder that aren't whole."""
    names = (name.removesuffix(".tmp") for name in os.listdir(data) if name.endswith(".tmp"))
    return [name for name in names if GroupName.of(name).kind == "checkpoint"]


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
    "moving": ("the owner is lost in a move", lose_moving),
    "splitting": ("the owner is lost in a split", lose_splitting),
    "checkpointing": ("the owner is lost in a checkpoint", lose_checkpointing),
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
            if back := sum(each.get("returned", 0) for each in made):
                what += f", and came back: {back:.0f} of {len(made)}"
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
