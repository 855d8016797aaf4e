"""The shape of a source, and every check of what it says of time."""

from __future__ import annotations

import re
from collections.abc import Mapping

from medusa.errors import QueryError
from medusa.query.boxes import Schema, Source
from medusa.query.shape import WINDOW_COLUMNS, Shape, WindowKind, types_of
from medusa.query.suggest import did_you_mean
from medusa.query.types import TIMESTAMP, check_column_name, is_decimal, is_integer, is_type
from medusa.units import DURATION_MAX_US

__all__ = ["PARTITIONS_MAX", "source_shape"]

SOURCE_UNITS = ("s", "ms", "us", "ns")

FULL_NAME = r"[a-z0-9_-]{1,64}/[!-~]{1,190}"

PARTITIONS_MAX = 100_000
"""Partitions that a source may list."""


def source_shape(box: Source, label: str, port: str) -> Shape:
    types = types_of(box.schema)
    _check_schema(box.schema, label)
    _check_judged(box, label)
    if box.time is None:
        _refuse_without_time(box, label)
    else:
        _check_time(box, box.time, types, label, what="time")
        _check_arrival(box, types, label)
        _check_partitions(box, types, label)
    for name, length, least in (
        ("slack", box.slack_us, 0),
        ("idle", box.idle_us, 1),
        ("ahead", box.ahead_us, 0),
    ):
        if length is not None and not least <= length <= DURATION_MAX_US:
            raise QueryError(f"{label}: {name} is out of range", code="query.duration")
    if port not in box.ports:
        raise QueryError(
            f"{label}: has no port {port[:60]!r}",
            hint="a source with time= has .late, one with ahead= has .ahead; others judge no lateness",
            code="query.port",
        )
    if port:
        return Shape(f"source {f'{box.id}.{port}'!r}", box.schema, timed=False)
    return Shape(label, box.schema, timed=box.timed, window=_window_of(box, types, label))


def _window_of(box: Source, types: Mapping[str, str], label: str) -> WindowKind | None:
    """What the owner of a judged source says of its windows, where they were cut."""
    if box.window_us is None:
        return None
    size_us, advance_us = box.window_us
    if (
        not box.judged
        or not box.timed
        or not 0 < advance_us <= size_us <= DURATION_MAX_US
        or any(types.get(name) != TIMESTAMP for name in WINDOW_COLUMNS)
    ):
        raise QueryError(f"{label}: its rows are no results of windows", code="query.source")
    return WindowKind(size_us, advance_us)


def _check_schema(schema: Schema, label: str) -> None:
    names: set[str] = set()
    if not schema:
        raise QueryError(f"{label}: the schema has no columns", code="query.schema")
    for field in schema:
        check_column_name(field.name, what=label)
        if field.name in names:
            raise QueryError(f"{label}: column {field.name!r} stands twice", code="query.schema")
        names.add(field.name)
        if not is_type(field.type):
            raise QueryError(
                f"{label}: column {field.name!r}: type {field.type[:60]!r} is not supported",
                code="query.type",
            )


def _of_time(box: Source) -> dict[str, object]:
    """What only a source with time that judges lateness can have, as far as it was given."""
    given = {
        "unit": box.unit,
        "slack": box.slack_us,
        "idle": box.idle_us,
        "ahead": box.ahead_us,
        "arrival": box.arrival,
        "partition": box.partition,
        "partitions": box.partitions,
    }
    return {name: value for name, value in given.items() if value is not None}


def _check_judged(box: Source, label: str) -> None:
    if box.judged and (box.time is not None or _of_time(box)):
        own = ", ".join(_of_time(box)) or "time"
        raise QueryError(f"{label}: a judged source has no {own} of its own", code="query.source")
    if box.of is not None and (not box.judged or not re.fullmatch(FULL_NAME, box.of)):
        raise QueryError(
            f"{label}: of is {box.of[:80]!r}, no full name of a stream that was judged already",
            hint='of=fed.stream("bob/cars")',
            code="query.source",
        )
    if not box.judged and box.timed != (box.time is not None):
        raise QueryError(f"{label}: timed is for sources with a time column", code="query.source")


