"""The keys of a process box as a table of a checkpoint: key columns, first row, fields, timers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from medusa.engine.core.box import BoxState, expect_table
from medusa.engine.core.group_numbers import KeyIds
from medusa.engine.core.native_types import native_arrow, widen
from medusa.engine.udf.key_state import KeyState
from medusa.query.boxes import Schema
from medusa.query.types import is_float, to_arrow

__all__ = ["KeyRow", "key_columns", "keys_schema", "load_keys", "python_values"]

KeyRow: TypeAlias = tuple[Any, Any, Sequence[Any], Sequence[int]]
"""A key, its first row, its fields, its timers."""

_NAN = float("nan")
_TIMERS = pa.list_(pa.field("item", pa.int64(), nullable=False))


def python_values(columns: Sequence[pa.Array], types: Sequence[str]) -> list[Any]:
    """Keys as users get them: a Python value, or a tuple where there are several columns.

    Equal keys are equal values: there is one NaN and one zero. A time beyond what Python's datetime
    knows is a number of microseconds (a date: days).
    """
    lists = [_values(column, type) for column, type in zip(columns, types, strict=True)]
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


def _values(column: pa.Array, type: str) -> list[Any]:
    if is_float(type):
        return [None if v is None else _NAN if v != v else v + 0.0 for v in column.to_pylist()]
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        whole = pa.int32() if type == "date32" else pa.int64()
        return [_value(each, whole) for each in column]
    return values


def _value(scalar: pa.Scalar, whole: pa.DataType) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.cast(whole).as_py()


def _array(values: list[Any], type: str) -> pa.Array:
    """The key column that gave these values, as native code takes it."""
    arrow = to_arrow(type)
    try:
        return widen(pa.array(values, arrow), type)
    except (pa.ArrowException, TypeError):
        return pa.concat_arrays([widen(pa.array([value], arrow), type) for value in values])


def keys_schema(names: Sequence[str], types: Sequence[str], state: Schema, timed: bool) -> pa.Schema:
    """Of the table of keys."""
    return pa.schema(
        [
            *(pa.field(f"key.{name}", native_arrow(type)) for name, type in zip(names, types, strict=True)),
            *([pa.field("@first_us", pa.int64())] if timed else []),
            pa.field("@first", pa.int64()),
            pa.field("@timers", _TIMERS),
            *(pa.field(f"state.{field.name}", to_arrow(field.type)) for field in state),
        ]
    )


def key_columns(
    rows: Sequence[KeyRow], types: Sequence[str], state: Schema, *, timed: bool
) -> list[pa.Array]:
    """The columns of the table of keys, of some.

    Args:
        types: of the key columns.
        timed: first rows are (time, place), as in a part of a split, and not numbers.
    """
    several = len(types) > 1
    keys = [[key[place] if several else key for key, *_ in rows] for place in range(len(types))]
    columns = [_array(values, type) for values, type in zip(keys, types, strict=True)]
    firsts = [first for _, first, _, _ in rows]
    numbers = zip(*firsts, strict=True) if timed and firsts else [firsts] * (1 + timed)
    columns += [pa.array(each, pa.int64()) for each in numbers]
    columns.append(pa.array([timers for *_, timers in rows], _TIMERS))
    columns += [
        pa.array([values[place] for _, _, values, _ in rows], to_arrow(field.type))
        for place, field in enumerate(state)
    ]
    return columns


def load_keys(
    state: BoxState,
    names: Sequence[str],
    types: Sequence[str],
    fields: Schema,
    *,
    make: Callable[[Any], KeyState],
    seen: int,
    timed: bool,
) -> dict[Any, KeyState]:
    """The states of a table of keys, in its order.

    Raises:
        ValueError: a key twice, a first row beyond ``seen``, or timers that don't ascend.
    """
    table = expect_table(state.tables, "keys", keys_schema(names, types, fields, timed)).combine_chunks()
    if not table.num_rows:
        return {}
    columns = [column.chunk(0) for column in table.columns]
    ids = KeyIds(names, types)
    ids.load(pa.RecordBatch.from_arrays(columns[: len(names)], schema=ids.schema))
    *began, timers = columns[len(names) : len(names) + 2 + timed]
    if any(each.null_count for each in (*began, timers)) or timers.flatten().null_count:
        raise ValueError("a null among the keys of a process box")
    places = began[-1].to_pylist()
    firsts = list(zip(began[0].to_pylist(), places, strict=True)) if timed else places
    if len(set(firsts)) < len(firsts):
        raise ValueError("two keys with one first row")
    values = [column.to_pylist() for column in columns[len(names) + 2 + timed :]]
    made: dict[Any, KeyState] = {}
    keys = python_values(ids.narrowed(np.arange(len(ids))), types)
    for row, (key, first, wakes) in enumerate(zip(keys, firsts, timers.to_pylist(), strict=True)):
        if places[row] < 0 or not (timed or first < seen):
            raise ValueError("a key whose first row never came")
        each = make(first)
        each.restore([column[row] for column in values], wakes)
        made[key] = each
    return made
