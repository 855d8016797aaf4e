"""Aggregates against DuckDB, split over nodes, across a restore; users' aggregates; the sketches' bounds."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, ClassVar

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Train
from medusa.engine.fragment import Fragment
from medusa.errors import StateError
from tests.engine.queries import numbers
from tests.engine.test_windows import near, split, with_slack

SCHEMA = {
    "ts": "timestamp",
    "place": "int64",
    "k": "int64",
    "s": "utf8",
    "b": "binary",
    "v": "float64",
    "n": "int32",
    "d": "decimal128(12, 3)",
    "f": "bool",
}


@md.register("test.geometric_mean", version=1)
class GeometricMean:
    inputs: ClassVar = ["float64"]
    state: ClassVar = {"logs": "float64", "n": "int64"}
    result = "float64"

    def init(self, groups: int) -> dict[str, Any]:
        return {"logs": np.zeros(groups), "n": np.zeros(groups, np.int64)}

    def add(self, state: dict[str, Any], groups: Any, values: Any) -> dict[str, Any]:
        np.add.at(state["logs"], groups, np.log(values))
        np.add.at(state["n"], groups, 1)
        return state

    def merge(self, state: dict[str, Any], other: dict[str, Any], groups: Any) -> dict[str, Any]:
        state["logs"][groups] += other["logs"]
        state["n"][groups] += other["n"]
        return state

    def finish(self, state: dict[str, Any]) -> Any:
        with np.errstate(invalid="ignore"):
            means = np.exp(state["logs"] / state["n"])
        return pa.array(means, mask=state["n"] == 0)


@md.register("test.weighted", version=2)
class Weighted(GeometricMean):
    inputs: ClassVar = ["float64", "int32"]
    state: ClassVar = {"total": "float64", "weight": "int64"}

    def init(self, groups: int) -> dict[str, Any]:
        return {"total": np.zeros(groups), "weight": np.zeros(groups, np.int64)}

    def add(self, state: dict[str, Any], groups: Any, *values: Any) -> dict[str, Any]:
        np.add.at(state["total"], groups, values[0] * values[1])
        np.add.at(state["weight"], groups, values[1])
        return state

    def merge(self, state: dict[str, Any], other: dict[str, Any], groups: Any) -> dict[str, Any]:
        for name in state:
            state[name][groups] += other[name]
        return state

    def finish(self, state: dict[str, Any]) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            return pa.array(state["total"] / state["weight"], mask=state["weight"] == 0)


def events(count: int, *, seed: int = 1) -> pa.Table:
    """Rows up to 50 ms out of order, every time its own; a tenth of the values null."""
    draw = np.random.default_rng(seed)
    times = np.arange(count) * 100 - draw.integers(0, 50_000, count) // 100 * 100 * (draw.random(count) < 0.3)

    def some(values: Any, type: Any = None) -> pa.Array:
        return pa.array(values, type, mask=draw.random(count) < 0.1)

    words = np.array([f"w{i:x}é" * (i % 4) for i in range(60)], object)
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "place": np.arange(count),
            "k": some(draw.integers(0, 5, count)),
            "s": some(words[draw.integers(0, 60, count)]),
            "b": some(
                np.array([bytes([i, 255 - i]) for i in range(99)], object)[draw.integers(0, 99, count)]
            ),
            "v": some(draw.random(count) * 1e3 + 1),
            "n": some(draw.integers(0, 100, count).astype(np.int32)),
            "d": some(
                np.array([Decimal(int(x)) / 1000 for x in draw.integers(-(10**9), 10**9, count)], object),
                pa.decimal128(12, 3),
            ),
            "f": some(draw.random(count) < 0.5),
        }
    )


def query(size: str, advance: str) -> md.Query:
    q = md.Query("aggregates")
    rows = q.source("e", SCHEMA, time="ts")
    made = (
        rows.window(size, advance=advance)
        .group_by("k")
        .aggregate(
            spread=md.stddev("v"),
            s0=md.first("s"),
            s1=md.last("s"),
            v0=md.first("v"),
            f1=md.last("f"),
            d1=md.last("d"),
            low=md.min("s"),
            high=md.max("b"),
            dsum=md.sum("d"),
            davg=md.avg("d"),
            dmin=md.min("d"),
            dmax=md.max("d"),
            dvar=md.variance("d"),
            dn=md.count("d"),
            dd=md.count_distinct("d"),
            p0=md.quantile("v", 0),
            p50=md.median("v"),
            p90="quantile(n, 0.9)",
            dq=md.quantile("d", 0.25),
            product=md.sum("v * n"),
            near=md.count_distinct("s", approximate=True),
            gm=md.user("test.geometric_mean", "v"),
            wm=md.user(Weighted, "v", "n"),
        )
    )
    q.sink("o", made)
    return q


SQL = """
WITH t AS (SELECT *, floor(ts / $advance)::BIGINT * $advance AS last FROM e),
w AS (SELECT *, unnest(range(last, ts - $size, -$advance)) AS ws FROM t)
SELECT ws, k, stddev_samp(v), first(s ORDER BY ts, place) FILTER (s IS NOT NULL),
       last(s ORDER BY ts, place) FILTER (s IS NOT NULL), first(v ORDER BY ts, place) FILTER (v IS NOT NULL),
       last(f ORDER BY ts, place) FILTER (f IS NOT NULL), last(d ORDER BY ts, place) FILTER (d IS NOT NULL),
       min(s), max(b), sum(d), avg(d), min(d), max(d), var_samp(d::DOUBLE), count(d), count(DISTINCT d),
       quantile_cont(v, 0), median(v), quantile_cont(n, 0.9), quantile_cont(d::DOUBLE, 0.25), sum(v * n),
       count(DISTINCT s), exp(avg(ln(v))), sum(v * n) / sum(n) FILTER (v IS NOT NULL)
