"""What a box does, and what it waits for, in one line each: for plans and drawings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from medusa.query.boxes import (
    Aggregate,
    AggregateCall,
    Box,
    Filter,
    Join,
    Schema,
    Select,
    Sink,
    Source,
    Union,
    WindowJoin,
    WithColumns,
)
from medusa.query.expression import Column, Expression, Named
from medusa.query.shape import WindowKind
from medusa.query.show import show
from medusa.units import duration_text

__all__ = ["brief", "columns_text", "parameters", "waits"]

LISTED_MAX = 12


def parameters(box: Box) -> str:
    """The parameters of a box as text; empty for a sink."""
    return TEXTS[type(box)](box)


def brief(box: Box) -> tuple[str, ...]:
    """The parameters in one or two short lines, for a drawing."""
    if isinstance(box, Aggregate):
        return _windows(box), _listed([_call(call) for call in box.aggregates])
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
        text = "from another fragment, " + ("lateness judged there" if box.timed else "without time")
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
    return f"{call.name} = {call.function}({arg})"


def _named(named: Named) -> str:
    if named.expression == Column(named.name):
        return named.name
    return f"{named.name} = {show(named.expression, longest=60)}"


def _on(box: Join | WindowJoin) -> str:
    pairs = []
    for left, right in zip(box.left_keys, box.right_keys, strict=True):
        ours, theirs = show(left.expression, longest=40), show(right.expression, longest=40)
        pairs.append(ours if ours == theirs else f"{ours} = {theirs}")
    return f"on {', '.join(pairs)}"


def _where(where: Expression | None) -> str:
    return "" if where is None else f" where {show(where, longest=60)}"


def _join(box: Join) -> str:
    return f"{_on(box)} within {duration_text(box.within_us)}{_where(box.where)}"


def _window_join(box: WindowJoin) -> str:
    keys = f", {_on(box)}" if box.left_keys else ""
    return f"equal windows{keys}{_where(box.where)}"


def _columns(box: Select | WithColumns) -> str:
    return _listed([_named(column) for column in box.columns])


def _listed(parts: list[str]) -> str:
    more = f", ... {len(parts) - LISTED_MAX} more" if len(parts) > LISTED_MAX else ""
    return ", ".join(parts[:LISTED_MAX]) + more


TEXTS: Mapping[type, Callable[[Any], str]] = {
    Source: _source,
    Filter: lambda box: show(box.predicate),
    Select: _columns,
    WithColumns: _columns,
    Union: lambda box: "in order of arrival",
    Aggregate: _aggregate,
    Join: _join,
    WindowJoin: _window_join,
    Sink: lambda box: "",
}

WAITS: Mapping[type, str] = {
    Aggregate: "the boundary to reach the end of the window",
    Join: "the boundaries of both inputs to pass the later time of the pair",
    WindowJoin: "the boundaries of both inputs to pass the window",
}
