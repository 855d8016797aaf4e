"""The function list is closed and complete; patterns, text as values, and trees as text."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.expressions.evaluate import MAKERS
from medusa.query.expressions.expression import Call, Literal
from medusa.query.expressions.functions import FUNCTIONS, TABLE_VERSION, castable
from medusa.query.expressions.parse import parse
from medusa.query.expressions.patterns import group_names, like_parts, like_regex
from medusa.query.expressions.show import show
from medusa.query.expressions.text_casts import (
    convert_literal,
    decimal_fits,
    read_date,
    read_float,
    read_integer,
    read_text,
    read_timestamp,
    round_half_away,
)
from medusa.query.sql_names import FUNCTION_NAMES
from medusa.query.types import TIMESTAMP, TYPES


def test_every_function_can_be_written_and_has_a_kernel() -> None:
    assert set(FUNCTION_NAMES.values()) <= set(FUNCTIONS)
    assert set(FUNCTIONS) - set(MAKERS) == {"nullif", "tuple_time"}, "nullif becomes a case"
    assert all(1 <= function.since <= TABLE_VERSION for function in FUNCTIONS.values())


def test_casts_exist_from_and_to_every_type_that_they_should() -> None:
    assert all(castable(type, type) and castable("null", type) for type in TYPES)
    assert [target for target in TYPES if not castable("utf8", target)] == ["duration[us]"]
    assert [source for source in TYPES if not castable(source, "utf8")] == ["duration[us]"]
    assert not castable(TIMESTAMP, "int64")
    assert not castable("float64", "bool")


# -- patterns


def brute_like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(brute_like(text[at:], pattern[1:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and brute_like(text[1:], pattern[1:])


@given(st.text(alphabet="ab.\\\n", max_size=6), st.text(alphabet="ab%_.\\\n", max_size=6))
def test_a_like_pattern_is_matched_by_its_parts_and_by_its_regex(text: str, pattern: str) -> None:
    wanted = brute_like(text, pattern)
    assert (re.fullmatch(like_regex(pattern).replace(r"\z", r"\Z"), text) is not None) == wanted
    kind, part = like_parts(pattern)
    matched = {
        "equal": text == part,
        "prefix": text.startswith(part),
        "suffix": text.endswith(part),
        "infix": part in text,
    }
    assert matched.get(kind, wanted) == wanted


@pytest.mark.parametrize(
    ("pattern", "named", "names"),
    [
        ("a(b)c", "a(?P<group_1>b)c", ["group_1"]),
        ("(a)(?:b)(?P<x>c)(?i)", "(?P<group_1>a)(?:b)(?P<x>c)(?i)", ["group_1", "x"]),
        (r"\((a)[(]", r"\((?P<group_1>a)[(]", ["group_1"]),
        (r"[](](a)", r"[](](?P<group_1>a)", ["group_1"]),
        (r"\Q(\E(a)", r"\Q(\E(?P<group_1>a)", ["group_1"]),
        ("(group_1)", "(?P<group__1>group_1)", ["group__1"]),
        ("((a)b)", "(?P<group_1>(?P<group_2>a)b)", ["group_1", "group_2"]),
    ],
)
def test_groups_get_names(pattern: str, named: str, names: list[str]) -> None:
    assert group_names(pattern) == (named, names)


# -- text as values


@given(st.integers())
def test_integers_are_read(number: int) -> None:
    assert read_integer(str(number)) == (number if len(str(abs(number))) <= 40 else None)


@pytest.mark.parametrize("text", ["", "+", "1.0", " 1", "1_0", "0x1", "١", "1e3", "--1"])
def test_what_is_no_integer(text: str) -> None:
    assert read_integer(text) is None


@pytest.mark.parametrize(
    "text", ["", ".", "e5", "1e", "1_0", " 1", "0x1p3", "nan(1)", "++1", "infin", "+-inf"]
)
def test_what_is_no_float(text: str) -> None:
    assert read_float(text) is None


@given(st.floats(allow_nan=False))
def test_floats_are_read(number: float) -> None:
    assert read_float(repr(number)) == number


@given(st.datetimes())
def test_timestamps_are_read(point: object) -> None:
    us = read_timestamp(str(point))
    assert us is not None
    assert convert_literal(Literal("utf8", str(point)), TIMESTAMP) == Literal(TIMESTAMP, us)
    assert show(Literal(TIMESTAMP, us)) == f"TIMESTAMP '{point}'"


def test_offsets_move_a_timestamp() -> None:
    assert read_timestamp("1970-01-01 02:00+02:00") == 0
    assert read_timestamp("1970-01-01 00:00Z") == 0
    assert read_timestamp("1969-12-31 22:30-01:30") == 0
    assert read_timestamp("1970-01-01 00:00+24:00") is None
    assert read_timestamp("1970-01-01Z") is None


@pytest.mark.parametrize("text", ["2024-02-30", "2024-1-1", "0000-01-01", "20240101", "2024-01-01 "])
def test_what_is_no_date(text: str) -> None:
    assert read_date(text) is None


def test_halves_go_away_from_zero() -> None:
    assert [round_half_away(x) for x in (0.5, -0.5, 1.5, 2.5, 0.49999999999999994)] == [1, -1, 2, 3, 0]
    assert decimal_fits(Decimal("1.005"), "decimal128(4, 2)") == Decimal("1.01")
    assert decimal_fits(Decimal("99.995"), "decimal128(4, 2)") is None
    assert read_text("1.25", "decimal128(2, 1)") == Decimal("1.3")


def test_a_finite_number_does_not_become_infinite() -> None:
    assert read_text("1E100", "float32") is None
    assert read_text("-inf", "float32") == float("-inf")
    assert read_text("1E100", "float64") == 1e100


@pytest.mark.parametrize(
    ("literal", "type", "wanted"),
    [
        (Literal("int64", 5), "int8", Literal("int8", 5)),
        (Literal("int64", 500), "int8", None),
        (Literal("int64", -1), "uint64", None),
        (Literal("int64", 5), "float64", Literal("float64", 5.0)),
        (Literal("int64", 2**24 + 1), "float32", None),
        (Literal("float64", 0.5), "float32", Literal("float32", 0.5)),
        (Literal("float64", 0.1), "float32", None),
        (Literal("float64", "nan"), "float32", Literal("float32", "nan")),
        (Literal("float64", 0.1), "decimal128(3, 2)", Literal("decimal128(3, 2)", "0.10")),
        (Literal("float64", 0.001), "decimal128(3, 2)", None),
        (Literal("float64", "inf"), "decimal128(3, 2)", None),
        (Literal("utf8", "5 min"), "duration[us]", Literal("duration[us]", 300_000_000)),
        (Literal("utf8", "5"), "int64", None),
        (Literal("null", None), "utf8", Literal("utf8", None)),
        (Literal("date32", 1), TIMESTAMP, Literal(TIMESTAMP, 86_400_000_000)),
    ],
)
def test_a_constant_takes_another_type_only_exactly(
    literal: Literal, type: str, wanted: Literal | None
) -> None:
    assert convert_literal(literal, type) == wanted


# -- trees as text


@pytest.mark.parametrize(
    "text",
    [
        "speed > 0",
        "(a + b) * 2",
        "a AND (NOT b)",
        "CASE WHEN a THEN 1 ELSE 2 END",
        "x IN (1, NULL)",
        "CAST(x AS float64)",
        "'it''s'",
        "x IS NOT NULL",
        '"odd name" = 1',
        "length('(') + 1",
    ],
)
def test_a_tree_is_shown_as_it_was_written(text: str) -> None:
    assert show(parse(text)) == text


def test_what_is_shown_is_short() -> None:
    assert len(show(Call("add", (Literal("utf8", "x" * 500),) * 900))) <= 120
    assert show(parse("DATE '2024-01-31'")) == "DATE '2024-01-31'"
    assert show(Literal(TIMESTAMP, 2**62)) == f"{TIMESTAMP}({2**62})"
