"""Random queries as text: one for ``md.sql``, and what a mechanical rewriting makes of it for DuckDB.

DuckDB knows no TUMBLE, HOP and SESSION; and it reads ``a_ok`` where we read ``a``, the rows that come in
time, which is what a window takes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.differential.data import BASE, MORE, Event, Schema, value
from tests.differential.predicates import computed, family, predicate, quoted
from tests.oracle.query import Push

SECOND = 1_000_000
START = 1_714_521_600 * SECOND
NOT_HERE = ("uint8", "uint16", "uint32", "uint64", "duration[us]", "timestamp[us, UTC]")
HOWS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")


@dataclass
class Drawn:
    ours: str
    theirs: str
    schemas: dict[str, Schema]
    events: list[Event] = field(default_factory=list)
    loose: bool = False


def tables(rng: random.Random, *names: str) -> tuple[dict[str, Schema], list[Event]]:
    """Times are half seconds of about a minute, so that there are ties and edges of windows."""
    schemas = {}
    for name in names:
        types = dict(BASE)
        for number in range(rng.randint(0, 3)):
            types[f"c{number}"] = rng.choice([type for type in MORE if type not in NOT_HERE])
        schemas[name] = Schema(types)
    made: list[Event] = []
    now = START
    for _ in range(rng.randint(1, 6)):
        name = rng.choice(names)
        rows = []
        for _ in range(rng.randint(0, 14)):
            row = {column: value(rng, column, type) for column, type in schemas[name].types.items()}
            row["ts"] = now + rng.randint(-4, 16) * SECOND // 2
            rows.append(row)
        made.append(Push(name, rows))
        now += rng.randint(0, 16) * SECOND // 2
    return schemas, made


def aggregate(rng: random.Random, types: dict[str, str]) -> str:
    name = rng.choice([name for name in types if name != "ts"])
    x, kind = quoted(name), family(types[name])
    known = [f"count({x})", f"min({x})", f"max({x})", f"count(DISTINCT {x})", "count(*)"]
    known += [f"count(*) FILTER (WHERE {predicate(rng, types, 0)})"]
    if kind in ("int", "float", "decimal"):
        known += [f"sum({x})", f"avg({x})", f"max({x}) - min({x})", f"sum({x}) FILTER (WHERE n > 3)"]
    if kind == "int":
        known += [f"median({x})", f"quantile_cont({x}, 0.25)", f"stddev({x})", f"var_samp({x})"]
        known += [f"sum({x}) + count(*)", f"sum({x}) / count(*)"]
    return rng.choice(known)


def items(rng: random.Random, types: dict[str, str]) -> str:
    named = [f"{computed(rng, types)} AS e{number}" for number in range(rng.randint(1, 3))]
    return ", ".join(["ts", "n", *named])


def where(rng: random.Random, types: dict[str, str]) -> str:
    return f"WHERE {predicate(rng, types)}" if rng.random() < 0.5 else ""


def keys(rng: random.Random, types: dict[str, str]) -> list[str]:
    fit = [name for name in types if name != "ts" and family(types[name]) != "decimal"]
    known = [*map(quoted, fit), "n % 3", "coalesce(k, 9)", "upper(s)"]
    return rng.sample(known, rng.choice([0, 1, 1, 2]))


def bucket(seconds: int, time: str = "ts") -> str:
    return f"time_bucket(INTERVAL '{seconds} s', {time}, TIMESTAMP '1970-01-01')"


# -- kinds


def rows(rng: random.Random) -> Drawn:
    schemas, events = tables(rng, "a")
    types = schemas["a"].types
    text = f"SELECT {items(rng, types)} FROM a {where(rng, types)}"
    if rng.random() < 0.4:
        text = f"WITH w AS ({text}) SELECT * FROM w WHERE n > 3"
    elif rng.random() < 0.4:
        text = f"SELECT * EXCLUDE (n) FROM ({text}) AS x WHERE e0 IS NOT NULL"
    return Drawn(text, text, schemas, events)


def union_all(rng: random.Random) -> Drawn:
    schemas, events = tables(rng, "a", "b")
    text = "SELECT ts, k, v FROM a UNION ALL SELECT ts, k + 1, v FROM b"
    if rng.random() < 0.5:
        text = f"SELECT k, v FROM ({text}) AS u {where(rng, {'k': 'int64', 'v': 'float64'})}"
    return Drawn(text, text, schemas, events, loose=True)


def grouped(rng: random.Random, window: str, template: str, bucket: str) -> Drawn:
    """``template``: DuckDB's text with {keys}, {items}, {where} and {having}."""
    schemas, events = tables(rng, "a")
    types = schemas["a"].types
    by = keys(rng, types)
    listed = [f"{key} AS g{number}" for number, key in enumerate(by)]
    listed += [f"{aggregate(rng, types)} AS x{number}" for number in range(rng.randint(1, 3))]
    condition = where(rng, types)
    having = rng.choice(["", "", "HAVING count(*) > 1"])
    groups = ", ".join([*by, window])
    ours = f"SELECT window_start, {', '.join(listed)} FROM a {condition} GROUP BY {groups} {having}"
    parts = {
        "keys": ", ".join([*by, bucket]),
        "items": ", ".join(listed),
        "where": condition,
        "and": condition.replace("WHERE", "AND (") + (")" if condition else ""),
        "having": having,
        "by": ", ".join(by) or "1",
        "names": ", ".join(f"{key} AS q{number}" for number, key in enumerate(by)),
    }
    return Drawn(ours, template.format(**parts), schemas, events)


