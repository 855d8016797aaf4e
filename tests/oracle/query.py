"""A query, computed slowly and obviously: the rules of semantics 1 to 3 on lists of rows.

Every box is a function from whole streams to a whole stream. There are no boundaries, no batches
and no state: what the engine must give once all sources have ended. Nothing here is shared with
the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from medusa.query.boxes import (
    Aggregate,
    AggregateCall,
    Box,
    Filter,
    Graph,
    Input,
    Route,
    Select,
    Sink,
    Source,
    Union,
    WithColumns,
)
from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal
from medusa.query.graph import check_graph
from tests.oracle import expression as scalar
from tests.oracle.expression import Failed

NEVER = -(1 << 62)
"""Before every time."""


@dataclass(frozen=True)
class Push:
    """Rows given to a source at one go, in their order; the time column holds microseconds."""

    source: str
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Promise:
    """An explicit boundary."""

    source: str
    time: int


@dataclass
class Row:
    """A row on its way; ``moment`` is the number of the push that it is part of."""

    values: dict[str, Any]
    time: int | None
    late: bool = False
    moment: int = 0


@dataclass
class Answer:
    """Rows of every sink in order, and how many rows each source judged late."""

    sinks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)


def answer(graph: Graph, events: list[Push | Promise]) -> Answer:
    """What comes out of all sinks when these events are followed by the end of all sources."""
    streams: dict[Input, list[Row]] = {}
    found = Answer()
    schemas = check_graph(graph).schemas
    places = {box.id: place for place, box in enumerate(graph.boxes)}
    for box in graph.boxes:
        inputs = [streams[arc] for arc in box.inputs]
        if isinstance(box, Filter | Select | WithColumns | Route):
            inputs[0], streams[Input(box.id, "dead")] = failed(box, inputs[0])
        if isinstance(box, Source):
            rows, ahead = judged(box, events)
            streams[Input(box.id, "ahead")] = ahead
            streams[Input(box.id, "late")] = [
                Row(row.values, None, moment=row.moment) for row in rows if row.late
            ]
            found.late[box.id] = sum(row.late for row in rows)
        elif isinstance(box, Sink):
            found.sinks[box.id] = [row.values for row in inputs[0]]
            rows = inputs[0]
        elif isinstance(box, Union):
            rows = united(box, inputs, places)
        else:
            rows = outcome(box, inputs, [[field.name for field in schemas[arc]] for arc in box.inputs])
        streams[Input(box.id)] = rows
        for port in box.ports[1:]:
            if Input(box.id, port) not in streams and type(box) in OUTCOMES:
                streams[Input(box.id, port)] = OUTCOMES[type(box)](box, *inputs, port=port)
    return found


def failed(box: Box, rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows on which no expression of a box fails, and those on which one does: without time, and
    without the text of the error and of the row."""
    kept, dead = [], []
    for row in rows:
        try:
            OUTCOMES[type(box)](box, [row])
            kept.append(row)
        except Failed:
            dead.append(Row({"box": box.id, "error": None, "row": None}, None, moment=row.moment))
    return kept, dead


def judged(box: Source, events: list[Push | Promise]) -> tuple[list[Row], list[Row]]:
    """The rows, and those too far ahead of their arrival.

    Row by row: late if below (largest earlier time of its partition - slack), below the boundary at
    which its partition began, or below an explicit one.
    """
    slack = box.slack_us or 0
    largest: dict[Any, int | None] = dict.fromkeys(box.partitions or ())
    began: dict[Any, int] = dict.fromkeys(box.partitions or (), NEVER)
    promised = NEVER

    def limit(part: Any) -> int:
        seen = largest[part]
        return max(NEVER if seen is None else seen - slack, began[part], promised)

    rows, ahead = [], []
    for moment, event in enumerate(events):
        if event.source != box.id:
            continue
        if isinstance(event, Promise):
            promised = event.time
            continue
        for values in event.rows:
            time = values[box.time] if box.time else None
            late = False
            if time is not None:
                if box.ahead_us is not None and time > values[box.arrival] + box.ahead_us:
                    ahead.append(Row(values, None, moment=moment))
                    continue
                part = same(values[box.partition]) if box.partition else None
                if part not in largest:
                    began[part] = min((limit(each) for each in largest), default=promised)
                    largest[part] = None
                late = time < limit(part)
                seen = largest[part]
                largest[part] = time if seen is None else max(seen, time)
            rows.append(Row(values, time, late, moment))
    return rows, ahead


