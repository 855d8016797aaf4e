"""Two queries at once, and what goes wrong in them: a stream into Parquet by Spark's own sink, and a stream
into a source. In the session of the tests, or as a driver of its own, which can be killed.

python -m tests.spark.faulty ENDPOINT FOLDER FAULT...
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import medusa as md
from tests.gateway.processes import ROWS, all_there
from tests.spark.conftest import QUICK

ROWS_PER_BATCH = 40
LIVES_MAX = 12
POINTS = ("in", "out", "before", "behind")


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, once.

    Attributes:
        point: ``in``, ``out``: in the task that has this row, of the query into Parquet or into the source;
            ``before``, ``behind``: in the commit of this epoch, before it has published or then.
        at: the row's number, or the epoch's.
        stops: it goes no further, and waits to be killed. Else it raises.
    """

    point: str
    at: int
    stops: bool = False

    def __str__(self) -> str:
        return f"{self.point}-{self.at}-{'stop' if self.stops else 'raise'}"

    @classmethod
    def read(cls, text: str) -> Fault:
        point, at, what = text.split("-")
        assert point in POINTS, text
        return cls(point, int(at), what == "stop")

    def came(self, folder: Path) -> bool:
        return (folder / f"came-{self}").exists()


def queries(spark: Any, endpoint: str, folder: Path, faults: Sequence[Fault] = ()) -> list[Any]:
    """Both, not started yet; their checkpoints and the Parquet files are in the folder."""

    def strike(fault: Fault) -> None:
        try:
            open(f"{folder}/came-{fault}", "x").close()
        except FileExistsError:
            return
        if fault.stops:
            threading.Event().wait()
        raise RuntimeError(f"fault {fault}")

    # Nested, so that they go to workers by value.
    def task(point: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = batch["v"].to_pylist()
                for fault in faults:
                    if fault.point != point or fault.at not in rows or fault.came(folder):
                        continue
                    if fault.at % 2:  # What the task has had goes on first.
                        yield from (batch.slice(n, 1) for n in range(batch.num_rows // 2))
                    strike(fault)
                yield batch

        return failing

    read = spark.readStream.format("medusa").options(endpoint=endpoint, stream="a.out", meta="true")
    read = read.option("maxRowsPerBatch", ROWS_PER_BATCH)
    shape = "ts long, v long, _seq long, _late boolean"
    kept = read.option("reader", "in").load().mapInArrow(task("in"), shape).writeStream.format("parquet")
    kept = kept.options(path=f"{folder}/kept", checkpointLocation=f"{folder}/kept.checkpoint")
    copied = read.option("reader", "out").load().mapInArrow(task("out"), shape).selectExpr("ts", "v * 2 as v")
    sink = failing_sink(f"medusa_{folder.name}", faults, strike)
    spark.dataSource.register(sink)
    copied = copied.writeStream.format(sink.name()).options(endpoint=endpoint, stream="b.rows")
    return [kept, copied.option("checkpointLocation", f"{folder}/copied.checkpoint")]


def failing_sink(called: str, faults: Sequence[Fault], strike: Callable[[Fault], None]) -> Any:
    from pyspark_medusa import DefaultSource

    class Failing(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return called

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            made = super().streamWriter(schema, overwrite)
            commit = made.commit

            def fails(messages: Any, epoch: int) -> None:
                for point in ("before", "behind"):
                    for fault in faults:
                        if (fault.point, fault.at) == (point, epoch):
                            strike(fault)
                    if point == "before":
                        commit(messages, epoch)

            made.commit = fails
            return made

    return Failing


def run(spark: Any, endpoint: str, folder: Path, faults: Sequence[Fault] = ()) -> list[str]:
    """Both, as far as there are rows, begun again after each failure; what failed on the way."""
    failed: list[str] = []
    for _ in range(LIVES_MAX):
        before = len(failed)
        started: list[Any] = []
        for reader in ("in", "out"):
            all_there(endpoint, reader, ROWS)
        try:
            started += [
                each.trigger(availableNow=True).start() for each in queries(spark, endpoint, folder, faults)
            ]
        except Exception as error:  # Spark's, of many kinds; the next life goes on.
            failed.append(str(error))
        for each in started:
            try:
                each.awaitTermination()
            except Exception as error:
                failed.append(str(error))
        if len(failed) == before:
            return failed
    raise AssertionError(f"it never ends: {failed[-1]}")


def main(endpoint: str, folder: str, *faults: str) -> None:
    spark = md.spark.session("local[2]", memory="1g", conf=QUICK)
    for failure in run(spark, endpoint, Path(folder), [Fault.read(each) for each in faults]):
        print(failure[:2000], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
