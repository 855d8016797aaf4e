"""Boxes that take rows one by one, put them in order, or bring several streams together."""

from __future__ import annotations

import random

import medusa as md
from medusa.query.types import is_decimal, is_float, is_integer
from tests.differential.pool import KINDS, Pool, Stream, grows, keys
from tests.differential.predicates import computed, failing, of_family, predicate, quoted
from tests.engine import user_functions as user

# -- row by row


@grows
def filter(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng, timed=False, ordered=False)
    return at is not None and pool.add(at.then(at.stream.filter(predicate(rng, at.types)), window=True))


@grows
def select(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng, timed=False, ordered=False)
    if at is None:
        return False
    names = list(at.types)
    kept = rng.sample(names, rng.randint(1, len(names)))
    more = {f"x{pool.drawn['box.select']}": computed(rng, at.types)}
    return pool.add(at.then(at.stream.select(*kept, **(more if rng.random() < 0.5 else {}))))


@grows
def with_columns(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng, timed=False, ordered=False)
    if at is None:
        return False
    named = {f"y{pool.drawn['box.with_columns']}": computed(rng, at.types)}
    floats = of_family(at.types, "float")
    if floats and rng.random() < 0.5:
        named[floats[0]] = f"{quoted(floats[0])} * 2.0"
    return pool.add(at.then(at.stream.with_columns(**named), window=True))


@grows
def route(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng, timed=False, ordered=False)
    if at is None:
        return False
    several = [predicate(rng, at.types, 1) for _ in range(rng.randint(1, 3))]
    ways = at.stream.route(*several, otherwise=rng.random() < 0.6)
    return pool.add(*(at.then(way, window=True) for way in ways))


@grows
def dead(rng: random.Random, pool: Pool) -> bool:
    """A box with an expression that fails on some rows, and its dead rows."""
    at = pool.pick(rng, timed=False, ordered=False)
    condition = None if at is None else failing(rng, at.types)
    if at is None or condition is None:
        return False
    name = f"failed{pool.drawn['box.dead']}"
    kind = rng.choice(["filter", "select", "with", "route"])
    if kind == "filter":
        made = at.stream.filter(condition)
    elif kind == "select":
        made = at.stream.select(*at.types, **{name: condition})
    elif kind == "with":
        made = at.stream.with_columns({name: condition})
    else:
        made = at.stream.route(predicate(rng, at.types, 0), condition)[0]
    if rng.random() < 0.7:
        pool.add(Stream(made.dead, dead=True, loose=at.loose))
    return pool.add(at.then(made, window=kind != "select"))


@grows
def drop(rng: random.Random, pool: Pool) -> bool:
    kind = rng.choice(["where", "rate", "window"])
    at = pool.pick(rng, timed=kind == "window", ordered=kind == "rate")
    if at is None:
        return False
    if kind == "where":
        made = at.stream.drop(where=predicate(rng, at.types))
    elif kind == "rate":
        made = at.stream.drop(rng.choice([0.0, 0.3, 0.5, 1.0]), seed=rng.randint(0, 3))
    else:
        made = at.stream.drop(rng.choice([0.3, 0.5]), window=rng.choice([3, 10]), seed=7)
    pool.drawn[f"drop.{kind}"] += 1
    return pool.add(at.then(made, window=True), at.then(made.dropped, window=True))


@grows
def apply(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng, "n", "s", timed=False, ordered=False)
    if at is None or at.types["n"] != "int32" or at.types["s"] != "utf8":
        return False
    known = at.stream.filter("n IS NOT NULL")
    if rng.random() < 0.5:
        return pool.add(at.then(known.apply(user.copies, user.COPIES)))
    return pool.add(at.then(known.apply(user.doubled, user.DOUBLED)))


# -- several inputs


@grows
def union(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng, timed=False, ordered=False)
    if at is None:
        return False
    other = rng.choice([each for each in pool.streams if compatible(at, each)])
    if other is at:
        other = at.then(at.stream.filter(predicate(rng, at.types)), window=True)
    window = at.window if at.window == other.window else None
    return pool.add(Stream(at.stream.union(other.stream), loose=True, window=window, untold=at.untold))


@grows
def sunion(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng)
    if at is None:
        return False
    other = rng.choice([each for each in pool.streams if compatible(at, each) and not each.loose])
    if other is at:
        other = at.then(at.stream.filter(predicate(rng, at.types)), window=True)
    window = at.window if at.window == other.window else None
    made = md.sunion(at.stream, other.stream, bucket=rng.choice([1, 3, 10, 100]))
    return pool.add(Stream(made, window=window))


def compatible(one: Stream, other: Stream) -> bool:
    return (
        list(one.types.items()) == list(other.types.items())
        and one.stream.timed == other.stream.timed
        and not other.dead
        and one.untold == other.untold
    )


# -- order and time


@grows
def bsort(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng)
    by = sortable(rng, at)
    if at is None or by is None:
        return False
    return pool.add(at.then(at.stream.bsort(by, slack=rng.randint(0, 4), by=keys(rng, at.types) or None)))


@grows
def wsort(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng)
    by = sortable(rng, at)
    if at is None or by is None:
        return False
    made = at.stream.wsort(by, timeout=rng.choice([1, 3, 8, 30]), by=keys(rng, at.types) or None)
    return pool.add(at.then(made), at.then(made.dropped))


def sortable(rng: random.Random, at: Stream | None) -> str | None:
    names = [] if at is None else of_family(at.types, "int", "uint64", "float", "time", "date32")
    return rng.choice(names) if names else None


@grows
def resample(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng, "ts")
    if at is None or at.types["ts"] != "timestamp[us, UTC]" or "gap" in at.types:
        return False
    kept = [
        name
        for name, type in at.types.items()
        if type in ("utf8", "bool") or (not name.startswith("w_") and (is_integer(type) or is_float(type)))
    ]
    small = at.stream.select("ts", *kept)
    made = small.resample(
        rng.choice([1, 2, 3, 7]),
        by=keys(rng, {name: at.types[name] for name in kept}) or None,
        how=rng.choice(["linear", "previous"]),
        gap=rng.choice([0, 2, 5, 20]),
    )
    rough = {name: f"r_{name}" for name in made.schema if is_float(made.schema[name]) and name[:2] != "r_"}
    renamed = {rough.get(name, name): quoted(name) for name in made.schema}
    return pool.add(Stream(made.select(**renamed)))


@grows
def distinct(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng)
    if at is None or any(is_decimal(type) for type in at.types.values()):
        return False
    return pool.add(at.then(at.stream.distinct(*keys(rng, at.types), within=rng.choice([1, 4, 10, 50]))))


__all__ = ["KINDS"]
