"""Comparisons, null tests, membership, choices: where NaN and null need care.

NaN equals itself and is greater than everything else, as in PostgreSQL and DuckDB; Arrow compares
as IEEE does, so every comparison of floats is put so that NaN falls on the right side, or looks for
NaN first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.expressions.kernels.kernel import (
    Kernel,
    KernelSite,
    Maker,
    Value,
    as_array,
    call,
    function,
    on_integers,
    raw,
)
from medusa.query.types import DURATION, TIMESTAMP, is_float

__all__ = ["LOGIC"]

_equal = function("equal")
_less = function("less")
_less_equal = function("less_equal")
_greater = function("greater")
_greater_equal = function("greater_equal")
_invert = function("invert")
_and = function("and")
_or = function("or")
_and_not = function("and_not")
_is_nan = function("is_nan")
_is_null = function("is_null")
_coalesce = function("coalesce")
_if_else = function("if_else")
_is_in = function("is_in")
_FALSE = pa.scalar(False)


def _has_nan(value: Value) -> bool:
    """Whether there may be a NaN (one under a null counts too: it only costs time)."""
    if isinstance(value, pa.Scalar):
        return value.is_valid and math.isnan(value.as_py())
    return bool(np.isnan(raw(value)).any())


def _eq_float(left: Value, right: Value) -> pa.Array:
    equal = _equal([left, right])
    if _has_nan(left) and _has_nan(right):
        equal = _or([equal, _and([_is_nan([left]), _is_nan([right])])])
    return equal


def _gt_float(left: Value, right: Value) -> pa.Array:
    """left > right: not (left <= right), which NaN on the left passes, and no NaN on the right."""
    if _has_nan(right):
        return _and_not([_invert([_less_equal([left, right])]), _is_nan([right])])
    if _has_nan(left):
        return _invert([_less_equal([left, right])])
    return _greater([left, right])


def _plain_number(scalar: pa.Scalar | None) -> bool:
    return scalar is not None and not (scalar.is_valid and math.isnan(scalar.as_py()))


def _compare(name: str) -> Maker:
    def make(site: KernelSite) -> Kernel:
        if not is_float(site.types[0]):
            return call(_ARROW[name])
        left, right = map(_plain_number, site.constants)
        if name in ("eq", "ne"):
            return call(_ARROW[name]) if left or right else _FLOAT[name]
        if right:
            return _AGAINST_NUMBER[name]
        return _AGAINST_NUMBER_SWAPPED[name] if left else _FLOAT[name]

    return make


_ARROW = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}

# Column against a number that isn't NaN: a NaN in the column is the greater one.
_AGAINST_NUMBER: dict[str, Kernel] = {
    "lt": lambda rows, args: _less(args),
    "le": lambda rows, args: _less_equal(args),
    "gt": lambda rows, args: _invert([_less_equal(args)]),
    "ge": lambda rows, args: _invert([_less(args)]),
}
_AGAINST_NUMBER_SWAPPED: dict[str, Kernel] = {
    "gt": lambda rows, args: _greater(args),
    "ge": lambda rows, args: _greater_equal(args),
    "lt": lambda rows, args: _invert([_greater_equal(args)]),
    "le": lambda rows, args: _invert([_greater(args)]),
}
_FLOAT: dict[str, Kernel] = {
    "eq": lambda rows, args: _eq_float(args[0], args[1]),
    "ne": lambda rows, args: _invert([_eq_float(args[0], args[1])]),
    "gt": lambda rows, args: _gt_float(args[0], args[1]),
    "lt": lambda rows, args: _gt_float(args[1], args[0]),
    "le": lambda rows, args: _invert([_gt_float(args[0], args[1])]),
    "ge": lambda rows, args: _invert([_gt_float(args[1], args[0])]),
}


def _distinct(site: KernelSite) -> Kernel:
    equal = _compare("eq")(site)

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array:
        both_null = _and([_is_null([args[0]]), _is_null([args[1]])])
        return _invert([_coalesce([equal(rows, args), both_null])])

    return kernel


def _chain(name: str) -> Maker:
    run = function(name)

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array:
        made = args[0]
        for arg in args[1:]:
            made = run([made, arg])
        return as_array(made, rows)

    return lambda site: kernel


def _in(site: KernelSite) -> Kernel:
    listed = [scalar for scalar in site.constants[1:] if scalar is not None]
    valid = [scalar for scalar in listed if scalar.is_valid]
    type = listed[0].type
    values = pa.array([], type) if not valid else pa.concat_arrays([pa.repeat(each, 1) for each in valid])
    if is_float(site.types[0]) and 0.0 in values.to_pylist():
        # Arrow looks floats up by their bits.
        values = pa.concat_arrays([values, pa.array([0.0, -0.0], type)])
    options = pc.SetLookupOptions(values, skip_nulls=True)
    unknown = len(valid) < len(listed)

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array:
        arg = as_array(args[0], rows)
        found = _is_in([arg], options)
        if unknown:
            # x IN (1, NULL) is true or unknown, never false.
            return _if_else([found, found, pa.scalar(None, pa.bool_())])
        if arg.null_count:
            return _if_else([_is_null([arg]), pa.scalar(None, pa.bool_()), found])
        return found

    return kernel


def _extreme(name: str) -> Maker:
    run = function(f"{name}_element_wise")
    options = pc.ElementWiseAggregateOptions(skip_nulls=True)

    def plain(rows: int, args: Sequence[Value]) -> pa.Array:
        return as_array(run(args, options), rows)

    def with_nan(rows: int, args: Sequence[Value]) -> pa.Array:
        # Arrow's maximum passes over NaN, as its minimum does; ours is NaN where any is.
        made = plain(rows, args)
        for arg in args:
            if _has_nan(arg):
                nan = _coalesce([_is_nan([arg]), _FALSE])
                made = _if_else([nan, pa.scalar(math.nan, made.type), made])
        return made

    def make(site: KernelSite) -> Kernel:
        if site.type in (TIMESTAMP, DURATION):
            return on_integers(plain, site.type)
        return with_nan if name == "max" and is_float(site.type) else plain

    return make


def _case(rows: int, args: Sequence[Value]) -> pa.Array:
    made = args[-1]
    for index in range(len(args) - 3, -1, -2):
        condition, value = args[index], args[index + 1]
        if isinstance(condition, pa.Scalar):
            made = value if condition.as_py() is True else made
            continue
        if condition.null_count:
            condition = _coalesce([condition, _FALSE])
        made = _if_else([condition, value, made])
    return as_array(made, rows)


LOGIC: dict[str, Maker] = {
    **{name: _compare(name) for name in _ARROW},
    "is_distinct_from": _distinct,
    "and": _chain("and_kleene"),
    "or": _chain("or_kleene"),
    "not": lambda site: call("invert"),
    "is_null": lambda site: call("is_null"),
    "is_not_null": lambda site: call("is_valid"),
    "is_nan": lambda site: call("is_nan"),
    "in": _in,
    "least": _extreme("min"),
    "greatest": _extreme("max"),
    "coalesce": lambda site: lambda rows, args: as_array(_coalesce(args), rows),
    "case": lambda site: _case,
}
"""Makers of kernels by operation."""
