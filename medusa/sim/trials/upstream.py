"""Machines are lost for good, and others read rows again from a mark: each row counts at least once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from medusa.ports import Buffer
from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, sum
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.node import NodeMachine
from medusa.sim.checkers.catalog import check_catalogs
from medusa.sim.checkers.replicas import ReplicaChecks
from medusa.sim.trials.amnesia import SCHEMA, SPARES, guarded, table
from medusa.sim.trials.federations import OFTEN, ROWS
from medusa.sim.trials.standby import StandbyTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import LINKS, MACHINES, TAKEOVERS, WEATHER
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.link.sender import Sender
from medusa.wire.messages.configuration import Replicas

__all__ = ["UPSTREAM_BACKUP", "check_whole"]

WISH: Any = {"recovery": "rollback", "method": "upstream_backup"}


def windows() -> tuple[Query, dict[str, list[str]]]:
    """Rows are counted per window."""
    q = Query("u")
    rows = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    per_k = rows.window("1s").group_by("k").aggregate(n=count(), t=sum("v"), name="per_k")
    q.sink("out", per_k.filter("true", name="last"), **WISH)
    return q, {"a": ["rows", "first"], "b": ["per_k"], "z": ["last", "out"]}


def slides() -> tuple[Query, dict[str, list[str]]]:
    """The same, of windows that overlap."""
    q = Query("u")
    rows = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    per_k = rows.window("3s", "1s").group_by("k").aggregate(n=count(), t=sum("v"), name="per_k")
    q.sink("out", per_k.filter("true", name="last"), **WISH)
    return q, {"a": ["rows", "first"], "b": ["per_k"], "z": ["last", "out"]}


def unites() -> tuple[Query, dict[str, list[str]]]:
    """Rows of two sources are put into one order and counted per window."""
    q = Query("u")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="r")
    both = left.union(right, name="both")
    q.sink("out", both.window("1s").aggregate(n=count(), t=sum("v"), name="all"), **WISH)
    return q, {"a": ["left", "l"], "b": ["right", "r"], "z": ["both", "all", "out"]}


class MarkChecks(ReplicaChecks):
    """Who has what and who reads from whom, and that senders keep what a mark needs."""

    def delivered(self, source: str, frames: list[Buffer]) -> None:
        """What was shown to who is lost may come otherwise."""

    def _check_secondaries(self, node: NodeMachine) -> None:
        """Nobody waits for what is decided."""

    def _check_covered(
        self, who: str, at: NodeMachine, replicas: Replicas, sender: Sender, peer: str
    ) -> None:
        if not sender.skips:  # Else rows below those that it has are none.
            super()._check_covered(who, at, replicas, sender, peer)


def check_rollback(trial: StandbyTrial) -> None:
    """At the end: see ``check_whole``."""
    check_catalogs(trial.nodes.values())
    check_whole(trial, "out")


def check_whole(trial: StandbyTrial, sink: str) -> None:
    """Of an output of windows, in which rows are counted (``n``) and summed (``t``).

    Raises:
        SimulationError: a row is missing of a window, or a window left with a part of its rows.
    """
    stream = f"{trial.q.graph.name}.{sink}"
    batches = [batch for client in trial.clients.values() for batch in client.rows.get(stream, [])]
    came: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for row in pa.Table.from_batches(batches, trial.want[sink].schema).to_pylist():
        n, total = row.pop("n"), row.pop("t")
        came.setdefault(tuple(row.values()), []).append((n, total))
    for row in trial.want[sink].to_pylist():
        n, total = row.pop("n"), row.pop("t")
        key = tuple(row.values())
        results = came.pop(key, [])
        if not results:
            raise SimulationError(f"missing: {key}")
        if any(each[0] < n or each[1] < total for each in results):
            raise SimulationError(f"in part: {key} has {n} rows, and left with {results}")
    if came:
        raise SimulationError(f"never was: {next(iter(came))}")


def read_again(world: World, rows: int | None, parts: Any) -> StandbyTrial:
    """What the seed decides."""
    dice = world.dice("options")
    q, at = dice.choice([windows, slides, unites])()
    number = ROWS // 2 if rows is None else rows
    tables = {source: table(dice, number, place, len(q.sources)) for place, source in enumerate(q.sources)}
    want = dict(collect(q, **tables))
    lost = dice.sample([*at, "s1"], dice.choice([1, 1, 2]))
    made, nodes = guarded(dice, at, dict.fromkeys(at, SPARES), lost)
    return StandbyTrial(world, q, tables, made, want=want, nodes=nodes, gap=check_rollback, again=MarkChecks)


UPSTREAM_BACKUP: dict[str, Scenario] = {
    "upstream": Scenario(
        about="machines are lost for good and others read rows again: each row counts at least once",
        build=read_again,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *TAKEOVERS],
        count=6,
        liveness_us=90_000_000,
        events_max=1_800_000,
    ),
}
