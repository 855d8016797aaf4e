"""Shapes of the boxes that look at many rows: windows and joins."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.errors import QueryError
from medusa.query.aggregates import combined, result_type, state_fields
from medusa.query.boxes import Aggregate, AggregateCall, Field, Join, Schema, WindowJoin
from medusa.query.check import infer
from medusa.query.expression import Call, Column, Expression, Named
from medusa.query.shape import (
    WINDOW_COLUMNS,
    Shape,
    WindowKind,
    column_type,
    expression_type,
    refuse_twice,
    types_of,
)
from medusa.query.tree import walk
from medusa.query.types import TIMESTAMP, check_column_name, common_type, is_decimal
from medusa.units import DURATION_MAX_US, duration_text

__all__ = ["aggregate_shape", "check_sizes", "combine_shape", "join_shape", "need_time", "window_join_shape"]

WINDOW_FIELDS = tuple(Field(name, TIMESTAMP) for name in WINDOW_COLUMNS)
STAGES = ("whole", "partial", "combine")


# -- windows --------------------------------------------------------------------------------------


def aggregate_shape(box: Aggregate, row: Shape, label: str) -> Shape:
    """``whole`` or ``partial``."""
    _check_window(box, label)
    need_time(row, label, "a window")
    keys = tuple(Field(key.name, _key_type(key, row, label)) for key in box.keys)
    columns: list[Field] = [*WINDOW_FIELDS, *keys]
    for call in box.aggregates:
        arg_type = _arg_type(call, row, label)
        result = result_type(call, arg_type, box=label)
        columns += state_fields(call, arg_type) if box.stage == "partial" else (Field(call.name, result),)
    return _window_result(box, tuple(columns), label)


def combine_shape(box: Aggregate, inputs: Sequence[Shape], label: str) -> Shape:
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


OVERLAP_MAX = 100_000
"""Windows that a row may be in. Each of them may become a row of output: more is a slip of units."""


def check_sizes(size_us: int, advance_us: int, *, label: str) -> None:
    """Raises QueryError unless 0 < advance <= size."""
    if not 0 < size_us <= DURATION_MAX_US:
        raise QueryError(f"{label}: the size of a window must be longer than 0", code="query.window")
    if not 0 < advance_us <= size_us:
        raise QueryError(
            f"{label}: advance is {duration_text(advance_us)}, expected more than 0 and at most the size,"
            f" {duration_text(size_us)}",
            hint="with a longer advance some rows would be in no window",
            code="query.window",
        )
    if -(-size_us // advance_us) > OVERLAP_MAX:
        raise QueryError(
            f"{label}: each row would be in {-(-size_us // advance_us):,} windows of {duration_text(size_us)}"
            f" every {duration_text(advance_us)}, at most {OVERLAP_MAX:,}",
            hint="a number without unit is microseconds: write advance='1 s'",
            code="query.window",
        )


def _window_result(box: Aggregate, columns: Schema, label: str) -> Shape:
    names = [field.name for field in columns]
    refuse_twice(
        names, label=label, hint="a window gives window_start and window_end, then the keys, the aggregates"
    )
    return Shape(label, columns, timed=True, window=WindowKind(box.size_us, box.advance_us))


def need_time(row: Shape, label: str, what: str) -> None:
    """Raises QueryError for a stream without time."""
    if not row.timed:
        late = row.box.endswith((".late'", ".ahead'"))
        raise QueryError(
            f"{label}: {what} needs a time, and the rows of {row.box} have none",
            hint="they pass filter, select, with_columns, union and sinks only"
            if late
            else "say which column is the time: source(..., time=...)",
            code="query.untimed",
        )


def _key_type(key: Named, row: Shape, label: str) -> str:
    type = column_type(key, row, label=label, what="key")
    if is_decimal(type):
        raise QueryError(
            f"{label}: key {key.name!r}: {type} can't be a key",
            hint="cast it to utf8 or an integer",
            code="query.type",
        )
    return type


def _arg_type(call: AggregateCall, row: Shape, label: str) -> str | None:
    check_column_name(call.name, what=label)
    if call.arg is None:
        return None
    return expression_type(call.arg, row, box=f"{label}: aggregate {call.name!r}")


# -- joins ----------------------------------------------------------------------------------------


def join_shape(box: Join, left: Shape, right: Shape, label: str) -> Shape:
    """The inner join within a length of time."""
    need_time(left, label, "a join")
    need_time(right, label, "a join")
    _only_inner(box.how, label)
    if not 0 <= box.within_us <= DURATION_MAX_US:
        raise QueryError(f"{label}: within is out of range", code="query.duration")
    if not box.left_keys:
        raise QueryError(f"{label}: needs at least one key", hint='on="vid"', code="query.join")
    keys = _keys(box, left, right, label)
    _check_where(box.where, left, right, label)
    schema = _columns(box, keys, left, right, (), label)
    return Shape(label, schema, timed=True, no_window=f"{label} joins over time")


def window_join_shape(box: WindowJoin, left: Shape, right: Shape, label: str) -> Shape:
    """The inner join of results of equal windows."""
    _only_inner(box.how, label)
    if left.window is None or right.window is None or left.window != right.window:
        raise QueryError(
            f'{label}: on="window" needs results of equal windows: {_origin(left)}, {_origin(right)}',
            hint="the same size and advance; between window and join only filter, select, with_columns and"
            ' union, which keep window_start and window_end, and joins on="window"',
            code="query.window_join",
        )
    for key in (*box.left_keys, *box.right_keys):
        if key.name in WINDOW_COLUMNS:
            raise QueryError(f'{label}: on="window" already means {key.name!r}', code="query.join")
    keys = _keys(box, left, right, label)
    _check_where(box.where, left, right, label)
    schema = _columns(box, (*WINDOW_FIELDS, *keys), left, right, WINDOW_COLUMNS, label)
    return Shape(label, schema, timed=True, window=left.window)


def _origin(side: Shape) -> str:
    if side.window is not None:
        return f"{side.box} comes from {side.window}"
    return f"{side.box} doesn't" + (f" ({side.no_window})" if side.no_window else "")


def _only_inner(how: str, label: str) -> None:
    if how == "inner":
        return
    later = how in ("left", "right", "full", "semi", "anti")
    raise QueryError(
        f"{label}: how={how[:20]!r} "
        + ("comes in a later version; this one has how='inner'" if later else "is no join; there is 'inner'"),
        code="query.later" if later else "query.join",
    )


def _keys(box: Join | WindowJoin, left: Shape, right: Shape, label: str) -> tuple[Field, ...]:
    if len(box.left_keys) != len(box.right_keys):
        raise QueryError(f"{label}: left and right have different numbers of keys", code="query.join")
    keys = []
    for ours, theirs in zip(box.left_keys, box.right_keys, strict=True):
        left_type = _key_type(ours, left, f"{label}: left")
        right_type = _key_type(theirs, right, f"{label}: right")
        type = common_type(left_type, right_type)
        if type is None:
            raise QueryError(
                f"{label}: key {ours.name!r} is {left_type} in {left.box} and {theirs.name!r} is"
                f" {right_type} in {right.box}",
                hint="cast one side in a with_columns before",
                code="query.type",
            )
        keys.append(Field(ours.name, type))
    return tuple(keys)


def _check_where(where: Expression | None, left: Shape, right: Shape, label: str) -> None:
    if where is None:
        return
    what = f"{label}: where"
    if any(isinstance(node, Call) and node.function == "tuple_time" for node in walk(where)):
        raise QueryError(
            f"{what}: tuple_time is of neither side",
            hint="keep it as a column before the join: with_columns(at=md.time())",
            code="query.expression",
        )
    types = {f"left.{name}": type for name, type in types_of(left.schema).items()}
    types |= {f"right.{name}": type for name, type in types_of(right.schema).items()}
    came = infer(where, types, box=what)
    if came != "bool":
        raise QueryError(f"{what}: must be bool, got {came}", code="query.type")


def _columns(
    box: Join | WindowJoin,
    head: tuple[Field, ...],
    left: Shape,
    right: Shape,
    dropped: Sequence[str],
    label: str,
) -> Schema:
    """The head (keys), then the other left and the other right columns, with suffixes where both have it."""
    if len(box.suffixes) != 2 or not all(len(suffix) <= 100 for suffix in box.suffixes):
        raise QueryError(f"{label}: suffixes are two texts", code="query.join")
    ours = _others(left, box.left_keys, dropped)
    theirs = _others(right, box.right_keys, dropped)
    left_names, right_names = {field.name for field in ours}, {field.name for field in theirs}
    head_names = {field.name for field in head}
    columns = list(head)
    for fields, others, suffix in (
        (ours, right_names, box.suffixes[0]),
        (theirs, left_names | head_names, box.suffixes[1]),
    ):
        for field in fields:
            name = field.name + suffix if field.name in others else field.name
            columns.append(Field(check_column_name(name, what=label), field.type))
    refuse_twice([field.name for field in columns], label=label, hint="choose others with suffixes=(...)")
    return tuple(columns)


def _others(side: Shape, keys: Sequence[Named], dropped: Sequence[str]) -> list[Field]:
    gone = {key.expression.name for key in keys if isinstance(key.expression, Column)} | {*dropped}
    return [field for field in side.schema if field.name not in gone]
