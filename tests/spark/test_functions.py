"""Functions of users in Spark: by the name under which a module registers them, on the workers too."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from tests.spark import functions
from tests.spark.cases import SCHEMA, rows
from tests.spark.same import as_archive, check, in_spark

MODULES = [functions.__name__]


def test_apply_and_process(spark: Any) -> None:
    q = md.Query("functions")
    cars = q.source("cars", SCHEMA, time="ts", slack="5s")
    q.sink("doubled", cars.filter("n > 10").apply(functions.doubled, {"k": "int32", "n2": "int64"}))
    q.sink("most", functions.most(cars))
    got = check(spark, q, {"cars": rows(5)}, modules=MODULES)
    assert min(got["most"]["most"].to_pylist()) < 0, "timers ran"


def query(function: Any) -> md.Query:
    q = md.Query("functions")
    q.sink("out", q.source("cars", SCHEMA, time="ts").apply(function, {"k": "int32", "n2": "int64"}))
    return q


@md.register("spark_test.here_alone")
def here_alone(batch: pa.RecordBatch) -> dict[str, Any]:
    raise AssertionError("workers never import this module")


def test_a_function_that_no_module_registers_is_missed_by_workers(spark: Any) -> None:
    inputs = {"cars": in_spark(spark, as_archive(rows(0)))}
    with pytest.raises(Exception, match="nothing is registered as 'spark_test.here_alone' version 1"):
        md.spark.batch(query(here_alone), spark, inputs).only.toArrow()


def test_what_is_not_registered_is_refused(spark: Any) -> None:
    with pytest.raises(md.QueryError, match="apply .* its function is not registered, which Spark needs"):
        md.spark.batch(query(lambda batch: batch), spark, {})
