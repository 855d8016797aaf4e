"""What the native window is asked for a box's aggregates, and where each output column comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from medusa.engine.core.native_types import native_type
from medusa.query.boxes import AggregateCall
from medusa.query.checker import infer
from medusa.query.expressions.aggregate_types import state_fields
from medusa.query.expressions.aggregates import AGGREGATES
from medusa.query.expressions.expression import Cast, Expression, Named
from medusa.query.types import decimal_parts, is_decimal

__all__ = ["NativeCall", "WindowCalls", "calls_of", "combine_calls"]

NativeCall = tuple[str, int, float]
"""Function, number of its argument (-1: none), parameter."""


@dataclass
class WindowCalls:
    """Attributes:
    arguments: of the native calls, each expression once.
    native: the native calls; never empty: where all aggregates are users' the rows are counted.
    places: of each native call: the number of its aggregate (-1: the count that nobody asked for).
    users: the numbers of the aggregates that are users'.
    """

    arguments: list[Named] = field(default_factory=list)
    native: list[NativeCall] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    users: list[int] = field(default_factory=list)

    def add(self, place: int, function: str, argument: int, parameter: float) -> None:
        self.native.append((function, argument, parameter))
        self.places.append(place)

    def closed(self) -> WindowCalls:
        if not self.native:
            self.add(-1, "count", -1, 0.0)
        return self


def calls_of(aggregates: Sequence[AggregateCall], types: Mapping[str, str], *, label: str) -> WindowCalls:
    """The native calls of aggregates over rows.

    Args:
        types: of the columns that the arguments read.
    """
    made = WindowCalls()
    known: list[Expression] = []
    for place, call in enumerate(aggregates):
        if call.function == "user":
            made.users.append(place)
        elif call.arg is None:
            made.add(place, call.function, -1, 0.0)
        else:
            type = infer(call.arg, types, box=label)
            arg: Expression = call.arg
            if is_decimal(type) and AGGREGATES[call.function].as_float:
                arg = Cast(arg, "float64")
            if arg not in known:  # sum(x) and avg(x) share their column
                known.append(arg)
                made.arguments.append(Named(call.name, arg))
            made.add(place, call.function, known.index(arg), _parameter(call, type))
    return made.closed()


def _parameter(call: AggregateCall, type: str) -> float:
    if AGGREGATES[call.function].scaled and is_decimal(type):
        return float(10 ** decimal_parts(type)[1])
    return float(call.parameter) if isinstance(call.parameter, int | float) else 0.0


def combine_calls(
    aggregates: Sequence[AggregateCall], states: Mapping[str, str]
) -> tuple[WindowCalls, list[str], list[str]]:
    """The native calls that merge partial results.

    Args:
        states: name -> type of the state columns.

    Returns:
        The calls; the native types of their arguments, one each, since the state columns of an aggregate
        stand alone; and the names of the state columns that they read.
    """
    made = WindowCalls()
    arguments: list[str] = []
    columns: list[str] = []
    for place, call in enumerate(aggregates):
        if call.function == "user":
            made.users.append(place)
            continue
        type = _argument_type(call.name, call.function, states)
        columns += [each.name for each in state_fields(call, None if call.arg is None else type)]
        if call.arg is None:
            made.add(place, call.function, -1, 0.0)
            continue
        made.add(place, call.function, len(arguments), _parameter(call, type))
        arguments.append(native_type(type))
    return made.closed(), arguments, columns


def _argument_type(name: str, function: str, states: Mapping[str, str]) -> str:
    """The type of an aggregate's argument, as far as its state columns tell and its state needs."""
    if AGGREGATES[function].keeps_argument:
        return states[f"{name}.value"]
    if AGGREGATES[function].as_float or f"{name}.sum" in states:
        return "float64"
    for scale in range(39):
        if f"{name}.top{scale}" in states:
            return f"decimal128(38, {scale})"
    return "utf8" if f"{name}.texts" in states else "int64"
