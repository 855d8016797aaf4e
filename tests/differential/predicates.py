"""Random expressions over the columns of a stream, as SQL text."""

from __future__ import annotations

import random
from collections.abc import Mapping

from medusa.query.types import is_decimal, is_float, is_integer

TIMES = ("timestamp[us, UTC]", "duration[us]")


def plain_names(types: Mapping[str, str]) -> list[str]:
    """Columns with which one may compute."""
    return [name for name in types if not name.startswith(("w_", "r_"))]


def of_family(types: Mapping[str, str], *families: str) -> list[str]:
    return [name for name in plain_names(types) if family(types[name]) in families]


def family(type: str) -> str:
    if is_integer(type):
        return "uint64" if type == "uint64" else "int"
    if is_float(type):
        return "float"
    if is_decimal(type):
        return "decimal"
    return "time" if type in TIMES else type


def quoted(name: str) -> str:
    return '"' + name + '"'


def predicate(rng: random.Random, types: Mapping[str, str], depth: int = 2) -> str:
    """A bool; never fails."""
    if depth and rng.random() < 0.35:
        one, two = (predicate(rng, types, depth - 1) for _ in range(2))
        return rng.choice([f"({one}) AND ({two})", f"({one}) OR ({two})", f"NOT ({one})"])
    names = plain_names(types)
    if not names:
        return "true"
    name = rng.choice(names)
    x = quoted(name)
    if rng.random() < 0.1:
        return f"{x} IS {rng.choice(['', 'NOT '])}NULL"
    match family(types[name]):
        case "int":
            other = quoted(rng.choice(of_family(types, "int")))
            return rng.choice(
                [
                    *(f"{x} % 3 = 1", f"{x} > 1", f"{x} BETWEEN 1 AND 3", f"{x} IN (1, 2, 5)"),
                    *(f"{x} + {other} > 3", f"{x} <= {other}", f"{x} // 2 = 1", f"abs({x}) < 3"),
                    *(f"CASE WHEN {x} > 2 THEN {other} > 1 ELSE {x} = 0 END", f"coalesce({x}, 2) > 1"),
                    *(f"{x} IS DISTINCT FROM {other}", f"greatest({x}, {other}) = 3", f"{x} / 2 > 1"),
                ]
            )
        case "uint64":
            return rng.choice([f"{x} % 3 = 1", f"{x} > 1", f"{x} IN (1, 2, 5)"])
        case "float":
            other = quoted(rng.choice(of_family(types, "float")))
            return rng.choice(
                [
                    *(f"{x} > 0.5", f"{x} <> 1.0", f"isnan({x})", f"{x} * 2.0 < {other}", f"{x} <= {other}"),
                    *(f"coalesce({x}, 0.25) < 1", f"floor({x}) = 1", f"-{x} < 0.5", f"{x} + 1 >= {other}"),
                ]
            )
        case "utf8":
            return rng.choice(
                [
                    *(f"{x} = 'b'", f"{x} >= 'b'", f"length({x}) > 1", f"{x} LIKE '%a%'"),
                    *(f"{x} || 'c' = 'cc'", f"{x} IN ('a', 'cc')", f"starts_with({x}, 'a')"),
                ]
            )
        case "bool":
            return rng.choice([x, f"NOT {x}", f"{x} = true"])
        case "time":
            return rng.choice([f"epoch_us({x}) % 2 = 0", f"epoch_us({x}) > 3", f"epoch_us({x}) // 5 < 2"])
        case "decimal":
            return rng.choice([f"{x} > 0.25", f"{x} <= -1", f"{x} IS NOT NULL"])
    return f"{x} IS {rng.choice(['', 'NOT '])}NULL"


def failing(rng: random.Random, types: Mapping[str, str]) -> str | None:
    """A bool that fails on some rows."""
    ints, texts = of_family(types, "int"), of_family(types, "utf8")
    if not ints:
        return None
    x = quoted(rng.choice(ints))
    return rng.choice(
        [
            f"10 // {x} > 2",
            f"6 % {x} = 0",
            f"{x} > 1 OR 10 // {x} > 3",
            *(f"length({quoted(text)}) // {x} > 0" for text in texts[:1]),
        ]
    )


def computed(rng: random.Random, types: Mapping[str, str]) -> str:
    """A value of any type; never fails."""
    names = plain_names(types)
    if not names:
        return rng.choice(["1", "0.5", "'a'", "true"])
    name = rng.choice(names)
    x = quoted(name)
    match family(types[name]):
        case "int":
            return rng.choice([f"{x} + 1", f"{x} % 3", f"{x} * 2", f"-{x}", f"coalesce({x}, 7)", x])
        case "float":
            return rng.choice([f"{x} * 2.0", f"{x} + 0.5", f"abs({x})", f"coalesce({x}, 1.5)", f"floor({x})"])
        case "utf8":
            return rng.choice([f"{x} || '-'", f"coalesce({x}, 'none')", f"length({x})", f"substr({x}, 1, 1)"])
        case "bool":
            return rng.choice([f"NOT {x}", f"CASE WHEN {x} THEN 1 ELSE 2 END", x])
        case "time":
            return rng.choice([f"epoch_us({x})", x])
    return x
