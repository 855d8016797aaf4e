"""Aggregates: result types, and the columns in which partial results travel."""

from __future__ import annotations

import pytest

from medusa.errors import QueryError
from medusa.query.aggregates import combined, result_type, state_fields
from medusa.query.boxes import AGGREGATE_FUNCTIONS, AggregateCall, Field
from medusa.query.expression import Column
from medusa.query.types import DURATION, TIMESTAMP, TYPES, is_float, is_integer

X = Column("x")


@pytest.mark.parametrize("type", TYPES)
def test_result_types(type: str) -> None:
    """Restates the rule: counts of anything; numbers are added; whatever has an order, but text, has ends."""
    number = type == "bool" or is_integer(type) or is_float(type)
    expected = {
        "count": "int64",
        "count_distinct": "int64",
        "sum": ("float64" if is_float(type) else "int64") if number else None,
        "avg": "float64" if number else None,
        "variance": "float64" if number else None,
        "min": type if number or type in ("date32", TIMESTAMP, DURATION) else None,
        "max": type if number or type in ("date32", TIMESTAMP, DURATION) else None,
    }
    assert set(expected) == set(AGGREGATE_FUNCTIONS)
    for function, result in expected.items():
        call = AggregateCall("a", function, X)
        if result is None:
            with pytest.raises(QueryError, match=rf"^box: aggregate 'a': {function} takes .*, got"):
                result_type(call, type, box="box")
        else:
            assert result_type(call, type, box="box") == result
            # What partial sends, combine reads back as the same type.
            states = {field.name: field.type for field in state_fields(call, type)}
            assert combined(call, states, box="box") == (result, state_fields(call, type))
            assert all(name.startswith("a.") for name in states)


def test_state_columns() -> None:
    def columns(function: str, type: str | None) -> list[Field]:
        return list(state_fields(AggregateCall("a", function, X if type else None), type))

    n = Field("a.n", "int64")
    assert columns("count", None) == [n]
    assert columns("count", "utf8") == [n]
    for function in ("sum", "avg"):
        assert columns(function, "uint8") == [n, Field("a.lo", "int64"), Field("a.hi", "int64")]
        assert columns(function, "bool") == [n, Field("a.lo", "int64"), Field("a.hi", "int64")]
        assert columns(function, "float32") == [n, Field("a.sum", "float64")]
    assert columns("min", "date32") == [Field("a.value", "date32")]
    assert columns("max", "uint64") == [Field("a.value", "uint64")]
    assert columns("variance", "int8") == [n, Field("a.mean", "float64"), Field("a.m2", "float64")]
    assert columns("count_distinct", "int8") == [Field("a.set", "binary")]
    assert columns("count_distinct", "utf8") == [Field("a.texts", "binary")]


@pytest.mark.parametrize(
    ("call", "type", "says"),
    [
        (AggregateCall("a", "median", X), "int8", "there is no aggregate 'median' (did you mean 'min'?)"),
        (AggregateCall("a", "sum"), None, 'sum needs an argument (md.sum("column"))'),
        (AggregateCall("a", "sum", X), "null", "got null"),
        (AggregateCall("a", "count", X), "decimal128(5, 1)", "any type but decimal, got decimal128(5, 1)"),
        (AggregateCall("a", "avg", X), "decimal128(5, 1)", "(cast it to float64)"),
    ],
)
def test_what_is_no_aggregate(call: AggregateCall, type: str | None, says: str) -> None:
    with pytest.raises(QueryError) as caught:
        result_type(call, type, box="box")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "states", [{}, {"a.n": "int32"}, {"a.n": "int64", "a.sum": "int64"}, {"b.n": "int64"}]
)
def test_columns_that_are_no_state(states: dict[str, str]) -> None:
    with pytest.raises(QueryError, match=r"doesn't have its state columns a\.n, a\.lo, a\.hi"):
        combined(AggregateCall("a", "sum", X), states, box="box")