def united(box: Union, inputs: list[list[Row]], places: dict[str, int]) -> list[Row]:
    """Arrival order: by push; within a push the branch whose box stands earlier comes first."""
    order = sorted(range(len(inputs)), key=lambda i: places[box.inputs[i].box])
    moments = sorted({row.moment for rows in inputs for row in rows})
    return [row for m in moments for i in order for row in inputs[i] if row.moment == m]


def outcome(box: Box, inputs: list[list[Row]], names: list[list[str]]) -> list[Row]:
    """``names``: the columns of each input, which a join has to know even of an empty one."""
    if type(box) in JOINS:
        return JOINS[type(box)](box, *inputs, *names)
    return OUTCOMES[type(box)](box, *inputs)


def selected(box: Select, rows: list[Row]) -> list[Row]:
    return [
        Row({n.name: value(n.expression, row) for n in box.columns}, row.time, row.late, row.moment)
        for row in rows
    ]


def extended(box: WithColumns, rows: list[Row]) -> list[Row]:
    return [
        Row(
            row.values | {n.name: value(n.expression, row) for n in box.columns},
            row.time,
            row.late,
            row.moment,
        )
        for row in rows
    ]


def on_time(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row.late]


# Windows


def windows(box: Aggregate, rows: list[Row]) -> list[Row]:
    """Windows [start, start + size) with start a multiple of advance; a result's time is end - 1."""
    groups: dict[tuple[int, int], dict[tuple[Any, ...], tuple[list[Any], list[Row]]]] = {}
    for row in rows:
        assert row.time is not None
        keys = [value(key.expression, row) for key in box.keys]
        start = row.time // box.advance_us * box.advance_us
        while start > row.time - box.size_us:
            window = groups.setdefault((start + box.size_us, start), {})
            window.setdefault(tuple(map(same, keys)), (keys, []))[1].append(row)
            start -= box.advance_us
    made = []
    for (end, start), window in sorted(groups.items()):
        for keys, members in window.values():
            values: dict[str, Any] = {"window_start": start, "window_end": end}
            values |= {key.name: k for key, k in zip(box.keys, keys, strict=True)}
            for call in box.aggregates:
                args = (
                    members if call.arg is None else [value(call.arg, row) for row in in_order(call, members)]
                )
                args = [a for a in args if a is not None]
                values[call.name] = aggregate(call.function, args, call.parameter)
            made.append(Row(values, end - 1))
    return made


def in_order(call: AggregateCall, rows: list[Row]) -> list[Row]:
    """first and last are by time, then by place."""
    return sorted(rows, key=lambda row: row.time or 0) if call.function in ("first", "last") else rows


def aggregate(function: str, args: list[Any], parameter: Any = None) -> Any:
    if function == "count":
        return len(args)
    if function in ("count_distinct", "approx_count_distinct"):  # few values: not approximate yet
        return len({same(a) for a in args})
    if not args or (function in ("variance", "stddev") and len(args) < 2):
        return None
    if function in ("first", "last"):
        return args[0 if function == "first" else -1]
    if function in ("quantile", "approx_quantile"):
        return quantile([float(a) for a in args], parameter, exact=function == "quantile")
    if function == "stddev":
        return math.sqrt(aggregate("variance", args))
    if function == "user":
        assert parameter == "test.Total"
    if function in ("sum", "user"):
        return sum(args)
    if function == "avg":
        return float(sum(args)) / len(args)
    if function == "variance":
        mean = sum(args) / len(args)
        return sum((a - mean) ** 2 for a in args) / (len(args) - 1)
    # NaN is the greatest.
    ordered = sorted(args, key=lambda a: (is_nan(a), 0 if is_nan(a) else a))
    return ordered[0] if function == "min" else ordered[-1]


def quantile(args: list[float], q: float, *, exact: bool) -> float:
    """Interpolated; or the middle of the value's bucket: 128 of them in a factor of two."""
    ordered = sorted(args, key=lambda a: (is_nan(a), 0 if is_nan(a) else a))
    rank = q * (len(ordered) - 1)
    low = ordered[math.floor(rank)]
    if not exact:
        return bucket(low)
    high, part = ordered[math.ceil(rank)], rank - math.floor(rank)
    return low if part == 0 or low == high else low * (1 - part) + high * part


