"""``medusa demo scale``: a node splits a box whose load rises tenfold, and merges it when that has fallen.

One thread publishes, one reads, one looks at the nodes. Nobody orders anything: the node that coordinates the
query has ``[scale]`` in its configuration.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.crew import Crew, started
from medusa.apps.workloads.demos.plotted_run import run_plotted
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.apps.workloads.scaling import scale_query as of
from medusa.apps.workloads.scaling.scale_acts import PartsSample, ScaleAct, ScaleActs, parts_of
from medusa.apps.workloads.scaling.scale_load import TICK_S, ScaleLoad
from medusa.apps.workloads.scaling.scale_outcome import ScaleOutcome
from medusa.apps.workloads.scaling.scale_plot import draw
from medusa.apps.workloads.scaling.scale_query import RowCost
from medusa.apps.workloads.scaling.scale_screen import NodeNow, ScaleProgress, show_outcome
from medusa.errors import LinkError

if TYPE_CHECKING:
    import pyarrow as pa

    from medusa.runtime.client.federation import Federation
    from medusa.runtime.client.subscription import Subscription

__all__ = ["ScaleDemoOptions", "node_config", "run_demo"]

LOOK_EVERY_S = 0.2
PARTS_EVERY_S = 0.5
TIMEOUT_S = 60.0
"""For each thing that is waited for."""

AGAIN_S = 120.0
"""The load stays low so long at most until the box is one again."""

SCALE = """
[scale]
every = "500ms"
high = 0.5
low = 0.2
cooldown = "3s"
"""
"""Marks are lower than where nothing is said: while a box is split its node does what comes twice, for the
box and for its parts, and there has to be room for that. ``half_life`` is shorter since the load rises in
seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDemoOptions:
    """What the command was told; see its help."""

    seconds: float
    rate: int
    cost: int
    computes: bool
    plot: Path
    keep: bool

    @property
    def load(self) -> ScaleLoad:
        """What comes when."""
        return ScaleLoad(seconds=self.seconds, peak=self.rate)

    @property
    def row_cost(self) -> RowCost:
        """Of each car."""
        return RowCost(cpu_us=self.cost) if self.computes else RowCost(wait_us=self.cost)


def run_demo(options: ScaleDemoOptions, *, as_json: bool = False) -> bool:
    """Run the demonstration and show it on standard output.

    Returns:
        Whether all that must be exact is held.

    Raises:
        MedusaError: it could not be carried out. Whatever happens, no node is left running.
    """
    return run_plotted(
        partial(ran, options), show=show_outcome, draw=draw, plot=options.plot, as_json=as_json
    )


def node_config(name: str, addresses: Mapping[str, str], *, scale: str = SCALE) -> str:
    """The TOML of a node; JSON's quoting of text, and its lists, are TOML's too.

    Spare nodes stand in ``[peers]`` like the others, and in ``[scale]`` of the one that coordinates.

    Args:
        scale: that table; empty: nothing is split by itself.
    """
    peers = [f"{peer} = {json.dumps(address)}" for peer, address in addresses.items() if peer != name]
    lines = [
        f'name = "{name}"',
        f'listen = "{addresses[name]}"',
        f'data = "{name}"',
        f"functions = {json.dumps([of.__name__])}",
        '\n[limits]\ndeploy_timeout = "30s"',
        '\n[load]\nhalf_life = "1s"',
        "\n[peers]",
        *peers,
    ]
    spread = [each for each in addresses if each != of.GATE]
    rules = f"{scale}nodes = {json.dumps(spread)}\n" if scale and name == of.GATE else ""
    return "\n".join(lines) + "\n" + rules


def ran(options: ScaleDemoOptions, screen: DemoScreen) -> ScaleOutcome:
    """Nodes, the query, the whole run, the comparison."""
    names = (of.GATE, of.TOLL, *of.SPARES)

    def nodes_in(folder: Path, interruption: Interruption) -> LocalNodes:
        return LocalNodes(names, folder, interruption, config=node_config)

    with (
        started(nodes_in, screen, prefix="medusa-scale-", keep=options.keep) as (nodes, _, interruption),
        screen,
    ):
        run = ScaleRun(nodes, options.load, options.row_cost, screen=screen, interruption=interruption)
        run.run()
    return run.outcome()


