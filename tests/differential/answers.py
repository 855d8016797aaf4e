"""Comparing what came out: runs with each other bit by bit, and with the slow oracle as sequences."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

import tests.oracle.user
import tests.oracle.window_kinds  # noqa: F401  both register their boxes
from tests.differential.data import Event, plain
from tests.differential.generator import Case
from tests.oracle.query import Answer, answer

Tables = Mapping[str, pa.Table]


class Difference(AssertionError):
    """Two answers differ; says where, and how to replay it."""


def expected(case: Case, events: list[Event]) -> Answer:
    return answer(case.query.graph, events)


def bits(value: Any) -> Any:
    """What tells every bit of a value; all NaN are one."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    return value


def same_bits(case: Case, base: Tables, found: Tables, what: str) -> None:
    for sink, table in base.items():
        ours, theirs = (
            [tuple((type(v).__name__, bits(v)) for v in row.values()) for row in plain(each[sink])]
            for each in (base, found)
        )
        if sink in case.loose:
            ours, theirs = (sorted(each, key=repr) for each in (ours, theirs))
        if table.schema != found[sink].schema:
            raise Difference(f"{what}: sink {sink}: {found[sink].schema} instead of {table.schema}")
        compare(ours, theirs, f"{what}: sink {sink}")


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Decimal | float) and isinstance(b, Decimal | float | int):
        a, b = float(a), float(b)
    if isinstance(a, float) and isinstance(b, float | int):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-7)
    return bool(a == b)


def same_answer(case: Case, found: Tables, oracle: Answer, what: str) -> None:
    if set(found) != set(oracle.sinks):
        raise Difference(f"{what}: sinks {sorted(found)}, expected {sorted(oracle.sinks)}")
    for sink, rows in oracle.sinks.items():
        names = case.only.get(sink, found[sink].schema.names)
        ours = [tuple(row[name] for name in names) for row in plain(found[sink])]
        theirs = [tuple(row[name] for name in names) for row in rows]
        same_rows(ours, theirs, f"{what}: sink {sink}", loose=sink in case.loose)


def same_rows(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], what: str, *, loose: bool) -> None:
    """As sequences; ``loose``: as multisets."""
    if loose:
        ours, theirs = (sorted(each, key=sorting) for each in (ours, theirs))
    for number in range(max(len(ours), len(theirs))):
        if number >= len(ours) or number >= len(theirs):
            break
        pairs = zip(ours[number], theirs[number], strict=True)
        if not all(same(a, b) for a, b in pairs):
            compare(ours, theirs, what, number)
    if len(ours) != len(theirs):
        compare(ours, theirs, what, min(len(ours), len(theirs)))


def sorting(row: tuple[Any, ...]) -> list[tuple[int, str]]:
    """DuckDB's sums of integers are decimals, so numbers of any type are alike."""
    return [cell(v) for v in row]


def cell(v: Any) -> tuple[int, str]:
    if isinstance(v, int | float | Decimal) and not isinstance(v, bool):
        return 1, "nan" if math.isnan(v) else f"{round(float(v), 6) + 0.0:.6f}"
    return (0, "") if v is None else (2, repr(v))


def compare(ours: list[Any], theirs: list[Any], what: str, at: int | None = None) -> None:
    if at is None:
        if ours == theirs:
            return
        pairs = zip(ours, theirs, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
    one = ours[at] if at < len(ours) else "nothing"
    other = theirs[at] if at < len(theirs) else "nothing"
    raise Difference(f"{what}, row {at} of {len(ours)} and {len(theirs)}:\n  {one}\n  {other}")
