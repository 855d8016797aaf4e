"""A driver of its own that copies a stream into a source by small batches, until it is killed in a commit.

python -m tests.spark.copying ENDPOINT CHECKPOINT EPOCH FLAG
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import medusa as md
from tests.gateway.processes import all_there
from tests.spark.conftest import QUICK
from tests.spark.faulty import Fault, failing_sink

ROWS_PER_BATCH = 40


def copied(spark: Any, endpoint: str, checkpoint: str, *, to: str = "medusa", **options: str) -> Any:
    """The query, not started yet."""
    read = spark.readStream.format("medusa").option("endpoint", endpoint).option("stream", "a.out")
    df = read.option("maxRowsPerBatch", ROWS_PER_BATCH).option("reader", options.pop("reader", "copy")).load()
    write = df.selectExpr("ts", "v * 2 as v").writeStream.format(to).options(**options)
    return (
        write.option("endpoint", endpoint).option("stream", "b.rows").option("checkpointLocation", checkpoint)
    )


def main(endpoint: str, checkpoint: str, epoch: str, flag: str) -> None:
    """Copy until this epoch is published, make a file, and wait to be killed before Spark hears of it."""

    def stop(fault: Fault) -> None:
        open(flag, "x").close()
        threading.Event().wait()

    spark = md.spark.session("local[2]", memory="1g", conf=QUICK)
    spark.dataSource.register(failing_sink("medusa_stops", [Fault("behind", int(epoch), stops=True)], stop))
    all_there(endpoint, "copy", ROWS_PER_BATCH * (int(epoch) + 1))
    write = copied(spark, endpoint, checkpoint, to="medusa_stops")
    write.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