def _refuse_without_time(box: Source, label: str) -> None:
    given = _of_time(box)
    if given:
        raise QueryError(
            f"{label}: {' and '.join(f'{name}=' for name in given)} {'are' if len(given) > 1 else 'is'} for"
            " sources with time=",
            hint="say which column is the time: time=...",
            code="query.source",
        )


def _check_time(box: Source, name: str, types: Mapping[str, str], label: str, *, what: str) -> None:
    """A column that holds points of time: a timestamp, or an integer with ``unit``."""
    if name not in types:
        raise QueryError(
            f"{label}: the {what} column {name[:60]!r} is not in the schema",
            hint=did_you_mean(name, types),
            code="query.column",
        )
    type = types[name]
    if is_integer(type):
        if box.unit not in SOURCE_UNITS:
            came = f", got {box.unit!r:.60}" if box.unit is not None else ""
            raise QueryError(
                f'{label}: the {what} column {name!r} is {type} and needs unit="s", "ms", "us" or "ns"{came}',
                code="query.unit",
            )
    elif type != TIMESTAMP:
        raise QueryError(
            f"{label}: the {what} column {name!r} is {type}, expected a timestamp or an integer",
            code="query.type",
        )
    elif box.unit is not None:
        raise QueryError(f"{label}: unit= is for integer columns; {name!r} is a timestamp", code="query.unit")


def _check_arrival(box: Source, types: Mapping[str, str], label: str) -> None:
    if box.arrival is None:
        return
    if box.ahead_us is None:
        raise QueryError(
            f"{label}: arrival= says when rows came, which only ahead= asks for",
            hint='ahead="1h"',
            code="query.source",
        )
    _check_time(box, box.arrival, types, label, what="arrival")
    if is_integer(types[box.arrival]) != is_integer(types[box.time or ""]):
        raise QueryError(
            f"{label}: the arrival column {box.arrival!r} is {types[box.arrival]} and the time column"
            f" {box.time!r} is {types[box.time or '']}, expected one kind",
            code="query.type",
        )


def _check_partitions(box: Source, types: Mapping[str, str], label: str) -> None:
    if box.partition is None:
        if box.partitions is not None:
            raise QueryError(
                f"{label}: partitions= lists values of the column partition=...", code="query.source"
            )
        return
    type = types.get(box.partition)
    if type is None:
        raise QueryError(
            f"{label}: the partition column {box.partition[:60]!r} is not in the schema",
            hint=did_you_mean(box.partition, types),
            code="query.column",
        )
    if is_decimal(type):
        raise QueryError(
            f"{label}: the partition column {box.partition!r} is {type}, which can't be a key",
            code="query.type",
        )
    if box.partitions is not None:
        _check_listed(box.partitions, type, label)


def _check_listed(values: tuple[bool | int | str, ...], type: str, label: str) -> None:
    if not 0 < len(values) <= PARTITIONS_MAX:
        raise QueryError(
            f"{label}: partitions lists {len(values):,} values, expected 1 to {PARTITIONS_MAX:,}",
            code="query.source",
        )
    kinds: dict[str, object] = {"bool": bool, "utf8": str}
    expected = kinds.get(type, int)
    if expected is int and not is_integer(type):
        raise QueryError(
            f"{label}: partitions= lists integers, texts or bools; the partition column is {type}",
            hint="without partitions= those that were seen hold the boundary",
            code="query.type",
        )
    seen = set()
    for value in values:
        fits = value.__class__ is expected
        if fits and expected is int:
            bits, sign = int(type.lstrip("uint")), type.startswith("int")
            low = -(1 << (bits - 1)) if sign else 0
            fits = low <= int(value) < low + (1 << bits)
        if not fits or value in seen:
            why = "stands twice" if fits else f"is not {type}"
            raise QueryError(f"{label}: partitions: {value!r:.80} {why}", code="query.source")
        seen.add(value)
