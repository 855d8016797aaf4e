"""Decimals against Python's decimal module: exact, or refused when the query is built."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.expressions.evaluate import compile_expression
from medusa.query.expressions.parse import parse

SCHEMA = {"a": "decimal128(12, 2)", "b": "decimal128(8, 5)", "i": "int64", "s": "utf8"}
EXACT = Context(prec=100, rounding=ROUND_HALF_UP)


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal | None]:
    most = 10**digits - 1
    return st.none() | st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-scale))


rows = st.lists(
    st.tuples(decimals(12, 2), decimals(8, 5), st.none() | st.integers(-(2**63), 2**63 - 1)), min_size=1
)


def run(text: str, made: list[tuple[Any, Any, Any]], texts: list[str | None] | None = None) -> list[Any]:
    """Values; ``fails`` for a failed row."""
    batch = pa.record_batch(
        {
            "a": pa.array([a for a, _, _ in made], pa.decimal128(12, 2)),
            "b": pa.array([b for _, b, _ in made], pa.decimal128(8, 5)),
            "i": pa.array([i for _, _, i in made], pa.int64()),
            "s": pa.array(texts or [None] * len(made), pa.string()),
        }
    )
    out = compile_expression(parse(text), SCHEMA)(batch)
    failed = out.failed.to_pylist() if out.failed is not None else [False] * len(made)
    return ["fails" if fails else value for value, fails in zip(out.values.to_pylist(), failed, strict=True)]


def exact(a: Decimal | None, b: Decimal | None, function: Any) -> Any:
    return None if a is None or b is None else function(a, b)


@settings(max_examples=60)
@given(rows)
def test_arithmetic_and_comparison_are_exact(made: list[tuple[Any, Any, Any]]) -> None:
    for text, function in {
        "a + b": EXACT.add,
        "a - b": EXACT.subtract,
        "a * b": EXACT.multiply,
        "a > b": lambda a, b: a > b,
        "a = b": lambda a, b: a == b,
        "greatest(a, b)": max,
        "a + 0.125": lambda a, b: EXACT.add(a, Decimal("0.125")),
    }.items():
        wanted = [exact(a, b, function) for a, b, _ in made]
        ours = run(text, made)
        if text in ("greatest(a, b)", "a + 0.125"):
            ours = [None if None in (a, b) else value for value, (a, b, _) in zip(ours, made, strict=True)]
        assert ours == wanted, text
    assert run("-a", made) == [None if a is None else -a for a, _, _ in made]
    assert run("abs(b)", made) == [None if b is None else abs(b) for _, b, _ in made]
    assert run("a > i", made) == [exact(a, i, lambda a, i: a > i) for a, _, i in made]


def fitted(value: Any, digits: int, scale: int) -> Any:
    if value is None:
        return None
    rounded = EXACT.quantize(Decimal(value), Decimal(1).scaleb(-scale))
    return rounded if abs(rounded) < Decimal(10) ** (digits - scale) else "fails"


@settings(max_examples=60)
@given(rows)
def test_casts_round_half_away_and_fail_where_digits_lack(made: list[tuple[Any, Any, Any]]) -> None:
    assert run("CAST(a AS DECIMAL(5, 1))", made) == [fitted(a, 5, 1) for a, _, _ in made]
    assert run("CAST(b AS DECIMAL(12, 6))", made) == [fitted(b, 12, 6) for _, b, _ in made]
    assert run("CAST(i AS DECIMAL(10, 2))", made) == [fitted(i, 10, 2) for _, _, i in made]
    assert run("CAST(b AS BIGINT)", made) == [
        None if b is None else int(fitted(b, 30, 0)) for _, b, _ in made
    ]
    small = [fitted(b, 30, 0) for _, b, _ in made]
    assert run("CAST(b AS TINYINT)", made) == [
        None if b is None else int(b) if -128 <= b <= 127 else "fails" for b in small
    ]
    texts = [None if b is None else str(b) for _, b, _ in made]
    assert run("CAST(s AS DECIMAL(4, 2))", made, texts) == [fitted(b, 4, 2) for _, b, _ in made]
    assert run("CAST(CAST(a AS VARCHAR) AS DECIMAL(12, 2))", made) == [a for a, _, _ in made]


@pytest.mark.parametrize("text", ["1e3", " 1", "1,5", "", "NaN", "0x1", "1_0"])
def test_what_is_no_decimal(text: str) -> None:
    assert run("CAST(s AS DECIMAL(9, 2))", [(None, None, None)], [text]) == ["fails"]


def test_floats_of_decimals_are_near() -> None:
    values = [Decimal("0.10"), Decimal("9999999999.99"), Decimal("-0.07")]
    assert run("CAST(a AS DOUBLE)", [(a, None, None) for a in values]) == pytest.approx(
        [float(a) for a in values], rel=1e-15
    )
