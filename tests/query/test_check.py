"""Types are computed and wrong trees refused before anything runs, with a message that helps."""

from __future__ import annotations

import pytest

from medusa.errors import QueryError
from medusa.query.checker import analyse, infer
from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal
from medusa.query.expressions.parse import parse
from medusa.query.expressions.tree import NODES_MAX
from medusa.query.types import DURATION, TIMESTAMP

SCHEMA = {
    "i8": "int8",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u64": "uint64",
    "f32": "float32",
    "f64": "float64",
    "flag": "bool",
    "text": "utf8",
    "raw": "binary",
    "day": "date32",
    "ts": TIMESTAMP,
    "span": DURATION,
    "price": "decimal128(10, 2)",
    "wide": "decimal128(38, 2)",
}


def type_of(text: str) -> str:
    return infer(parse(text), SCHEMA, box="filter 'f'")


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("i8 + i8", "int64"),
        ("i32 + 1", "int64"),
        ("u8 * u8", "int64"),
        ("u64 + u8", "uint64"),
        ("u64 + 1", "uint64"),
        ("i64 + f32", "float64"),
        ("f32 + f32", "float64"),
        ("i64 / i64", "float64"),
        ("i64 // 2", "int64"),
        ("f64 % 2", "float64"),
        ("-i8", "int64"),
        ("abs(u64)", "uint64"),
        ("round(f32, 2)", "float64"),
        ("round(i8)", "int64"),
        ("sqrt(i8)", "float64"),
        ("power(i8, 2)", "float64"),
        ("NULL + 1", "int64"),
        ("price + price", "decimal128(11, 2)"),
        ("price + 1", "decimal128(11, 2)"),
        ("price + i8", "decimal128(11, 2)"),
        ("price * 0.25", "decimal128(13, 4)"),
        ("-price", "decimal128(10, 2)"),
        ("price > 0.5", "bool"),
        ("price > 0.12345", "bool"),
        ("price = i64", "bool"),
        ("ts - ts", DURATION),
        ("ts + span", TIMESTAMP),
        ("span + ts", TIMESTAMP),
        ("ts - span - span", TIMESTAMP),
        ("ts + span + span", TIMESTAMP),
        ("day + span", TIMESTAMP),
        ("day - day", DURATION),
        ("span * i32", DURATION),
        ("2 * span", DURATION),
        ("span / span", "float64"),
        ("-span", DURATION),
        ("ts > '2024-01-31'", "bool"),
        ("span > '5 min'", "bool"),
        ("day = '2024-01-31'", "bool"),
        ("day < ts", "bool"),
        ("i32 > u8", "bool"),
        ("i8 = 1000", "bool"),
        ("f32 > 0.1", "bool"),
        ("raw = raw", "bool"),
        ("flag < TRUE", "bool"),
        ("coalesce(i32, 0)", "int32"),
        ("coalesce(i8, 1000)", "int64"),
        ("coalesce(f32, 0.5)", "float32"),
        ("coalesce(f32, 0.1)", "float64"),
        ("coalesce(NULL, i8, i32)", "int32"),
        ("greatest(u8, i8)", "int16"),
        ("nullif(text, 'a')", "utf8"),
        ("CASE WHEN flag THEN i8 ELSE f32 END", "float64"),
        ("CASE WHEN NULL THEN NULL ELSE text END", "utf8"),
        ("i32 IN (1, 2, NULL)", "bool"),
        ("ts IN ('2024-01-31')", "bool"),
        ("text || text", "utf8"),
        ("length(text)", "int64"),
        ("text LIKE 'a%'", "bool"),
        ("year(day)", "int64"),
        ("date_trunc('week', day)", TIMESTAMP),
        ("tuple_time", TIMESTAMP),
        ("CAST(text AS DECIMAL(4, 2))", "decimal128(4, 2)"),
        ("CAST(NULL AS DOUBLE)", "float64"),
    ],
)
def test_the_type_of(text: str, type: str) -> None:
    assert type_of(text) == type


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("sped > 0", ["filter 'f'", "'sped'", "there is"]),
        ("Text = 'a'", ["'Text'", "did you mean 'text'"]),
        ("i64 AND flag", ["i64 AND flag", "expected bools", "got int64, bool"]),
        ("text > 5", ["text > 5", "got utf8, int64"]),
        ("i64 = '5'", ["got int64, utf8", "CAST"]),
        ("ts > 'yesterday'", ["yesterday", "can't be read"]),
        ("u64 > -1", ["uint64", "CAST"]),
        ("u64 + i64", ["uint64", "CAST"]),
        ("-u64", ["signed", "uint64"]),
        ("price > f64", ["decimals and floats don't mix"]),
        ("price / 2", ["CAST to float64"]),
        ("sqrt(price)", ["CAST to float64"]),
        ("wide * wide", ["38 digits"]),
        ("flag + 1", ["got bool, int64", "CAST to a number"]),
        ("ts + 1", ["INTERVAL"]),
        ("ts + ts", ["expected two numbers, or a timestamp and a duration"]),
        ("span * f64", ["duration and an integer"]),
        ("isnan(i64)", ["expected a float"]),
        ("least(flag, TRUE)", ["ordered"]),
        ("round(i64, -2)", ["digits from 0 to 15"]),
        ("round(f64, i8)", ["literal integer"]),
        ("substr(text, 0)", ["the first character is 1"]),
        ("substr(text, 1, -1)", ["length of 0 or more"]),
        ("substr(i64, 1)", ["expected text"]),
        ("split_part(text, '', 1)", ["isn't empty"]),
        ("split_part(text, ',', 0)", ["part of 1 or more"]),
        ("text LIKE text", ["literal text"]),
        ("replace(text, text, 'a')", ["literal text"]),
        ("regexp_matches(text, '(')", ["missing )"]),
        ("regexp_replace(text, 'a', '\\2')", ["Rewrite"]),
        ("regexp_replace(text, 'a', 'b', 'x')", ["option 'g'"]),
        ("regexp_extract(text, '(a)', 2)", ["no group 2", "has 1"]),
        ("date_trunc('fortnight', ts)", ["second, minute", "fortnight"]),
        ("year(i64)", ["timestamp or a date"]),
        ("CASE WHEN i64 THEN 1 END", ["bool after WHEN 1"]),
        ("CASE WHEN flag THEN 1 ELSE 'a' END", ["THEN and ELSE", "int64, utf8"]),
        ("coalesce(i64, text)", ["one type"]),
        ("CAST(text AS INTERVAL)", ["can't be cast"]),
        ("CAST(f64 AS DECIMAL(4, 2))", ["can't be cast"]),
        ("CAST(ts AS BIGINT)", ["can't be cast"]),
        ("NULL", ["NULL of no type", "CAST(NULL AS"]),
    ],
)
def test_refused(text: str, parts: list[str]) -> None:
    with pytest.raises(QueryError) as caught:
        type_of(text)
    assert str(caught.value).startswith("filter 'f': ")
    for part in parts:
        assert part in str(caught.value)


