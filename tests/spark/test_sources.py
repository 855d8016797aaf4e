"""What comes in: lateness, given or judged as a source does, shed rows, types, names, what is refused."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.query.boxes import Source
from medusa.spark.dataframes import source
from tests.spark.cases import CASES, SCHEMA, rows
from tests.spark.same import as_archive, check, in_spark, plain

COUNTS = CASES["aggregate"]


def counts(slack: str | None = "5s", **more: Any) -> md.Query:
    q = md.Query("counts")
    cars = q.source("cars", SCHEMA, time="ts", slack=slack, **more)
    q.sink("out", cars.window("10s").group_by("k").aggregate(c=md.count(), s=md.sum("v")))
    if slack is not None:
        q.sink("late", cars.late)
    return q


def given(spark: Any, query: md.Query, table: pa.Table, **options: Any) -> dict[str, pa.Table]:
    answers = md.spark.batch(query, spark, {"cars": in_spark(spark, table)}, **options)
    return {sink: frame.toArrow() for sink, frame in answers.items()}


def live(query: md.Query, table: pa.Table) -> dict[str, pa.Table]:
    """What a run gives that is fed the rows one slice after the other, without a measured slack."""
    with md.start(query) as run:
        run.push("cars", table)
        run.finish()
        return {sink: run.take(sink) for sink in query.sinks}


@pytest.mark.parametrize("bits", [18, 5])
def test_lateness_is_judged_over_ranges_of_positions(spark: Any, bits: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(source, "RANGE_BITS", bits)  # 5: ten ranges
    got = check(spark, counts(), {"cars": rows(7)})
    assert 20 < got["late"].num_rows < 100


@pytest.mark.parametrize("bits", [18, 5])
def test_a_source_without_slack_has_no_late_rows(spark: Any, bits: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(source, "RANGE_BITS", bits)
    check(spark, counts(slack=None), {"cars": rows(7)})


def test_positions_far_apart_share_ranges(spark: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(source, "RANGE_BITS", 5)
    query, table = counts(), rows(7)
    seq = pa.array(np.arange(table.num_rows) * 10**15 - 2**62)
    told = table.append_column("_seq", seq)
    expected = md.collect(query, cars=table)
    for sink, got in given(spark, query, told).items():
        assert plain(got) == plain(expected[sink]), sink
    spec = next(box for box in query.graph.boxes if isinstance(box, Source))
    made = source.archive(spec, in_spark(spark, told), extra="refuse")
    assert 8 < made._ranges(made.checked()).select("k").distinct().count() < 20


def test_what_an_archive_says_of_late_rows_wins(spark: Any) -> None:
    """The source had partitions, and boundaries that were promised: nobody could judge that again."""
    query = counts(partition="b")
    table = rows(8)
    half = table.num_rows // 2
    with md.start(query) as run:
        run.push("cars", table.slice(0, half))
        run.boundary("cars", int(np.max(table["ts"].to_numpy().astype("int64")[:half])))
        run.push("cars", table.slice(half))
        run.finish()
        expected = {sink: run.take(sink) for sink in ("out", "late")}
    late = plain(expected["late"])
    marks = [row in late for row in plain(table)]
    assert sum(marks) == len(late) > 20
    got = given(spark, query, as_archive(table, _late=pa.array(marks)))
    assert {sink: plain(rows) for sink, rows in got.items()} == {s: plain(t) for s, t in expected.items()}


def test_shed_rows_are_judged_and_left_out(spark: Any) -> None:
    """The shed row with the greatest time makes later ones late; it is in no window itself."""
    table = rows(9)
    shed = np.zeros(table.num_rows, bool)
    shed[100] = True
    ahead = table["ts"].to_numpy().astype("int64")
    ahead[100] += 60_000_000
    table = table.set_column(0, "ts", pa.array(ahead).cast(pa.timestamp("us", tz="UTC")))
    expected = live(counts(), table)
    got = given(spark, counts(), as_archive(table, _shed=pa.array(shed)))
    assert plain(got["late"]) == plain(expected["late"])
    without = [window for window in plain(got["out"]) if window not in plain(expected["out"])]
    assert len(without) <= 1
    assert sum(got["out"]["c"].to_pylist()) == sum(expected["out"]["c"].to_pylist()) - 1


def test_without_positions_rows_may_count_as_in_order_of_time(spark: Any) -> None:
    table = rows(10)
    got = given(spark, counts(slack=None), table, assume_on_time=True)["out"]
    assert plain(got) == plain(md.collect(counts(slack=None), cars=table.sort_by("ts"))["out"])


def test_stateless_boxes_need_no_positions(spark: Any) -> None:
    query, table = CASES["select"](), rows(11)
    got = given(spark, query, table)["out"]
    assert sorted(plain(got)) == sorted(plain(md.collect(query, cars=table)["out"]))


TYPES: dict[str, pa.Array] = {
    "bool": pa.array([True, None, False]),
    "int8": pa.array([-128, None, 127], pa.int8()),
    "int16": pa.array([-(2**15), None, 2**15 - 1], pa.int16()),
    "int32": pa.array([-(2**31), None, 2**31 - 1], pa.int32()),
    "int64": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
    "uint8": pa.array([0, None, 255], pa.int16()),
    "uint16": pa.array([0, None, 2**16 - 1], pa.int32()),
    "uint32": pa.array([0, None, 2**32 - 1], pa.int64()),
    "uint64": pa.array([decimal.Decimal(0), None, decimal.Decimal(2**64 - 1)], pa.decimal128(20, 0)),
    "float32": pa.array([float("nan"), -0.0, float("-inf")], pa.float32()),
    "float64": pa.array([float("nan"), -0.0, 5e-324], pa.float64()),
    "utf8": pa.array(["", None, "ä\u0000\U0001f697"]),
    "binary": pa.array([b"", None, b"\xff\x00"]),
    "date32": pa.array([datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)]),
    "timestamp": pa.array([-1, None, 10**15], pa.timestamp("us", tz="UTC")),
    "duration": pa.array([-1, None, 2**62], pa.duration("us")),
    "decimal128(38, 7)": pa.array(
        [decimal.Decimal("1.0000001"), None, decimal.Decimal(-5)], pa.decimal128(38, 7)
    ),
}


def test_every_type_goes_through_a_shard_and_a_task_unchanged(spark: Any) -> None:
    """Names too: with dots and quotes, and different in case alone."""
    names = ["a.b", "A.b", "`tick`", "ä b", *(f"c{place}" for place in range(len(TYPES) - 4))]
    schema = dict(zip(names, TYPES, strict=True))
    q = md.Query("types")
    cars = q.source("cars", {"ts": "timestamp", "g": "int64", **schema}, time="ts")
    q.sink("kept", cars.group_by("g").running(n=md.count()))
    q.sink("sorted", cars.bsort("g", slack=1))
    q.sink(
        "last", cars.window("1h").group_by("g").aggregate({name: md.last(md.col(name)) for name in names[:4]})
    )
    times = pa.array([1, 2, 3], pa.timestamp("us", tz="UTC"))
    table = pa.table([times, pa.array([1, 2, 1]), *TYPES.values()], ["ts", "g", *names])
    expected = md.collect(
        q,
        cars=table.cast(
            pa.schema([("ts", times.type), ("g", pa.int64()), *((n, md_type(t)) for n, t in schema.items())])
        ),
    )
    got = given(spark, q, as_archive(table))
    for sink, came in got.items():
        assert plain(came) == plain(expected[sink].cast(came.schema)), sink


def md_type(name: str) -> pa.DataType:
    from medusa.query.types import normalise, to_arrow

    return to_arrow(normalise(name))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_as_integers(spark: Any, unit: str) -> None:
    numbers = [-1_500_000_001, 3, 999, 1_000, 4_000_000_000, 4_000_000_001]
    q = md.Query("units")
    cars = q.source("cars", {"at": "int64", "n": "int64"}, time="at", unit=unit)
    q.sink("out", cars.window("2s").group_by("n").aggregate(c=md.count()))
    check(spark, q, {"cars": pa.table({"at": numbers, "n": [1, 1, 2, 1, 2, 2]})})


def test_numbered_rows_are_the_input_of_another_query(spark: Any) -> None:
    first = CASES["running"]()
    table = rows(12)
    inputs = {"cars": in_spark(spark, as_archive(table))}
    frame = md.spark.batch(first, spark, inputs, numbered=True).only
    seq = frame.toArrow()["_seq"].to_pylist()
    assert seq == list(range(table.num_rows))
    q = md.Query("second")
    again = q.source("cars", {**SCHEMA, "p": "int64", "s": "float64"}, time="ts", slack="5s")
    q.sink("out", again.window("10s").group_by("k").aggregate(s=md.sum("v"), p=md.max("p")))
    got = md.spark.batch(q, spark, {"cars": frame.repartition(3)}).only.toArrow()
    assert plain(got) == plain(md.collect(q, cars=md.collect(first, cars=table)["out"])["out"])


def less(column: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.drop_columns([column])


def put(column: str, values: Callable[[pa.Table], Any]) -> Callable[[pa.Table], pa.Table]:
    def made(table: pa.Table) -> pa.Table:
        array = values(table)
        if column in table.column_names:
            return table.set_column(table.column_names.index(column), column, array)
        return table.append_column(column, array)

    return made


NUMBERS = lambda table: pa.array(range(table.num_rows))  # noqa: E731


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (less("v"), "source 'cars': column 'v' is missing"),
        (put("w", NUMBERS), "source 'cars': column 'w' isn't in the schema"),
        (put("k", NUMBERS), "column 'k': expected int for int32, came bigint"),
        (put("_late", NUMBERS), "column '_late': expected boolean, came bigint"),
        (put("_seq", lambda t: pa.array(["a"] * t.num_rows)), "column '_seq': expected bigint, came string"),
        (
            less("_seq"),
            "aggregate .* depends on the order of the rows of source 'cars', whose .* column '_seq'",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused_at_once(spark: Any, change: Any, message: str) -> None:
    with pytest.raises(md.MedusaError, match=message):
        md.spark.batch(COUNTS(), spark, {"cars": spark.createDataFrame(change(as_archive(rows(0, 20))))})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            put("_seq", lambda t: pa.array([0, *range(t.num_rows - 1)])),
            "column '_seq' numbers two rows alike",
        ),
        (put("_seq", lambda t: pa.array([None, *range(t.num_rows - 1)])), "column '_seq' holds null"),
        (put("_late", lambda t: pa.array([None] * t.num_rows, pa.bool_())), "column '_late' holds null"),
        (
            put("ts", lambda t: pa.nulls(t.num_rows, pa.timestamp("us", tz="UTC"))),
            "is the time: a row holds null",
        ),
    ],
)
def test_values_that_do_not_fit_are_refused_by_the_action(spark: Any, change: Any, message: str) -> None:
    answers = md.spark.batch(
        COUNTS(), spark, {"cars": spark.createDataFrame(change(as_archive(rows(0, 20))))}
    )
    with pytest.raises(Exception, match=message):
        answers.only.toArrow()


def test_a_value_out_of_range_and_a_failed_row_stop_the_job(spark: Any) -> None:
    q = md.Query("q")
    q.sink("out", q.source("cars", {"a": "uint8"}, time=None).select(b="10 // a"))
    small = spark.createDataFrame(pa.table({"a": pa.array([1, 300], pa.int16())}))
    with pytest.raises(Exception, match="DataError: column 'a': a value doesn't fit uint8"):
        md.spark.batch(q, spark, {"cars": small}).only.toArrow()
    zero = spark.createDataFrame(pa.table({"a": pa.array([1, 0], pa.int16())}))
    assert md.spark.batch(q, spark, {"cars": zero}).only.toArrow()["b"].to_pylist() == [10]
    with pytest.raises(Exception, match="DataError: .*division by zero"):
        md.spark.batch(q, spark, {"cars": zero}, on_error="stop").only.toArrow()


def test_other_refusals(spark: Any) -> None:
    frame = spark.createDataFrame(as_archive(rows(0, 20)))
    refused: list[tuple[md.Query, dict[str, Any], dict[str, Any], str]] = [
        (COUNTS(), {}, {}, "no rows for source 'cars'"),
        (COUNTS(), {"cars": frame, "bikes": frame}, {}, "has no source 'bikes'"),
        (COUNTS(), {"cars": rows(0)}, {}, "expected a Spark DataFrame, got Table"),
        (COUNTS(), {"cars": frame}, {"shards": 257}, "shards is from 1 to 256, got 257"),
        (COUNTS(), {"cars": frame}, {"extra": "take"}, "extra must be"),
        (COUNTS(), {"cars": frame}, {"on_error": "halt"}, "on_error is"),
        (
            counts(partition="b"),
            {"cars": frame},
            {},
            "partition= judges lateness apart .*keep the column _late",
        ),
        (counts(idle="5s"), {"cars": frame}, {}, "idle= lets a clock move its boundary"),
    ]
    for query, inputs, options, message in refused:
        with pytest.raises(md.MedusaError, match=message):
            md.spark.batch(query, spark, inputs, **options)
