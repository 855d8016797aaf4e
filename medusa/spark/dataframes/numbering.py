"""Rows of a sorted DataFrame counted from 0, without bringing them to one task."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["counted"]

PARTITION_BITS = 33
"""``monotonically_increasing_id`` has the number of the partition above so many bits."""


def counted(df: DataFrame, number: str = "n") -> tuple[DataFrame, DataFrame]:
    """Sorted rows with their numbers: those in a partition, and what stands before it.

    Returns:
        The rows with a column ``number``; and what is persisted for it, until the caller lets go of it.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    names = df.columns
    df = kept = df.withColumn("m", F.monotonically_increasing_id()).persist()
    rows = df.groupBy(F.shiftright("m", PARTITION_BITS).alias("k")).agg(F.count("*").alias("n"))
    before = Window.orderBy("k").rowsBetween(Window.unboundedPreceding, -1)
    offsets = rows.select("k", F.coalesce(F.sum("n").over(before), F.lit(0)).alias("n"))
    df = df.withColumn("k", F.shiftright("m", PARTITION_BITS)).join(F.broadcast(offsets), "k")
    place = F.col("m") - F.shiftleft(F.col("k"), PARTITION_BITS) + F.col("n")
    return df.select(*names, place.alias(number)), kept
