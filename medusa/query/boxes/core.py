"""The boxes that look at one row at a time, and the ends of a query."""

from __future__ import annotations

from typing import ClassVar

from medusa.query.boxes.base import BoxData, Input, Schema
from medusa.query.expressions.expression import Expression, Named
from medusa.query.qos import QoS

__all__ = ["Filter", "Select", "Sink", "Source", "Union", "WithColumns"]


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
    """

    id: str
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

    @property
    def ports(self) -> tuple[str, ...]:
        if self.time is None or self.judged:
            return ("",)
        return ("", "late") if self.ahead_us is None else ("", "late", "ahead")


class Filter(BoxData, frozen=True, tag_field="kind", tag="filter", kw_only=True):
    """Keeps the rows for which the predicate is true (not false, not null)."""

    id: str
    inputs: tuple[Input, ...]
    predicate: Expression


class Select(BoxData, frozen=True, tag_field="kind", tag="select", kw_only=True):
    """Aurora's Map: rows of exactly these columns."""

    id: str
    inputs: tuple[Input, ...]
    columns: tuple[Named, ...]


class WithColumns(BoxData, frozen=True, tag_field="kind", tag="with_columns", kw_only=True):
    """Adds columns, or replaces those of the same name in their place; keeps the others."""

    id: str
    inputs: tuple[Input, ...]
    columns: tuple[Named, ...]


class Union(BoxData, frozen=True, tag_field="kind", tag="union", kw_only=True):
    """The rows of several streams of one schema, in the order of arrival."""

    determinism: ClassVar[str] = "arbitrary"

    id: str
    inputs: tuple[Input, ...]


class Sink(BoxData, frozen=True, tag_field="kind", tag="sink", kw_only=True, omit_defaults=True):
    """Where rows leave, under this name.

    Attributes:
        qos: what they are worth; None: nobody said, and nothing of them is ever shed.
    """

    id: str
    inputs: tuple[Input, ...]
    qos: QoS | None = None
