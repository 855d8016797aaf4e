"""Lossless conversion of one Arrow array to a type of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.engine.expressions.kernels.kernel import AWARE, raw, show_value, valid_rows
from medusa.query.expressions.text_casts import INTEGER_RANGES
from medusa.query.types import (
    DURATION,
    TIMESTAMP,
    common_type,
    decimal_parts,
    from_arrow,
    is_decimal,
    is_float,
    is_integer,
    to_arrow,
)

__all__ = ["Unfit", "fit"]


class Unfit(Exception):
    """An array that can't be converted: all of it, or because of the value in ``row``."""

    def __init__(self, hint: str = "", row: int | None = None, value: str = "") -> None:
        super().__init__(hint)
        self.hint = hint
        self.row = row
        self.value = value


def fit(array: pa.Array, type: str) -> pa.Array:
    """The array as ``type``; the same buffers where the layout is the same.

    Raises:
        Unfit: some value would change.
    """
    target = to_arrow(type)
    if array.type.equals(target):
        return array
    if pa.types.is_dictionary(array.type):
        return _decoded(array, type)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if isinstance(array, pa.ExtensionArray):
        return fit(array.storage, type)
    if type in ("utf8", "binary"):
        return _text(array, target)
    if is_integer(type):
        return _integer(array, type)
    if is_float(type):
        return _float(array, type)
    if is_decimal(type):
        return _decimal(array, type)
    if type == TIMESTAMP and pa.types.is_timestamp(array.type):
        return _time(array, "a timestamp").view(AWARE)
    if type == DURATION and pa.types.is_duration(array.type):
        return _time(array, "a duration").view(target)
    raise Unfit(_hint(array.type, type))


def _decoded(array: pa.DictionaryArray, type: str) -> pa.Array:
    try:
        values = fit(array.dictionary, type)
    except Unfit as unfit:
        if unfit.row is None:
            raise
        rows = np.flatnonzero(raw(array.indices) == unfit.row)
        raise Unfit(unfit.hint, int(rows[0]) if len(rows) else 0, unfit.value) from None
    return values.take(array.indices)


def _hint(came: pa.DataType, type: str) -> str:
    if type == TIMESTAMP and (pa.types.is_integer(came) or pa.types.is_string(came)):
        return "convert it to a timestamp, or declare the column as it comes"
    return ""


def _text(array: pa.Array, target: pa.DataType) -> pa.Array:
    came = array.type
    text = pa.types.is_string(came) or pa.types.is_large_string(came) or pa.types.is_string_view(came)
    octets = pa.types.is_binary(came) or pa.types.is_large_binary(came) or pa.types.is_binary_view(came)
    if not (text if pa.types.is_string(target) else octets):
        raise Unfit()
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        raise Unfit("more than 2 GiB of text in one batch: push smaller ones") from None


def _first(mask: np.ndarray[Any, Any], array: pa.Array) -> Unfit:
    row = int(np.flatnonzero(mask)[0])
    return Unfit(row=row, value=show_value(array, row))


def _integer(array: pa.Array, type: str) -> pa.Array:
    came = array.type
    low, high = INTEGER_RANGES[type]
    if pa.types.is_integer(came):
        if common_type(str(came), type) != type:
            raise Unfit(f"not every {came} fits: declare the column {came}, or cast before")
        return array.cast(to_arrow(type))
    if pa.types.is_float32(came) or pa.types.is_float64(came):
        numbers = raw(array)
        with np.errstate(invalid="ignore"):
            exact = (np.trunc(numbers) == numbers) & (numbers >= float(low)) & (numbers < float(high + 1))
        nulls = np.isnan(numbers) | ~valid_rows(array)
        if not (exact | nulls).all():
            raise _first(~(exact | nulls), array)
        # A column of integers with gaps is a column of floats in pandas: its NaN means null.
        whole = np.where(nulls, 0, numbers).astype(to_arrow(type).to_pandas_dtype())
        return pa.array(whole, mask=nulls if nulls.any() else None)
    if pa.types.is_decimal(came) and came.scale == 0:
        return _checked(array, to_arrow(type), lambda value: low <= value <= high)
    raise Unfit()


def _checked(array: pa.Array, target: pa.DataType, fits: Callable[[Any], bool]) -> pa.Array:
    """Arrow's checked cast; where it refuses, the first value that doesn't fit is named."""
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        for row, value in enumerate(array.to_pylist()):
            if value is not None and not fits(value):
                raise Unfit(row=row, value=str(value)) from None
        return pa.array(array.to_pylist(), target)


def _float(array: pa.Array, type: str) -> pa.Array:
    if type == "float64" and pa.types.is_float32(array.type):
        return array.cast(pa.float64())
    raise Unfit("cast before, or declare the column as it comes" if pa.types.is_integer(array.type) else "")


def _decimal(array: pa.Array, type: str) -> pa.Array:
    came = array.type
    precision, scale = decimal_parts(type)
    if not pa.types.is_decimal(came):
        raise Unfit()
    if came.scale > scale or came.precision - came.scale > precision - scale:
        raise Unfit(f"not every {came} fits: declare the column {_declared(came)}")
    return array.cast(to_arrow(type))


def _declared(came: pa.DataType) -> str:
    """The type as a user would declare it."""
    return from_arrow(came) if pa.types.is_decimal128(came) else str(came)


_PER_US = {"s": 1_000_000, "ms": 1_000}


def _time(array: pa.Array, what: str) -> pa.Array:
    """Seconds to nanoseconds as int64 microseconds; the zone is only a way to show them."""
    unit = array.type.unit
    integers = array.view(pa.int64())
    if unit == "us":
        return integers
    numbers = raw(integers)
    valid = valid_rows(array)
    if unit == "ns":
        bad = (numbers % 1000 != 0) & valid
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise Unfit(f"{what} has microseconds here: round it before", row, f"{numbers[row]} ns")
        made = numbers // 1000
    else:
        scale = _PER_US[unit]
        limit = ((1 << 63) - 1) // scale
        bad = ((numbers > limit) | (numbers < -limit)) & valid
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise Unfit("beyond 64 bits of microseconds", row, f"{numbers[row]} {unit}")
        with np.errstate(over="ignore"):
            made = numbers * scale
    return pa.array(made, mask=None if valid.all() else ~valid)
