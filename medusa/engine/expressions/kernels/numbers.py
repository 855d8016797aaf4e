"""Arithmetic: Arrow's checked kernels, and what happens in the rows that they refuse.

The checked kernel refuses a whole batch for one bad row. Then the bad rows are found with wrapping
numpy arithmetic, made null, and the kernel runs again on the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.expressions.kernels.kernel import (
    Faulty,
    Kernel,
    KernelSite,
    Maker,
    Mask,
    Value,
    as_array,
    as_integers,
    build,
    call,
    function,
    on_integers,
    raw,
    show_value,
    strike,
    valid_rows,
)
from medusa.query.types import DURATION, is_decimal, is_float, is_integer

__all__ = ["NUMBERS"]

Numbers: TypeAlias = "np.ndarray[Any, Any]"
_cast = function("cast")
_divide = function("divide")
_TO_FLOAT = pc.CastOptions.unsafe(pa.float64())
INT_MIN = -(1 << 63)


def _add_wraps(a: Numbers, b: Numbers) -> Mask:
    made = a + b
    return made < a if made.dtype == np.uint64 else ((a ^ made) & (b ^ made)) < 0


def _sub_wraps(a: Numbers, b: Numbers) -> Mask:
    return a < b if a.dtype == np.uint64 else ((a ^ b) & (a ^ (a - b))) < 0


def _mul_wraps(a: Numbers, b: Numbers) -> Mask:
    made = a * b
    wraps: Mask = (a != 0) & (made // np.where(a == 0, 1, a).astype(a.dtype) != b)
    if made.dtype == np.int64:
        wraps |= ((a == -1) & (b == INT_MIN)) | ((b == -1) & (a == INT_MIN))
    return wraps


def _div_fails(a: Numbers, b: Numbers) -> Mask:
    fails: Mask = b == 0
    if a.dtype == np.int64:
        fails |= (a == INT_MIN) & (b == -1)
    return fails


def _checked(
    name: str, fails: Callable[..., Mask], sign: str, problem: Callable[[Sequence[pa.Array], int], str]
) -> Kernel:
    """A checked kernel of Arrow, with the rows found that it refuses."""
    run = function(name)

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
        try:
            return run(args)
        except pa.ArrowInvalid:
            arrays = [as_array(arg, rows) for arg in args]
        with np.errstate(all="ignore"):
            mask = fails(*map(raw, arrays))
        for array in arrays:
            mask &= valid_rows(array)
        values = run([strike(arrays[0], mask), *arrays[1:]])

        def error(row: int) -> str:
            shown = [show_value(array, row) for array in arrays]
            text = f"{shown[0]} {sign} {shown[1]}" if len(shown) == 2 else f"{sign}({shown[0]})"
            return f"{problem(arrays, row)}: {text}"

        return Faulty(values, mask, error)

    return kernel


def _overflow(arrays: Sequence[pa.Array], row: int) -> str:
    return "overflow"


def _by_zero(arrays: Sequence[pa.Array], row: int) -> str:
    return "division by zero" if raw(arrays[1])[row] == 0 else "overflow"


def _domain(arrays: Sequence[pa.Array], row: int) -> str:
    return "not defined"


_WRAPS = {
    "add": ("add", _add_wraps, "+"),
    "sub": ("subtract", _sub_wraps, "-"),
    "mul": ("multiply", _mul_wraps, "*"),
}


def _arithmetic(name: str) -> Maker:
    arrow, wraps, sign = _WRAPS[name]

    def make(site: KernelSite) -> Kernel:
        # Decimals can't overflow: their rule gives the result all the digits it needs.
        if is_float(site.type) or is_decimal(site.type):
            return call(arrow)
        return _temporal(_checked(f"{arrow}_checked", wraps, sign, _overflow), site)

    return make


def _temporal(kernel: Kernel, site: KernelSite) -> Kernel:
    return kernel if is_integer(site.type) else on_integers(kernel, site.type)


def _div(site: KernelSite) -> Kernel:
    if site.types[0] != DURATION:
        return call("divide")

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array:
        return _divide([_cast([as_integers(arg)], _TO_FLOAT) for arg in args])

    return kernel


def _floordiv(site: KernelSite) -> Kernel:
    if is_float(site.type):
        trunc = function("trunc")
        return lambda rows, args: trunc([_divide(args)])
    return _checked("divide_checked", _div_fails, "//", _by_zero)


def _mod(site: KernelSite) -> Kernel:
    whole = not is_float(site.type)

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
        left, right = (as_array(arg, rows) for arg in args)
        divisors = raw(right)
        with np.errstate(all="ignore"):
            made = np.fmod(raw(left), divisors)
        values = build(made, [left, right], left.type)
        if whole and not divisors.all():
            mask = (divisors == 0) & valid_rows(left) & valid_rows(right)
            if mask.any():
                return Faulty(
                    strike(values, mask), mask, lambda row: f"division by zero: {show_value(left, row)} % 0"
                )
        return values

    return kernel


def _is_min(a: Numbers) -> Mask:
    return np.equal(a, INT_MIN)


def _negative(a: Numbers) -> Mask:
    return np.less(a, 0)


def _not_positive(a: Numbers) -> Mask:
    return np.less_equal(a, 0)


def _neg(site: KernelSite) -> Kernel:
    if is_float(site.type) or is_decimal(site.type):
        return call("negate")
    return _temporal(_checked("negate_checked", _is_min, "-", _overflow), site)


def _same(rows: int, args: Sequence[Value]) -> pa.Array:
    return as_array(args[0], rows)


def _abs(site: KernelSite) -> Kernel:
    if is_float(site.type) or is_decimal(site.type):
        return call("abs")
    if site.type == "uint64":
        return _same
    return _temporal(_checked("abs_checked", _is_min, "abs", _overflow), site)


def _sign(site: KernelSite) -> Kernel:
    run = function("sign")
    if is_float(site.type):
        return call("sign")
    options = pc.CastOptions.unsafe(pa.uint64() if site.type == "uint64" else pa.int64())
    return lambda rows, args: _cast([run(args)], options)


def _power(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
    arrays = [as_array(arg, rows) for arg in args]
    made = _raise(args)
    mask = np.isnan(raw(made))
    if mask.any():
        for array in arrays:
            mask &= valid_rows(array) & ~np.isnan(raw(array))
        if mask.any():
            return Faulty(
                strike(made, mask),
                mask,
                lambda row: "not defined: power(" + ", ".join(show_value(each, row) for each in arrays) + ")",
            )
    return made


_raise = function("power")


def _rounding(name: str) -> Maker:
    return lambda site: call(name) if is_float(site.type) else _same


def _round(site: KernelSite) -> Kernel:
    if not is_float(site.type):
        return _same
    digits = site.integer(1) if len(site.types) == 2 else 0
    options = pc.RoundOptions(digits, "half_towards_infinity")
    run = function("round")

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array:
        value = as_array(args[0], rows)
        try:
            return run([value], options)
        except pa.ArrowInvalid:
            # Multiplied by 10^digits it would overflow: such a number has no digits to round.
            numbers = raw(value)
            large = pa.array(np.abs(numbers) > 1e200)
            return _if_else([large, value, run([_if_else([large, pa.scalar(0.0), value])], options)])

    return kernel


_if_else = function("if_else")


NUMBERS: dict[str, Maker] = {
    **{name: _arithmetic(name) for name in _WRAPS},
    "div": _div,
    "floordiv": _floordiv,
    "mod": _mod,
    "neg": _neg,
    "abs": _abs,
    "sign": _sign,
    "sqrt": lambda site: _checked("sqrt_checked", _negative, "sqrt", _domain),
    "ln": lambda site: _checked("ln_checked", _not_positive, "ln", _domain),
    "log10": lambda site: _checked("log10_checked", _not_positive, "log10", _domain),
    "exp": lambda site: call("exp"),
    "power": lambda site: _power,
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _round,
}
"""Makers of kernels by operation."""
