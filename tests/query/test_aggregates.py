"""Aggregates: result types, and the columns in which partial results travel."""

from __future__ import annotations

from typing import ClassVar

import pytest

import medusa as md
from medusa import _native
from medusa.errors import QueryError
from medusa.query.boxes import AggregateCall, Field
from medusa.query.expressions.aggregate_types import combined, result_type, state_fields
from medusa.query.expressions.aggregates import AGGREGATES, NAMES
from medusa.query.expressions.expression import Column
from medusa.query.expressions.grouping import aggregate_call
from medusa.query.types import TIMESTAMP, TYPES, is_float, is_integer

X = Column("x")


DECIMAL = "decimal128(9, 2)"


def test_each_aggregate_has_its_function_and_its_native_kind() -> None:
    assert set(_native.AGGREGATES) == set(AGGREGATES)
    assert set(AGGREGATES) <= set(md.__all__)


@pytest.mark.parametrize("type", [*TYPES, DECIMAL])
def test_result_types(type: str) -> None:
    """Restates the rule: anything is counted, has a first, a last and ends; numbers are added."""
    number = type in ("bool", DECIMAL) or is_integer(type) or is_float(type)
    total = "float64" if is_float(type) else "decimal128(38, 2)" if type == DECIMAL else "int64"
    middle = "float64" if number and type != "bool" else None
    expected = {
        "count": "int64",
        "count_distinct": "int64",
        "approx_count_distinct": "int64",
        "sum": total if number else None,
        "avg": "float64" if number else None,
        "variance": "float64" if number else None,
        "stddev": "float64" if number else None,
        "min": type,
        "max": type,
        "first": type,
        "last": type,
        "quantile": middle,
        "approx_quantile": middle,
    }
    assert {*expected, "user"} == set(NAMES)
    for function, result in expected.items():
        call = AggregateCall("a", function, X, 0.5 if "quantile" in function else None)
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
    assert columns("count_distinct", DECIMAL) == [Field("a.texts", "binary")]
    assert columns("sum", DECIMAL) == [n, *(Field(f"a.{part}", "int64") for part in ("lo", "hi", "top2"))]
    assert columns("stddev", "int8") == columns("variance", "int8")
    for function in ("first", "last"):
        assert columns(function, "utf8") == [Field("a.at", TIMESTAMP), Field("a.value", "utf8")]
    assert columns("approx_count_distinct", "utf8") == [Field("a.hll", "binary")]
    assert columns("quantile", "int8") == [Field("a.values", "binary")]
    assert columns("approx_quantile", "int8") == [Field("a.buckets", "binary")]


