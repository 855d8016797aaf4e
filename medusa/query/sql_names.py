"""The names under which functions are written in SQL text."""

from __future__ import annotations

__all__ = ["FUNCTION_NAMES", "SIDES"]

SIDES = ("left", "right", "table")
"""The two inputs of a join, as ``where`` names them."""

_AS_NAMED = (
    *("is_nan", "abs", "sign", "sqrt", "exp", "ln", "log10", "power", "mod", "floor", "ceil", "round"),
    *("least", "greatest", "coalesce", "nullif"),
    *("concat", "lower", "upper", "length", "substr", "trim", "ltrim", "rtrim", "replace"),
    *("starts_with", "ends_with", "contains", "split_part"),
    *("regexp_matches", "regexp_replace", "regexp_extract"),
    *("year", "month", "day", "hour", "minute", "second", "epoch_us", "date_trunc", "tuple_time"),
)

FUNCTION_NAMES = {
    **{name: name for name in _AS_NAMED},
    "ceiling": "ceil",
    "isnan": "is_nan",
    "len": "length",
    "pow": "power",
    "prefix": "starts_with",
    "substring": "substr",
    "suffix": "ends_with",
}
"""SQL name in lower case -> function of the tree. Operators have their own syntax."""
