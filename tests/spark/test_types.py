"""Values of every type through a gateway, in and out, and into an archive and back: the same at the end.

In a session whose zone isn't UTC, and with names that Spark would take for something else.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import medusa as md
from medusa.apps.pipeline.frames import frame
from medusa.query.types import normalise, to_arrow
from medusa.spark.column_types import wire
from tests.gateway.here import with_gateway
from tests.spark.same import plain
from tests.system.nodes import until

WAIT = "60s"
DAYS = [datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)]
VALUES: dict[str, list[Any]] = {
    "bool": [True, None, False],
    **{f"int{n}": [-(2 ** (n - 1)), None, 2 ** (n - 1) - 1] for n in (8, 16, 32, 64)},
    **{f"uint{n}": [0, None, 2**n - 1] for n in (8, 16, 32, 64)},
    "float32": [float("nan"), -0.0, None],
    "float64": [float("nan"), -0.0, 5e-324],
    "utf8": ["", None, "ä\0x"],
    "binary": [b"", None, b"\xff\0"],
    "date32": DAYS,
    "timestamp": [-62_135_596_800_000_000, None, 253_402_300_799_999_999],
    "duration": [-1, None, 2**62],
    "decimal128(38, 7)": [Decimal("1.0000001"), None, Decimal(-5)],
    "decimal128(5, 2)": [Decimal("999.99"), None, Decimal("-0.01")],
}
NAMES = ["a.b", "`tick`", "ä b", *(f"c{n}" for n in range(len(VALUES) - 3))]
SCHEMA = {"ts": "timestamp", **dict(zip(NAMES, VALUES, strict=True))}
TIMES = pa.array([10, 20, 30], pa.timestamp("us", tz="UTC"))
TABLE = pa.table(
    [TIMES, *(pa.array(values, to_arrow(normalise(type))) for type, values in VALUES.items())],
    names=list(SCHEMA),
)


@pytest.fixture
def elsewhere(spark: Any) -> Iterator[Any]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", zone)


def test_every_type_goes_through_spark_and_into_an_archive_as_it_is(elsewhere: Any, tmp_path: Path) -> None:
    spark, queries = elsewhere, [md.Query("a"), md.Query("b")]
    for q in queries:
        q.sink("out", q.source("rows", SCHEMA, time="ts", slack="1h"))
    with with_gateway(tmp_path, *queries) as (fed, gateway):
        options = {"endpoint": gateway.address, "stream": "a.out", "reader": "r"}
        rows = spark.read.format("medusa").options(**options).load()
        fed.publish("a.rows", TABLE)
        fed.flush(WAIT)
        gateway.wait("a.out", 3, "r")
        written = rows.write.format("medusa").option("endpoint", gateway.address)
        written.option("stream", "b.rows").mode("append").save()
        gateway.flush(WAIT)

        def archived() -> md.spark.Stored:
            return md.spark.archive("b.out", spark, tmp_path / "archive", gateway=gateway, time="ts")

        until(lambda: archived().manifest.rows == TABLE.num_rows, what="all is there", deadline_s=120)
        stored = archived()
    kept = pq.read_table(stored.files, schema=stored.manifest.columns)
    assert plain(kept.select(list(SCHEMA))) == plain(TABLE)
    again = frame(stored, spark).orderBy("_seq").toArrow()
    for name, type in SCHEMA.items():
        expected = TABLE.column(name).cast(wire(normalise(type)))
        assert plain(again.select([name])) == plain(pa.table([expected], names=[name])), type