def tumbling(rng: random.Random) -> Drawn:
    size = rng.choice([1, 2, 5, 7, 60])
    template = "SELECT " + bucket(size) + ", {items} FROM a_ok {where} GROUP BY {keys} {having}"
    return grouped(rng, f"TUMBLE(ts, INTERVAL '{size}' SECOND)", template, bucket(size))


def hopping(rng: random.Random) -> Drawn:
    size, slide = rng.choice([(4, 1), (10, 3), (6, 2), (60, 20)])
    us, step = size * SECOND, slide * SECOND
    template = (
        f"SELECT make_timestamp(w), {{items}} FROM (SELECT *, unnest(generate_series("
        f"epoch_us(ts) // {step} - {-(-size // slide)}, epoch_us(ts) // {step})) * {step} AS w FROM a_ok)"
        f" WHERE epoch_us(ts) < w + {us} {{and}} GROUP BY {{keys}} {{having}}"
    )
    return grouped(rng, f"HOP(ts, INTERVAL '{slide}' SECOND, INTERVAL '{size}' SECOND)", template, "w")


def sessions(rng: random.Random) -> Drawn:
    gap = rng.choice([1, 2, 4])
    template = (
        "WITH l AS (SELECT *, CASE WHEN ts - lag(ts) OVER w < INTERVAL '"
        + str(gap)
        + " s' THEN 0 ELSE 1 END AS begins FROM a_ok {where} WINDOW w AS (PARTITION BY {by} ORDER BY ts)),"
        " g AS (SELECT *, sum(begins) OVER (PARTITION BY {by} ORDER BY ts RANGE UNBOUNDED PRECEDING) AS part"
        " FROM l)"
        " SELECT min(ts), {items} FROM g GROUP BY {keys} {having}"
    )
    return grouped(rng, f"SESSION(ts, INTERVAL '{gap}' SECOND)", template, "part")


def nested(rng: random.Random) -> Drawn:
    schemas, events = tables(rng, "a")
    inner = "SELECT {} AS t, k, count(*) AS n, max(v) AS m FROM {} GROUP BY k, {}"
    outer = "SELECT sum(n) AS c, max(m) AS m, count(*) AS c2 FROM ({}) AS i GROUP BY {}"
    size = rng.choice([20, 40])
    ours = outer.format(
        inner.format("window_start", "a", "TUMBLE(ts, INTERVAL '5' SECOND)"),
        f"TUMBLE(tuple_time, INTERVAL '{size}' SECOND)",
    )
    theirs = outer.format(inner.format(bucket(5), "a_ok", bucket(5)), bucket(size, "t"))
    return Drawn(ours, theirs, schemas, events)


