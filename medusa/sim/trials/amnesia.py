"""Machines are lost for good, and others begin empty: no row counts twice, what is missing is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa

from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, sum
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.node import NodeMachine
from medusa.sim.checkers.catalog import check_catalogs
from medusa.sim.checkers.gaps import check_gap_counts
from medusa.sim.checkers.output_rows import OutputRows
from medusa.sim.trials.federations import OFTEN, ROWS, options
from medusa.sim.trials.standby import LOST_AFTER_US, StandbyOptions, StandbyTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import LINKS, MACHINES, TAKEOVERS, WEATHER
from medusa.sim.world.virtual_time import World

__all__ = ["AMNESIA", "SCHEMA", "SPARES", "WindowGaps", "all_guarded", "guarded", "table"]

SPARES, WITNESSES = ["s1", "s2"], ["w1", "w2"]

QUIET_US = 2_000_000
"""So long after its start a node waits for clients of an earlier life, and feeds nothing meanwhile."""

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
        both.window("1s").aggregate(n=count(), t=sum("v"), odd=sum("v % 2"), name="all"),
        recovery="gap",
        method="amnesia",
    )
    return q, {"a": ["left", "l"], "b": ["right", "r"], "z": ["both", "all", "out"]}


class WindowGaps:
    """No row counts twice, and the missing are counted: where they were lost.

    Args:
        stream: has windows, in which rows are counted (``n``) and summed (``t``); of two sources also those
            of the second, whose values are odd (``odd``).
        results: the fragment that is fed windows, and not the rows that they count.
    """

    def __init__(self, stream: str, results: str) -> None:
        self._stream, self._results = stream, results
        self._put_out = OutputRows([stream])

    def look(self, node: NodeMachine) -> None:
        """A node has had a turn."""
        self._put_out.look(node)

    def check(self, trial: StandbyTrial) -> None:
        """At the end.

        Raises:
            SimulationError: a row came twice, or others are missing than are counted.
        """
        check_catalogs(trial.nodes.values())
        clients, stream = trial.clients.values(), self._stream
        want = trial.want[stream.rpartition(".")[2]]
        batches = [batch for client in clients for batch in client.rows.get(stream, [])]
        got = pa.Table.from_batches(batches, want.schema)
        gaps = [gap for client in clients for gap in client.gaps.get(stream, [])]
        unread = self._put_out.numbered(stream, gaps)
        parts = [each for node in trial.living for each in node.brain.status(0)["fragments"]]
        check_gap_counts(trial.q.graph, want, got, parts, self._results, unread)


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


def forgetting(world: World, rows: int | None, parts: Any) -> StandbyTrial:
    """What the seed decides."""
    dice = world.dice("options")
    q, at = dice.choice([windows, windows, unites])()
    number = ROWS // 2 if rows is None else rows
    tables = {source: table(dice, number, place, len(q.sources)) for place, source in enumerate(q.sources)}
    want = dict(collect(q, **tables))
    made, nodes = all_guarded(dice, at)
    gaps = WindowGaps("a.out", "a/last")
    return StandbyTrial(world, q, tables, made, want=want, nodes=nodes, gap=gaps.check, looks=gaps.look)


def all_guarded(dice: Random, at: dict[str, list[str]], deaths: int = 0) -> tuple[StandbyOptions, list[str]]:
    """Others stand by for all fragments; somebody is left to have each of them. With all nodes."""
    standby = {node: SPARES if dice.random() < 0.6 else [dice.choice(SPARES)] for node in at}
    candidates = dice.sample([*at, "s1"], 2)
    lost = candidates[: dice.choice([1, 1, 2])]
    if any({of, *nodes} <= set(lost) for of, nodes in standby.items()):
        lost = lost[:1]
    return guarded(dice, at, standby, lost, quiet_us=QUIET_US, deaths=deaths)


def guarded(
    dice: Random,
    at: dict[str, list[str]],
    standby: Mapping[str, Sequence[str]],
    lost: Sequence[str],
    *,
    quiet_us: int = 0,
    deaths: int = 0,
) -> tuple[StandbyOptions, list[str]]:
    """What else the dice decide, with all nodes.

    Args:
        standby: those that stand by for each node; ``lost``: nodes that are lost for good.
        quiet_us: so much later rows come, and machines are lost.
        deaths: as ``QueryOptions`` has it.
    """
    decided = options(dice, at)
    made = StandbyOptions(
        **{
            **{name: getattr(decided, name) for name in ("piece_rows", "job_us", "delay_us")},
            "publish_us": quiet_us + decided.publish_us,
            "at": at,
            "deaths": deaths,
            "sync_us": min(decided.sync_us, 20_000),
            "limits": decided.limits,
            "standby": standby,
            "witnesses": WITNESSES,
            "lost": tuple((node, quiet_us + dice.randrange(*LOST_AFTER_US)) for node in lost),
        }
    )
    return made, [*at, *SPARES, *WITNESSES]


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
