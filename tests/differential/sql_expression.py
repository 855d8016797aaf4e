"""Expressions and aggregates in DuckDB's SQL, where every integer is wide, every float is a DOUBLE and times
are integers of microseconds."""

from __future__ import annotations

import math
from typing import Any

from medusa.query.boxes import AggregateCall
from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal

INFIX = {
    **{"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
    **{"add": "+", "sub": "-", "mul": "*", "mod": "%", "and": "AND", "or": "OR", "concat": "||"},
    **{"is_distinct_from": "IS DISTINCT FROM", "like": "LIKE"},
}
NAMED = {
    **{name: name for name in ("abs", "floor", "least", "greatest", "coalesce", "length", "substr")},
    **{name: name for name in ("lower", "upper", "starts_with")},
    "is_nan": "isnan",
}


class Unsupported(Exception):
    """DuckDB can't say it, or says it otherwise."""


def column(name: str) -> str:
    side, dot, rest = name.partition(".")
    if dot and side in ("left", "right"):
        return f'{side[0]}."{rest}"'
    return f'"{name}"'


def expression(tree: Expression, time: str = "_t") -> str:
    match tree:
        case Column(name):
            return column(name)
        case Literal():
            return literal(tree.value, tree.type)
        case Cast(arg, type):
            return cast(expression(arg, time), type)
        case Case(branches, otherwise):
            whens = " ".join(f"WHEN {expression(a, time)} THEN {expression(b, time)}" for a, b in branches)
            last = "NULL" if otherwise is None else expression(otherwise, time)
            return f"(CASE {whens} ELSE {last} END)"
        case Call(function, args):
            if function == "tuple_time":
                return time
            if function in ("floordiv", "mod") and not isinstance(args[1], Literal):
                raise Unsupported("a division that fails")
            return call(function, [expression(arg, time) for arg in args])
    raise Unsupported(type(tree).__name__)


def literal(value: Any, type: str) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if type == "utf8":
        return "'" + str(value).replace("'", "''") + "'"
    if isinstance(value, float):
        return f"CAST('{'nan' if math.isnan(value) else repr(value)}' AS DOUBLE)"
    if isinstance(value, int):
        return f"CAST({value} AS BIGINT)"
    return f"CAST('{value}' AS {DECIMALS.get(type, type.replace('128', ''))})"


DECIMALS: dict[str, str] = {}


def cast(inner: str, type: str) -> str:
    if type.startswith(("timestamp", "duration", "date")):
        raise Unsupported(type)
    names = {"float64": "DOUBLE", "float32": "FLOAT", "utf8": "VARCHAR", "bool": "BOOLEAN", "int64": "BIGINT"}
    if type not in names and not type.startswith("decimal"):
        raise Unsupported(type)
    return f"CAST({inner} AS {names.get(type, type.replace('128', ''))})"


def call(function: str, args: list[str]) -> str:
    if function in INFIX:
        return "(" + f" {INFIX[function]} ".join(args) + ")"
    if function in NAMED:
        return f"{NAMED[function]}({', '.join(args)})"
    match function:
        case "not":
            return f"(NOT {args[0]})"
        case "neg":
            return f"(-{args[0]})"
        case "is_null":
            return f"({args[0]} IS NULL)"
        case "is_not_null":
            return f"({args[0]} IS NOT NULL)"
        case "div":
            return f"(CAST({args[0]} AS DOUBLE) / CAST({args[1]} AS DOUBLE))"
        case "floordiv":
            return f"({args[0]} // {args[1]})"
        case "in":
            return f"({args[0]} IN ({', '.join(args[1:])}))"
        case "epoch_us":
            return args[0]
    raise Unsupported(function)


def aggregate(call: AggregateCall, *, over: str = "", order: str = "_t, _pos") -> str:
    """Of a group; or with ``over`` of a frame of rows, which are in order."""
    if call.arg is None:
        return f"count(*) {over}"
    if isinstance(call.arg, Column) and call.arg.name.startswith("r_approx"):
        raise Unsupported("what depends on an estimate")
    x = expression(call.arg)
    number = f"CAST({x} AS DOUBLE)"
    match call.function:
        case "count" | "min" | "max":
            return f"{call.function}({x}) {over}"
        case "sum" | "user":
            return f"sum({x}) {over}"
        case "avg":
            return f"avg({number}) {over}"
        case "count_distinct" | "approx_count_distinct":
            return f"count(DISTINCT {x}) {over}"
        case "variance" | "stddev":
            # DuckDB raises an error for NaN.
            name = "var_samp" if call.function == "variance" else "stddev_samp"
            nan = f"(count(*) FILTER (WHERE isnan({number})) {over}) > 0 AND (count({x}) {over}) > 1"
            plain = f"{name}({number}) FILTER (WHERE NOT isnan({number})) {over}"
            return f"CASE WHEN {nan} THEN CAST('nan' AS DOUBLE) ELSE {plain} END"
        case "first" | "last":
            if over:
                return f"{call.function}_value({x} IGNORE NULLS) {over}"
            return f"{call.function}({x} ORDER BY {order}) FILTER (WHERE {x} IS NOT NULL)"
        case "quantile":
            return f"quantile_cont({number}, {call.parameter}) {over}"
        case "approx_quantile":
            return "NULL"  # its columns are not compared
        case "lag":
            return f"lag({x}, {call.parameter or 1}) {over.replace('ROWS UNBOUNDED PRECEDING', '')}"
    raise Unsupported(call.function)
