"""Windows aligned to the epoch: what is computed in them, and their largest rows.

Every other kind of window is in ``windows_per_group``, which says what a new one takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from medusa.errors import QueryError
from medusa.query.boxes.base import MANY, PART_OF_SPLIT, ROW_BYTES, BoxData, Sharing, SplitPlan, Thinned
from medusa.query.boxes.calls import with_call, without_calls
from medusa.query.boxes.checks import WINDOW_FIELDS, check_sizes, key_type, need_time
from medusa.query.boxes.text import by_text, calls_text
from medusa.query.boxes.window_function import WindowFunction, WindowSpec
from medusa.query.expressions.aggregate_types import combined, result_type, state_fields
from medusa.query.expressions.expression import Column, Expression, Named
from medusa.query.expressions.show import show
from medusa.query.shape import (
    WINDOW_COLUMNS,
    StreamShape,
    WindowKind,
    expression_type,
    refuse_twice,
    types_of,
)
from medusa.query.structs import AggregateCall, Field, Input, Schema
from medusa.query.types import TIMESTAMP, check_column_name
from medusa.units import DURATION_MAX_US, duration_text

__all__ = ["Aggregate", "Top", "windows_of_length"]


TOP_MAX = 1 << 20
STAGES = ("whole", "partial", "combine")


BUCKET_ORIGIN_US = 10_959 * 86_400_000_000
"""2000-01-03, where DuckDB's and Timescale's time_bucket begins to count."""

HOP = "HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE): how often one starts, then how long it is"


def windows_of_length(length_us: int, advance_us: int | None = None) -> WindowSpec:
    """Windows of one length, one every ``advance_us``; None: one begins where the one before ends."""
    given = (length_us,) if advance_us in (None, length_us) else (length_us, advance_us)
    return WindowSpec("window", given, length_us)


def _tumble(lengths: Sequence[int]) -> WindowSpec:
    return windows_of_length(lengths[0])


def _hop(lengths: Sequence[int]) -> WindowSpec:
    advance_us, size_us = lengths
    if advance_us > size_us:
        raise QueryError(
            "HOP: windows would start less often than they are long, so some rows would be in none",
            hint=HOP,
            code="query.window",
        )
    return windows_of_length(size_us, advance_us)


def _time_bucket(lengths: Sequence[int]) -> WindowSpec:
    if BUCKET_ORIGIN_US % lengths[0]:
        raise QueryError(
            "time_bucket counts from Monday, 2000-01-03, and windows from the epoch: this width differs",
            hint="TUMBLE(ts, ...) counts from 1970-01-01",
            code="query.window",
        )
    return _tumble(lengths)


class Aggregate(BoxData, frozen=True, tag_field="kind", tag="aggregate", kw_only=True):
    """Groups and aggregates per tumbling or sliding window, aligned to the epoch.

    Attributes:
        size_us, advance_us: the window; tumbling where equal; 0 < advance <= size.
        keys: the grouping columns in order; may be empty (one group a window).
        aggregates: at least one.
        stage: ``whole``; or, where a deployment splits the box, ``partial`` (sends accumulators of
            each closed window) and ``combine`` (merges those of all its inputs; rows leave by key,
            null first). A ``combine`` box keeps keys and aggregates of the box it came from; its
            inputs have the schema that ``partial`` gives.
        early_us: at multiples of this the box sends tentative rows of the groups that changed; None: never.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"
    inputs_least: ClassVar[int] = 1
    inputs_most: ClassVar[int] = MANY
    results_start: ClassVar[bool] = True
    awaits_boundary: ClassVar[bool] = True
    sharing: ClassVar[Sharing] = "keys"
    window_functions: ClassVar[tuple[WindowFunction, ...]] = (
        WindowFunction("tumble", "TUMBLE(ts, INTERVAL '1' MINUTE)", 1, _tumble),
        WindowFunction("hop", HOP, 2, _hop),
        WindowFunction(
            "time_bucket",
            "time_bucket(INTERVAL '1' MINUTE, ts)",
            1,
            _time_bucket,
            in_from=False,
            time_last=True,
        ),
    )

    inputs: tuple[Input, ...]
    size_us: int
    advance_us: int
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]
    stage: str = "whole"
    early_us: int | None = None

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        if self.stage == "combine":
            return _combined(self, inputs, label)
        if len(inputs) != 1:
            raise QueryError(f"{label}: expected 1 inputs, got {len(inputs)}", code="query.arity")
        _check_window(self, label)
        row = inputs[0]
        need_time(row, label, "a window")
        keys = tuple(Field(key.name, key_type(key, row, label)) for key in self.keys)
        columns: list[Field] = [*WINDOW_FIELDS, *keys]
        for call in self.aggregates:
            arg_type = _arg_type(call, row, label)
            what = f"{label}: aggregate {call.name!r}"
            more = tuple(expression_type(each, row, box=what) for each in call.more or ())
            result = result_type(call, arg_type, box=label, more=more)
            columns += (
                state_fields(call, arg_type) if self.stage == "partial" else (Field(call.name, result),)
            )
        return _window_result(self, tuple(columns), label)

    def describe(self) -> str:
        early = "" if self.early_us is None else f", early results every {duration_text(self.early_us)}"
        windows, calls = self.brief()
        return f"{windows}: {calls}{early}"

    def brief(self) -> tuple[str, ...]:
        stage = {"partial": "partials of ", "combine": "combines "}.get(self.stage, "")
        windows = f"{stage}{WindowKind(self.size_us, self.advance_us)}{by_text(self.keys)}"
        return windows, calls_text(self.aggregates)

    @property
    def waits(self) -> str:
        if self.stage == "combine":
            return "the boundaries of all inputs to reach the end of the window"
        return "the boundary to reach the end of the window"

    def reads_time(self, below: bool) -> bool:
        return self.stage != "combine"

    @property
    def reach_us(self) -> int:
        return self.size_us - 1

    @property
    def last_result(self) -> tuple[int, int, int] | None:
        if self.stage == "combine":
            return 0, 0, 0
        return (self.advance_us, self.size_us, 0) if self.early_us is None else None

    @property
    def stays_whole(self) -> str:
        return "" if self.stage == "whole" else PART_OF_SPLIT

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        first = name("")
        return SplitPlan(keys=[self.keys], part=with_call(self, first, "min"), positions=(first,))

    def without(self, hidden: Sequence[str]) -> Aggregate:
        return msgspec.structs.replace(without_calls(self, self.aggregates, hidden), stage="whole")

    @property
    def when_thinned(self) -> Thinned:
        return "windows" if self.stage == "whole" and self.early_us is None else ""

    @property
    def rows_made(self) -> float:
        return -(-self.size_us // self.advance_us)

    @property
    def kept_bytes(self) -> int:
        return -(-self.size_us // self.advance_us) * len(self.aggregates) * ROW_BYTES

    def row_key(self, above: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        return (*WINDOW_COLUMNS, *(key.name for key in self.keys))


class Top(BoxData, frozen=True, tag_field="kind", tag="top", kw_only=True):
    """The ``n`` rows with the largest ``by`` per window and group.

    Attributes:
        size_us, advance_us: as of ``Aggregate``.
        descending: largest first; False: smallest first.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"
    results_start: ClassVar[bool] = True
    stays_whole = "its rows don't tell the first row of their group, by which groups are ordered"
    awaits_boundary: ClassVar[bool] = True
    waits = "the boundary to reach the end of the window"

    inputs: tuple[Input, ...]
    size_us: int
    advance_us: int
    keys: tuple[Named, ...]
    by: Expression
    n: int
    descending: bool = True

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        check_sizes(self.size_us, self.advance_us, label=label)
        need_time(row, label, "a window")
        if not 1 <= self.n <= TOP_MAX:
            raise QueryError(f"{label}: n must be 1 to {TOP_MAX:,}, got {self.n}", code="query.window")
        by = expression_type(self.by, row, box=f"{label}: by")
        if by == "null":
            raise QueryError(f"{label}: by is always null", code="query.type")
        keys = [Field(key.name, key_type(key, row, label)) for key in self.keys]
        gone = {key.expression.name for key in self.keys if isinstance(key.expression, Column)}
        others = [field for field in row.schema if field.name not in gone]
        columns = [*WINDOW_FIELDS, *keys, *others, Field("rank", "int64")]
        refuse_twice(
            columns,
            label=label,
            hint="top gives window_start, window_end, the keys, the other columns and rank: rename columns of"
            " these names, or leave them out, in a select before",
        )
        return StreamShape(
            label, tuple(columns), timed=True, window=WindowKind(self.size_us, self.advance_us)
        )

    def describe(self) -> str:
        end = "largest" if self.descending else "smallest"
        kind = WindowKind(self.size_us, self.advance_us)
        return f"{self.n:,} {end} {show(self.by, longest=60)}{by_text(self.keys)} of {kind}"

    @property
    def reach_us(self) -> int:
        return self.size_us - 1

    @property
    def rows_made(self) -> float:
        return -(-self.size_us // self.advance_us)

    @property
    def kept_bytes(self) -> int:
        return self.n * -(-self.size_us // self.advance_us) * ROW_BYTES


def _combined(box: Aggregate, inputs: Sequence[StreamShape], label: str) -> StreamShape:
    """Merges what ``partial`` boxes of the same keys and aggregates send."""
    _check_window(box, label)
    first = inputs[0]
    for other in inputs:
        need_time(other, label, "a window")
        if other.schema != first.schema:
            raise QueryError(
                f"{label}: {first.box} and {other.box} send different columns", code="query.combine"
            )
    types = types_of(first.schema)
    results, states = [], []
    for call in box.aggregates:
        result, fields = combined(call, types, box=label)
        results.append(Field(call.name, result))
        states += [field.name for field in fields]
    expected = [*WINDOW_COLUMNS, *(key.name for key in box.keys), *states]
    if list(types) != expected or any(types[name] != TIMESTAMP for name in WINDOW_COLUMNS):
        raise QueryError(
            f"{label}: expected the columns {', '.join(expected)}, got {', '.join(types)}",
            code="query.combine",
        )
    keys = [Field(key.name, types[key.name]) for key in box.keys]
    return _window_result(box, (*WINDOW_FIELDS, *keys, *results), label)


def _check_window(box: Aggregate, label: str) -> None:
    if box.stage not in STAGES:
        raise QueryError(f"{label}: there is no stage {box.stage[:40]!r}", code="query.window")
    check_sizes(box.size_us, box.advance_us, label=label)
    if box.early_us is not None and (box.stage != "whole" or not 0 < box.early_us <= DURATION_MAX_US):
        raise QueryError(
            f"{label}: early is out of range" if box.stage == "whole" else f"{label}: has no early results",
            code="query.window",
        )
    if not box.aggregates:
        raise QueryError(f"{label}: needs at least one aggregate", hint="n=md.count()", code="query.window")


def _window_result(box: Aggregate, columns: Schema, label: str) -> StreamShape:
    names = [field.name for field in columns]
    refuse_twice(
        names, label=label, hint="a window gives window_start and window_end, then the keys, the aggregates"
    )
    return StreamShape(label, columns, timed=True, window=WindowKind(box.size_us, box.advance_us))


def _arg_type(call: AggregateCall, row: StreamShape, label: str) -> str | None:
    check_column_name(call.name, what=label)
    if call.arg is None:
        return None
    return expression_type(call.arg, row, box=f"{label}: aggregate {call.name!r}")