def joins(rng: random.Random) -> Drawn:
    schemas, events = tables(rng, "a", "b")
    low, high = rng.choice([(2, 2), (0, 3), (5, 1), (0, 0)])
    bounds = f"l.ts BETWEEN r.ts - INTERVAL '{low}' SECOND AND r.ts + INTERVAL '{high}' SECOND"
    key = rng.choice(["l.k = r.k", "l.s = r.s", "l.v = r.v", "l.k = r.n", "l.k = r.k AND l.s = r.s"])
    extra = rng.choice(["", "AND l.v < r.v", "AND l.n <> r.n", "AND (l.s = r.s OR l.n > 4)"])
    how = rng.choice(HOWS)
    shown = "l.ts AS a, l.n AS b, l.v AS c"
    if how not in ("SEMI JOIN", "ANTI JOIN"):
        shown += ", r.ts AS d, r.k AS e, r.s AS f"
    text = f"SELECT {shown} FROM {{}} l {how} {{}} r ON {key} AND {bounds} {extra}"
    return Drawn(text.format("a", "b"), text.format("a_ok", "b_ok"), schemas, events)


def window_joins(rng: random.Random) -> Drawn:
    schemas, events = tables(rng, "a", "b")
    size, how = rng.choice([2, 5, 20]), rng.choice(HOWS)
    shown = "p.k AS k, p.n AS n" + ("" if how in ("SEMI JOIN", "ANTI JOIN") else ", q.n AS m, q.k AS j")
    text = (
        f"WITH p AS ({{}}), q AS ({{}}) SELECT {shown} FROM p {how} q"
        " ON p.window_start = q.window_start AND p.k = q.k AND p.n <= q.n"
    )
    window = "TUMBLE(ts, INTERVAL '{}' SECOND)"
    ours = [f"SELECT window_start, window_end, k, count(*) AS n FROM {{}} GROUP BY k, {window}"]
    theirs = [f"SELECT {bucket(size)} AS window_start, k, count(*) AS n FROM {{}} GROUP BY k, {bucket(size)}"]
    return Drawn(
        text.format(*(ours[0].format(name, size) for name in ("a", "b"))),
        text.format(*(theirs[0].format(name) for name in ("a_ok", "b_ok"))),
        schemas,
        events,
    )


def asof(rng: random.Random) -> Drawn:
    """Of several right rows of one time DuckDB takes any: so it is given the last of them only."""
    schemas, events = tables(rng, "a", "b")
    how, key = rng.choice(["ASOF JOIN", "ASOF LEFT JOIN"]), rng.choice(["k", "s"])
    text = (
        "SELECT l.ts AS a, l.v AS b, r.ts AS c, r.v AS d"
        f" FROM {{}} l {how} {{}} r ON l.{key} = r.{key} AND l.ts >= r.ts"
    )
    last = f"(SELECT * FROM b_ok QUALIFY row_number() OVER (PARTITION BY {key}, ts ORDER BY pos DESC) = 1)"
    return Drawn(text.format("a", "b"), text.format("a_ok", last), schemas, events)


def top(rng: random.Random) -> Drawn:
    """Of equal rows the earlier one; null last."""
    schemas, events = tables(rng, "a")
    size, n = rng.choice([2, 5, 20]), rng.choice([1, 2, 3])
    order, by = rng.choice(["DESC", "ASC"]), rng.choice(["v", "n", "s"])
    text = (
        "SELECT k, {by}, n FROM {table} QUALIFY ROW_NUMBER() OVER"
        " (PARTITION BY k, {window} ORDER BY {by} {order} NULLS LAST{tie}) <= {n}"
    )
    parts = {"by": by, "order": order, "n": n}
    ours = text.format(**parts, table="a", window=f"TUMBLE(ts, INTERVAL '{size}' SECOND)", tie="")
    theirs = text.format(**parts, table="a_ok", window=bucket(size), tie=", pos")
    if by == "n":
        ours, theirs = (each.replace("SELECT k, n, n", "SELECT k, n") for each in (ours, theirs))
    return Drawn(ours, theirs, schemas, events)


KINDS: list[Callable[[random.Random], Drawn]] = [
    *(rows, union_all, tumbling, hopping, sessions),
    *(nested, joins, window_joins, asof, top),
]
