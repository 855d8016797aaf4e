"""CAST: the fast kernel where it means the same as ours, else row by row.

What a text means is defined in ``medusa.query.expressions.text_casts``. Arrow's parser is used first; where
it refuses a batch, or may have read something that we don't (hexadecimal digits), each row is read by
that definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.expressions.kernels.kernel import (
    AWARE,
    NAIVE,
    Faulty,
    Kernel,
    KernelSite,
    Mask,
    Value,
    as_array,
    build,
    by_row,
    function,
    raw,
    show_value,
    strike,
    valid_rows,
)
from medusa.engine.expressions.kernels.times import calendar
from medusa.query.expressions.text_casts import (
    DAY_US,
    INTEGER_RANGES,
    decimal_fits,
    read_text,
    round_half_away,
)
from medusa.query.types import TIMESTAMP, is_decimal, is_float, is_integer, to_arrow

__all__ = ["cast"]

_cast = function("cast")
_round = function("round")
_search = function("match_substring")
_any = function("any")
_HALF_AWAY = pc.RoundOptions(0, "half_towards_infinity")


def _unsafe(target: str) -> Kernel:
    options = pc.CastOptions.unsafe(to_arrow(target))
    return lambda rows, args: _cast([as_array(args[0], rows)], options)


def _safe(target: str, otherwise: Callable[[pa.Array], pa.Array | Faulty]) -> Kernel:
    """Arrow's checked cast, and what to do where it refuses."""
    options = pc.CastOptions.safe(to_arrow(target))

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
        array = as_array(args[0], rows)
        try:
            return _cast([array], options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return otherwise(array)

    return kernel


def _struck(array: pa.Array, mask: Mask, made: Callable[[pa.Array], pa.Array], target: str) -> Faulty:
    return Faulty(
        made(strike(array, mask)), mask, lambda row: f"{show_value(array, row)} doesn't fit {target}"
    )


# -- numbers --------------------------------------------------------------------------------------


def _integer_to_integer(target: str) -> Kernel:
    low, high = INTEGER_RANGES[target]
    options = pc.CastOptions.safe(to_arrow(target))

    def otherwise(array: pa.Array) -> Faulty:
        numbers = raw(array)
        info = np.iinfo(numbers.dtype)
        mask = (numbers < max(low, info.min)) | (numbers > min(high, info.max))
        return _struck(array, mask & valid_rows(array), lambda rest: _cast([rest], options), target)

    return _safe(target, otherwise)


def _float_to_integer(target: str) -> Kernel:
    """Rounded half away from zero; NaN, the infinities and what doesn't fit fail."""
    low, high = INTEGER_RANGES[target]
    options = pc.CastOptions.unsafe(to_arrow(target))
    to_wide = pc.CastOptions.unsafe(pa.float64())

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
        array = as_array(args[0], rows)
        rounded = _round([_cast([array], to_wide)], _HALF_AWAY)
        numbers = raw(rounded)
        # float(high + 1) is exact, float(high) need not be.
        inside = (numbers >= float(low)) & (numbers < float(high + 1))
        if inside.all():
            return _cast([rounded], options)
        mask = ~inside & valid_rows(array)
        whole = _cast([pc.if_else(pa.array(inside), rounded, pa.scalar(0.0))], options)
        if not mask.any():
            return whole
        return Faulty(strike(whole, mask), mask, lambda row: f"{show_value(array, row)} doesn't fit {target}")

    return kernel


def _float_to_single(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
    array = as_array(args[0], rows)
    made = _cast([array], _TO_SINGLE)
    mask: Mask = np.isinf(raw(made))
    if mask.any():
        mask &= np.isfinite(raw(array)) & valid_rows(array)
        if mask.any():
            return Faulty(
                strike(made, mask), mask, lambda row: f"{show_value(array, row)} doesn't fit float32"
            )
    return made


_TO_SINGLE = pc.CastOptions.unsafe(pa.float32())


def _to_decimal(target: str) -> Kernel:
    def one(value: Any) -> Decimal | None:
        return decimal_fits(Decimal(value), target)

    return _safe(target, lambda array: by_row(array, one, target, f"doesn't fit {target}"))


def _decimal_to_integer(target: str) -> Kernel:
    low, high = INTEGER_RANGES[target]

    def one(value: Decimal) -> int | None:
        whole = round_half_away(value)
        return whole if low <= whole <= high else None

    return _safe(target, lambda array: by_row(array, one, target, f"doesn't fit {target}"))


# -- text -----------------------------------------------------------------------------------------


def _reader(target: str) -> Callable[[pa.Array], pa.Array | Faulty]:
    return lambda array: by_row(array, lambda text: read_text(text, target), target, f"is no {target}")


def _holds(array: pa.Array, parts: Sequence[pc.MatchSubstringOptions]) -> bool:
    return any(_any([_search([array], options)]).as_py() for options in parts)


def _text_to_number(target: str) -> Kernel:
    # Arrow reads 0x1f as an integer, and nan(7) as a float; we read neither.
    foreign = [pc.MatchSubstringOptions(part) for part in ("xX" if is_integer(target) else "(")]
    read = _reader(target)
    fast = _safe(target, read)

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
        array = as_array(args[0], rows)
        return read(array) if _holds(array, foreign) else fast(rows, [array])

    return kernel


def _text_to_single(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
    """By way of float64, so that a literal, a column and a row read alone round alike."""
    wide = _TEXT_TO_FLOAT(rows, args)
    if isinstance(wide, Faulty):
        return _reader("float32")(as_array(args[0], rows))
    return _float_to_single(rows, [wide])


_TEXT_TO_FLOAT = _text_to_number("float64")


def _text_to_timestamp(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
    array = as_array(args[0], rows)
    try:
        return _cast([array], _TO_NAIVE).view(AWARE)
    except pa.ArrowInvalid:
        return _reader(TIMESTAMP)(array)


_TO_NAIVE = pc.CastOptions.safe(NAIVE)


def _text_to(target: str) -> Kernel:
    if target == "float32":
        return _text_to_single
    if is_integer(target) or target == "float64":
        return _text_to_number(target)
    if target == TIMESTAMP:
        return _text_to_timestamp
    read = _reader(target)
    if is_decimal(target):
        return lambda rows, args: read(as_array(args[0], rows))
    return _safe(target, read)


def _utf8(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _to_text(source: str) -> Kernel:
    if source == "binary":
        return _safe("utf8", lambda array: by_row(array, _utf8, "utf8", "is not UTF-8"))
    options = pc.CastOptions.safe(pa.string())
    if source == TIMESTAMP:
        return calendar(lambda rows, args: _cast(args, options))
    if source == "date32":
        return _date_to_text
    return _unsafe("utf8")


def _date_to_text(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
    array = as_array(args[0], rows)
    days = raw(array)
    mask = ((days < -719_162) | (days > 2_932_896)) & valid_rows(array)
    if not mask.any():
        return _cast([array], _TO_TEXT)
    made = _cast([strike(array, mask)], _TO_TEXT)
    return Faulty(made, mask, lambda row: f"a date outside the years 1 to 9999: {days[row]} days since 1970")


_TO_TEXT = pc.CastOptions.safe(pa.string())

# -- time -----------------------------------------------------------------------------------------

DAYS_MAX = ((1 << 63) - 1) // DAY_US


def _date_to_timestamp(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
    array = as_array(args[0], rows)
    days = raw(array).astype(np.int64)
    with np.errstate(all="ignore"):
        made = build(days * DAY_US, [array], AWARE)
    mask = (np.abs(days) > DAYS_MAX) & valid_rows(array)
    if not mask.any():
        return made
    return Faulty(strike(made, mask), mask, lambda row: f"{days[row]} days since 1970 don't fit {TIMESTAMP}")


def _timestamp_to_date(rows: int, args: Sequence[Value]) -> pa.Array:
    array = as_array(args[0], rows)
    return build((raw(array) // DAY_US).astype(np.int32), [array], pa.date32())


# -- which one ------------------------------------------------------------------------------------


def cast(site: KernelSite) -> Kernel:
    """The kernel that converts ``site.types[0]`` to ``site.type``; ``functions.castable`` says if."""
    source, target = site.types[0], site.type
    if source == "utf8":
        return _text_to(target)
    if target == "utf8":
        return _to_text(source)
    if (source, target) == ("date32", TIMESTAMP):
        return _date_to_timestamp
    if (source, target) == (TIMESTAMP, "date32"):
        return _timestamp_to_date
    if is_decimal(target):
        return _to_decimal(target)
    if is_decimal(source):
        return _decimal_to_integer(target) if is_integer(target) else _unsafe(target)
    if is_float(source) and is_integer(target):
        return _float_to_integer(target)
    if is_integer(source) and is_integer(target):
        return _integer_to_integer(target)
    if (source, target) == ("float64", "float32"):
        return _float_to_single
    return _unsafe(target)
