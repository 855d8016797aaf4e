"""Operators bind as in DuckDB: DuckDB itself evaluates the text and our tree, written with all brackets."""

from __future__ import annotations

import random

import duckdb

from medusa.errors import QueryError
from medusa.query.expressions.expression import Call, Cast, Column, Expression, Literal
from medusa.query.expressions.parse import parse

INFIX = {
    **{"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "and": "AND", "or": "OR", "add": "+", "sub": "-"},
    **{"ge": ">=", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "power": "**", "concat": "||"},
    **{"is_distinct_from": "IS DISTINCT FROM", "like": "LIKE"},
}
TABLE = """
CREATE TABLE t AS SELECT * FROM (VALUES
    (5, 3, 2, true, false, 'ab'), (7, -2, 4, false, NULL, 'b'), (-3, 6, NULL, NULL, true, 'a%')
) rows(a, b, c, p, q, s)
"""
BINARY = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "=",
    "<>",
    "<",
    "<=",
    "AND",
    "OR",
    "||",
    "IS DISTINCT FROM",
    "LIKE",
]
SUFFIXES = ["", "", "", "", " IS NULL", " IS NOT NULL", " IN (1, 2)", "::bigint"]


def bracketed(tree: Expression) -> str:
    match tree:
        case Column(name):
            return name
        case Literal(_, value):
            return str(value)
        case Cast(arg, _):
            return f"CAST({bracketed(arg)} AS bigint)"
        case Call("not", (arg,)):
            return f"(NOT {bracketed(arg)})"
        case Call("neg", (arg,)):
            return f"(-{bracketed(arg)})"
        case Call("is_null", (arg,)):
            return f"({bracketed(arg)} IS NULL)"
        case Call("is_not_null", (arg,)):
            return f"({bracketed(arg)} IS NOT NULL)"
        case Call("in", (arg, *options)):
            return f"({bracketed(arg)} IN ({', '.join(map(bracketed, options))}))"
        case Call(function, (first, *rest)):
            text = bracketed(first)
            for arg in rest:
                text = f"({text} {INFIX[function]} {bracketed(arg)})"
            return text
    raise AssertionError(tree)


def written(random_: random.Random) -> str:
    parts = []
    for index in range(random_.randint(2, 5)):
        prefix = random_.choice(["", "", "", "-", "NOT "])
        if index:
            parts.append(random_.choice(BINARY))
        parts.append(prefix + random_.choice("abcpqs23") + random_.choice(SUFFIXES))
    return " ".join(parts)


def test_operators_bind_as_in_duckdb() -> None:
    random_ = random.Random(1)
    with duckdb.connect() as base:
        base.execute(TABLE)

        def values(text: str) -> str:
            try:
                return repr(base.execute(f"SELECT {text} FROM t").fetchall())
            except duckdb.Error as error:
                return type(error).__name__

        compared = 0
        for _ in range(3_000):
            text = written(random_)
            try:
                tree = parse(text)
            except QueryError:
                continue
            expected = values(text)
            # What DuckDB can't read or type says nothing about how it binds.
            if expected.startswith("["):
                assert values(bracketed(tree)) == expected, (text, bracketed(tree))
                compared += 1
        assert compared > 250


def test_ranges_bind_as_in_duckdb() -> None:
    random_ = random.Random(2)
    with duckdb.connect() as base:
        base.execute(TABLE)
        for _ in range(300):
            low, high = random_.choice(["1", "-b", "a - c"]), random_.choice(["5", "b + 2", "a * 2"])
            prefix, word = random_.choice(["", "NOT "]), random_.choice(["BETWEEN", "NOT BETWEEN"])
            tail = random_.choice(["", " AND p", " OR q", " = p"])
            text = f"{prefix}{random_.choice(['a', '-b', 'a + c'])} {word} {low} AND {high}{tail}"
            both = [
                base.execute(f"SELECT {each} FROM t").fetchall() for each in (text, bracketed(parse(text)))
            ]
            assert both[0] == both[1], text
