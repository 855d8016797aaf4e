"""Shapes of the boxes that send each row one way or another: route, drops, distinct, and dead rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from medusa.errors import QueryError
from medusa.query.boxes.base import Field, Schema
from medusa.query.boxes.flow import Distinct, RandomDrop, Route, SemanticDrop, WindowDrop
from medusa.query.expressions.expression import Expression, Named
from medusa.query.shape import Shape, column_type, expression_type
from medusa.query.shapes.windows import need_time
from medusa.query.types import is_decimal
from medusa.units import DURATION_MAX_US

__all__ = [
    "DEAD_SCHEMA",
    "check_duration",
    "check_keys",
    "dead_shape",
    "distinct_shape",
    "random_drop_shape",
    "route_shape",
    "semantic_drop_shape",
    "window_drop_shape",
]

DEAD_SCHEMA: Schema = (Field("box", "utf8"), Field("error", "utf8"), Field("row", "utf8"))
"""Of every ``.dead``: the box, why the row failed, and the row as JSON."""

PREDICATES_MAX = 1_000
SEED_MAX = (1 << 63) - 1


def dead_shape(id: str) -> Shape:
    """The failed rows of a box."""
    return Shape(f"box {id + '.dead'!r}", DEAD_SCHEMA, timed=False)


def route_shape(box: Route, row: Shape, label: str, port: str) -> Shape:
    if not box.predicates:
        raise QueryError(
            f"{label}: needs at least one predicate", hint='cars.route("lane = 0")', code="query.route"
        )
    if len(box.predicates) > PREDICATES_MAX:
        raise QueryError(f"{label}: more than {PREDICATES_MAX:,} predicates", code="query.limit")
    for place, predicate in enumerate(box.predicates, 1):
        _need_bool(predicate, row, f"{label}: predicate {place}")
    return replace(row, box=f"{label}, {port}" if port else label)


def random_drop_shape(box: RandomDrop, row: Shape, label: str, port: str) -> Shape:
    _check_chance(box.rate, box.seed, label)
    return replace(row, box=f"{label}, {port}" if port else label)


def semantic_drop_shape(box: SemanticDrop, row: Shape, label: str, port: str) -> Shape:
    _need_bool(box.predicate, row, f"{label}: where")
    return replace(row, box=f"{label}, {port}" if port else label)


def window_drop_shape(box: WindowDrop, row: Shape, label: str, port: str) -> Shape:
    _check_chance(box.rate, box.seed, label)
    need_time(row, label, "a drop of whole windows")
    check_duration(box.window_us, label, "window", minimum_us=1)
    check_keys(box.keys, row, label)
    return replace(row, box=f"{label}, {port}" if port else label)


def distinct_shape(box: Distinct, row: Shape, label: str) -> Shape:
    need_time(row, label, "distinct")
    if not box.keys:
        raise QueryError(f"{label}: needs at least one key", hint='distinct("vid")', code="query.distinct")
    check_keys(box.keys, row, label)
    check_duration(box.within_us, label, "within", minimum_us=1)
    return replace(row, box=label)


def check_keys(keys: Sequence[Named], row: Shape, label: str) -> list[Field]:
    """The columns that keys give.

    Raises:
        QueryError: an expression that doesn't hold, or a decimal.
    """
    fields = []
    for key in keys:
        type = column_type(key, row, label=label, what="key")
        if is_decimal(type):
            raise QueryError(
                f"{label}: key {key.name!r}: {type} can't be a key",
                hint="cast it to utf8 or an integer",
                code="query.type",
            )
        fields.append(Field(key.name, type))
    return fields


def check_duration(value_us: int, label: str, what: str, *, minimum_us: int) -> None:
    """Raises QueryError unless it is a length of time that can be added to one."""
    if not minimum_us <= value_us <= DURATION_MAX_US:
        raise QueryError(f"{label}: {what} is out of range: {value_us} us", code="query.duration")


def _need_bool(predicate: Expression, row: Shape, label: str) -> None:
    came = expression_type(predicate, row, box=label)
    if came != "bool":
        raise QueryError(f"{label} must be bool, got {came}", hint="compare it: x > 0", code="query.type")


def _check_chance(rate: float, seed: int, label: str) -> None:
    if not (math.isfinite(rate) and 0 <= rate <= 1):
        raise QueryError(
            f"{label}: rate is {rate!r}, expected a share from 0 to 1",
            hint="0.1 leaves out one row in ten",
            code="query.drop",
        )
    if not 0 <= seed <= SEED_MAX:
        raise QueryError(f"{label}: seed must be from 0 to 2^63 - 1, got {seed!r}"[:200], code="query.drop")