@dataclass(slots=True)
class _Result:
    """What came of the query, and when each row of it did."""

    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)

    def take(self, batch: pa.RecordBatch, at_s: float) -> None:
        self.batches.append(batch)
        self.at_s += [at_s] * batch.num_rows


class ScaleRun:
    """One run over nodes that listen.

    Args:
        by_hand: nodes of the parts in which the box is split before the first row; empty: it is whole.
        until_one: the load stays low, once it has fallen, until the box is one again.
    """

    def __init__(
        self,
        nodes: LocalNodes,
        load: ScaleLoad,
        cost: RowCost,
        *,
        screen: DemoScreen,
        interruption: Interruption,
        by_hand: Sequence[str] = (),
        until_one: bool = True,
    ) -> None:
        self._nodes, self._load, self._cost = nodes, load, cost
        self._by_hand, self._waits_for_one = by_hand, until_one
        self._screen = screen
        self._progress = ScaleProgress(load.seconds)
        self._crew = Crew(screen, self._progress, interruption)
        self._acts = ScaleActs()
        self._parts: list[PartsSample] = []
        self._result: _Result | None = None
        self._ticks = 0
        self._start = 0.0
        self._seconds = 0.0

    def run(self) -> None:
        """Deploy, publish, look, wait until the box is one again, and for the end of the result.

        Raises:
            LinkError: a node refused, or something didn't come in time.
            KeyboardInterrupt: it was interrupted.
        """
        with self._crew.at_work() as stack:
            self._run(stack)

    def outcome(self) -> ScaleOutcome:
        """What was found."""
        import pyarrow as pa

        assert self._result is not None
        cars = self._load.traffic(0, self._ticks)
        return ScaleOutcome(
            load=self._load,
            cost=self._cost,
            rows=pa.Table.from_batches(self._result.batches, self._result.schema),
            at_s=self._result.at_s,
            expected=of.expected(cars),
            acts=self._acts.seen,
            said=self._acts.said,
            parts=self._parts,
            published=cars.num_rows,
            seconds=self._seconds,
        )

    # --- what is done -----------------------------------------------------------------------------

    def _run(self, stack: contextlib.ExitStack) -> None:
        publisher, reader, looker = (
            stack.enter_context(contextlib.closing(self._connect())) for _ in range(3)
        )
        self._deploy(publisher)
        trains = stack.enter_context(reader.subscribe(of.OUT, from_="oldest"))
        result = self._result = _Result(trains.schema)
        self._start = time.monotonic()
        reads = self._crew.start(self._read, trains, result)
        publishes = self._crew.start(self._publish, publisher)
        self._crew.start(self._look, looker)
        self._crew.sleep_until(time.perf_counter() + self._load.seconds, LOOK_EVERY_S)
        if self._waits_for_one:
            self._until_one()
        self._crew.end()
        # On a busy machine it takes as long as it takes, while rows come.
        self._crew.result(reads, "no row of the result", TIMEOUT_S, came=lambda: self._progress.results)
        self._crew.result(publishes, "no answer to all that was published", TIMEOUT_S)
        self._seconds = self._since()
        self._say("the end of the result")

    def _connect(self) -> Federation:
        from medusa.runtime.client.client import connect

        return connect(self._nodes.addresses[of.GATE], timeout="60s")

    def _deploy(self, client: Federation) -> None:
        met = partial(self._until_all_are_up, client)
        self._crew.result(self._crew.start(met), "the nodes don't hear each other", TIMEOUT_S)
        deploys = partial(client.deploy, of.query(self._cost), at=of.AT)
        self._crew.result(self._crew.start(deploys), "no answer", TIMEOUT_S)
        if self._by_hand:
            splits = partial(client.split, f"{of.QUERY}/{of.BOX}", len(self._by_hand), self._by_hand)
            self._crew.result(self._crew.start(splits), "the box isn't split", TIMEOUT_S)
        most = self._load.peak * self._cost.us / 1e6
        self._screen.say(
            f"each car costs {self._cost.text} (artificial): at the peak, {self._load.peak:,} cars a second, "
            f"that is {most:.2f} of a thread, and a node has one; {', '.join(of.SPARES)} are idle"
        )

    def _until_all_are_up(self, client: Federation) -> None:
        while set(client.status()["peers"].values()) != {"up"}:
            if self._crew.pause(LOOK_EVERY_S):
                return

    def _until_one(self) -> None:
        """The load stays low until what was split is merged."""
        until_s = time.monotonic() + AGAIN_S
        if not self._is_one:
            self._say("the load stays low until the box is one again")
        while not (self._is_one and self._is_calm) and time.monotonic() < until_s:
            self._crew.sleep_until(time.perf_counter() + LOOK_EVERY_S, LOOK_EVERY_S)

    @property
    def _is_one(self) -> bool:
        """As far as is known; where it was never split it is."""
        return not self._parts or sum(self._parts[-1].parts.values()) == 1

    @property
    def _is_calm(self) -> bool:
        """No order is known to be under way."""
        return all(each.ended_s is not None for each in self._acts.seen[-1:])

    # --- what is seen -----------------------------------------------------------------------------

    def _since(self) -> float:
        return time.monotonic() - self._start

    def _say(self, what: str, at_s: float | None = None) -> None:
        self._screen.say(f"{self._since() if at_s is None else at_s:6.2f} s  {what}")

    def _note(self, act: ScaleAct) -> None:
        """Tell what was ordered, or what became of it."""
        if act.ended_s is None:
            self._say(f"{act.what}: {act.why}", act.began_s)
            self._progress.acted(f"at {act.began_s:.1f} s: {act.what}")
            return
        self._say(f"{act.what}: {act.outcome}", act.ended_s)
        self._progress.acted(f"at {act.began_s:.1f} s: {act.what}: {act.outcome}")

    # --- threads ----------------------------------------------------------------------------------

    def _publish(self, client: Federation) -> None:
        while True:
            # As many as the clock says, so that a publisher that was late catches up.
            at_s = self._since()
            due = int(at_s / TICK_S)
            if due > self._ticks:
                client.publish(of.SOURCE, self._load.traffic(self._ticks, due))
                self._ticks = due
            self._progress.offers(at_s, self._load.rate(at_s), self._load.rows(self._ticks * TICK_S))
            if self._crew.pause(max((self._ticks + 1) * TICK_S - self._since(), 0.0)):
                break
        if not self._crew.cancelled:
            client.finish(of.SOURCE)
            client.flush(timeout="1h")  # Who waits for the result gives up sooner.

    def _read(self, trains: Subscription, result: _Result) -> None:
        """Until the end of the result."""
        for train in trains:
            if train.batch.num_rows:
                at_s = self._since()
                result.take(train.batch, at_s)
                end_s = train.batch.column("window_end").cast("int64")[-1].as_py() / 1e6
                self._progress.came(train.batch.num_rows, at_s - end_s)

    def _look(self, client: Federation) -> None:
        """What the node says that coordinates the query; now and then what all say."""
        due_s = 0.0
        while not self._crew.pause(LOOK_EVERY_S):
            with contextlib.suppress(LinkError):  # One that is busy may not answer in time.
                if scaling := client.status()["queries"][of.QUERY].get("scaling"):
                    for act in self._acts.take(self._since(), scaling):
                        self._note(act)
                    self._progress.waits_for(scaling["waits_for"])
                if self._since() >= due_s:
                    statuses = client.statuses(all=True)
                    self._seen(statuses)
                    due_s = self._since() + PARTS_EVERY_S

    def _seen(self, statuses: Sequence[Mapping[str, Any]]) -> None:
        at_s, parts = self._since(), parts_of(of.QUERY, statuses)
        if parts and len(statuses) == len(self._nodes.addresses):  # Else one that is silent may have some.
            self._parts = [*self._parts, PartsSample(at_s, parts)]
        self._progress.look(
            {each["node"]: NodeNow(parts.get(each["node"], 0), each["load"]["load"]) for each in statuses}
        )
