"""Shapes of joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from medusa.errors import QueryError
from medusa.query.boxes import AsofJoin, Field, Join, Schema, WindowJoin
from medusa.query.boxes.joins import ASOF_HOWS, JOIN_HOWS
from medusa.query.checker import infer
from medusa.query.expressions.expression import Call, Column, Expression, Named
from medusa.query.expressions.tree import columns_of, walk
from medusa.query.shape import WINDOW_COLUMNS, Shape, refuse_twice, types_of
from medusa.query.shapes.windows import WINDOW_FIELDS, key_type, need_time
from medusa.query.suggest import did_you_mean, join_called
from medusa.query.types import check_column_name, common_type
from medusa.units import DURATION_MAX_US

__all__ = ["asof_join_shape", "join_shape", "sides_of", "window_join_shape"]

_AnyJoin: TypeAlias = Join | WindowJoin | AsofJoin


def join_shape(box: Join, left: Shape, right: Shape, label: str) -> Shape:
    """The join within a length of time."""
    need_time(left, label, "a join")
    need_time(right, label, "a join")
    _check_how(box.how, JOIN_HOWS, label)
    _check_within(box.within_us, label)
    keys = _some_keys(box, left, right, label)
    _check_where(box.where, left, right, label)
    schema = _columns(box, keys, left, right, (), label)
    return Shape(label, schema, timed=True, no_window=f"{label} joins over time")


def window_join_shape(box: WindowJoin, left: Shape, right: Shape, label: str) -> Shape:
    """The join of results of equal windows."""
    _check_how(box.how, JOIN_HOWS, label)
    if left.window is None or right.window is None or left.window != right.window:
        raise QueryError(
            f'{label}: on="window" needs results of equal windows: {_origin(left)}, {_origin(right)}',
            hint="the same size and advance; between window and join only boxes that keep its rows with"
            ' window_start and window_end, such as filter, select and union, and joins on="window"',
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


def asof_join_shape(box: AsofJoin, left: Shape, right: Shape, label: str) -> Shape:
    """Every left row with the latest right one."""
    need_time(left, label, "an as-of join")
    need_time(right, label, "an as-of join")
    _check_how(box.how, ASOF_HOWS, label)
    if box.within_us is not None:
        _check_within(box.within_us, label)
    keys = _some_keys(box, left, right, label)
    _check_where(box.where, left, right, label)
    if box.where is not None and box.within_us is None and len(sides_of(box.where)) == 2:
        raise QueryError(
            f"{label}: where reads both sides, so every older right row might be the one, for ever",
            hint='say how old it may be: within="5 min"',
            code="query.join",
        )
    schema = _columns(box, keys, left, right, (), label)
    return Shape(label, schema, timed=True, no_window=f"{label} joins over time")


def sides_of(where: Expression) -> set[str]:
    """Which of ``left`` and ``right`` a condition reads."""
    return {name.partition(".")[0] for name in columns_of(where)}


def _check_how(how: str, known: Sequence[str], label: str) -> None:
    if how not in known:
        raise QueryError(
            f"{label}: how={how[:20]!r} is none of {', '.join(known)}",
            hint=did_you_mean(join_called(how[:20]), known),
            code="query.join",
        )


def _check_within(within_us: int, label: str) -> None:
    if not 0 <= within_us <= DURATION_MAX_US:
        raise QueryError(f"{label}: within is out of range", code="query.duration")


def _some_keys(box: Join | AsofJoin, left: Shape, right: Shape, label: str) -> tuple[Field, ...]:
    if not box.left_keys:
        raise QueryError(f"{label}: needs at least one key", hint='on="vid"', code="query.join")
    return _keys(box, left, right, label)


def _keys(box: _AnyJoin, left: Shape, right: Shape, label: str) -> tuple[Field, ...]:
    if len(box.left_keys) != len(box.right_keys):
        raise QueryError(f"{label}: left and right have different numbers of keys", code="query.join")
    keys = []
    for ours, theirs in zip(box.left_keys, box.right_keys, strict=True):
        left_type = key_type(ours, left, f"{label}: left")
        right_type = key_type(theirs, right, f"{label}: right")
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
    box: _AnyJoin,
    head: tuple[Field, ...],
    left: Shape,
    right: Shape,
    dropped: Sequence[str],
    label: str,
) -> Schema:
    """Keys, other left, other right columns, with suffixes where both have a name; or the left ones."""
    if len(box.suffixes) != 2 or not all(len(suffix) <= 100 for suffix in box.suffixes):
        raise QueryError(f"{label}: suffixes are two texts", code="query.join")
    if box.how in ("semi", "anti"):
        return left.schema
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
