"""What a box does, and what it waits for, in one line each: for plans and drawings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from medusa.query.boxes import (
    Aggregate,
    AggregateCall,
    Apply,
    AsofJoin,
    Box,
    BSort,
    ConnectionPoint,
    Distinct,
    Filter,
    Join,
    KeyRouter,
    Lookup,
    OrderedMerge,
    Process,
    RandomDrop,
    Resample,
    Route,
    RowWindow,
    Running,
    Schema,
    Select,
    SemanticDrop,
    Session,
    Sink,
    Source,
    SUnion,
    Table,
    Top,
    Union,
    ValueWindow,
    WindowDrop,
    WindowJoin,
    WithColumns,
    WSort,
)
from medusa.query.expressions.expression import Column, Expression, Named
from medusa.query.expressions.show import show
from medusa.query.qos import qos_lines
from medusa.query.shape import WindowKind
from medusa.units import duration_text, size_text

__all__ = ["brief", "columns_text", "parameters", "waits"]

LISTED_MAX = 12


def parameters(box: Box) -> str:
    """The parameters of a box as text; empty for a sink without quality of service."""
    return TEXTS[type(box)](box)


def brief(box: Box) -> tuple[str, ...]:
    """The parameters in one or two short lines, for a drawing."""
    if isinstance(box, Aggregate):
        return _windows(box), _listed([_call(call) for call in box.aggregates])
    if isinstance(box, Sink):
        return qos_lines(box.qos)
    text = parameters(box)
    return (text,) if text else ()


def waits(box: Box) -> str:
    """What must come before the box sends a row that it has; empty where it never waits."""
    if isinstance(box, Aggregate) and box.stage == "combine":
        return "the boundaries of all inputs to reach the end of the window"
    return WAITS.get(type(box), "")


def columns_text(schema: Schema) -> str:
    """``ts timestamp[us, UTC], vid int64``: at most 12 of them."""
    return _listed([f"{field.name} {field.type}" for field in schema])


def _source(box: Source) -> str:
    if box.judged:
        origin = "another fragment" if box.of is None else box.of
        text = f"from {origin}, " + ("lateness judged there" if box.timed else "without time")
        return f"{text}, results of {WindowKind(*box.window_us)}" if box.window_us else text
    if box.time is None:
        return "without time"
    parts = [f"time {box.time}" + (f" ({box.unit})" if box.unit else "")]
    lengths = {"slack": box.slack_us, "idle after": box.idle_us, "at most ahead": box.ahead_us}
    parts += [f"{name} {duration_text(us)}" for name, us in lengths.items() if us is not None]
    if box.arrival is not None:
        parts.append(f"arrival {box.arrival}")
    if box.partition is not None:
        listed = "" if box.partitions is None else f" ({len(box.partitions):,} listed)"
        parts.append(f"partitions by {box.partition}{listed}")
    return ", ".join(parts)


def _aggregate(box: Aggregate) -> str:
    early = "" if box.early_us is None else f", early results every {duration_text(box.early_us)}"
    return f"{_windows(box)}: {_listed([_call(call) for call in box.aggregates])}{early}"


def _windows(box: Aggregate) -> str:
    stage = {"partial": "partials of ", "combine": "combines "}.get(box.stage, "")
    by = f" by {_listed([_named(key) for key in box.keys])}" if box.keys else ""
    return f"{stage}{WindowKind(box.size_us, box.advance_us)}{by}"


def _call(call: AggregateCall) -> str:
    arg = "*" if call.arg is None else show(call.arg, longest=60)
    if call.function == "user":
        arg = ", ".join([arg, *(show(each, longest=60) for each in call.more or ())])
        return f"{call.name} = {call.parameter} version {call.version}({arg})"
    parameter = "" if call.parameter is None else f", {call.parameter}"
    return f"{call.name} = {call.function}({arg}{parameter})"


def _named(named: Named) -> str:
    if named.expression == Column(named.name):
        return named.name
    return f"{named.name} = {show(named.expression, longest=60)}"


def _on(box: Join | WindowJoin | AsofJoin) -> str:
    pairs = []
    for left, right in zip(box.left_keys, box.right_keys, strict=True):
        ours, theirs = show(left.expression, longest=40), show(right.expression, longest=40)
        pairs.append(ours if ours == theirs else f"{ours} = {theirs}")
    return f"on {', '.join(pairs)}"


def _where(where: Expression | None) -> str:
    return "" if where is None else f" where {show(where, longest=60)}"


def _join(box: Join) -> str:
    return f"{_how(box.how)}{_on(box)} within {duration_text(box.within_us)}{_where(box.where)}"


def _how(how: str) -> str:
    return "" if how == "inner" else f"{how} "


def _asof_join(box: AsofJoin) -> str:
    within = "" if box.within_us is None else f" within {duration_text(box.within_us)}"
    return f"{box.how}, latest {_on(box)}{within}{_where(box.where)}"


def _window_join(box: WindowJoin) -> str:
    keys = f", {_on(box)}" if box.left_keys else ""
    return f"{_how(box.how)}equal windows{keys}{_where(box.where)}"


def _function(box: Apply | Process) -> str:
    made = box.function
    return f"{made.name} version {made.version}" if made.name else "a function that isn't registered"


def _apply(box: Apply) -> str:
    calls = "" if box.in_flight is None else f", {box.in_flight} calls at a time"
    return _function(box) + calls


def _table(box: Table) -> str:
    expire = "" if box.expire_us is None else f", expires after {duration_text(box.expire_us)}"
    return f"key {_listed(list(box.keys))}, {len(box.updates)} updates{expire}"


def _lookup(box: Lookup) -> str:
    return f"{box.how}, by {_listed([_named(key) for key in box.keys])}"


def _columns(box: Select | WithColumns) -> str:
    return _listed([_named(column) for column in box.columns])


def _listed(parts: list[str]) -> str:
    more = f", ... {len(parts) - LISTED_MAX} more" if len(parts) > LISTED_MAX else ""
    return ", ".join(parts[:LISTED_MAX]) + more


def _by(keys: tuple[Named, ...]) -> str:
    return f" by {_listed([_named(key) for key in keys])}" if keys else ""


def _route(box: Route) -> str:
    ways = [show(predicate, longest=60) for predicate in box.predicates]
    return _listed([*ways, "otherwise"] if box.otherwise else ways)


def _window_drop(box: WindowDrop) -> str:
    return f"{box.rate:g} of windows of {duration_text(box.window_us)}{_by(box.keys)}, seed {box.seed}"


def _resample(box: Resample) -> str:
    gap = f"no further than {duration_text(box.gap_us)}"
    return f"every {duration_text(box.every_us)}{_by(box.keys)}, {box.how}, {gap}"


def _session(box: Session) -> str:
    calls = _listed([_call(call) for call in box.aggregates])
    return f"gaps of {duration_text(box.gap_us)}{_by(box.keys)}: {calls}"


def _row_window(box: RowWindow) -> str:
    calls = _listed([_call(call) for call in box.aggregates])
    return f"{box.size:,} rows every {box.advance:,}{_by(box.keys)}: {calls}"


def _value_window(box: ValueWindow) -> str:
    calls = _listed([_call(call) for call in box.aggregates])
    value = show(box.value, longest=60)
    return f"{value}: {box.size:,} every {box.advance:,}{_by(box.keys)}: {calls}"


def _running(box: Running) -> str:
    expire = "" if box.expire_us is None else f", expires after {duration_text(box.expire_us)}"
    return f"{_listed([_call(call) for call in box.aggregates])}{_by(box.keys)}{expire}"


def _top(box: Top) -> str:
    end = "largest" if box.descending else "smallest"
    kind = WindowKind(box.size_us, box.advance_us)
    return f"{box.n:,} {end} {show(box.by, longest=60)}{_by(box.keys)} of {kind}"


def _connection_point(box: ConnectionPoint) -> str:
    age = [] if box.keep_us is None else [duration_text(box.keep_us)]
    size = [] if box.keep_bytes is None else [f"at most {size_text(box.keep_bytes)}"]
    return f"keeps {', '.join([*age, *size])}"


def _key_router(box: KeyRouter) -> str:
    way = "in ranges of the key" if box.keys else f"in blocks of {box.block:,} rows"
    return f"{box.parts} parts {way}{_by(box.keys)}"


def _ordered_merge(box: OrderedMerge) -> str:
    order = "arrival" if box.arrival else "release"
    return f"{len(box.inputs)} parts in order of {order}"


TEXTS: Mapping[type, Callable[[Any], str]] = {
    Apply: _apply,
    Process: lambda box: f"{_function(box)}{_by(box.keys)}",
    Table: _table,
    Lookup: _lookup,
    Route: _route,
    RandomDrop: lambda box: f"{box.rate:g} of rows, seed {box.seed}",
    SemanticDrop: lambda box: show(box.predicate),
    WindowDrop: _window_drop,
    Distinct: lambda box: (
        f"{_listed([_named(key) for key in box.keys])} within {duration_text(box.within_us)}"
    ),
    SUnion: lambda box: f"by time, in buckets of {duration_text(box.bucket_us)}",
    BSort: lambda box: f"by {box.column}, slack {box.slack} rows{_by(box.keys)}",
    WSort: lambda box: f"by {box.column}, timeout {duration_text(box.timeout_us)}{_by(box.keys)}",
    Resample: _resample,
    Source: _source,
    Filter: lambda box: show(box.predicate),
    Select: _columns,
    WithColumns: _columns,
    Union: lambda box: "in order of arrival",
    Aggregate: _aggregate,
    Session: _session,
    RowWindow: _row_window,
    ValueWindow: _value_window,
    Running: _running,
    Top: _top,
    AsofJoin: _asof_join,
    ConnectionPoint: _connection_point,
    Join: _join,
    WindowJoin: _window_join,
    KeyRouter: _key_router,
    OrderedMerge: _ordered_merge,
    Sink: lambda box: "; ".join(qos_lines(box.qos)),
}

WAITS: Mapping[type, str] = {
    Session: "the boundary to be the gap beyond the last row",
    RowWindow: "the last row of its window",
    ValueWindow: "a row of its group at or beyond the end of the window",
    Top: "the boundary to reach the end of the window",
    Process: "the boundaries of all inputs to pass its time",
    Table: "the boundaries of all updates to pass its time",
    Lookup: "the boundaries of the stream and of the table to pass its time",
    Distinct: "the boundary to pass the row",
    SUnion: "the boundaries of all inputs to reach the end of the bucket",
    BSort: "slack more rows of its group",
    WSort: "the boundary to be the timeout beyond the row, or a greater row that leaves",
    Resample: "the boundary to be the gap beyond the point",
    Aggregate: "the boundary to reach the end of the window",
    AsofJoin: "the boundaries of both inputs to pass the time of the left row",
    Join: "the boundaries of both inputs to pass the later time of the pair",
    WindowJoin: "the boundaries of both inputs to pass the window",
    OrderedMerge: "the boundaries of all parts to pass it",
}
