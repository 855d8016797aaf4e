"""Every kind of box gives in Spark what ``md.collect`` gives: rows, order and bits, late rows included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import medusa as md
from medusa.spark.dataframes import source
from medusa.spark.support import WAYS, Way
from tests.spark.cases import CASES, SCHEMA, rows
from tests.spark.same import as_archive, check, in_spark, plain

SMALL = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "17",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}


@pytest.fixture(autouse=True)
def small_pieces(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As with many rows: boundaries stand between batches, and rows come to a step from several places."""
    monkeypatch.setattr(source, "RANGE_BITS", 4)
    before = {name: spark.conf.get(name) for name in SMALL}
    for name, value in SMALL.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def kinds() -> set[str]:
    found = set()
    for build in CASES.values():
        found |= {str(box.__struct_config__.tag) for box in build().graph.boxes}
    return found


def test_every_kind_that_runs_has_a_case() -> None:
    runs = {kind for kind, way in WAYS.items() if way is not Way.REFUSED}
    assert runs - kinds() == {"apply", "process"}  # which test_functions.py has


@pytest.mark.parametrize("case", [name for name in CASES if name != "union"])
def test_same_as_embedded(spark: Any, case: str) -> None:
    query = CASES[case]()
    tables = {source: rows(seed, 300) for seed, source in enumerate(query.sources)}
    got = check(spark, query, tables)
    assert all(table.num_rows for table in got.values())


def test_a_union_has_the_same_rows_in_an_order_of_its_own(spark: Any) -> None:
    query = CASES["union"]()
    tables = {"cars": rows(0), "more": rows(1)}
    inputs = {name: in_spark(spark, as_archive(table)) for name, table in tables.items()}
    got = plain(md.spark.batch(query, spark, inputs).only.toArrow())
    expected = plain(md.collect(query, **tables)["out"])
    assert sorted(got) == sorted(expected)
    assert got != expected
    for table in tables.values():  # those of each input are in its order
        mine = set(plain(table))
        assert [row for row in got if row in mine] == [row for row in plain(table) if row in mine]


def test_what_a_union_gives_is_windowed_alike(spark: Any) -> None:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts", slack="5s") for name in ("a", "b"))
    counts = a.filter("n > 3").union(b).window("20s").group_by("k").aggregate(c=md.count(), m=md.max("n"))
    q.sink("out", counts)
    tables = {"a": rows(0), "b": rows(1)}
    inputs = {name: in_spark(spark, as_archive(table)) for name, table in tables.items()}
    got = md.spark.batch(q, spark, inputs).only.toArrow()
    assert sorted(plain(got)) == sorted(plain(md.collect(q, **tables)["out"]))


@pytest.mark.parametrize("shards", [1, 5])
def test_the_number_of_shards_does_not_show(spark: Any, shards: int) -> None:
    check(spark, CASES["aggregate"](), {"cars": rows(3)}, shards=shards)