def bucket(a: float) -> float:
    if a == 0 or math.isnan(a) or math.isinf(a):
        return a
    mantissa, exponent = math.frexp(abs(a))
    low = math.ldexp(math.floor(mantissa * 256) / 256, exponent)
    high = math.nextafter(low + math.ldexp(1 / 256, exponent), 0)
    return math.copysign(low + (high - low) / 2, a)


# Expressions: the rules of null and NaN here, the functions in tests.oracle.expression


def value(expression: Expression, row: Row) -> Any:
    match expression:
        case Column(name):
            return row.values[name]
        case Literal():
            return expression.value
        case Call(function, args):
            if function == "tuple_time":
                return row.time
            if function in LAZY:
                return LAZY[function](args, row)
            return call(function, [value(arg, row) for arg in args])
        case Cast(arg, type):
            return scalar.cast(with_kind(value(arg, row)), type)[1]
        case Case(branches, otherwise):
            for condition, chosen in branches:
                if value(condition, row) is True:
                    return value(chosen, row)
            return None if otherwise is None else value(otherwise, row)
    raise AssertionError(expression)


def until(decisive: bool) -> Callable[[tuple[Expression, ...], Row], Any]:
    """AND and OR: from the left, until the answer is known."""

    def ask(args: tuple[Expression, ...], row: Row) -> Any:
        found: Any = not decisive
        for arg in args:
            each = value(arg, row)
            if each is decisive:
                return decisive
            found = None if each is None else found
        return found

    return ask


def coalesce(args: tuple[Expression, ...], row: Row) -> Any:
    return next((each for arg in args if (each := value(arg, row)) is not None), None)


LAZY = {"and": until(False), "or": until(True), "coalesce": coalesce}
KINDS = {bool: "bool", int: "int", float: "float", str: "text", type(None): "none"}


def with_kind(x: Any) -> scalar.Value:
    return KINDS[type(x)], x


def call(function: str, args: list[Any]) -> Any:
    if function == "is_null":
        return args[0] is None
    if function == "is_not_null":
        return args[0] is not None
    if function in ("is_distinct_from", "in", "least", "greatest"):
        return scalar.STRICT[function](*map(with_kind, args))[1]
    if any(arg is None for arg in args):
        return None
    match function:
        case "epoch_us":
            return args[0]
        case "not":
            return not args[0]
        case "add":
            return sum(args[1:], args[0])
        case "sub":
            return args[0] - args[1]
        case "mul":
            return math.prod(args)
        case "eq":
            return same(args[0]) == same(args[1])
        case "ne":
            return same(args[0]) != same(args[1])
        case "lt" | "le" | "gt" | "ge":
            a, b = ((is_nan(x), 0 if is_nan(x) else x) for x in args)
            return {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[function]
    return scalar.STRICT[function](*map(with_kind, args))[1]


def is_nan(x: Any) -> bool:
    return isinstance(x, float) and math.isnan(x)


def same(x: Any) -> Any:
    """Equal for values that count as equal: one NaN, -0.0 is 0.0, null is itself."""
    return "nan" if is_nan(x) else x


# Comparing


def is_ascending(numbers: list[int]) -> bool:
    return all(a <= b for a, b in pairwise(numbers))


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that ``==`` compares as semantics 3 does."""
    return [{name: same(v) for name, v in row.items()} for row in rows]


OUTCOMES: dict[type, Callable[..., list[Row]]] = {
    Filter: lambda box, rows: [row for row in rows if value(box.predicate, row) is True],
    Select: selected,
    WithColumns: extended,
    Aggregate: lambda box, rows: windows(box, on_time(rows)),
}
"""The rows that a box gives for the rows of its inputs; boxes of one file of the oracle register here."""

JOINS: dict[type, Callable[..., list[Row]]] = {}
"""The same of boxes that are told the columns of their two inputs too."""

# Each registers its boxes.
import tests.oracle.flow  # noqa: E402
import tests.oracle.joins  # noqa: E402
import tests.oracle.order  # noqa: E402
import tests.oracle.splits  # noqa: E402, F401
