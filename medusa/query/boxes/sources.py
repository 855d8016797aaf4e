"""Where rows enter, and every check of what a source says of time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from medusa.errors import QueryError
from medusa.query.boxes.base import BoxData
from medusa.query.boxes.shedding_rule import SheddingRule, check_rule
from medusa.query.shape import WINDOW_COLUMNS, StreamShape, WindowKind, types_of
from medusa.query.structs import Input, Schema
from medusa.query.suggest import did_you_mean
from medusa.query.types import TIMESTAMP, check_column_name, is_decimal, is_integer, is_type
from medusa.units import DURATION_MAX_US, duration_text

__all__ = ["PARTITIONS_MAX", "Source"]


SOURCE_UNITS = ("s", "ms", "us", "ns")
FULL_NAME = r"[a-z0-9_-]{1,64}/[!-~]{1,190}"
PARTITIONS_MAX = 100_000
"""Partitions that a source may list."""


class Source(BoxData, frozen=True, tag_field="kind", tag="source", kw_only=True):
    """Where rows enter.

    Attributes:
        time: the column that holds the time; None: a stream without time.
        unit: ``s``, ``ms``, ``us`` or ``ns`` of an integer time column; None for a timestamp.
        slack_us: how late a row may be; None: measured for bounded input, 0 live.
        judged: the rows come from another fragment, with their time beside them, and lateness was
            judged where they entered; ``time`` and ``unit`` are then None. ``timed`` tells whether
            there is a time.
        timed: there is a hidden time (true for every source with ``time``).
        window_us: of a judged source whose rows are results of windows: their size and advance.
        idle_us: after so long without rows the source (or one of its partitions) no longer holds
            others back; None: it does for ever.
        ahead_us: how far a row's time may be ahead of its arrival; None: as far as it likes.
        arrival: the column that holds the arrival times, of the kind of ``time``; None: given at the push.
        partition: the column by whose values lateness is judged apart; None: there is one for all.
        partitions: the values that hold the boundary until they have been seen; None: those seen.
        of: of a judged source, the full name of the stream of the catalog that it reads.
        shed: what a node may leave out behind it under overload, as placement found; None: nothing.
    """

    inputs_least: ClassVar[int] = 0
    inputs_most: ClassVar[int] = 0
    keeps_state = False
    last_result = 0, 0, 0
    stays_whole = "a source that is named at several nodes is split there"

    schema: Schema
    time: str | None = None
    unit: str | None = None
    slack_us: int | None = None
    judged: bool = False
    timed: bool = True
    window_us: tuple[int, int] | None = None
    idle_us: int | None = None
    ahead_us: int | None = None
    arrival: str | None = None
    partition: str | None = None
    partitions: tuple[bool | int | str, ...] | None = None
    of: str | None = None
    inputs: tuple[Input, ...] = ()
    shed: SheddingRule | None = None

    @property
    def ports(self) -> tuple[str, ...]:
        if self.time is None or self.judged:
            return ("",)
        return ("", "late") if self.ahead_us is None else ("", "late", "ahead")

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        types = types_of(self.schema)
        _check_schema(self.schema, label)
        _check_judged(self, label)
        if self.time is None:
            _refuse_without_time(self, label)
        else:
            _check_time(self, self.time, types, label, what="time")
            _check_arrival(self, types, label)
            _check_partitions(self, types, label)
        for name, length, least in (
            ("slack", self.slack_us, 0),
            ("idle", self.idle_us, 1),
            ("ahead", self.ahead_us, 0),
        ):
            if length is not None and not least <= length <= DURATION_MAX_US:
                raise QueryError(f"{label}: {name} is out of range", code="query.duration")
        if self.shed is not None:
            check_rule(self.shed, types, label, timed=self.timed)
        if port not in self.ports:
            raise QueryError(
                f"{label}: has no port {port[:60]!r}",
                hint="a source with time= has .late, one with ahead= has .ahead; others judge no lateness",
                code="query.port",
            )
        if port:
            return StreamShape(f"source {f'{self.id}.{port}'!r}", self.schema, timed=False)
        return StreamShape(label, self.schema, timed=self.timed, window=_window_of(self, types, label))

    def describe(self) -> str:
        text = self._described()
        return text if self.shed is None else f"{text}, {self.shed.describe()}"

    def _described(self) -> str:
        if self.judged:
            origin = "another fragment" if self.of is None else self.of
            text = f"from {origin}, " + ("lateness judged there" if self.timed else "without time")
            return f"{text}, results of {WindowKind(*self.window_us)}" if self.window_us else text
        if self.time is None:
            return "without time"
        parts = [f"time {self.time}" + (f" ({self.unit})" if self.unit else "")]
        lengths = {"slack": self.slack_us, "idle after": self.idle_us, "at most ahead": self.ahead_us}
        parts += [f"{name} {duration_text(us)}" for name, us in lengths.items() if us is not None]
        if self.arrival is not None:
            parts.append(f"arrival {self.arrival}")
        if self.partition is not None:
            listed = "" if self.partitions is None else f" ({len(self.partitions):,} listed)"
            parts.append(f"partitions by {self.partition}{listed}")
        return ", ".join(parts)


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
        _checklisted(box.partitions, type, label)


def _checklisted(values: tuple[bool | int | str, ...], type: str, label: str) -> None:
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
