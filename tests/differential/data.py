"""Random schemas and rows: every type, nulls, NaN, ties, disorder, duplicates, rows that come late.

A row holds plain values: timestamps and durations are microseconds, dates are days. The first letters of a
column's name say what may be done with it: ``w_`` holds the extremes of its type (nothing is computed with
them), ``r_`` any floats (compared within a tolerance, so nothing may depend on their bits), and all others
values with which sums are exact in any order.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from medusa.query.types import decimal_parts, is_decimal, is_float, is_integer, to_arrow
from tests.oracle.query import Promise, Push

Event = Push | Promise
Rows = list[dict[str, Any]]

TIMESTAMP = "timestamp[us, UTC]"
DURATION = "duration[us]"
# What the functions of tests.oracle.user and every query may count on.
BASE = {"ts": TIMESTAMP, "k": "int64", "n": "int32", "s": "utf8", "v": "float64"}
MORE = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "utf8", "binary", "date32", TIMESTAMP, DURATION, "decimal128(9, 2)"),
)
EXTREMES: dict[str, list[Any]] = {
    "int64": [None, -(2**63), 2**63 - 1, 0, 1],
    "uint64": [None, 2**64 - 1, 0, 2**63],
    "float64": [None, math.inf, -math.inf, math.nan, 1e300, 5e-324],
}
TEXTS = [None, "", "a", "b", "cc", "b", "Äö", "a longer text than others"]


@dataclass(frozen=True)
class Schema:
    """Of a source: its columns; whether times are an integer column; what its rows are like."""

    types: dict[str, str]

    def arrow(self) -> pa.Schema:
        return pa.schema([(name, to_arrow(type)) for name, type in self.types.items()])


def schema(rng: random.Random) -> Schema:
    types = dict(BASE)
    if rng.random() < 0.15:
        types["ts"] = "int64"
    for number in range(rng.randint(0, 4)):
        types[f"c{number}"] = rng.choice(MORE)
    if rng.random() < 0.3:
        types["r_f"] = "float64"
    if rng.random() < 0.3:
        type = rng.choice(list(EXTREMES))
        types[f"w_{type}"] = type
    names = list(types)
    rng.shuffle(names)
    return Schema({name: types[name] for name in names})


def value(rng: random.Random, name: str, type: str) -> Any:
    if name == "n":
        return rng.randint(0, 9)
    if name.startswith("w_"):
        return rng.choice(EXTREMES[type])
    if rng.random() < 0.12:
        return None
    if name == "k":
        return rng.randint(0, 3)
    if name.startswith("r_"):
        return rng.random() * 1000
    if type == "bool":
        return rng.random() < 0.5
    if is_integer(type):
        return rng.randint(0 if type.startswith("u") else -3, 5)
    if is_float(type):
        return rng.choice([math.nan, -0.0, 0.0]) if rng.random() < 0.2 else rng.randint(-4, 12) / 4
    if type == "utf8":
        return rng.choice(TEXTS)
    if type == "binary":
        return rng.choice([b"", b"\x00", b"ab", b"ab\xff"])
    if is_decimal(type):
        return Decimal(rng.randint(-300, 300)).scaleb(-decimal_parts(type)[1])
    return rng.randint(-3, 9)  # a date, time or duration


def rows(rng: random.Random, schema: Schema, around: int, most: int) -> Rows:
    """Times wander about ``around``; now and then a row is repeated whole."""
    made: Rows = []
    spread = rng.choice([2, 14, 14, 30])
    for _ in range(rng.randint(0, most)):
        if made and rng.random() < 0.1:
            made.append(dict(rng.choice(made)))
            continue
        row = {name: value(rng, name, type) for name, type in schema.types.items()}
        row["ts"] = around + rng.randint(-6, spread)
        if "arrival" in row:
            row["arrival"] = around + rng.randint(-10, 20)
        made.append(row)
    return made


def events(rng: random.Random, sources: dict[str, Schema], *, promises: bool) -> list[Event]:
    """Pushes, and explicit boundaries of several sources, in an order."""
    made: list[Event] = []
    now = rng.choice([0, 0, -20, 1000])
    promised = dict.fromkeys(sources, -(10**9))
    for _ in range(rng.randint(1, 8)):
        source = rng.choice(list(sources))
        if promises and rng.random() < 0.2:
            promised[source] = max(promised[source], now - rng.randint(0, 10))
            made.append(Promise(source, promised[source]))
            continue
        made.append(Push(source, rows(rng, sources[source], now, 12)))
        now += rng.randint(0, 15)
    return made


def batch(schema: Schema, rows: Rows) -> pa.RecordBatch:
    """Rows in Arrow; from plain values, so times are not read as calendars."""
    columns = []
    for name, type in schema.types.items():
        values = [row[name] for row in rows]
        arrow = to_arrow(type)
        if type in (TIMESTAMP, DURATION):
            columns.append(pa.array(values, pa.int64()).cast(arrow))
        elif type == "date32":
            columns.append(pa.array(values, pa.int32()).cast(arrow))
        else:
            columns.append(pa.array(values, arrow))
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow())


def plain(table: pa.Table) -> Rows:
    """Rows as above."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
            column = column.cast(pa.int64())
        elif pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        columns.append(column)
    return pa.table(columns, names=table.schema.names).to_pylist() if columns else []
