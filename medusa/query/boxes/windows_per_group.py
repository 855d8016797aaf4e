"""Windows that close group by group.

A new kind: its class here, its operator in ``engine/operators/windows`` with an entry in
``engine/operator_kinds.py``, and its method in ``query/stream/window_steps.py``. For SQL the class names its
``window_functions``; only where an argument isn't an INTERVAL ``query/sql/windows.py`` has to read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from medusa.errors import QueryError
from medusa.query.boxes.base import NO_KEY, ROW_BYTES, BoxData, Sharing, SplitPlan
from medusa.query.boxes.calls import result_fields, with_call, without_calls
from medusa.query.boxes.checks import OVERLAP_MAX, WINDOW_FIELDS, key_type, need_time
from medusa.query.boxes.text import by_text, calls_text
from medusa.query.boxes.window_function import WindowFunction, WindowSpec
from medusa.query.expressions.aggregates import AGGREGATES
from medusa.query.expressions.expression import Expression, Named
from medusa.query.expressions.show import show
from medusa.query.shape import WINDOW_COLUMNS, StreamShape, expression_type, refuse_twice
from medusa.query.structs import AggregateCall, Field, Input, Schema
from medusa.query.types import DURATION, TIMESTAMP, is_float, is_integer
from medusa.units import DURATION_MAX_US, duration_text

__all__ = ["GroupWindow", "RowWindow", "Session", "ValueWindow"]


ROWS_MAX = 1 << 40
"""Rows in a row window."""


VALUE_MAX = 1 << 60


class Session(BoxData, frozen=True, tag_field="kind", tag="session", kw_only=True):
    """Rows of a group less than ``gap_us`` apart belong together.

    Attributes:
        keys: the grouping columns in order; may be empty.
        aggregates: at least one.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"
    results_start: ClassVar[bool] = True
    sharing: ClassVar[Sharing] = "keys"
    awaits_boundary: ClassVar[bool] = True
    window_functions: ClassVar[tuple[WindowFunction, ...]] = (
        WindowFunction(
            "session",
            "SESSION(ts, INTERVAL '30' SECOND)",
            1,
            lambda lengths: WindowSpec("session", (lengths[0],), None),
        ),
    )
    waits = "the boundary to be the gap beyond the last row"

    inputs: tuple[Input, ...]
    gap_us: int
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        need_time(row, label, "a session")
        if not 0 < self.gap_us <= DURATION_MAX_US:
            raise QueryError(f"{label}: the gap of a session must be longer than 0", code="query.window")
        columns = _columns(self.keys, self.aggregates, WINDOW_FIELDS, row, label)
        return StreamShape(label, columns, timed=True, no_window=f"{label} makes sessions, whose ends differ")

    def describe(self) -> str:
        calls = calls_text(self.aggregates)
        return f"gaps of {duration_text(self.gap_us)}{by_text(self.keys)}: {calls}"

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        if not self.keys:
            return NO_KEY
        first = name("")
        part = with_call(self, first, "min")
        return SplitPlan(keys=[self.keys], part=part, positions=(first,), by=("window_start",))

    def without(self, hidden: Sequence[str]) -> Session:
        return without_calls(self, self.aggregates, hidden)

    def row_key(self, above: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        return (*WINDOW_COLUMNS, *(key.name for key in self.keys))


class RowWindow(BoxData, frozen=True, tag_field="kind", tag="window_rows", kw_only=True):
    """Windows of ``size`` rows of a group, one every ``advance`` rows; 0 < advance <= size."""

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"
    sharing: ClassVar[Sharing] = "keys"
    waits = "the last row of its window"

    inputs: tuple[Input, ...]
    size: int
    advance: int
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        _check_numbers(self.size, self.advance, ROWS_MAX, label)
        bounds = [Field(name, "int64") for name in WINDOW_COLUMNS]
        columns = _columns(self.keys, self.aggregates, bounds, row, label)
        return StreamShape(label, columns, timed=row.timed, no_window=f"{label} makes windows of rows")

    def describe(self) -> str:
        calls = calls_text(self.aggregates)
        return f"{self.size:,} rows every {self.advance:,}{by_text(self.keys)}: {calls}"

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        if not self.keys:
            return NO_KEY
        last = name("")
        part = with_call(self, last, "max")
        return SplitPlan(keys=[self.keys], part=part, positions=(last,), arrival=True)

    def without(self, hidden: Sequence[str]) -> RowWindow:
        return without_calls(self, self.aggregates, hidden)

    @property
    def kept_bytes(self) -> int:
        panes = -(-self.size // self.advance)
        whole = [each for each in self.aggregates if _holds_values(each)]
        return (self.size * len(whole) + panes * len(self.aggregates)) * ROW_BYTES


class ValueWindow(BoxData, frozen=True, tag_field="kind", tag="window_values", kw_only=True):
    """Windows over a number that doesn't decrease within a group, aligned to 0.

    Attributes:
        value: an integer, float, date or time.
        size, advance: in units of the value (floats: floats; dates: days; times: microseconds);
            0 < advance <= size.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"
    stays_whole = "a window is closed by a row that isn't in it, whose number isn't in the result"
    waits = "a row of its group at or beyond the end of the window"

    inputs: tuple[Input, ...]
    value: Expression
    size: int | float
    advance: int | float
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        need_time(row, label, "a window")
        type = expression_type(self.value, row, box=f"{label}: value")
        if not (is_integer(type) or is_float(type) or type in ("date32", TIMESTAMP, DURATION)):
            raise QueryError(
                f"{label}: the value of a window must be an integer, a float, a date or a time, got {type}",
                code="query.type",
            )
        if is_float(type):
            _check_floats(self, label)
        else:
            _check_numbers(self.size, self.advance, VALUE_MAX, label)
        bounds = [Field(name, _bound_type(type)) for name in WINDOW_COLUMNS]
        columns = _columns(self.keys, self.aggregates, bounds, row, label)
        return StreamShape(label, columns, timed=True, no_window=f"{label} makes windows of values")

    def describe(self) -> str:
        calls = calls_text(self.aggregates)
        value = show(self.value, longest=60)
        return f"{value}: {self.size:,} every {self.advance:,}{by_text(self.keys)}: {calls}"

    @property
    def rows_made(self) -> float:
        return max(self.size / self.advance, 1.0)


GroupWindow: TypeAlias = Session | RowWindow | ValueWindow
"""All kinds of this file: what reads boxes learns of a new one here."""


def _holds_values(call: AggregateCall) -> bool:
    return call.function in AGGREGATES and AGGREGATES[call.function].holds_values


def _bound_type(type: str) -> str:
    """The column's own, where every bound fits: that of the last window may lie beyond its values."""
    if is_integer(type):
        return "int64"
    return "float64" if is_float(type) else type


def _columns(
    keys: Sequence[Named],
    calls: Sequence[AggregateCall],
    bounds: Sequence[Field],
    row: StreamShape,
    label: str,
) -> Schema:
    made = [
        *bounds,
        *(Field(key.name, key_type(key, row, label)) for key in keys),
        *result_fields(calls, row, label, lags=False),
    ]
    refuse_twice(
        made, label=label, hint="a window gives window_start and window_end, then the keys, the aggregates"
    )
    return tuple(made)


def _check_numbers(size: float, advance: float, largest: int, label: str) -> None:
    if type(size) is not int or type(advance) is not int:
        raise QueryError(f"{label}: size and advance must be whole numbers", code="query.window")
    if not 0 < size <= largest:
        raise QueryError(f"{label}: size must be 1 to {largest:,}, got {size}", code="query.window")
    _check_advance(size, advance, label)


def _check_floats(box: ValueWindow, label: str) -> None:
    for value in (box.size, box.advance):
        if not math.isfinite(value) or not 1e-300 < value < 1e300:
            raise QueryError(
                f"{label}: size and advance must be finite numbers above 0, got {value!r}",
                code="query.window",
            )
    _check_advance(box.size, box.advance, label)


def _check_advance(size: float, advance: float, label: str) -> None:
    if not 0 < advance <= size:
        raise QueryError(
            f"{label}: advance is {advance}, expected more than 0 and at most the size, {size}",
            hint="with a longer advance some rows would be in no window",
            code="query.window",
        )
    if size / advance > OVERLAP_MAX:
        raise QueryError(
            f"{label}: each row would be in {size // advance:,} windows, at most {OVERLAP_MAX:,}",
            hint="make advance longer",
            code="query.window",
        )
