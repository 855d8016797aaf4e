"""Outputs of one query are recovered by different methods: each keeps its promise while machines are lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, sum
from medusa.query.recovery import ACTIVE, AMNESIA, PASSIVE, STATE_BACKUP
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.node import NodeMachine
from medusa.sim.trials.amnesia import SCHEMA, WindowGaps, all_guarded, table
from medusa.sim.trials.federations import OFTEN, ROWS
from medusa.sim.trials.standby import StandbyTrial, wishing
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import BELIEVED, LATE, LATE_VOTES, LINKS, MACHINES, TAKEOVERS, WEATHER
from medusa.sim.world.virtual_time import SimulationError, World

__all__ = ["WISHES"]


@dataclass(frozen=True, slots=True)
class WishQuery:
    """A query and where it runs.

    Attributes:
        only: fragments from which rows go to the second output alone.
    """

    q: Query
    at: dict[str, list[str]]
    only: Collection[str] = ()


EXACT, TREND = "exact", "trend"
"""The outputs. The second counts all rows that come into the query, or may lose, in windows."""

WISH_OF: Mapping[str, Mapping[str, str]] = {
    ACTIVE: {"recovery": "precise", "method": ACTIVE},
    PASSIVE: {"recovery": "precise", "method": PASSIVE},
    STATE_BACKUP: {"recovery": "precise", "method": STATE_BACKUP},
    AMNESIA: {"recovery": "gap", "method": AMNESIA},
    "": {},
}
"""Method -> what an output says; empty: nothing, and others stand by all the same."""

WISHES_DRAWN = (
    *((ACTIVE, AMNESIA), (PASSIVE, AMNESIA), (ACTIVE, AMNESIA), (PASSIVE, AMNESIA)),
    *(("", AMNESIA), (ACTIVE, PASSIVE), (PASSIVE, ACTIVE)),
    *((STATE_BACKUP, AMNESIA), (STATE_BACKUP, STATE_BACKUP)),
)
"""Of both outputs."""


BY_SOURCE: dict[str, Any] = {"n": count(), "t": sum("v"), "odd": sum("v % 2")}
"""Of the rows of two sources."""


def _two_windows() -> Query:
    q = Query("w")
    first = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    q.sink(EXACT, first.window("2s").group_by("k").aggregate(n=count(), t=sum("v"), name="per_k"))
    trend = first.filter("v >= 0", name="some").window("1s").group_by("k")
    q.sink(TREND, trend.aggregate(n=count(), t=sum("v"), name="totals"))
    return q


def branches() -> WishQuery:
    """Both outputs read the rows of one fragment, each at a node of its own."""
    return WishQuery(
        _two_windows(),
        {"a": ["rows", "first"], "b": ["per_k", EXACT], "z": ["some", "totals", TREND]},
        ["w/some"],
    )


def one_node() -> WishQuery:
    """The last fragments of both outputs are at one node, and the rows of one come through another node."""
    return WishQuery(
        _two_windows(),
        {"a": ["rows", "first"], "b": ["some"], "z": ["per_k", EXACT, "totals", TREND]},
        ["w/some", "w/totals"],
    )


def one_fragment() -> WishQuery:
    """Both outputs come of one fragment: it has the stronger method, and nothing may be lost."""
    q = Query("w")
    first = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    per_k = first.window("1s").group_by("k").aggregate(n=count(), t=sum("v"), name="per_k")
    q.sink(EXACT, per_k.filter("n > 0", name="all"))
    q.sink(TREND, per_k)
    return WishQuery(q, {"a": ["rows"], "b": ["first"], "z": ["per_k", "all", EXACT, TREND]}, [])


def unites() -> WishQuery:
    """Rows of two sources are put into one order, which one output shows; the other counts them."""
    q = Query("w")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="r")
    both = left.union(right, name="both")
    q.sink(EXACT, both.filter("v >= 0", name="each"))
    q.sink(TREND, both.window("1s").group_by("k").aggregate(**BY_SOURCE, name="totals"))
    return WishQuery(
        q,
        {"a": ["left", "l"], "b": ["right", "r", "both"], "c": ["each", EXACT], "z": ["totals", TREND]},
        ["w/totals"],
    )


def own_source() -> WishQuery:
    """What may lose rows has a source of its own beside the rows that it shares."""
    q = Query("w")
    first = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    more = q.source("more", SCHEMA, time="ts").filter("v >= 0", name="others")
    q.sink(EXACT, first.filter("v >= 0", name="each"))
    both = first.union(more, name="both")
    q.sink(TREND, both.window("1s").aggregate(**BY_SOURCE, name="totals"))
    return WishQuery(
        q,
        {"a": ["rows", "first"], "b": ["each", EXACT], "z": ["more", "others", "both", "totals", TREND]},
        ["w/more"],
    )


KINDS: tuple[Callable[[], WishQuery], ...] = (branches, branches, one_node, one_fragment, unites, own_source)


class WishGaps:
    """Each output has what it was promised.

    Args:
        loses: fragments of which nothing is kept.
    """

    def __init__(self, loses: Collection[str]) -> None:
        self._loses = loses
        self._gaps = WindowGaps(f"w.{TREND}", results="")

    def look(self, node: NodeMachine) -> None:
        """A node has had a turn."""
        self._gaps.look(node)

    def check(self, trial: StandbyTrial) -> None:
        """At the end.

        Raises:
            SimulationError: a row came twice, or is missing and isn't counted; or another fragment keeps
                nothing.
        """
        loses = self._loses
        specs = [hosted.spec for node in trial.living for hosted in node.brain.fragments.values()]
        if (empty := {spec.name for spec in specs if spec.keeps_nothing}) != {*loses}:
            raise SimulationError(f"wishes: nothing is kept of {sorted(empty)}, and not of {sorted(loses)}")
        exact = [EXACT] if loses else [EXACT, TREND]
        streams = {f"{trial.q.graph.name}.{sink}" for sink in exact}
        if any(client.lost.get(stream) for client in trial.clients.values() for stream in streams):
            raise SimulationError("delivered: rows reported lost")
        trial.check_exact(exact)
        self._gaps.check(trial)


def two_wishes(world: World, rows: int | None, parts: Any) -> StandbyTrial:
    """What the seed decides."""
    dice = world.dice("options")
    made = dice.choice(KINDS)()
    methods = dict(zip((EXACT, TREND), dice.choice(WISHES_DRAWN), strict=True))
    loses = made.only if methods[TREND] == AMNESIA else ()
    q = wishing(made.q, lambda sink: WISH_OF[methods[sink]])
    number = ROWS // 2 if rows is None else rows
    tables = {source: table(dice, number, place, len(q.sources)) for place, source in enumerate(q.sources)}
    named = not ("more" in q.sources and loses)  # Where nothing is kept publishers have no names.
    deaths = dice.choice([0, 0, 0, 1, 2]) if named else 0
    decided, nodes = all_guarded(dice, made.at, deaths)
    want = dict(collect(q, **tables))
    gaps = WishGaps(loses)
    return StandbyTrial(world, q, tables, decided, want=want, nodes=nodes, gap=gaps.check, looks=gaps.look)


WISHES: dict[str, Scenario] = {
    "wishes": Scenario(
        about="outputs of one query want different things, machines are lost: each has what it was promised",
        build=two_wishes,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *TAKEOVERS, *TAKEOVERS],
        more=[*LATE, *BELIEVED, *LATE_VOTES],
        count=6,
        liveness_us=90_000_000,
        events_max=1_800_000,
    ),
}
