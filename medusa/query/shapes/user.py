"""The shapes of boxes that run functions of users: everything about them that can be checked before."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.errors import QueryError
from medusa.query.boxes import Schema
from medusa.query.boxes.base import Function
from medusa.query.boxes.user import Apply, Process
from medusa.query.shape import Shape, refuse_twice
from medusa.query.shapes.windows import key_type, need_time
from medusa.query.types import COLUMNS_MAX, check_column_name, is_type
from medusa.query.user_registry import check_reference

__all__ = ["IN_FLIGHT_MAX", "ROW", "TIME", "apply_shape", "check_declared", "process_shape"]

IN_FLIGHT_MAX = 10_000
ROW = "_row"
TIME = "_time"
NAMES_MAX = 64

STATE_NAMES = (
    "armed_us",
    "begin",
    "cancel",
    "clear",
    "drop_timer",
    "empty",
    "fields",
    "first",
    "gone",
    "next_timer",
    "restore",
    "saved",
    "timers",
    "times",
    "undo",
    "wake_at",
)
"""What the state object has besides its fields."""


def apply_shape(box: Apply, row: Shape, label: str) -> Shape:
    _check_function(box.function, label)
    check_declared(box.schema, label, reserved=(ROW,))
    if box.in_flight is not None and not 1 <= box.in_flight <= IN_FLIGHT_MAX:
        raise QueryError(
            f"{label}: in_flight is 1 to {IN_FLIGHT_MAX:,} calls, got {box.in_flight}", code="query.limit"
        )
    lost = f"{label} makes columns of its own" if row.window or row.no_window else ""
    return Shape(label, box.schema, timed=row.timed, no_window=lost)


def process_shape(box: Process, inputs: Sequence[Shape], label: str) -> Shape:
    _check_function(box.function, label)
    check_declared(box.schema, label, reserved=(ROW, TIME))
    if box.state:
        check_declared(box.state, f"{label}: state", reserved=STATE_NAMES)
        for field in box.state:
            if not field.name.isidentifier() or field.name.startswith("_"):
                raise QueryError(
                    f"{label}: state: {field.name!r} can't be an attribute",
                    hint="a letter, then letters, digits and _",
                    code="query.name",
                )
    if len(inputs) > NAMES_MAX:
        raise QueryError(f"{label}: at most {NAMES_MAX} inputs", code="query.arity")
    names = box.names
    if names is None and len(inputs) > 1:
        raise QueryError(f"{label}: several inputs need names", code="query.arity")
    if names is not None:
        if len(names) != len(inputs):
            raise QueryError(f"{label}: {len(names)} names for {len(inputs)} inputs", code="query.arity")
        for name in names:
            check_column_name(name, what=f"{label}: input")
        refuse_twice(names, label=f"{label}: inputs")
    if not box.keys:
        raise QueryError(f'{label}: needs a key: by="vid"', code="query.key")
    refuse_twice([key.name for key in box.keys], label=f"{label}: by")
    types: list[str] = []
    for number, row in enumerate(inputs):
        need_time(row, label, "process")
        came = [key_type(key, row, label) for key in box.keys]
        if number and came != types:
            raise QueryError(
                f"{label}: the key is {', '.join(types)} in {inputs[0].box}"
                f" and {', '.join(came)} in {row.box}",
                hint="cast it in a with_columns before",
                code="query.type",
            )
        types = came
    lost = f"{label} makes columns of its own" if any(row.window or row.no_window for row in inputs) else ""
    return Shape(label, box.schema, timed=True, no_window=lost)


def check_declared(schema: Schema, label: str, *, reserved: Sequence[str] = ()) -> None:
    """Raises QueryError where a declared schema is none, or has a column that means something else."""
    if not 1 <= len(schema) <= COLUMNS_MAX:
        raise QueryError(f"{label}: a schema has 1 to {COLUMNS_MAX:,} columns", code="query.schema")
    refuse_twice([field.name for field in schema], label=label)
    for field in schema:
        check_column_name(field.name, what=label)
        if not is_type(field.type):
            raise QueryError(
                f"{label}: column {field.name!r}: type {field.type[:60]!r} is not supported",
                code="query.type",
            )
        if field.name in reserved:
            raise QueryError(
                f"{label}: {field.name!r} has a meaning of its own here and can't be declared",
                hint="choose another name",
                code="query.schema",
            )


def _check_function(function: Function, label: str) -> None:
    if function.name or function.version != 1:
        check_reference(function, what=label)