@pytest.mark.parametrize(
    ("call", "type", "says"),
    [
        (AggregateCall("a", "median", X), "int8", "there is no aggregate 'median' (did you mean 'min'?)"),
        (AggregateCall("a", "sum"), None, 'sum needs an argument (md.sum("column"))'),
        (AggregateCall("a", "sum", X), "null", "got null"),
        (AggregateCall("a", "count", X), "null", "count takes a column, not a bare NULL, got null"),
        (AggregateCall("a", "quantile", X, 0.5), "bool", "takes integers, floats and decimals, got bool"),
        (AggregateCall("a", "quantile", X), "int8", "takes a fraction from 0 to 1 as its second argument"),
        (AggregateCall("a", "quantile", X, float("nan")), "int8", "got nan"),
        (AggregateCall("a", "approx_quantile", X, 1.5), "int8", "got 1.5"),
        (AggregateCall("a", "quantile", X, True), "int8", "got True"),
        (AggregateCall("a", "sum", X, 0.5), "int8", "sum takes no parameter"),
        (AggregateCall("a", "sum", X, None, 1), "int8", "no version"),
        (AggregateCall("a", "sum", X, None, None, (X,)), "int8", "takes one argument"),
        (AggregateCall("a", "user", X, "nobody", 1), "int8", "nothing is registered as 'nobody' version 1"),
        (AggregateCall("a", "user", X, "no name!", 1), "int8", "can't be the name of a function"),
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


def test_how_aggregates_are_written() -> None:
    def made(value: object) -> AggregateCall:
        return aggregate_call("a", value, box="box")

    assert (
        made(md.stddev("x")) == made("stddev(x)") == made("STDDEV_SAMP(x)") == AggregateCall("a", "stddev", X)
    )
    assert made("var_samp(x)") == AggregateCall("a", "variance", X)
    assert made(md.median("x")) == made("median(x)") == AggregateCall("a", "quantile", X, 0.5)
    assert made(md.quantile("x", 1)) == made("quantile_cont(x, 1)") == AggregateCall("a", "quantile", X, 1.0)
    approximate = AggregateCall("a", "approx_quantile", X, 0.9)
    assert made(md.quantile("x", 0.9, approximate=True)) == approximate
    assert made("approx_quantile(x, 0.9)") == made(md.approx_quantile("x", 0.9)) == approximate
    assert made(md.median("x", approximate=True)) == AggregateCall("a", "approx_quantile", X, 0.5)
    distinct = AggregateCall("a", "approx_count_distinct", X)
    assert made(md.count_distinct("x", approximate=True)) == made("approx_count_distinct(x)") == distinct
    assert made(md.approx_count_distinct("x")) == distinct
    assert [made(md.first("x")).function, made("last(x)").function] == ["first", "last"]
    assert repr(md.quantile("x", 0.5)) == "md.quantile('x', 0.5)"
    assert made(md.count("*")) == made(md.count()) == made("count(*)") == AggregateCall("a", "count")
    for bad, says in (
        (md.quantile("x", 2), "got 2"),
        ("quantile(x)", "got none"),
        ("sum(x, 2)", "sum takes one argument, got 2"),
        ("percentile(x, 0.5)", r"no aggregate 'percentile' \(did you mean 'quantile'"),
        ("std(x)", r"no aggregate 'std' \(did you mean 'stddev'"),
        ("count_if(x > 1)", r"did you mean 'count\(where=...\)'"),
        (md.sum(None, where="x > 1"), "sum needs an argument beside where"),  # type: ignore[arg-type]
        (md.sum("x", where="x >"), "aggregate 'a': where"),
        ("median(x, 0.5)", "there is no aggregate 'median'|median takes one argument"),
    ):
        with pytest.raises(QueryError, match=says):
            result_type(made(bad), "int8", box="box")


def test_aggregates_of_some_rows_are_those_of_a_case() -> None:
    def made(value: object) -> AggregateCall:
        return aggregate_call("a", value, box="box")

    rows = made("count(CASE WHEN x > 3 THEN 1 END)")
    assert rows == made(md.count(where="x > 3")) == made(md.count(where=md.col("x") > 3))
    assert rows == made("count(*) FILTER (WHERE x > 3)") == made(md.count("*", where="x > 3"))
    for function in (md.sum, md.min, md.max, md.avg, md.variance, md.stddev, md.first, md.last, md.count):
        name = function.__name__
        case = made(f"{name}(CASE WHEN x > 3 THEN x END)")
        assert case == made(function("x", where="x > 3")) == made(f"{name}(x) FILTER (WHERE x > 3)")
    for distinct in (md.count_distinct, md.approx_count_distinct):
        case = made(f"{distinct.__name__}(CASE WHEN x > 3 THEN x END)")
        assert case == made(distinct("x", where="x > 3"))
    assert made(md.count_distinct("x", where="x > 3")) == made("count(DISTINCT x) FILTER (WHERE x > 3)")
    half = made("quantile(CASE WHEN x > 3 THEN x END, 0.5)")
    assert half == made(md.quantile("x", 0.5, where="x > 3")) == made(md.median("x", where="x > 3"))
    assert half == made("quantile(x, 0.5) FILTER (WHERE x > 3)")
    about = made("approx_quantile(CASE WHEN x > 3 THEN x END, 0.5)")
    assert about == made(md.approx_quantile("x", 0.5, where="x > 3"))
    assert about == made(md.quantile("x", 0.5, approximate=True, where="x > 3"))
    assert repr(md.sum("x", where="x > 3")) == "md.sum('x', where='x > 3')"
    q = md.Query("q")
    window = q.source("s", {"ts": "timestamp", "x": "int64"}).window(1)
    with pytest.raises(QueryError, match="aggregate 'n'.*bool"):
        window.aggregate(n=md.count(where="x + 1"))
    with pytest.raises(QueryError, match="aggregate 'n'.*there is no column 'y'"):
        window.aggregate(n=md.count(where="y > 1"))


class Mean:
    inputs: ClassVar = ["float64", "int64"]
    state: ClassVar = {"total": "float64", "n": "int64"}
    result = "float64"

    def init(self, groups: int) -> None: ...
    def add(self, state: object, groups: object, *values: object) -> None: ...
    def merge(self, state: object, other: object, groups: object) -> None: ...
    def finish(self, state: object) -> None: ...


def test_aggregates_of_users_are_checked_when_the_query_is_built() -> None:
    md.register("test.mean", version=3)(Mean)
    call = aggregate_call("a", md.user(Mean, "x", "x"), box="box")
    assert call == AggregateCall("a", "user", X, "test.mean", 3, (X,))
    assert call == aggregate_call("a", md.user("test.mean", "x", "x", version=3), box="box")
    some = aggregate_call("a", md.user(Mean, "x", "x", where="x > 3"), box="box")
    assert some == aggregate_call("a", md.user(Mean, "CASE WHEN x > 3 THEN x END", "x"), box="box")
    assert result_type(call, "float64", box="box", more=("int64",)) == "float64"
    fields = (Field("a.total", "float64"), Field("a.n", "int64"))
    assert state_fields(call, "float64") == fields
    assert combined(call, {f.name: f.type for f in fields}, box="box") == ("float64", fields)
    with pytest.raises(QueryError, match=r"its state columns a\.total, a\.n"):
        combined(call, {"a.n": "int64"}, box="box")
    with pytest.raises(QueryError, match=r"Mean takes \(float64, int64\), got \(int8\)"):
        result_type(call, "int8", box="box")
    with pytest.raises(QueryError, match="there is version 3 of it"):
        result_type(AggregateCall("a", "user", X, "test.mean", 1), "int8", box="box")
    with pytest.raises(QueryError, match="needs an argument"):
        md.user("test.mean")
    with pytest.raises(QueryError, match="is not registered"):
        md.user(type("Fresh", (), {}), "x")


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ({"merge": None}, "missing: merge"),
        ({"inputs": None}, "inputs is missing"),
        ({"inputs": []}, "a schema has 1 to"),
        ({"inputs": ["float65"]}, "float65"),
        ({"state": {}}, "state is missing"),
        ({"state": {"t": "utf8"}}, "state columns are numbers and bools"),
        ({"result": None}, "result is missing"),
    ],
)
def test_classes_that_are_no_aggregate(lacks: dict[str, object], says: str) -> None:
    name = f"test.lacks.{abs(hash(says))}"
    md.register(name)(type("Odd", (Mean,), lacks))
    with pytest.raises(QueryError, match=says):
        result_type(AggregateCall("a", "user", X, name, 1), "float64", box="box")


def test_a_function_is_no_aggregate() -> None:
    md.register("test.function")(lambda batch: batch)
    with pytest.raises(QueryError, match="is no aggregate: expected a class"):
        result_type(AggregateCall("a", "user", X, "test.function", 1), "float64", box="box")
