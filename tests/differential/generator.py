"""Random cases: a query and the rows that it gets. A case is a function of its seed alone."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import medusa as md
from medusa.query.boxes import Source
from tests.differential import growers, growers_joins, growers_windows, sqltext
from tests.differential.data import Event, Schema, events, schema
from tests.differential.pool import KINDS, Pool, Stream
from tests.differential.predicates import predicate

SQL_EVERY = 4
"""One case in so many is a text of SQL."""
OFTEN = ("window", "window", "window", "window_join", "window_join", "join", "join", "select", "filter")
"""Kinds that are drawn more often than others."""


@dataclass
class Case:
    """A query, what its sources get, and what it was drawn from.

    Attributes:
        loose: sinks that are compared without order, for theirs is that of arrival.
        only: sinks of which the oracle knows some columns only.
        text: the same query in DuckDB's SQL, where the case was drawn as text.
    """

    seed: int
    query: md.Query
    schemas: dict[str, Schema]
    events: list[Event]
    loose: set[str] = field(default_factory=set)
    only: dict[str, list[str]] = field(default_factory=dict)
    text: str | None = None
    drawn: Counter[str] = field(default_factory=Counter)


def case(seed: int) -> Case:
    rng = random.Random(f"case {seed}")
    if seed % SQL_EVERY == SQL_EVERY - 1:
        return text_case(seed, rng)
    return built_case(seed, rng)


def text_case(seed: int, rng: random.Random) -> Case:
    kind = sqltext.KINDS[seed // SQL_EVERY % len(sqltext.KINDS)]
    drawn = kind(rng)
    slack = rng.choice([0, 1_000_000, 4_000_000])
    sources = {name: md.source(drawn.schemas[name].types, time="ts", slack=slack) for name in drawn.schemas}
    query = md.sql(drawn.ours, **sources)
    return Case(
        seed,
        query,
        drawn.schemas,
        drawn.events,
        loose=set(query.sinks) if drawn.loose else set(),
        text=drawn.theirs,
        drawn=Counter([f"sql.{kind.__name__}"]),
    )


def built_case(seed: int, rng: random.Random) -> Case:
    """One or two sources and two to nine boxes; every stream that nothing reads has a sink."""
    query = md.Query("random")
    pool = Pool(query)
    schemas = {}
    for name in ["a", "b"][: rng.randint(1, 2)]:
        schemas[name] = schema(rng)
        source(rng, pool, name, schemas[name])
    kinds = list(KINDS)
    # The kinds take turns, so that few seeds draw all of them.
    wanted = [kinds[seed * 7 // SQL_EVERY % len(kinds)], kinds[seed * 3 % len(kinds)]]
    wanted += [rng.choice([*kinds, *OFTEN]) for _ in range(rng.randint(0, 7))]
    rng.shuffle(wanted)
    for kind in wanted:
        if KINDS[kind](rng, pool):
            pool.drawn[f"box.{kind}"] += 1
    made = Case(seed, query, schemas, [], drawn=pool.drawn)
    sinks(rng, pool, made)
    timed = all(box.timed for box in query.graph.boxes if isinstance(box, Source))
    promises = timed and rng.random() < 0.4
    made.events = events(rng, schemas, promises=promises)
    made.drawn["data.promises"] += promises
    for each in schemas.values():
        made.drawn.update(f"type.{type}" for type in each.types.values())
    return made


def source(rng: random.Random, pool: Pool, name: str, schema: Schema) -> None:
    """In one of the ways in which a source tells time; now and then its late rows and those ahead too."""
    types, given = schema.types, dict[str, Any](slack=rng.choice([0, 3, 10, 40]))
    if types["ts"] == "int64":
        given["unit"] = "us"
    way = rng.choice(["", "", "", "", "", "partition", "partitions", "ahead", "untimed"])
    if way == "partition":
        given["partition"] = rng.choice(["k", "s", "n"])
    elif way == "partitions":
        given |= {"partition": "n", "partitions": list(range(10))}
    elif way == "ahead":
        schema.types["arrival"] = types["ts"]
        given |= {"ahead": rng.choice([0, 5, 20]), "arrival": "arrival"}
    elif way == "untimed" and name == "b":
        given = {}
    pool.drawn[f"source.{way}"] += 1
    made = pool.query.source(name, types, time="ts" if given else None, **given)
    pool.streams.append(Stream(made))
    if given and rng.random() < 0.35:
        pool.streams.append(Stream(made.late))
        pool.drawn["tap.late"] += 1
    if way == "ahead" and rng.random() < 0.7:
        pool.streams.append(Stream(made.ahead))


def sinks(rng: random.Random, pool: Pool, case: Case) -> None:
    read = {arc for box in pool.query.graph.boxes for arc in box.inputs}
    for number, each in enumerate(pool.streams):
        if each.stream.arc in read and rng.random() < 0.7:
            continue
        name = f"out_{number}"
        shown = each.stream
        if rng.random() < 0.2 and not each.dead:
            shown = shown.filter(predicate(rng, shown.schema))
        pool.query.sink(name, shown)
        if each.loose:
            case.loose.add(name)
        if each.dead:
            case.only[name] = ["box"]


__all__ = ["Case", "case", "growers", "growers_joins", "growers_windows"]
