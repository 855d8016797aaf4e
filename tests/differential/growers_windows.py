"""Windows of every kind, running aggregates, the largest rows."""

from __future__ import annotations

import random
from typing import Any

import medusa as md
from tests.differential import aggregates
from tests.differential.pool import COLUMNS_MOST, Pool, Stream, grows, keys, suffix
from tests.differential.predicates import family, of_family, quoted

WINDOWS = [(5, None), (10, None), (10, 5), (10, 3), (7, 1), (1, None), (12, 8)]
SIZES = [(1, 1), (2, 2), (3, 1), (4, 2), (5, 3), (3, 3), (7, 2)]
HOWS = ["inner", "left", "right", "full", "semi", "anti"]


@grows
def window(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng, ordered=False)
    if at is None:
        return False
    size, by = rng.choice(WINDOWS), keys(rng, at.types)
    cut: Any = at.stream.window(size[0], advance=size[1])
    early = rng.choice([None, None, 2, 5])
    values = aggregates.draw(rng, at.types, pool.drawn, orderless=at.loose)
    made = (cut.group_by(*by) if by else cut).aggregate(values, early=early)
    pool.drawn["window.early"] += early is not None
    pool.drawn["window.sliding"] += size[1] is not None
    return pool.add(Stream(made, loose=at.loose, window=(size, tuple(by))))


@grows
def window_join(rng: random.Random, pool: Pool) -> bool:
    known = [each for each in pool.streams if each.window is not None and "window_start" in each.types]
    at = rng.choice(known) if known else None
    if at is None or len(at.types) > COLUMNS_MOST:
        return False
    others = [each for each in known if each.window[0] == at.window[0] and len(each.types) <= COLUMNS_MOST]
    other = rng.choice(others)
    on: Any = "window"
    shared = [name for name in keys(rng, at.types) if other.types.get(name) == at.types[name]]
    if shared:
        on = ["window", *shared]
    how = rng.choice(HOWS)
    made = at.stream.join(other.stream, on=on, how=how, suffixes=("", suffix(pool)))
    return pool.add(Stream(made, loose=at.loose or other.loose, window=at.window))


@grows
def session(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng)
    if at is None:
        return False
    by = keys(rng, at.types)
    cut: Any = at.stream.session(rng.choice([1, 2, 3, 5, 9, 30]))
    values = aggregates.draw(rng, at.types, pool.drawn)
    return pool.add(at.then((cut.group_by(*by) if by else cut).aggregate(values)))


@grows
def window_rows(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng, timed=False)
    if at is None:
        return False
    by = keys(rng, at.types)
    size, advance = rng.choice(SIZES)
    grouped: Any = at.stream.group_by(*by) if by else at.stream
    values = aggregates.draw(rng, at.types, pool.drawn)
    return pool.add(at.then(grouped.window_rows(size, advance).aggregate(values)))


@grows
def window_values(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng)
    names = [] if at is None else of_family(at.types, "int", "float", "time")
    if at is None or not names:
        return False
    by = keys(rng, at.types)
    name = "ts" if "ts" in names and rng.random() < 0.5 else rng.choice(names)
    size, advance = rng.choice(SIZES)
    sizes = (size / 4, advance / 4) if family(at.types[name]) == "float" else (size, advance)
    grouped: Any = at.stream.group_by(*by) if by else at.stream
    values = aggregates.draw(rng, at.types, pool.drawn)
    return pool.add(Stream(grouped.window_values(name, *sizes).aggregate(values), untold=True))


@grows
def running(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng, timed=False)
    if at is None:
        return False
    by = keys(rng, at.types)
    grouped: Any = at.stream.group_by(*by) if by else at.stream
    values: dict[str, Any] = {}
    if rng.random() < 0.7:
        values = dict(aggregates.draw(rng, at.types, pool.drawn))
    if rng.random() < 0.6 or not values:
        lagged = rng.choice(list(at.types))
        start = lagged[:2] if lagged[:2] in ("w_", "r_") else ""
        pool.drawn["_aggregates"] += 1
        values[f"{start}lag{pool.drawn['_aggregates']}"] = md.lag(quoted(lagged), rng.randint(1, 3))
        pool.drawn["aggregate.lag"] += 1
    expire = rng.choice([None, 1, 5, 20]) if at.stream.timed and not at.untold else None
    return pool.add(at.then(grouped.running(values, expire=expire)))


@grows
def top(rng: random.Random, pool: Pool) -> bool:
    at = pool.pick(rng)
    if at is None or {"rank", "window_start", "window_end"} & set(at.types):
        return False
    names = of_family(at.types, "int", "float", "utf8", "time", "uint64", "date32", "decimal")
    if not names:
        return False
    size, by = rng.choice(WINDOWS), keys(rng, at.types)
    cut: Any = at.stream.window(size[0], advance=size[1])
    cut = cut.group_by(*by) if by else cut
    made = cut.top(rng.randint(1, 3), by=quoted(rng.choice(names)), descending=rng.random() < 0.5)
    return pool.add(Stream(made, window=(size, tuple(by))))
