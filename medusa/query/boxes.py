"""The boxes of a query: plain frozen data, checked when built, equal in memory, file and on links."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from medusa.query.expression import Expression, Named

__all__ = [
    "AGGREGATE_FUNCTIONS",
    "AggregateCall",
    "Aggregate",
    "Box",
    "Field",
    "Filter",
    "Graph",
    "Input",
    "Join",
    "Schema",
    "Select",
    "Sink",
    "Source",
    "Union",
    "WindowJoin",
    "WithColumns",
]

FORMAT_VERSION = 1
"""Of the JSON and msgpack form of a graph; a reader refuses a higher one."""

AGGREGATE_FUNCTIONS = ("count", "sum", "min", "max", "avg", "variance", "count_distinct")


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Plain frozen data; a reader refuses parts that it doesn't know."""


class Field(_Data, frozen=True):
    """A column: its name and its type as text (``medusa.query.types``)."""

    name: str
    type: str


Schema: TypeAlias = tuple[Field, ...]


class Input(_Data, frozen=True):
    """Where an arc begins: a box and one of its ports.

    Ports: ``""`` the output proper; ``late`` of a source: the rows that came too late.
    """

    box: str
    port: str = ""


class Source(_Data, frozen=True, tag_field="kind", tag="source", kw_only=True):
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
    """

    id: str
    schema: Schema
    time: str | None = None
    unit: str | None = None
    slack_us: int | None = None
    judged: bool = False
    timed: bool = True
    window_us: tuple[int, int] | None = None
    inputs: tuple[Input, ...] = ()


class Filter(_Data, frozen=True, tag_field="kind", tag="filter", kw_only=True):
    """Keeps the rows for which the predicate is true (not false, not null)."""

    id: str
    inputs: tuple[Input, ...]
    predicate: Expression


class Select(_Data, frozen=True, tag_field="kind", tag="select", kw_only=True):
    """Aurora's Map: rows of exactly these columns."""

    id: str
    inputs: tuple[Input, ...]
    columns: tuple[Named, ...]


class WithColumns(_Data, frozen=True, tag_field="kind", tag="with_columns", kw_only=True):
    """Adds columns, or replaces those of the same name in their place; keeps the others."""

    id: str
    inputs: tuple[Input, ...]
    columns: tuple[Named, ...]


class Union(_Data, frozen=True, tag_field="kind", tag="union", kw_only=True):
    """The rows of several streams of one schema, in the order of arrival."""

    id: str
    inputs: tuple[Input, ...]


class AggregateCall(_Data, frozen=True):
    """One aggregate of a window: its output name, function and argument (none: ``count`` of rows)."""

    name: str
    function: str
    arg: Expression | None = None


class Aggregate(_Data, frozen=True, tag_field="kind", tag="aggregate", kw_only=True):
    """Groups and aggregates per tumbling or sliding window, aligned to the epoch.

    Attributes:
        size_us, advance_us: the window; tumbling where equal; 0 < advance <= size.
        keys: the grouping columns in order; may be empty (one group a window).
        aggregates: at least one.
        stage: ``whole``; or, where a deployment splits the box, ``partial`` (sends accumulators of
            each closed window) and ``combine`` (merges those of all its inputs; rows leave by key,
            null first). A ``combine`` box keeps keys and aggregates of the box it came from; its
            inputs have the schema that ``partial`` gives.
    """

    id: str
    inputs: tuple[Input, ...]
    size_us: int
    advance_us: int
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]
    stage: str = "whole"


class Join(_Data, frozen=True, tag_field="kind", tag="join", kw_only=True):
    """Inner equi-join of rows at most ``within_us`` apart in time (either way, inclusive).

    ``left_keys[i]`` is matched with ``right_keys[i]``; the output has the key columns once, under
    the left names, then the other left columns, then the other right columns, with
    ``suffixes`` added to names that both sides have.
    """

    id: str
    inputs: tuple[Input, ...]
    left_keys: tuple[Named, ...]
    right_keys: tuple[Named, ...]
    within_us: int
    where: Expression | None = None
    how: str = "inner"
    suffixes: tuple[str, str] = ("", "_right")


class WindowJoin(_Data, frozen=True, tag_field="kind", tag="window_join", kw_only=True):
    """Inner join of rows of equal ``window_start`` and ``window_end`` (and equal keys).

    Output: window_start, window_end, the keys, the other left columns, the other right columns.
    """

    id: str
    inputs: tuple[Input, ...]
    left_keys: tuple[Named, ...] = ()
    right_keys: tuple[Named, ...] = ()
    where: Expression | None = None
    how: str = "inner"
    suffixes: tuple[str, str] = ("", "_right")


class Sink(_Data, frozen=True, tag_field="kind", tag="sink", kw_only=True):
    """Where rows leave, under this name."""

    id: str
    inputs: tuple[Input, ...]


Box: TypeAlias = Source | Filter | Select | WithColumns | Union | Aggregate | Join | WindowJoin | Sink


class Graph(_Data, frozen=True, kw_only=True):
    """A whole query, or a fragment of one: boxes in an order in which inputs come first."""

    name: str
    boxes: tuple[Box, ...]
    version: int = FORMAT_VERSION
