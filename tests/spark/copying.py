"""A driver of its own that copies a stream into a source by small batches, until it is killed.

python -m tests.spark.copying ENDPOINT CHECKPOINT
"""

from __future__ import annotations

import sys
from typing import Any

import medusa as md

ROWS_PER_BATCH = 40


def copied(spark: Any, endpoint: str, checkpoint: str, **options: str) -> Any:
    """The query, not started yet."""
    read = spark.readStream.format("medusa").option("endpoint", endpoint).option("stream", "a.out")
    df = read.option("maxRowsPerBatch", ROWS_PER_BATCH).option("reader", options.pop("reader", "copy")).load()
    write = df.selectExpr("ts", "v * 2 as v").writeStream.format("medusa").options(**options)
    return (
        write.option("endpoint", endpoint).option("stream", "b.rows").option("checkpointLocation", checkpoint)
    )


def main(endpoint: str, checkpoint: str) -> None:
    spark = md.spark.session("local[2]", memory="1g")
    copied(spark, endpoint, checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
