"""Random aggregates over the columns of a stream."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import medusa as md
from tests.differential.predicates import family, quoted
from tests.engine.user_functions import Total

ORDERLESS = ("user", "count", "sum", "min", "max", "count_distinct")
ANY = ("count", "min", "max", "first", "last", "count_distinct", "approx_count_distinct")
NUMBERS = ("sum", "avg", "variance", "stddev", "quantile", "approx_quantile", "median")
INEXACT = ("avg", "variance", "stddev", "quantile", "approx_quantile", "median")
EXTREMES = ("min", "max", "first", "last", "count", "count_distinct")
NAMES = {"variance": "spread"}


def draw(
    rng: random.Random,
    types: Mapping[str, str],
    drawn: Counter[str],
    *,
    orderless: bool = False,
) -> dict[str, Any]:
    """One to four, by name; ``orderless``: those that don't depend on the order of the rows."""
    made: dict[str, Any] = {}
    for _ in range(rng.randint(1, 4)):
        drawn["_aggregates"] += 1
        number = drawn["_aggregates"]  # so that no name comes twice in a query
        name = rng.choice(list(types))
        functions = fitting(name, types[name])
        if orderless:
            functions = [each for each in functions if each in ORDERLESS]
        if rng.random() < 0.15 or not functions:
            made[f"rows{number}"] = "count()"
            drawn["aggregate.count"] += 1
            continue
        function = rng.choice(functions)
        drawn[f"aggregate.{function}"] += 1
        made[result_name(function, name, number)] = text(rng, function, quoted(name))
    return made


def fitting(name: str, type: str) -> list[str]:
    if name.startswith("w_"):
        return list(EXTREMES)
    if name.startswith("r_"):
        return ["sum", "avg", "variance", "stddev", "quantile", "min", "max", "first", "last", "count"]
    if family(type) == "int":
        return [*ANY, *NUMBERS, "user"]
    if family(type) in ("uint64", "float", "decimal"):
        return [*ANY, *NUMBERS]
    if type == "bool":
        return [*ANY, "sum", "avg"]
    return list(ANY)


def result_name(function: str, name: str, number: int) -> str:
    """Marked as its values are."""
    start = ""
    if function in INEXACT or (name.startswith("r_") and function not in ("count", "count_distinct")):
        start = "r_"
    elif name.startswith("w_") and function not in ("count", "count_distinct"):
        start = "w_"
    return f"{start}{NAMES.get(function, function)}{number}"


def text(rng: random.Random, function: str, x: str) -> Any:
    if function == "user":
        return md.user(Total, f"CAST({x} AS BIGINT)")
    if function in ("quantile", "approx_quantile"):
        return f"{function}({x}, {rng.choice([0.0, 0.25, 0.3, 0.75, 1.0])})"
    return f"{function}({x})"
