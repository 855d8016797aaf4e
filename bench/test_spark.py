"""Question: what do Spark's source, sink and Medusa's operators there cost? See ``bench.spark``."""

from __future__ import annotations

import pytest

from bench import spark


def test_spark(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("pyspark", reason="make bench-spark runs this in .venv-spark")
    option = request.config.getoption
    print(spark.measure(list(spark.PARTS), option("--quick"), option("--results")))