def refused(tree: Expression) -> str:
    with pytest.raises(QueryError) as caught:
        infer(tree, SCHEMA, box="select 's'")
    return str(caught.value)


def test_a_tree_that_no_text_gives_is_refused_too() -> None:
    """Trees come from links and files as well."""
    one = Literal("int64", 1)
    assert "no function 'exec'" in refused(Call("exec", (one,)))
    assert "did you mean 'floor'" in refused(Call("flor", (one,)))
    assert "takes 2 arguments, got 1" in refused(Call("eq", (one,)))
    assert "takes 2 or more arguments, got 1" in refused(Call("add", (one,)))
    assert "takes 1 to 2 arguments, got 0" in refused(Call("round", ()))
    assert "needs at least one WHEN" in refused(Case(()))
    assert "no type" in refused(Cast(one, "int"))
    assert "supported" in refused(Cast(one, "struct"))
    assert "no int8 literal" in refused(Literal("int8", 300))
    assert "no float64 literal" in refused(Literal("float64", "0x1"))
    assert "list of literals" in refused(Call("in", (one, Column("i64"))))


def test_a_deep_tree_is_refused() -> None:
    tree: Expression = Column("i64")
    for _ in range(63):
        tree = Call("neg", (tree,))
    assert infer(tree, SCHEMA, box="b") == "int64"
    assert "64 deep" in refused(Call("neg", (tree,)))
    for _ in range(100_000):
        tree = Call("neg", (tree,))
    assert "64 deep" in refused(tree)


def test_a_wide_tree_is_refused() -> None:
    assert infer(Call("add", (Column("i64"),) * (NODES_MAX - 1)), SCHEMA, box="b") == "int64"
    assert f"{NODES_MAX:,} parts" in refused(Call("add", (Column("i64"),) * NODES_MAX))


def test_tuple_time_needs_a_stream_with_time() -> None:
    with pytest.raises(QueryError, match="tuple_time has no value here"):
        infer(Call("tuple_time"), SCHEMA, box="b", timed=False)


def test_every_conversion_is_a_step() -> None:
    steps = analyse([parse("i32 + f64 > 7")], SCHEMA, box="b").steps
    assert [(step.op, step.type) for step in steps] == [
        ("column", "int32"),
        ("column", "float64"),
        ("cast", "float64"),
        ("add", "float64"),
        ("literal", "int64"),
        ("literal", "float64"),
        ("gt", "bool"),
    ]
    for number, step in enumerate(steps):
        assert all(arg < number for arg in step.args)


def test_equal_parts_are_one_step() -> None:
    analysis = analyse([parse("i64 * 2 + i64 * 2"), parse("i64 * 2")], SCHEMA, box="b")
    assert [step.op for step in analysis.steps] == ["column", "literal", "mul", "add"]
    assert analysis.roots == (3, 2)
    assert analysis.types == ("int64", "int64")


def test_constants_that_are_equal_but_not_the_same_are_kept_apart() -> None:
    steps = analyse([Literal("float64", 0.0), Literal("float64", -0.0)], SCHEMA, box="b").steps
    assert len(steps) == 2
    steps = analyse([Literal("bool", True), Literal("int64", 1)], SCHEMA, box="b").steps
    assert len(steps) == 2
