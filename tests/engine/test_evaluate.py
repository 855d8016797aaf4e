"""Random expressions on random rows against a plain Python evaluator: nulls, NaN, extremes, cuts."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from medusa.engine.expressions.evaluate import compile_expression, compile_projection
from medusa.errors import QueryError
from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal, Named
from medusa.query.expressions.parse import parse
from medusa.query.expressions.show import show
from medusa.query.types import to_arrow
from tests.oracle.expression import Failed, evaluate

TIMESTAMP, DURATION = "timestamp[us, UTC]", "duration[us]"
SCHEMA = {
    "i": "int64",
    "j": "int32",
    "b": "int8",
    "w": "uint64",
    "v": "uint32",
    "x": "float64",
    "y": "float64",
    "f": "float32",
    "k": "bool",
    "s": "utf8",
    "t": TIMESTAMP,
    "u": DURATION,
}
INT64 = [0, 1, -1, 2, 3, 7, -10, 10**6, 2**53 + 1, 2**62, -(2**62), 2**63 - 1, -(2**63)]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.5,
    0.5,
    -0.5,
    0.1,
    1e-300,
    1e300,
    2.0**53,
    1e19,
    math.nan,
    math.inf,
    -math.inf,
]
VALUES: dict[str, list[Any]] = {
    "int64": INT64,
    "int32": [0, 1, -1, 5, 2**31 - 1, -(2**31)],
    "int8": [0, 1, -1, 100, 127, -128],
    "uint64": [0, 1, 2, 2**63, 2**64 - 1],
    "uint32": [0, 1, 9, 2**32 - 1],
    "float64": FLOATS,
    "float32": [0.0, -0.0, 1.0, -2.5, 0.5, 16777216.0, math.nan, math.inf],
    "bool": [True, False],
    "utf8": ["", "a", "b", "ab", " a ", "a,b", "Z", "é", "a%b", "𝔘x"],
    TIMESTAMP: [0, 1, -1, 10**15, 1_709_210_096_789_012, -62_135_596_800_000_000, 2**62, -(2**63)],
    DURATION: [0, 1, -1, 3_600_000_000, 2**62, -(2**63)],
}


def column(name: str) -> st.SearchStrategy[list[Any]]:
    value = st.one_of(st.none(), st.sampled_from(VALUES[SCHEMA[name]]))
    return st.lists(value, min_size=9, max_size=9)


rows = st.fixed_dictionaries({name: column(name) for name in SCHEMA})


def array(values: list[Any], type: str) -> pa.Array:
    if type in (TIMESTAMP, DURATION):
        return pa.array(values, pa.int64()).view(to_arrow(type))
    return pa.array(values, to_arrow(type))


def batch_of(columns: dict[str, list[Any]]) -> pa.RecordBatch:
    return pa.record_batch({name: array(columns[name], type) for name, type in SCHEMA.items()})


def call(function: str, *args: Any) -> st.SearchStrategy[Expression]:
    return st.tuples(*args).map(lambda made: Call(function, made))


def literal(type: str, values: list[Any]) -> st.SearchStrategy[Expression]:
    return st.sampled_from(values).map(lambda value: Literal(type, value))


def columns(*names: str) -> st.SearchStrategy[Expression]:
    return st.sampled_from([Column(name) for name in names])


def one_of_functions(names: str, *args: Any) -> st.SearchStrategy[Expression]:
    return st.one_of(*(call(name, *args) for name in names.split()))


UNITS = ["second", "minute", "hour", "day", "month", "quarter", "year"]
COMPARISONS = "eq ne lt le gt ge is_distinct_from"
FLOAT_LITERALS = [0.0, 1.0, -1.5, 0.5, 1e300, "nan", "inf", "-inf", None]
NULL = st.just(Literal("null", None))


def trees(depth: int) -> dict[str, st.SearchStrategy[Expression]]:
    """Strategies for expressions of each kind, at most so deep."""
    leaves = {
        "int": columns("i", "j", "b", "v") | literal("int64", [*INT64, None]),
        "uint": columns("w") | literal("uint64", [0, 1, 2**64 - 1, None]),
        "float": columns("x", "y", "f") | literal("float64", FLOAT_LITERALS),
        "bool": columns("k") | literal("bool", [True, False, None]),
        "text": columns("s") | literal("utf8", VALUES["utf8"]),
        "time": columns("t") | literal(TIMESTAMP, [0, 10**15, None]),
        "duration": columns("u") | literal(DURATION, [0, 1, -1, 10**9, None]),
    }
    if depth == 0:
        return leaves
    sub = trees(depth - 1)
    whole, large, real, truth, text, time, span = (sub[kind] for kind in leaves)
    number = whole | real
    small = literal("int64", [1, 2, 3, -1, -2])
    made = {
        "int": one_of_functions("add sub mul floordiv mod", whole, whole)
        | call("add", whole, whole, whole)
        | one_of_functions("neg abs sign round floor ceil", whole)
        | one_of_functions("least greatest nullif coalesce", whole, whole)
        | call("length", text)
        | one_of_functions("year month day hour minute second epoch_us", time)
        | st.builds(Cast, number, st.sampled_from(["int64", "int32", "int8"])),
        "uint": one_of_functions("add sub mul floordiv mod", large, large)
        | one_of_functions("abs sign", large)
        | st.builds(Cast, number, st.just("uint64")),
        "float": one_of_functions("add sub mul floordiv mod div", real, number)
        | call("div", whole, whole)
        | call("mul", number, real, number)
        | one_of_functions("neg abs sign round floor ceil", real)
        | call("round", real, literal("int64", [-2, 1, 2, 5]))
        | one_of_functions("least greatest nullif coalesce", real, number)
        | st.builds(Cast, whole | large, st.just("float64")),
        "bool": one_of_functions(COMPARISONS, number, number)
        | one_of_functions(COMPARISONS, large, large)
        | one_of_functions(COMPARISONS, text, text)
        | one_of_functions(COMPARISONS, time, time)
        | one_of_functions(COMPARISONS, span, span)
        | one_of_functions(COMPARISONS, truth, truth)
        | one_of_functions("and or", truth, truth)
        | one_of_functions("and or", truth, truth, truth)
        | call("not", truth)
        | one_of_functions("is_null is_not_null", st.one_of(whole, real, truth, text, time))
        | call("is_nan", real)
        | call("in", real, literal("float64", FLOAT_LITERALS), literal("int64", [0, 1]))
        | call("in", whole, literal("int64", [*INT64, None]), literal("int64", INT64))
        | call("in", text, literal("utf8", VALUES["utf8"]), literal("utf8", VALUES["utf8"]) | NULL)
        | call("like", text, literal("utf8", ["%", "", "a", "a%", "%a", "%a%", "_", "a%b", "%_b", "\\%"]))
        | one_of_functions("starts_with ends_with contains", text, literal("utf8", ["", "a", "b", " ", "é"]))
        | st.builds(Cast, whole, st.just("bool")),
        "text": call("concat", text, text)
        | call("concat", text, text, text)
        | call("substr", text, small)
        | call("substr", text, small, literal("int64", [0, 1, 2, 9]))
        | call("split_part", text, literal("utf8", [",", "a", "ab"]), small)
        | call("replace", text, literal("utf8", ["", "a", "é"]), literal("utf8", ["", "xy"]))
        | one_of_functions("trim ltrim rtrim", text)
        | one_of_functions("least greatest nullif coalesce", text, text)
        | st.builds(Cast, whole, st.just("utf8")),
        "time": one_of_functions("add sub", time, span)
        | call("add", span, time)
        | one_of_functions("least greatest nullif coalesce", time, time)
        | call(
            "date_trunc",
            literal("utf8", UNITS),
            time,
        ),
        "duration": one_of_functions("add sub", span, span)
        | call("sub", time, time)
        | call("mul", span, whole)
        | one_of_functions("neg abs", span),
    }
    choices = {
        kind: st.builds(
            lambda c, v, d, w, o: Case(((c, v), (d, w)), o), truth, sub[kind], truth, sub[kind], other
        )
        for kind, other in ((kind, st.one_of(st.none(), sub[kind], NULL)) for kind in leaves)
    }
    return {kind: leaves[kind] | made[kind] | made[kind] | choices[kind] for kind in leaves}


ANY = st.one_of(*trees(3).values())


def same(ours: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and isinstance(ours, float):
        return ours == wanted or (math.isnan(ours) and math.isnan(wanted))
    return type(ours) is type(wanted) and ours == wanted


def plain(values: pa.Array) -> list[Any]:
    """Python values, times and durations as integers."""
    if pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type):
        values = values.view(pa.int64())
    return values.to_pylist()


@settings(max_examples=400)
@given(tree=ANY, columns=rows, cut=st.integers(0, 9))
def test_random_expressions_on_random_rows(tree: Expression, columns: dict[str, list[Any]], cut: int) -> None:
    note(show(tree, longest=2000))
    batch = batch_of(columns)
    evaluator = compile_expression(tree, SCHEMA)
    made = evaluator(batch)
    made.values.validate(full=True)
    assert made.values.type == to_arrow(evaluator.type)
    values = plain(made.values)
    failed = made.failed.to_pylist() if made.failed is not None else [False] * len(values)
    for number in range(batch.num_rows):
        row = {name: values[number] for name, values in columns.items()}
        try:
            _, wanted = evaluate(tree, row, SCHEMA)
        except Failed:
            assert failed[number], (row, values[number])
            assert made.error(number)
            continue
        assert not failed[number], (row, made.error(number), wanted)
        assert same(values[number], wanted), (row, values[number], wanted)

    # The same rows in two batches, sliced from the first, give the same.
    parts = [evaluator(part) for part in (batch.slice(0, cut), batch.slice(cut))]
    again = [value for part in parts for value in plain(part.values)]
    assert [
        fails or same(one, two) or (one is None and two is None)
        for one, two, fails in zip(values, again, failed, strict=True)
    ] == [True] * 9
    assert [
        fails
        for part in parts
        for fails in (part.failed.to_pylist() if part.failed is not None else [False] * len(part.values))
    ] == failed


def run(text: str, schema: dict[str, str], **columns: list[Any]) -> tuple[list[Any], list[str | None]]:
    """Values, and the error of each row or None."""
    batch = pa.record_batch({name: array(values, schema[name]) for name, values in columns.items()})
    made = compile_expression(parse(text), schema)(batch)
    failed = made.failed.to_pylist() if made.failed is not None else [False] * batch.num_rows
    return plain(made.values), [made.error(row) if fails else None for row, fails in enumerate(failed)]


def test_a_failed_row_leaves_its_neighbours_alone() -> None:
    values, errors = run("a + 1", {"a": "int64"}, a=[1, 2**63 - 1, None, 3])
    assert values == [2, None, None, 4]
    assert errors == [None, "overflow: 9223372036854775807 + 1 in a + 1", None, None]


def test_the_first_of_several_errors_is_told() -> None:
    schema = {"a": "int64", "s": "utf8"}
    _, errors = run("a // 0 + CAST(s AS BIGINT)", schema, a=[1, None], s=["x", "x"])
    assert errors == ["division by zero: 1 // 0 in a // 0", "'x' is no int64 in CAST(s AS int64)"]


def test_what_is_not_looked_at_cannot_fail() -> None:
    schema = {"a": "int64", "s": "utf8"}
    for text, wanted in {
        "a <> 0 AND 10 // a > 1": [False, True, None],
        "a = 0 OR 10 // a > 1": [True, True, None],
        "CASE WHEN a = 0 THEN -1 ELSE 10 // a END": [-1, 2, None],
        "coalesce(a + 1, CAST(s AS BIGINT))": [1, 6, 7],
        "CASE WHEN a IS NULL THEN CAST(s AS BIGINT) ELSE 0 END": [0, 0, 7],
    }.items():
        assert run(text, schema, a=[0, 5, None], s=["x", "y", "7"]) == (wanted, [None] * 3), text


def test_parts_are_looked_at_from_the_left() -> None:
    values, errors = run("10 // a > 1 AND a <> 0", {"a": "int64"}, a=[0, 5])
    assert values[1] is True
    assert errors[0]
    assert not errors[1]


def test_a_constant_that_fails_fails_only_where_it_is_looked_at() -> None:
    values, errors = run("CASE WHEN a > 0 THEN 1 // 0 ELSE a END", {"a": "int64"}, a=[1, -1])
    assert values[1] == -1
    assert [bool(error) for error in errors] == [True, False]


def test_a_constant_is_as_long_as_the_batch() -> None:
    assert run("1 + 1", {"a": "int64"}, a=[1, 2, 3]) == ([2, 2, 2], [None] * 3)
    assert run("TRUE", {"a": "int64"}, a=[]) == ([], [])


def test_a_text_does_not_grow_without_bound() -> None:
    bomb = "s"
    for _ in range(9):
        bomb = f"replace({bomb}, 'a', '{'a' * 900}')"
    values, errors = run(bomb, {"s": "utf8"}, s=["b", "a", None])
    assert values == ["b", None, None]
    assert errors[1] is not None
    assert errors[1].startswith("a text of more than 1,048,576 bytes")
    assert not errors[0]
    half = 1 << 19
    values, errors = run("s || s", {"s": "utf8"}, s=["a" * half, "a" * half + "b"])
    assert [value and len(value) for value in values] == [1 << 20, None]
    values, errors = run(r"regexp_replace(s, '', '\0xy', 'g')", {"s": "utf8"}, s=["ab", "a" * half])
    assert values == ["xyaxybxy", None]
    assert [bool(error) for error in errors] == [False, True]


def test_tuple_time_is_the_hidden_time() -> None:
    batch = pa.record_batch({"a": pa.array([1, 2])})
    times = pa.array([5, 6]).view(to_arrow(TIMESTAMP))
    made = compile_expression(parse("tuple_time + INTERVAL '1' SECOND"), {"a": "int64"})(batch, times)
    assert plain(made.values) == [1_000_005, 1_000_006]


def test_tuple_time_needs_a_stream_with_time() -> None:
    with pytest.raises(QueryError, match="tuple_time"):
        compile_expression(parse("tuple_time"), {"a": "int64"}, timed=False)


def test_a_column_comes_out_as_it_went_in() -> None:
    batch = pa.record_batch({"a": pa.array([1, 2])})
    made = compile_expression(Column("a"), {"a": "int64"})(batch)
    assert made.values.buffers()[1].address == batch.column(0).buffers()[1].address


def test_a_projection_fails_a_row_where_any_column_fails() -> None:
    named = [Named("p", parse("10 // a")), Named("q", parse("a * a")), Named("r", Column("a"))]
    made = compile_projection(named, {"a": "int64"})(pa.record_batch({"a": pa.array([0, 2, 2**62])}), None)
    assert made.failed is not None
    assert made.failed.to_pylist() == [True, False, True]
    assert made.error(0) == "column 'p': division by zero: 10 // 0 in 10 // a"
    assert made.error(2).startswith("column 'q': overflow")
    assert [each[1].as_py() for each in made.columns] == [5, 4, 2]


def test_equal_parts_are_computed_once() -> None:
    named = [Named("p", parse("a * 2 + 1")), Named("q", parse("a * 2 - 1")), Named("r", parse("a * 2"))]
    program = compile_projection(named, {"a": "int64"}).__closure__
    (work,) = [cell.cell_contents.work for cell in program or () if hasattr(cell.cell_contents, "work")]
    assert len(work) == 3


@pytest.mark.parametrize("type", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_casts_to_integers_keep_exactly_what_fits(type: str) -> None:
    bits, signed = int(type.lstrip("uint")), type[0] == "i"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    texts = [str(number) for number in (low - 1, low, high, high + 1)]
    values, errors = run(f"CAST(s AS {type})", {"s": "utf8"}, s=[*texts, "0x1f", "", " 1", "+1", "1e3", None])
    assert values == [None, low, high, None, None, None, None, 1, None, None]
    assert [bool(error) for error in errors] == [
        True,
        False,
        False,
        True,
        True,
        True,
        True,
        False,
        True,
        False,
    ]


@settings(max_examples=100)
@given(st.lists(st.text(alphabet="0123456789.eE+-xXnaiftyNIT_() \u0663", max_size=9), max_size=6))
def test_text_means_the_same_alone_and_in_any_company(texts: list[str]) -> None:
    """The fast kernel reads a batch in which all is well; with a bad row among them the slow one does."""
    for type in ("int64", "uint8", "float64", "float32", "bool", "date32"):
        together = run(f"CAST(s AS {type})", {"s": "utf8"}, s=[*texts, "no"])[0]
        alone = [run(f"CAST(s AS {type})", {"s": "utf8"}, s=[text])[0][0] for text in texts]
        assert repr(together[:-1]) == repr(alone)


@settings(max_examples=100)
@given(st.text(alphabet="0123456789-: TZ.+", min_size=8, max_size=29), st.datetimes(), st.sampled_from("T "))
def test_timestamps_mean_the_same_alone_and_in_any_company(text: str, point: Any, middle: str) -> None:
    iso = point.isoformat(sep=middle)
    for each in (text, iso, iso[:10], iso[:13], iso[:16], iso[:19], iso[:21], iso[:16].replace(":", "")):
        for type in (TIMESTAMP, "date32"):
            tree = Cast(Column("s"), type)
            evaluator = compile_expression(tree, {"s": "utf8"})
            alone = evaluator(pa.record_batch({"s": pa.array([each])})).values
            together = evaluator(pa.record_batch({"s": pa.array([each, "no"])})).values
            assert alone[0] == together[0], each


@settings(max_examples=200)
@given(st.lists(st.floats() | st.floats(width=32), min_size=1, max_size=5))
def test_floats_read_back_from_their_text(numbers: list[float]) -> None:
    values, _ = run("CAST(CAST(x AS VARCHAR) AS DOUBLE)", {"x": "float64"}, x=numbers)
    assert repr(values) == repr(numbers) or all(map(same, values, numbers))


@settings(max_examples=200)
@given(st.lists(st.floats(), min_size=1, max_size=5))
def test_transcendental_functions_are_those_of_the_c_library(numbers: list[float]) -> None:
    for name, function in {"sqrt": math.sqrt, "ln": math.log, "log10": math.log10, "exp": math.exp}.items():
        values, errors = run(f"{name}(x)", {"x": "float64"}, x=numbers)
        for number, value, error in zip(numbers, values, errors, strict=True):
            try:
                wanted = function(number)
            except OverflowError:
                wanted = math.inf
            except ValueError:
                assert error
                continue
            assert not error
            assert same(value, wanted) or math.isclose(value, wanted, rel_tol=1e-15)
