"""md.spark.stream in Spark: answers as of md.collect, over micro-batches, failures and restarts.

tests/test_spark_steps.py has every kind of box, without Spark; test_equal.py the queries of the demos.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.spark.streaming.packed import place
from tests.gateway.here import with_gateway
from tests.spark import functions
from tests.spark.cases import SCHEMA, rows
from tests.spark.live import Feed, Written, ended
from tests.spark.same import plain
from tests.system.nodes import until

MODULES = [functions.__name__]


def feeds(spark: Any, folder: Path, pieces: dict[str, list[pa.Table]]) -> dict[str, Feed]:
    made = {name: Feed(spark, folder / name) for name in pieces}
    for name, tables in pieces.items():
        made[name].put(*tables)
    return made


def frames(made: dict[str, Feed]) -> dict[str, Any]:
    return {name: feed.frame() for name, feed in made.items()}


def same(got: dict[str, pa.Table], expected: Any) -> None:
    for sink, table in got.items():
        assert plain(table) == plain(expected[sink].cast(table.schema)), f"{sink}: {table.num_rows} rows"
        assert table.num_rows


def test_groups_go_where_spark_is_told(spark: Any) -> None:
    table = spark.createDataFrame(
        pa.table({"n": pa.array([place(group) for group in range(256)], pa.int32())})
    )
    hashes = [row.h for row in table.selectExpr("hash(n) AS h").collect()]
    assert hashes == list(range(256)), "so in partition group mod p, whatever p is"


def test_a_checkpoint_goes_on_where_there_are_other_partitions(spark: Any, tmp_path: Path) -> None:
    """As when a job of local[2] is started again in local[4]."""
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", slack="5s")
    q.sink("sofar", cars.group_by("k").running(c=md.count(), s=md.sum("v")))
    q.sink("windows", cars.window("10s").group_by("k").aggregate(c=md.count()))
    table = rows(2, 300)
    first, *others = ended(table, [140])
    made = feeds(spark, tmp_path, {"cars": [first]})
    written = Written(spark, tmp_path / "checkpoint")
    written.run(md.spark.stream(q, spark, frames(made), shards=2))
    made["cars"].put(*others)
    with partitions(spark, 4):
        with pytest.raises(Exception, match="this checkpoint was begun with shards=2, and now it is 4"):
            written.run(md.spark.stream(q, spark, frames(made)))
        answers = md.spark.stream(q, spark, frames(made), shards=2)
        written.run(answers)
    assert sorted(written.batches) == [0, 1, 2]
    same(written.parts(answers), md.collect(q, cars=table))


@contextmanager
def partitions(spark: Any, count: int) -> Iterator[None]:
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, str(count))
    try:
        yield
    finally:
        spark.conf.set(name, before)


def test_shards_through_a_failure_and_a_restart(spark: Any, tmp_path: Path) -> None:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", slack="5s")
    more = q.source("more", SCHEMA, time="ts", slack="8s").filter("n > 60")
    q.sink("windows", cars.window("10s").group_by("k", "g").aggregate(c=md.count(), s=md.sum("v")))
    q.sink("pairs", cars.join(more, on="k", within="4s", how="left", where="left.n > right.n"))
    q.sink("late", cars.late)
    q.sink("most", functions.most(cars))
    tables = {"cars": rows(0, 2_000), "more": rows(1, 2_000)}
    expected = md.collect(q, **tables)
    first, second, *others = ended(tables["cars"], [600, 1_300])
    made = feeds(spark, tmp_path, {"cars": [first, second], "more": ended(tables["more"], [800])})
    written = Written(spark, tmp_path / "checkpoint")
    with pytest.raises(Exception, match="the sink failed"):
        written.run(md.spark.stream(q, spark, frames(made), shards=2, modules=MODULES), fails=1)
    assert list(written.batches) == [0]
    made["cars"].put(*others)
    answers = md.spark.stream(q, spark, frames(made), shards=2, modules=MODULES)
    written.run(answers)
    same(written.parts(answers), expected)
    assert min(expected["most"]["most"].to_pylist()) < 0, "timers ran"
    held = max(each.stateOperators[1].numRowsTotal for each in written.progress if each.stateOperators)
    assert held > 2, "each of the two groups has an index, and chunks"


def test_a_sink_of_its_own_and_rows_where_they_are(spark: Any, tmp_path: Path) -> None:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", slack="5s")
    q.sink("few", cars.filter("n > 20").select("k", w="n + 1"))
    q.sink("out", cars.filter("n > 10").apply(functions.doubled, {"k": "int32", "n2": "int64"}))
    table = rows(3, 200)
    expected = md.collect(q, cars=table)
    made = feeds(spark, tmp_path / "in", {"cars": ended(table, [90])})
    answers = md.spark.stream(q, spark, frames(made), shards=1, modules=MODULES)
    for sink, frame in answers.items():
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / sink))
        query = writer.option("checkpointLocation", str(tmp_path / f"{sink}-checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        got = spark.read.parquet(str(tmp_path / sink)).toArrow()
        assert sorted(plain(got)) == sorted(plain(expected[sink].cast(got.schema)))


def test_a_stream_of_a_gateway_with_the_node_s_word_on_late_rows(spark: Any, tmp_path: Path) -> None:
    columns = {"ts": "int64", "v": "int64"}
    plain_query, q = md.Query("a"), md.Query("q")
    plain_query.sink("out", plain_query.source("rows", columns, time="ts", unit="us", slack="20us"))
    counted = q.source("rows", columns, time="ts", unit="us").window("10us").group_by(k="v % 3")
    q.sink("out", counted.aggregate(c=md.count(), s=md.sum("v")))
    times = [number - 30 * (number % 7 == 0) for number in range(100, 300)]
    table = pa.table({"ts": times, "v": list(range(200))})
    kept = table.filter(pa.array([number % 7 > 0 for number in range(100, 300)]))
    with with_gateway(tmp_path, plain_query) as (fed, gateway):
        options = {"endpoint": gateway.address, "stream": "a.out", "reader": "live"}
        options |= {"meta": "true", "boundary": "true", "maxRowsPerBatch": "80"}
        frame = spark.readStream.format("medusa").options(**options).load()
        for start in range(0, 200, 50):
            fed.publish("a.rows", table.slice(start, 50))
            fed.flush("60s")
            gateway.wait("a.out", start + 50, "live")
        fed.finish("a.rows")
        until(lambda: gateway.status()["readers"][0]["ended"], what="the end")
        answers = md.spark.stream(q, spark, {"rows": frame}, shards=1)
        written = Written(spark, tmp_path / "checkpoint")
        written.run(answers)
    got = plain(written.parts(answers)["out"])
    assert len(written.batches) == 3
    assert got == plain(md.collect(q, rows=kept)["out"]), "to its end: the last windows close"


def test_rows_that_come_out_of_order_between_micro_batches_stop_the_query(spark: Any, tmp_path: Path) -> None:
    q = md.Query("q")
    q.sink("out", q.source("cars", SCHEMA, time="ts", slack="5s").group_by("k").running(c=md.count()))
    first, second, _ = ended(rows(0, 50), [20])
    made = feeds(spark, tmp_path, {"cars": [second, first]})
    answers = md.spark.stream(q, spark, frames(made), shards=1)
    message = "source 'cars': column '_seq': a row with 5 comes after one with 54"
    with pytest.raises(Exception, match=message):
        Written(spark, tmp_path / "checkpoint").run(answers)


def test_a_batch_takes_the_columns_of_a_stream(spark: Any) -> None:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", slack="5s")
    q.sink("out", cars.window("10s").group_by("k").aggregate(c=md.count(), s=md.sum("v")))
    q.sink("late", cars.late)
    table = rows(6)
    expected = md.collect(q, cars=table)
    late = plain(expected["late"])
    marks = pa.array([row in late for row in plain(table)])
    frame = spark.createDataFrame(pa.concat_tables(ended(table, [90], _late=marks)).combine_chunks())
    answers = md.spark.batch(q, spark, {"cars": frame})
    same({sink: each.toArrow() for sink, each in answers.items()}, expected)
    with pytest.raises(md.QueryError, match="source 'cars': .* a column '_boundary', but no '_late'"):
        md.spark.batch(q, spark, {"cars": frame.drop("_late")})


def test_refusals(spark: Any, tmp_path: Path) -> None:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", slack="5s", partition="b")
    q.sink("out", cars.window("10s").group_by("k").aggregate(c=md.count(), name="per_k"))
    made = feeds(spark, tmp_path, {"cars": ended(rows(0, 20), [10])})
    frame = made["cars"].frame()
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (spark.createDataFrame(rows(0, 5)), {}, "source 'cars': its DataFrame doesn't stream"),
        (frame.drop("_seq"), {}, "aggregate 'per_k' depends on the order .* no column '_seq'"),
        (frame, {}, "with partition= more than its rows decides .*_late and _boundary"),
        (frame.withColumn("_boundary", frame.g), {}, "'_boundary': expected timestamp, came string"),
        (frame, {"semantics": "flink"}, 'semantics is "medusa" or "spark"'),
        (frame, {"shards": 0}, "shards is from 1 to 256"),
    ]
    for given, options, message in refused:
        with pytest.raises(md.MedusaError, match=message):
            md.spark.stream(q, spark, {"cars": given}, **options)
    plainly = md.Query("q")
    plainly.sink("out", plainly.source("cars", SCHEMA, time="ts").group_by("k").running(c=md.count()))
    store = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(store)
    spark.conf.set(store, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    try:
        with pytest.raises(md.MedusaError, match="need Spark's RocksDB store, and .* is HDFSBacked"):
            md.spark.stream(plainly, spark, {"cars": frame})
    finally:
        spark.conf.set(store, before)


def means(table: pa.Table) -> pa.Table:
    """Columns more whose means are wrong where a sum is rounded: by its digits, or as a float."""
    large = [(-1) ** row * 2**62 + row % 5 for row in range(table.num_rows)]
    cents = [decimal.Decimal(value % 7) / 100 for value in large]
    extra = {
        "d": pa.array(cents, pa.decimal128(10, 2)),
        "u": pa.array([value % 7 for value in large], pa.uint64()),
        "z": pa.array(large),
        "none": pa.nulls(table.num_rows, pa.int32()),
    }
    for name, column in extra.items():
        table = table.append_column(name, column)
    return table


def test_windows_of_spark_itself_where_no_row_is_late(spark: Any, tmp_path: Path) -> None:
    q = md.Query("q")
    schema = SCHEMA | {"d": "decimal128(10, 2)", "u": "uint64", "z": "int64", "none": "int32"}
    cars = q.source("cars", schema, time="ts", slack="25s").filter("n > 0").with_columns(w="n * 2")
    sliding = cars.window("20s", advance="5s").group_by("k", h="n % 2")
    calls = {"c": md.count(), "s": md.sum("w"), "a": md.avg("n"), "x": md.max("g"), "i": md.min("ts")}
    calls |= {f"mean_{name}": md.avg(name) for name in ("d", "u", "z", "b", "none")} | {"trues": md.sum("b")}
    q.sink(
        "out",
        sliding.aggregate(**calls).filter("c > 1").select("window_end", "k", "h", *calls, t="tuple_time"),
    )
    table = means(rows(4, 200))
    ahead = table.slice(199).set_column(0, "ts", pa.array([10**9], table.schema.field("ts").type))
    expected = md.collect(q, cars=table)["out"]
    made = feeds(spark, tmp_path / "in", {"cars": [table.slice(0, 90), table.slice(90), ahead]})
    frame = md.spark.stream(q, spark, frames(made), semantics="spark").only
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    got = spark.read.parquet(str(tmp_path / "out")).toArrow()
    assert got.num_rows > 100
    near = [sorted(plain(each.select(["window_end", "k", "h", "mean_d"]))) for each in (got, expected)]
    for one, other in zip(*near, strict=True):
        assert one[:3] == other[:3]
        assert math.isclose(float.fromhex(one[3]), float.fromhex(other[3]), rel_tol=1e-12)
    got, expected = (each.drop_columns("mean_d") for each in (got, expected))
    assert sorted(plain(got)) == sorted(plain(expected.cast(got.schema)))  # floats here are of exact sums
