"""Expressions written in Python give the trees that text gives."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import medusa as md
from medusa.query.expressions.column import Expr, Then, as_tree, col, lit, when
from medusa.query.expressions.expression import Call, Expression, Literal
from medusa.query.expressions.parse import parse
from medusa.query.expressions.tree import (
    NODES_MAX,
    chain,
    check_limits,
    check_literal,
    columns_of,
    literal,
    measure,
    walk,
)
from medusa.query.sql_names import FUNCTION_NAMES

a, b, c = col("a"), col("b"), col("c")

PAIRS: list[tuple[Expr, str]] = [
    (a > 1, "a > 1"),
    (a > 1, "a > 1"),
    (a >= b, "a >= b"),
    (a < 1.5, "a < 1.5"),
    (a <= b, "a <= b"),
    (a == "x", "a = 'x'"),
    (a != b, "a <> b"),
    ((a > 1) & ~b | c, "a > 1 AND NOT b OR c"),
    (a & b & c, "a AND b AND c"),
    (a & (b & c), "a AND (b AND c)"),
    (a | b | c, "a OR b OR c"),
    (True & a, "TRUE AND a"),
    (False | a, "FALSE OR a"),
    (a + b + c, "a + b + c"),
    (a + (b + c), "a + (b + c)"),
    (a * b * 2, "a * b * 2"),
    (5 - a, "5 - a"),
    (5 + a, "5 + a"),
    (2 * a, "2 * a"),
    (1 / a, "1 / a"),
    (7 // a, "7 // a"),
    (7 % a, "7 % a"),
    (2**a, "2 ** a"),
    (a - b, "a - b"),
    (a**2 % 3 // 4 / 5, "a ** 2 % 3 // 4 / 5"),
    (-a, "-a"),
    (+a, "a"),
    (-lit(5), "-5"),
    (abs(a), "abs(a)"),
    (a.between(1, 2), "a BETWEEN 1 AND 2"),
    (a.is_in([1, -2]), "a IN (1, -2)"),
    (a.like("x%"), "a LIKE 'x%'"),
    (a.is_null(), "a IS NULL"),
    (a.is_not_null(), "a IS NOT NULL"),
    (a.is_nan(), "is_nan(a)"),
    (a.is_distinct_from(None), "a IS DISTINCT FROM NULL"),
    (a.cast("int8"), "a::int8"),
    (a.cast("string"), "CAST(a AS utf8)"),
    (a.sqrt(), "sqrt(a)"),
    (a.round(2), "round(a, 2)"),
    (a.concat(b).concat(c), "a || b || c"),
    (a.coalesce(b, 0), "coalesce(a, b, 0)"),
    (a.call("split_part", ".", 1), "split_part(a, '.', 1)"),
    (a.date_trunc("hour"), "date_trunc('hour', a)"),
    (md.time() > datetime(2024, 5, 1), "tuple_time > TIMESTAMP '2024-05-01'"),
    (a - timedelta(minutes=5), "a - INTERVAL '5 minutes'"),
    (a == date(1970, 1, 2), "a = DATE '1970-01-02'"),
    (when("a > 1").then("x").when(b).then("y").otherwise("z"),
     "CASE WHEN a > 1 THEN 'x' WHEN b THEN 'y' ELSE 'z' END"),
    (when(a).then(b), "CASE WHEN a THEN b END"),
    (when(a).then(1) + 1, "CASE WHEN a THEN 1 END + 1"),
    (col("weird name") > 0, '"weird name" > 0'),
]  # fmt: skip


@pytest.mark.parametrize(("built", "written"), PAIRS, ids=[written for _, written in PAIRS])
def test_python_and_text_give_one_tree(built: Expr, written: str) -> None:
    assert built.tree == parse(written)
    assert (built._depth, built._nodes) == measure(built.tree)


def test_every_function_is_a_method() -> None:
    for name, function in FUNCTION_NAMES.items():
        if function not in ("tuple_time", "is_nan"):
            expected = (Literal("utf8", "x"), a.tree) if function == "date_trunc" else (a.tree, lit("x").tree)
            assert getattr(a, name)("x").tree == Call(function, expected)
            assert name in dir(a)


def trees() -> st.SearchStrategy[tuple[Expr, str]]:
    """Pairs of the same expression in Python and as text."""
    leaves = st.sampled_from([(a, "a"), (b, "b"), (c, "c")]) | st.integers(0, 1 << 62).map(
        lambda value: (lit(value), str(value))
    )
    binary: list[tuple[Callable[[Expr, Expr], Expr], str]] = [
        (lambda x, y: x + y, "+"),
        (lambda x, y: x - y, "-"),
        (lambda x, y: x * y, "*"),
        (lambda x, y: x / y, "/"),
        (lambda x, y: x // y, "//"),
        (lambda x, y: x % y, "%"),
        (lambda x, y: x & y, "AND"),
        (lambda x, y: x | y, "OR"),
        (lambda x, y: x == y, "="),
        (lambda x, y: x < y, "<"),
        (lambda x, y: x.concat(y), "||"),
    ]

    def grow(inner: st.SearchStrategy[tuple[Expr, str]]) -> st.SearchStrategy[tuple[Expr, str]]:
        def join(
            left: tuple[Expr, str], op: tuple[Callable[[Expr, Expr], Expr], str], right: tuple[Expr, str]
        ):  # type: ignore[no-untyped-def]
            return op[0](left[0], right[0]), f"({left[1]}) {op[1]} ({right[1]})"

        return st.builds(join, inner, st.sampled_from(binary), inner) | inner.map(
            lambda pair: (~pair[0], f"NOT ({pair[1]})")
        )

    return st.recursive(leaves, grow, max_leaves=12)


@given(trees())
def test_any_expression_is_the_same_in_python_and_text(pair: tuple[Expr, str]) -> None:
    built, written = pair
    assert built.tree == parse(written)
    assert (built._depth, built._nodes) == measure(built.tree)


def test_truth_and_membership_are_refused_with_advice() -> None:
    for wrong in (lambda: a > 1 and b, lambda: not a, lambda: 1 < a < 5, lambda: bool(a)):
        with pytest.raises(md.QueryError, match=r"combine with & \| ~ in brackets"):
            wrong()
    with pytest.raises(md.QueryError, match=r"use \.is_in"):
        _ = 1 in a
    with pytest.raises(TypeError):
        list(a)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        {a: 1}  # noqa: B018


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: a.lowr(), "did you mean 'lower'"),
        (lambda: a.call("lowr"), "there is no function 'lowr' (did you mean 'lower'?)"),
        (lambda: a.is_in([]), "needs at least one value"),
        (lambda: a.is_in([b]), "a constant can't be a Expr"),
        (lambda: a.cast("flaot64"), "cast: type 'flaot64' is not supported (did you mean 'float64'?)"),
        (lambda: a + object(), "md.col: a constant can't be a object"),
        (lambda: a + when(b), ".then(value) is missing"),
        (lambda: col(""), "expected the name of a column"),
        (lambda: col(7), "expected the name of a column"),
        (lambda: when(7), "md.when: expected an expression, got int"),
        (lambda: as_tree(7, box="filter"), "a constant is md.lit(value)"),
        (lambda: as_tree(None, box="filter"), 'SQL text such as "speed > 0"'),
        (lambda: as_tree(when(a), box="filter"), "md.when(...) needs .then(value)"),
        (lambda: a ** (1 << 70), "is no uint64 literal"),
    ],
)
def test_slips_are_told(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises((md.QueryError, AttributeError)) as caught:
        wrong()
    assert says in str(caught.value)


def test_size_is_bounded_while_writing() -> None:
    with pytest.raises(md.QueryError, match=r"at most 64 deep and has 20,000 parts"):
        reduce(lambda grown, _: grown + grown, range(80), a)
    with pytest.raises(md.QueryError, match=r"at most 64 deep"):
        reduce(lambda deep, _: deep - 1, range(80), a)
    chained = a
    for _ in range(5_000):
        chained = chained + 1
    assert measure(chained.tree) == (2, 5_002)


def test_texts_of_expressions() -> None:
    assert repr(a + 1) == "<Expr a + 1>"
    assert isinstance(when(a), Then)
    assert "then(value) is missing" in repr(when(a))


# -- literals and trees ---------------------------------------------------------------------------

S = "timestamp[us, UTC]"


@pytest.mark.parametrize(
    ("value", "type", "expected"),
    [
        (None, None, Literal("null", None)),
        (True, None, Literal("bool", True)),
        (7, None, Literal("int64", 7)),
        (1 << 63, None, Literal("uint64", 1 << 63)),
        (2.5, None, Literal("float64", 2.5)),
        (float("nan"), None, Literal("float64", "nan")),
        (float("-inf"), None, Literal("float64", "-inf")),
        ("x", None, Literal("utf8", "x")),
        (b"\x00\xff", None, Literal("binary", "00ff")),
        (Decimal("1.50"), None, Literal("decimal128(3, 2)", "1.50")),
        (Decimal("-0.001"), None, Literal("decimal128(3, 3)", "-0.001")),
        (Decimal("1E+3"), None, Literal("decimal128(4, 0)", "1000")),
        (date(1970, 1, 2), None, Literal("date32", 1)),
        (datetime(1970, 1, 1, 0, 0, 1), None, Literal(S, 1_000_000)),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), None, Literal(S, 0)),
        (timedelta(milliseconds=5), None, Literal("duration[us]", 5_000)),
        (np.int32(7), None, Literal("int64", 7)),
        (np.float32(0.5), None, Literal("float64", 0.5)),
        (np.bool_(True), None, Literal("bool", True)),
        (7, "int8", Literal("int8", 7)),
        (7, "float64", Literal("float64", 7.0)),
        (7, "decimal(5, 2)", Literal("decimal128(5, 2)", "7.00")),
        (Decimal("1.5"), "decimal(5, 2)", Literal("decimal128(5, 2)", "1.50")),
        (None, "int64", Literal("int64", None)),
        ("x", "string", Literal("utf8", "x")),
    ],
)
def test_literals(value: object, type: str | None, expected: Literal) -> None:
    made = literal(value, type)
    assert made == expected
    check_literal(made, box="t")


@pytest.mark.parametrize(
    ("value", "type", "says"),
    [
        (300, "int8", "'300' is no int8 literal"),
        (-1, "uint8", "is no uint8 literal"),
        (-(1 << 64), None, "is no int64 literal"),
        (1.5, "int64", "1.5 is a float64, not a int64"),
        ("7", "int64", "'7' is a utf8, not a int64"),
        pytest.param(10**400, "float64", "is no uint64 literal", id="huge"),
        (Decimal("1.005"), "decimal(5, 2)", "doesn't fit decimal128(5, 2)"),
        (Decimal("12345"), "decimal(5, 2)", "doesn't fit decimal128(5, 2)"),
        (Decimal("1E+50"), None, "doesn't fit"),
        (Decimal("NaN"), None, "a constant can't be a Decimal"),
        ([], None, "a constant can't be a list"),
        ("\ud800", None, "is no utf8 literal"),
        (7, "money", "type 'money' is not supported"),
    ],
)
def test_what_is_no_literal(value: object, type: str | None, says: str) -> None:
    with pytest.raises(md.QueryError, match=r"^md\.lit: ") as caught:
        lit(value, type)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("int64", 1.0),
        ("int64", True),
        ("bool", 1),
        ("float64", 1),
        ("float64", float("nan")),
        ("float64", "NaN"),
        ("utf8", 7),
        ("binary", "0G"),
        ("binary", "AB"),
        ("date32", 1 << 31),
        (S, 1 << 63),
        ("decimal128(3, 1)", "1"),
        ("decimal128(3, 1)", "123.4"),
        ("decimal128(3, 1)", "1e1"),
        ("decimal128(3, 0)", "1."),
        ("decimal128(3, 1)", 1.5),
        ("null", 7),
        ("string", "x"),
        ("decimal128(39, 1)", "1.0"),
        ("x" * 1_000, None),
    ],
)
def test_literals_from_afar_are_checked(type: str, value: bool | int | float | str | None) -> None:
    with pytest.raises(md.QueryError) as caught:
        check_literal(Literal(type, value), box="filter 'f'")
    assert str(caught.value).startswith("filter 'f': ")
    assert len(str(caught.value)) < 500


def test_walking_a_tree() -> None:
    tree = parse("CASE WHEN a > 1 THEN lower(b) ELSE c::utf8 END || a")
    names = [type(node).__name__ for node in walk(tree)]
    assert names == [
        "Call",
        "Case",
        "Call",
        "Column",
        "Literal",
        "Call",
        "Column",
        "Cast",
        "Column",
        "Column",
    ]
    assert columns_of(tree) == ["a", "b", "c"]
    assert measure(tree) == (4, 10)


def test_limits_of_trees_that_share_parts() -> None:
    tree: Expression = parse("a")
    for _ in range(40):
        tree = Call("sub", (tree, tree))
    with pytest.raises(md.QueryError, match=rf"more than {NODES_MAX:,} parts"):
        check_limits(tree, box="filter 'f'")
    for _ in range(80):
        tree = Call("neg", (tree,))
    with pytest.raises(md.QueryError, match=r"filter 'f': .* nested more than 64 deep"):
        check_limits(tree, box="filter 'f'")
    assert chain("add", chain("add", a.tree, b.tree), c.tree) == parse("a + b + c")
    assert chain("sub", chain("sub", a.tree, b.tree), c.tree) == parse("a - b - c")
