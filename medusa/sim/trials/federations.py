"""Scenarios of whole nodes: queries over a few of them, or over one of many hundreds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa

from medusa.nodes.config.settings import Limits
from medusa.nodes.config.settings_streams import StreamRule
from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, sum
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.trials.queries import QueryOptions, QueryTrial
from medusa.sim.trials.row_order import PLACES, OrderTrial, numbered, rows_of
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import BELIEVED, DAMAGE, LATE, LINKS, MACHINES, STORAGE, WEATHER
from medusa.sim.world.virtual_time import World

__all__ = [
    "FEDERATIONS",
    "MANY_KEYS",
    "OFTEN",
    "Keys",
    "counts",
    "few_keys",
    "in_order",
    "many_keys",
    "over_nodes",
]

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}
ROWS = 400
MANY_KEYS = 300
"""What ``moves.many`` keeps of so many takes more than 64 KiB: checkpoints are deltas."""

OFTEN = ("crash", "crash", "crash", "write fails")
"""What finds most is drawn more often."""


def windows() -> tuple[Query, dict[str, list[str]]]:
    """Windows cut over two nodes, a join and two sinks at a third."""
    q = Query("q")
    flows = q.source("flows", SCHEMA, time="ts", slack="50ms")
    per_k = flows.window("1s").group_by("k").aggregate(n=count(), s=sum("v"), name="per_k")
    plus = per_k.select("window_start", "window_end", "k", t="s + 1", name="plus")
    q.sink("all", per_k)
    q.sink("out", per_k.filter("n > 2", name="big").join(plus, on=["window", "k"], name="meet"))
    at = {
        "e1": ["flows", "per_k"],
        "e2": ["flows", "per_k"],
        "core": ["big", "plus", "meet", "out", "all"],
    }
    return q, at


def unions() -> tuple[Query, dict[str, list[str]]]:
    """Two sources meet in a union, and go through a second node: arrival decides their order."""
    q = Query("u")
    left = q.source("left", SCHEMA, time="ts")
    right = q.source("right", SCHEMA, time="ts")
    both = left.union(right, name="both")
    q.sink("out", both.filter("v > -90", name="most"))
    return q, {"a": ["left", "right", "both"], "b": ["most", "out"]}


def counts(name: str = "n") -> tuple[Query, dict[str, list[str]]]:
    """Rows are counted by a node in the middle."""
    q = Query(name)
    flows = q.source("flows", SCHEMA, time="ts").filter("v > -80", name="most")
    per_k = flows.window("1s").group_by("k").aggregate(n=count(), name="per_k")
    q.sink("out", per_k.filter("n > 0", name="all"))
    return q, {"e": ["flows", "most"], "m": ["per_k"], "c": ["all", "out"]}


Keys: TypeAlias = Callable[[Random, int], Sequence[str]]
"""Makes a key for each row."""


def few_keys(dice: Random, rows: int) -> list[str]:
    """One of six for each row."""
    return [dice.choice("abcdef") for _ in range(rows)]


def many_keys(dice: Random, rows: int) -> list[str]:
    """Each of many once, if there are so many rows, then a few of them again: what is kept of each stays, and
    little of it changes."""
    first = [f"key {n}" for n in range(MANY_KEYS)]
    return [*first, *(dice.choice(first[:20]) for _ in range(rows - MANY_KEYS))][:rows]


def table(dice: Random, rows: int, keys: Keys = few_keys) -> pa.Table:
    """Rows in order of time.

    Args:
        keys: makes one for each row.
    """
    times = sorted(dice.randrange(20_000_000) for _ in range(rows))
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": pa.array(keys(dice, rows)),
            "v": pa.array([dice.randrange(-100, 100) for _ in times]),
        }
    )


def options(dice: Random, at: dict[str, list[str]], *, crowded: bool = False, **more: Any) -> QueryOptions:
    """What the dice decide.

    Args:
        crowded: more comes than the engine is told of at once: rows wait before they are fed.
    """
    every_us = dice.choice([50_000, 200_000, 1_000_000])
    if crowded:
        more |= {"publish_us": 200_000, "piece_rows": 2, "job_us": 8000}
    decided = {
        "publish_us": dice.choice([200_000, 1_500_000]),
        "piece_rows": dice.choice([5, 40]),
        "sync_us": dice.choice([500, 2000, 60_000]),
        "job_us": dice.choice([50, 5000]),
        "delay_us": dice.choice([100, 2000, 20_000]),
    }
    return QueryOptions(
        at=at,
        limits=Limits(checkpoint_every_us=every_us, retention_bytes=dice.choice([1 << 20, 64 << 20])),
        **(decided | more),
    )


@lru_cache(maxsize=64)
def answered(kind: str, seed: int, rows: int) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """Rows, and what one program makes of them."""
    q, _ = {"windows": windows, "unions": unions, "counts": counts}[kind]()
    dice = Random(f"{kind} {seed}")
    tables = {source: table(dice, rows) for source in q.sources}
    return tables, dict(collect(q, **tables))


def over_nodes(world: World, rows: int | None, **more: Any) -> QueryTrial:
    q, at = windows()
    # A few tables serve all seeds: their answers are made once.
    tables, want = answered("windows", world.seed % 16, ROWS if rows is None else rows)
    return QueryTrial(world, q, tables, options(world.dice("options"), at, **more), want=want)


def nodes(world: World, rows: int | None, parts: Any) -> QueryTrial:
    return over_nodes(world, rows)


def liars(world: World, rows: int | None, parts: Any) -> QueryTrial:
    return over_nodes(world, rows, liar=True)


def damaged(world: World, rows: int | None, parts: Any) -> QueryTrial:
    return over_nodes(world, rows, damage=True)


def stored(world: World, rows: int | None, parts: Any) -> QueryTrial:
    """Windows, a union with a decision log, or a stream of which most lies in segments."""
    dice = world.dice("stored")
    kind = dice.choice(["windows", "union", "spill"])
    if kind == "windows":
        return over_nodes(world, rows, damage=True)
    if kind == "union":
        return in_order(world, dice, ROWS // 2 if rows is None else rows, publishers=2, damage=True)
    return spilled(world, rows, parts, damage=True)


def mixed(world: World, rows: int | None, parts: Any) -> QueryTrial:
    dice = world.dice("options")
    publishers = dice.choice([1, 2])
    rows = ROWS // 2 if rows is None else rows
    if dice.random() < 0.3:
        q, at = unions()
        tables, want = answered("unions", world.seed % 16, rows)
        return QueryTrial(world, q, tables, options(dice, at, publishers=publishers), want=want)
    return in_order(world, dice, rows, publishers=publishers)


def in_order(world: World, dice: Random, rows: int, *, publishers: int, **more: Any) -> QueryTrial:
    # Which rows of two publishers are late depends on who comes first: then none is.
    slack = "50ms" if publishers == 1 else "1h"
    tables, want = ordered(slack, world.seed % 16, rows)
    decided = options(dice, dice.choice(PLACES), publishers=publishers, **more)
    return OrderTrial(world, numbered(slack), tables, decided, want=want)


@lru_cache(maxsize=64)
def ordered(slack: str, seed: int, rows: int) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """Rows, and what one program makes of them."""
    q = numbered(slack)
    tables = {source: rows_of(Random(f"{source} {seed}"), source, rows) for source in q.sources}
    return tables, dict(collect(q, **tables))


def memory(world: World, rows: int | None, parts: Any) -> QueryTrial:
    q, at = counts()
    tables, want = answered("counts", world.seed % 16, ROWS if rows is None else rows)
    return QueryTrial(world, q, tables, options(world.dice("options"), at, memory=("m",)), want=want)


def spilled(world: World, rows: int | None, parts: Any, **more: Any) -> QueryTrial:
    """What nobody reads yet is trimmed at the bound, so the last stream has a larger one."""
    q, at = counts()
    dice = world.dice("options")
    tables, want = answered("counts", world.seed % 16, 2 * ROWS if rows is None else rows)
    small = StreamRule(pattern="*", retention_bytes=dice.choice([8_000, 16_000]), at_limit="spill")
    rules = (StreamRule(pattern="n.out"), small)
    return QueryTrial(world, q, tables, options(dice, at, streams=rules, **more), want=want)


def spread(world: World, rows: int | None, size: int, edges: int) -> QueryTrial:
    """A ring with chords of ``size`` nodes. One query: windows at ``edges`` of them, a join at one.

    The other nodes keep their links, crash and come back like these.
    """
    dice = world.dice("options")
    names = [f"n{number:04}" for number in range(size)]
    known: dict[str, set[str]] = {name: set() for name in names}
    core, *others = dice.sample(names, edges + 1)
    ring = list(zip(names, [*names[1:], names[0]], strict=True))
    chords = [(name, dice.choice(names)) for name in dice.sample(names, size // 2)]
    for one, other in [*ring, *chords, *((edge, core) for edge in others)]:
        if one != other:
            known[one].add(other)
            known[other].add(one)
    q, small = windows()
    at = dict.fromkeys(others, small["e1"]) | {core: small["core"]}
    tables, want = answered("windows", world.seed % 16, 4 * ROWS if rows is None else rows)
    return QueryTrial(
        world,
        q,
        tables,
        QueryOptions(at=at, publish_us=300_000, piece_rows=100, delay_us=dice.choice([100, 2000])),
        want=want,
        nodes=names,
        peers={name: sorted(peers) for name, peers in known.items()},
    )


def town(world: World, rows: int | None, parts: Any) -> QueryTrial:
    size = world.dice("size").choice([20, 40, 70, 100])
    return spread(world, rows, size, size // 4)


def thousand(world: World, rows: int | None, parts: Any) -> QueryTrial:
    return spread(world, rows, 1000, 60)


FEDERATIONS: dict[str, Scenario] = {
    "nodes": Scenario(
        about="a query with windows and a join over three whole nodes, everything goes wrong",
        build=nodes,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES],
        more=[*LATE, *BELIEVED],
    ),
    "union": Scenario(
        about="sources meet in a union before what shows its order: it is on disk before it shows",
        build=mixed,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES],
        more=[*LATE, *BELIEVED],
    ),
    "memory": Scenario(
        about="the node in the middle keeps nothing: the rows that are missing are those that it says",
        build=memory,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES],
        more=[*LATE, *BELIEVED],
    ),
    "spill": Scenario(
        about="nodes keep little in memory of what they send: the rest is on disk, and comes from there",
        build=spilled,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, "write fails", "write fails"],
        more=[*LATE, *BELIEVED],
    ),
    "liar": Scenario(
        about="a client replays, forges, never acknowledges: nobody else notices",
        build=liars,
        kinds=[*WEATHER, "cut", "crash", "reconnect"],
        count=4,
    ),
    "ruin": Scenario(
        about="disks of nodes give back what they never should: what is lost is told",
        build=damaged,
        kinds=[*DAMAGE, "crash", "cut"],
        count=5,
    ),
    "storage": Scenario(
        about="files of nodes are damaged while they are down: all rows come, or a node says so",
        build=stored,
        kinds=["jitter", "crash", "crash", "cut", *STORAGE * 6],
        count=4,
        more=BELIEVED,
    ),
    "town": Scenario(
        about="20 to 100 nodes, a query over a quarter of them",
        build=town,
        kinds=[*WEATHER, *LINKS, *MACHINES],
        more=[*LATE, *BELIEVED],
        count=20,
        safety_us=1_200_000,
        events_max=3_000_000,
    ),
    "federation": Scenario(
        about="1,000 nodes, a query over 61 of them",
        build=thousand,
        kinds=["jitter", "repeat", *LINKS, *MACHINES],
        count=60,
        safety_us=700_000,
        events_max=3_000_000,
    ),
}
