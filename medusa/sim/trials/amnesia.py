"""Machines are lost for good, and others begin empty: no row counts twice, what is missing is counted."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa

from medusa.ports import Buffer
from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, sum
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.node import NodeMachine
from medusa.sim.checkers.catalog import check_catalogs
from medusa.sim.checkers.replicas import ReplicaChecks
from medusa.sim.trials.federations import OFTEN, ROWS, options
from medusa.sim.trials.standby import LOST_AFTER_US, StandbyOptions, StandbyTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.faults import LINKS, MACHINES, TAKEOVERS, WEATHER
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.messages.configuration import Replicas

__all__ = ["AMNESIA"]

SCHEMA = {"ts": "timestamp", "k": "utf8", "v": "int64"}


def windows() -> tuple[Query, dict[str, list[str]]]:
    """Rows are counted per window."""
    q = Query("a")
    rows = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    per_k = rows.window("1s").group_by("k").aggregate(n=count(), t=sum("v"), name="per_k")
    q.sink("out", per_k.filter("true", name="last"), recovery="gap", method="amnesia")
    return q, {"a": ["rows", "first"], "b": ["per_k"], "z": ["last", "out"]}


def unites() -> tuple[Query, dict[str, list[str]]]:
    """Rows of two sources are put into one order and counted per window."""
    q = Query("a")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="r")
    both = left.union(right, name="both")
    q.sink(
        "out",
        both.window("1s").aggregate(n=count(), t=sum("v"), name="all"),
        recovery="gap",
        method="amnesia",
    )
    return q, {"a": ["left", "l"], "b": ["right", "r"], "z": ["both", "all", "out"]}


class EmptyReplicaChecks(ReplicaChecks):
    """Of fragments of which nobody keeps anything: who has them and who reads them, and nothing of disks."""

    def delivered(self, source: str, frames: list[Buffer]) -> None:
        """What was shown to who is lost may come otherwise."""

    def _check_secondaries(self, node: NodeMachine) -> None:
        pass

    def _check_forgotten(self, node: NodeMachine) -> None:
        pass

    def _follows(self, name: str, replicas: Replicas) -> bool:
        node = self._nodes[name]
        return node.alive and node.brain.recovery.followings.heir(replicas.fragment) is not None


class AmnesiaTrial(StandbyTrial):
    """A query of which rows may be lost. Some machines never come back."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._checks = EmptyReplicaChecks(self.nodes, self.clients)

    def _check_restarted(self, node: NodeMachine) -> None:
        """Its disk has nothing that senders would have to keep rows for."""

    def _check_complaints(self, node: NodeMachine) -> None:
        """A node says so where rows are lost."""

    def check_end(self) -> None:
        if self._beyond:
            return
        check_catalogs(self.nodes.values())
        got, want = counted(self._got("out")), counted(self.want["out"])
        for key, (rows, total) in got.items():
            most, most_total = want.get(key, (0, 0))
            if rows > most or total > most_total:
                raise SimulationError(f"twice: {rows} rows of {key} were counted, there are {most}")
        status = [node.brain.status(0) for node in self.living]
        parts = [each for one in status for each in one["fragments"]]
        if any(each["lost_unknown"] for each in parts):
            return  # It is said.
        missing = rows_of(want) - rows_of(got)
        told = [each["lost_rows"] for each in parts]
        result_rows = any(each["lost_rows"] and each["fragment"] == "a/last" for each in parts)
        if missing != rows_of_told(told) and not result_rows:  # Those are results, and not rows.
            raise SimulationError(f"counted: {missing} rows are missing, {told} are told lost")


def counted(table: pa.Table) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Of each window and key the rows, and their sum."""
    rows: Counter[tuple[Any, ...]] = Counter()
    totals: Counter[tuple[Any, ...]] = Counter()
    for row in table.to_pylist():
        n, total = row.pop("n"), row.pop("t")
        key = tuple(row.values())
        rows[key] += n
        totals[key] += total
    return {key: (rows[key], totals[key]) for key in rows}


def rows_of(counts: dict[tuple[Any, ...], tuple[int, int]]) -> int:
    """In all windows."""
    return Counter({key: rows for key, (rows, _) in counts.items()}).total()


def rows_of_told(told: list[int]) -> int:
    """In all fragments."""
    return Counter(dict(enumerate(told))).total()


def table(dice: Random, rows: int, place: int, sources: int) -> pa.Table:
    """In order of time; values are unique over all sources."""
    times = sorted(dice.randrange(10_000_000) for _ in range(rows))
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": [dice.choice("abc") for _ in times],
            "v": pa.array([n * sources + place for n in range(rows)], pa.int64()),
        }
    )


def forgetting(world: World, rows: int | None, parts: Any) -> AmnesiaTrial:
    """What the seed decides."""
    dice = world.dice("options")
    q, at = dice.choice([windows, windows, unites])()
    number = ROWS // 2 if rows is None else rows
    tables = {source: table(dice, number, place, len(q.sources)) for place, source in enumerate(q.sources)}
    want = dict(collect(q, **tables))
    spares = ["s1", "s2"]
    standby = {node: spares if dice.random() < 0.6 else [dice.choice(spares)] for node in at}
    witnesses = ["w1", "w2"]
    candidates = dice.sample([*at, "s1"], 2)
    lost = candidates[: dice.choice([1, 1, 2])]
    if any({of, *nodes} <= set(lost) for of, nodes in standby.items()):
        lost = lost[:1]
    decided = options(dice, at)
    made = StandbyOptions(
        **{
            **{name: getattr(decided, name) for name in ("publish_us", "piece_rows", "job_us", "delay_us")},
            "at": at,
            "sync_us": min(decided.sync_us, 20_000),
            "limits": decided.limits,
            "standby": standby,
            "witnesses": witnesses,
            "lost": tuple((node, dice.randrange(*LOST_AFTER_US)) for node in lost),
        }
    )
    return AmnesiaTrial(world, q, tables, made, want=want, nodes=[*at, *spares, *witnesses])


AMNESIA: dict[str, Scenario] = {
    "amnesia": Scenario(
        about="machines are lost for good and others begin empty: no row twice, the missing are counted",
        build=forgetting,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *TAKEOVERS],
        count=6,
        liveness_us=90_000_000,
        events_max=1_800_000,
    ),
}
