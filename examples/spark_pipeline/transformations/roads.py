"""A stream of Medusa as a table that grows, and rows of it back into another stream."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.getActiveSession()
endpoint = spark.conf.get("medusa.endpoint")


@dp.table
def cars() -> DataFrame:
    """The rows with their numbers, and the node's word on which are late."""
    options = {"endpoint": endpoint, "stream": "roads.all", "meta": "true"}
    return spark.readStream.format("medusa").options(**options).load()


dp.create_sink("fines", "medusa", {"endpoint": endpoint, "stream": "fines.cars"})


@dp.append_flow(target="fines")
def too_fast() -> DataFrame:
    return spark.readStream.table("cars").where("speed > 80").select("seg", "speed")
