"""Joins, functions of users, keyed tables."""

from __future__ import annotations

import random
from typing import Any

import medusa as md
from medusa.query.types import is_decimal
from tests.differential.growers_windows import HOWS
from tests.differential.pool import Pool, Stream, grows, suffix
from tests.differential.predicates import of_family, plain_names
from tests.engine import user_functions as user

# -- joins


@grows
def join(rng: random.Random, pool: Pool) -> bool:
    at, other = pool.pick(rng, ordered=False), pool.pick(rng, ordered=False)
    on = None if at is None or other is None else key_pair(rng, at, other)
    if at is None or other is None or on is None:
        return False
    how = rng.choice(HOWS)
    pool.drawn[f"join.{how}"] += 1
    where = condition(rng, at, other) if rng.random() < 0.5 else None
    within = rng.choice([0, 1, 4, 15])
    made = at.stream.join(
        other.stream, on=on, within=within, where=where, how=how, suffixes=("", suffix(pool))
    )
    return pool.add(Stream(made, loose=at.loose or other.loose))


@grows
def asof_join(rng: random.Random, pool: Pool) -> bool:
    at, other = pool.pick(rng), pool.pick(rng)
    on = None if at is None or other is None else key_pair(rng, at, other)
    if at is None or other is None or on is None:
        return False
    within = rng.choice([None, 0, 4, 15])
    where = condition(rng, at, other) if within is not None and rng.random() < 0.5 else None
    how = rng.choice(["left", "inner"])
    made = at.stream.asof_join(
        other.stream, on=on, within=within, where=where, how=how, suffixes=("", suffix(pool))
    )
    return pool.add(Stream(made))


def key_pair(rng: random.Random, at: Stream, other: Stream) -> dict[str, str] | None:
    """A column of each side of one type."""
    pairs = [
        (left, right)
        for left in plain_names(at.types)
        for right in plain_names(other.types)
        if at.types[left] == other.types[right]
        and not is_decimal(at.types[left])
        and not left.startswith("failed")
    ]
    return dict([rng.choice(pairs)]) if pairs else None


def condition(rng: random.Random, at: Stream, other: Stream) -> str | None:
    pairs = [
        (left, right)
        for left in of_family(at.types, "int", "float")
        for right in of_family(other.types, "int", "float")
    ]
    if not pairs:
        return None
    left, right = rng.choice(pairs)
    sign = rng.choice(["<", "<=", "<>", ">"])
    return rng.choice([f'left."{left}" {sign} right."{right}"', f'left."{left}" {sign} 2'])


# -- functions of users, tables


@grows
def process(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng, "n", "k")
    if at is None or at.types["n"] != "int32" or at.types["k"] != "int64":
        return False
    known = at.stream.filter("n IS NOT NULL")
    operator = rng.choice([user.Session, user.Count, user.Alarms])
    if rng.random() < 0.5:
        return pool.add(Stream(known.process(operator, user.OUT, by="k", state=user.STATE)))
    inputs = {"one": known, "two": known.filter("n > 3")}
    return pool.add(Stream(md.process(operator, inputs, user.OUT, by="k", state=user.STATE)))


@grows
def table(rng: random.Random, pool: Pool) -> bool:
    """A keyed table with one or two boxes that change it and one that looks things up."""
    at, other = pool.pick(rng, "k", "v", "n", "s"), pool.pick(rng, "k")
    if at is None or other is None or at.types["k"] != "int64" or other.types["k"] != "int64":
        return False
    if at.types["v"] != "float64" or at.types["n"] != "int32" or at.types["s"] != "utf8":
        return False
    schema = {"k": "int64", "total": "float64", "text": "utf8", "seen": "int64"}
    rows = {"k": [1, None], "total": [1.5, None], "text": ["x", None], "seen": [5, 6]}
    pool.tables += 1
    name = f"table_{pool.tables}"
    made = pool.query.table(
        name, key="k", schema=schema, from_=rng.choice([None, rows]), expire=rng.choice([None, 1, 5, 20])
    )
    insert: Any = rng.choice([True, False, {"total": "v", "text": "'new'"}])
    changed = {"total": "table.total + v", "seen": "table.seen + 1", "text": "s"}
    before = other.stream.lookup(made, suffix=suffix(pool), how=rng.choice(["left", "inner"]))
    updated = at.stream.update(made, set=changed, insert=insert)
    if rng.random() < 0.5:
        pool.add(Stream(at.stream.filter("n % 3 = 1").delete(made)))
    return pool.add(Stream(before), Stream(updated))
