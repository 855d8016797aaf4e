"""Machines are lost for good, others read rows again and number results as before: the same answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from medusa.nodes.fragment.host import FragmentHost
from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, first, sum
from medusa.query.recovery import UPSTREAM
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.client import Client
from medusa.sim.actors.node import NodeMachine
from medusa.sim.checkers.replicas import ReplicaChecks
from medusa.sim.trials.amnesia import SCHEMA, all_guarded, table
from medusa.sim.trials.federations import OFTEN, ROWS
from medusa.sim.trials.standby import StandbyTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.trials.upstream import check_whole
from medusa.sim.world.fault_kinds import BELIEVED, LATE, LATE_VOTES, LINKS, MACHINES, TAKEOVERS, WEATHER
from medusa.sim.world.virtual_time import SimulationError, World

__all__ = ["PRECISE"]

WISH: Any = {"recovery": "precise", "method": UPSTREAM}
AGAIN: Any = {"recovery": "rollback", "method": UPSTREAM}

Made = tuple[Query, dict[str, list[str]], dict[str, str]]
"""The query, its boxes by node, and fragment -> how it has to be recovered."""

EXACT, TREND = "exact", "trend"
"""An output of each query, which is precise; another of some, of which rows may come again."""

PRECISELY, PASSIVELY = "precise_upstream_backup", "passive_standby"


def _counted(rows: Any, name: str) -> Any:
    """Sums of floats show in which order rows came, and so do the first ones."""
    return rows.group_by("k").aggregate(n=count(), t=sum("v"), f=sum("v * 0.1"), a=first("v"), name=name)


def windows() -> Made:
    """Rows are counted per window."""
    q = Query("p")
    rows = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    q.sink(EXACT, _counted(rows.window("1s"), "per_k").filter("true", name="last"), **WISH)
    at = {"a": ["rows", "first"], "b": ["per_k"], "z": ["last", EXACT]}
    return q, at, {"p/rows": PASSIVELY, "p/per_k": PRECISELY, "p/last": PRECISELY}


def slides() -> Made:
    """The same, of windows that overlap; results and rows leave one fragment."""
    q = Query("p")
    rows = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    some = rows.filter("v % 3 > 0", name="some")
    q.sink(EXACT, _counted(some.window("3s", "1s"), "per_k"), **WISH)
    q.sink("each", some.filter("true", name="last"), **WISH)
    at = {"a": ["rows", "first"], "b": ["some", "per_k", EXACT], "z": ["last", "each"]}
    return q, at, {"p/rows": PASSIVELY, "p/some": PRECISELY, "p/last": PRECISELY}


def twice() -> Made:
    """Windows of windows, at two nodes: who is read needs its own rows for the sake of who reads."""
    q = Query("p")
    rows = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    per_k = _counted(rows.window("1s"), "per_k")
    totals = per_k.window("3s").group_by("k").aggregate(n=sum("n"), f=sum("f"), name="totals")
    q.sink(EXACT, totals, **WISH)
    at = {"a": ["rows", "first"], "b": ["per_k"], "z": ["totals", EXACT]}
    return q, at, {"p/rows": PASSIVELY, "p/per_k": PRECISELY, "p/totals": PRECISELY}


def serial() -> Made:
    """Rows of two sources are put into the order of their times, and counted per window; those of one leave
    by themselves too."""
    q = Query("p")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="r")
    both = left.sunion(right, bucket="500ms", name="both")
    q.sink("each", both.filter("true", name="one"), **WISH)
    q.sink(EXACT, _counted(both.window("1s"), "per_k"), **WISH)
    q.sink("lefts", left.filter("v >= 0", name="some"), **WISH)
    at = {"a": ["left", "l"], "b": ["right", "r"]}
    at["z"] = ["both", "one", "each", "per_k", EXACT, "some", "lefts"]
    return q, at, {"p/left": PASSIVELY, "p/right": PASSIVELY, "p/both": PRECISELY}


def unites() -> Made:
    """Rows of two sources are put into the order in which they arrive, and counted at another node."""
    q = Query("p")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="r")
    both = left.union(right, name="both")
    q.sink(EXACT, both.window("1s").aggregate(n=count(), t=sum("v"), name="all"), **WISH)
    at = {"a": ["left", "l"], "b": ["right", "r"], "c": ["both"], "z": ["all", EXACT]}
    sources = {"p/left": PASSIVELY, "p/right": PASSIVELY}
    return q, at, {**sources, "p/both": PASSIVELY, "p/all": PRECISELY}


def branches() -> Made:
    """What two outputs of different wishes read comes from one fragment."""
    q = Query("p")
    rows = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    q.sink(EXACT, _counted(rows.window("2s"), "per_k"), **WISH)
    totals = rows.window("1s").group_by("k").aggregate(n=count(), t=sum("v"), name="totals")
    q.sink(TREND, totals, **AGAIN)
    at = {"a": ["rows", "first"], "b": ["per_k", EXACT], "z": ["totals", TREND]}
    return q, at, {"p/rows": PASSIVELY, "p/per_k": PRECISELY, "p/totals": UPSTREAM}


def one_fragment() -> Made:
    """Two outputs of different wishes come of one fragment: what reads it is recovered as each wishes."""
    q = Query("p")
    rows = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    per_k = rows.window("1s").group_by("k").aggregate(n=count(), t=sum("v"), name="per_k")
    q.sink(EXACT, per_k.filter("n > 0", name="all"), **WISH)
    q.sink(TREND, per_k.filter("n > 0", name="some"), **AGAIN)
    at = {"a": ["rows", "first"], "b": ["per_k", "all", EXACT], "z": ["some", TREND]}
    return q, at, {"p/rows": PASSIVELY, "p/per_k": PRECISELY, "p/some": UPSTREAM}


KINDS: tuple[Callable[[], Made], ...] = (windows, slides, twice, serial, unites, branches, one_fragment)


class NumberChecks(ReplicaChecks):
    """As of any standby, of the streams whose rows have one number for good."""

    def __init__(self, nodes: Mapping[str, NodeMachine], clients: Mapping[str, Client]) -> None:
        super().__init__(nodes, clients)
        self._again: set[str] = set()

    def _check_owner(self, node: NodeMachine, fragment: str, hosted: FragmentHost) -> None:
        super()._check_owner(node, fragment, hosted)
        if hosted.spec.reads_again and not hosted.spec.repeats:
            self._again.update(hosted.spec.streams.values())

    def _compares(self, stream: str) -> bool:
        return stream not in self._again and super()._compares(stream)


def check_wishes(methods: Mapping[str, str], trial: StandbyTrial) -> None:
    """At the end: each output has what it was promised.

    Args:
        methods: fragment -> how it has to be recovered.

    Raises:
        SimulationError: an output that is precise isn't that of one program, or somebody has heard of a loss
            or of another version; of another one a row is missing.
    """
    specs = [hosted.spec for node in trial.living for hosted in node.brain.fragments.values()]
    if (found := {spec.name: spec.method for spec in specs}) != methods:
        raise SimulationError(f"wishes: fragments are recovered by {found}, and not by {methods}")
    exact = [sink for sink in trial.want if sink != TREND]
    streams = [f"{trial.q.graph.name}.{sink}" for sink in exact]
    for client in trial.clients.values():
        if any(client.lost.get(stream) for stream in streams):
            raise SimulationError(f"delivered: {client.name} heard of lost rows")
        if any(client.versions.get(stream, 1) != 1 for stream in streams):
            raise SimulationError(f"delivered: {client.name} heard of versions {client.versions}")
    for node in trial.living:
        for hosted in node.brain.fragments.values():
            if hosted.spec.method == UPSTREAM:
                continue
            if any(output.skips for output in hosted.outputs.values()) or hosted.spec.stream_version > 1:
                raise SimulationError(f"numbers: {hosted.spec.name} at {node.name} has others than before")
    trial.check_exact(exact)
    if TREND in trial.want:
        check_whole(trial, TREND)


def read_again(world: World, rows: int | None, parts: Any) -> StandbyTrial:
    """What the seed decides."""
    dice = world.dice("options")
    q, at, methods = dice.choice(KINDS)()
    number = ROWS // 2 if rows is None else rows
    tables = {source: table(dice, number, place, len(q.sources)) for place, source in enumerate(q.sources)}
    decided, nodes = all_guarded(dice, at)
    want = dict(collect(q, **tables))

    def check(trial: StandbyTrial) -> None:
        check_wishes(methods, trial)

    again = NumberChecks if TREND in want else None
    return StandbyTrial(world, q, tables, decided, want=want, nodes=nodes, gap=check, again=again)


PRECISE: dict[str, Scenario] = {
    "precise": Scenario(
        about="machines are lost for good, others read rows again: the same answer under the same numbers",
        build=read_again,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *TAKEOVERS, *TAKEOVERS],
        more=[*LATE, *BELIEVED, *LATE_VOTES],
        count=6,
        liveness_us=90_000_000,
        events_max=1_800_000,
    ),
}