FROM w GROUP BY ALL
"""


def by_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[0], row[1] is not None, row[1] or 0


@pytest.mark.parametrize(("size", "advance"), [("1s", "1s"), ("700ms", "300ms")])
def test_aggregates_give_what_duckdb_gives(size: str, advance: str) -> None:
    rows = events(15_000)
    got = [
        tuple(v for n, v in row.items() if n != "window_end") for row in answer(query(size, advance), rows)
    ]
    db = duckdb.connect()
    db.register("e", rows.set_column(0, "ts", rows.column(0).cast(pa.int64())))
    lengths = {"1s": 1_000_000, "700ms": 700_000, "300ms": 300_000}
    wanted = db.execute(SQL, {"advance": lengths[advance], "size": lengths[size]}).fetchall()
    assert len(got) == len(wanted) > 10
    for ours, theirs in zip(sorted(got, key=by_key), sorted(wanted, key=by_key), strict=True):
        for one_of, other in zip(ours, theirs, strict=True):
            assert near((one_of,), (other,))


def answer(q: md.Query, rows: pa.Table) -> list[dict[str, Any]]:
    return numbers(md.collect(q, e=rows).only)


@pytest.mark.parametrize("advance", ["1s", "300ms"])
def test_cuts_and_a_restore_change_no_bit(advance: str) -> None:
    rows = events(6_000).combine_chunks().to_batches()[0]
    graph = with_slack(query("1s", advance).graph, 50_000)
    answers = []
    for step in (rows.num_rows, 611):
        fragment, got = Fragment(graph), []
        for start in range(0, rows.num_rows, step):
            fragment.feed("e", Train(batch=rows.slice(start, step)))
            if step < 1_000:
                fragment = Fragment.restore(graph, fragment.snapshot())
            got += fragment.drain("o")
        fragment.finish()
        got += fragment.drain("o")
        answers.append(pa.Table.from_batches([t.batch for t in got if isinstance(t, Train)]).combine_chunks())
    assert answers[0].num_rows > 0
    # Users' sums add batch by batch; ours row by row.
    exact = [name for name in answers[0].schema.names if name not in ("gm", "wm")]
    assert answers[0].select(exact).equals(answers[1].select(exact))
    for a, b in zip(numbers(answers[0]), numbers(answers[1]), strict=True):
        assert near(tuple(a.values()), tuple(b.values()))


@pytest.mark.parametrize("advance", ["1s", "300ms"])
def test_partials_combine_to_the_whole(advance: str) -> None:
    q = query("1s", advance)
    rows = events(4_000).combine_chunks().to_batches()[0]
    sender, core = split(q, 2)
    fragment, got = Fragment(core), []
    for copy in range(2):
        edge = Fragment(with_slack(sender, 50_000))
        edge.feed("e", Train(batch=rows.take(pa.array(np.arange(copy, rows.num_rows, 2)))))
        edge.finish()
        for element in edge.drain("out"):
            fragment.feed(f"in{copy}", element)
        fragment = Fragment.restore(core, fragment.snapshot())
    got = [t.batch for t in fragment.drain("o") if isinstance(t, Train)]
    whole = answer(q, pa.Table.from_batches([rows]))
    ours = numbers(pa.Table.from_batches(got))
    assert len(ours) == len(whole) > 0

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        return by_key((row["window_end"], row["k"]))

    for a, b in zip(sorted(ours, key=order), sorted(whole, key=order), strict=True):
        # first and last of equal times may be of either node.
        same = [name for name in a if name not in ("s0", "s1", "v0", "f1", "d1")]
        for name in same:
            assert near((a[name],), (b[name],)), name


def one(aggregate: Any, values: pa.Array, type: str) -> Any:
    q = md.Query("q")
    rows = q.source("e", {"t": "timestamp", "x": type}, time="t")
    q.sink("o", rows.window("1h").aggregate(a=aggregate))
    times = pa.array(np.arange(len(values)), pa.timestamp("us", "UTC"))
    (value,) = md.collect(q, e=pa.table({"t": times, "x": values})).only.column("a").to_pylist()
    return value


def test_counting_distinct_values_approximately_keeps_its_standard_error() -> None:
    """Exact up to 256; above, the root mean square of 40 relative errors is near 1.6 %."""
    for count in (1, 50, 256):
        assert one(md.approx_count_distinct("x"), pa.array(np.arange(count) % count), "int64") == count
    draw = np.random.default_rng(7)
    errors = []
    for count in (300, 1_000, 5_000, 20_000):
        for _ in range(10):
            values = np.unique(draw.integers(-(2**62), 2**62, count))
            errors.append(one(md.approx_count_distinct("x"), pa.array(values), "int64") / len(values) - 1)
    assert math.sqrt(sum(e * e for e in errors) / len(errors)) < 0.02
    assert abs(sum(errors) / len(errors)) < 0.01
    assert max(map(abs, errors)) < 0.065  # four times the standard error
    text = pa.array([f"user-{i}" for i in range(10_000)])
    assert abs(one(md.count_distinct("x", approximate=True), text, "utf8") / 10_000 - 1) < 0.05


@pytest.mark.parametrize("q", [0, 0.01, 0.5, 0.99, 1])
def test_approximate_quantiles_keep_their_bound(q: float) -> None:
    draw = np.random.default_rng(3)
    narrow = draw.lognormal(3, 2, 5_000)
    wide = np.concatenate([10.0 ** draw.uniform(-200, 200, 9_000), -(10.0 ** draw.uniform(-200, 200, 900))])
    for values, bound in ((narrow, 1 / 256), (-narrow, 1 / 256), (wide, 1 / 4)):
        wanted = np.sort(values)[math.floor(q * (len(values) - 1))]
        got = one(md.approx_quantile("x", q), pa.array(values), "float64")
        assert abs(got - wanted) <= bound * abs(wanted)


def test_nan_and_infinity() -> None:
    values = pa.array([1.0, float("nan"), float("inf"), float("-inf"), None, 0.0, -0.0])
    assert one(md.quantile("x", 0), values, "float64") == -math.inf
    assert math.isnan(one(md.quantile("x", 1), values, "float64"))
    assert one(md.median("x"), values, "float64") == 0.5
    assert one(md.approx_quantile("x", 0.8), values, "float64") == math.inf
    assert math.isnan(one(md.approx_quantile("x", 1), values, "float64"))
    assert one(md.approx_count_distinct("x"), values, "float64") == 5
    assert math.isnan(one(md.stddev("x"), values, "float64"))


def test_a_group_without_values() -> None:
    nothing = pa.array([None, None], pa.float64())
    for aggregate in (md.stddev, md.first, md.last, md.median, md.avg):
        assert one(aggregate("x"), nothing, "float64") is None
    assert one(md.approx_quantile("x", 0.5), nothing, "float64") is None
    assert one(md.approx_count_distinct("x"), nothing, "float64") == 0
    assert one(md.stddev("x"), pa.array([1.0]), "float64") is None
    assert one(md.min("x"), pa.array([None, ""]), "utf8") == ""
    assert one(md.max("x"), pa.array([None], pa.string()), "utf8") is None


def test_sums_of_decimals_are_exact_and_fail_beyond_38_digits() -> None:
    great = Decimal("9" * 38)
    type = pa.decimal128(38, 0)
    assert (
        one(md.sum("x"), pa.array([great, great.copy_negate(), Decimal(7)], type), "decimal128(38, 0)") == 7
    )
    assert one(md.avg("x"), pa.array([great] * 4, type), "decimal128(38, 0)") == pytest.approx(1e38)
    q = md.Query("q")
    rows = q.source("e", {"t": "timestamp", "x": "decimal128(38, 0)"}, time="t")
    q.sink("o", rows.window("1h").aggregate(a=md.sum("x")))
    times = pa.array([0, 1], pa.timestamp("us", "UTC"))
    with pytest.warns(md.DeadRowWarning, match="more than 38 digits"):
        made = md.collect(q, e=pa.table({"t": times, "x": pa.array([great, great], type)}))
    assert made.only.num_rows == 0


def test_damaged_states_of_users_are_refused() -> None:
    graph = query("1s", "1s").graph
    fragment = Fragment(graph)
    fragment.feed("e", Train(batch=events(100).combine_chunks().to_batches()[0]))
    files = dict(fragment.snapshot())
    (name,) = (name for name in files if name.endswith("users.arrow"))
    table = pa.ipc.open_file(files[name]).read_all()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.slice(1))
    with pytest.raises(StateError, match="states of users' aggregates for"):
        Fragment.restore(graph, {**files, name: memoryview(sink.getvalue())})


def test_equal_times_go_by_place() -> None:
    """The earlier row is first and the later one last; between nodes the order of the inputs counts."""
    q = md.Query("q")
    rows = q.source("e", {"t": "timestamp", "x": "int64", "s": "utf8"}, time="t")
    made = {f"{which}_{x}": f"{which}({x})" for which in ("first", "last") for x in "xs"}
    q.sink("o", rows.window("1s").aggregate(**made))
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), ("x", pa.int64()), ("s", pa.string())])
    parts = [
        pa.record_batch([[5, 3, 3, 5], [1, 2, 3, None], ["a", "b", "c", None]], schema=schema),
        pa.record_batch([[5, 3, 5, 4], [5, 6, 7, 8], ["e", "f", "g", "h"]], schema=schema),
    ]
    wanted = {"first_x": 2, "first_s": "b", "last_x": 7, "last_s": "g"}
    (whole,) = answer(q, pa.Table.from_batches(parts))
    assert {name: whole[name] for name in wanted} == wanted
    sender, core = split(q, 2)
    fragment = Fragment(core)
    for copy, part in enumerate(parts):
        edge = Fragment(with_slack(sender, 50_000))
        edge.feed("e", Train(batch=part))
        edge.finish()
        for element in edge.drain("out"):
            fragment.feed(f"in{copy}", element)
    (train,) = (t for t in fragment.drain("o") if isinstance(t, Train))
    assert {name: train.batch.column(name)[0].as_py() for name in wanted} == wanted
