"""A program that asks of a cluster, or of a server, what Medusa does with Spark, and compares the answers.

python -m tests.spark.elsewhere MASTER FOLDER CONF: what ran where is in FOLDER/told.json then.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import medusa as md
from medusa.spark.session import is_connect
from tests.gateway.here import timed, with_gateway
from tests.spark import where
from tests.spark.cases import SCHEMA, rows
from tests.spark.live import Feed, ended
from tests.spark.same import check, plain

ROWS = 400
WAIT = "120s"


def query() -> md.Query:
    """Two boxes with keys, one behind the other, and late rows."""
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", slack="5s")
    more = q.source("more", SCHEMA, time="ts", slack="8s").filter("n > 60")
    pairs = cars.join(more, on="k", within="4s", how="left", where="left.n > right.n")
    q.sink("windows", pairs.window("10s").group_by("k").aggregate(c=md.count(), s=md.sum("v")))
    q.sink("late", cars.late)
    return q


class Elsewhere:
    """A session, and where its jobs ran.

    Attributes:
        told: what was asked -> the executors of each stage with several tasks.
    """

    def __init__(self, master: str, folder: Path, conf: dict[str, str]) -> None:
        self.spark: Any = md.spark.session(master, memory="512m", conf=conf)
        self.folder = folder
        self.told: dict[str, list[list[str]]] = {}

    def batch(self) -> None:
        tables = {"cars": rows(0, 2_000), "more": rows(1, 2_000)}
        if not is_connect(self.spark):
            self.spark.sparkContext.setJobGroup("batch", "batch")
        got = check(self.spark, query(), tables, shards=2, modules=[where.MODULE])
        assert min(table.num_rows for table in got.values()) > 10
        self._tell("batch", "batch")

    def stream(self) -> None:
        tables = {"cars": rows(2, 1_000), "more": rows(3, 1_000)}
        expected = md.collect(query(), **tables)
        feeds = {name: Feed(self.spark, self.folder / name) for name in tables}
        for name, table in tables.items():
            feeds[name].put(*ended(table, [500]))
        frames = {name: feed.frame() for name, feed in feeds.items()}
        options: dict[str, Any] = {"shards": 2, "numbered": True, "modules": [where.MODULE]}
        live, out = md.spark.stream(query(), self.spark, frames, **options), str(self.folder)

        def each(frame: Any, number: int) -> None:
            frame.persist()
            for sink, found in live.parts(frame).items():
                found.write.parquet(f"{out}/{sink}/{number}")
            frame.unpersist()

        writer = live.together.writeStream.foreachBatch(each)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination()
        for sink in live:
            got = self.spark.read.parquet(f"{out}/{sink}/*").orderBy("_seq").drop("_seq").toArrow()
            assert got.num_rows > 10
            assert plain(got) == plain(expected[sink].cast(got.schema))
        self._tell("stream", str(running.runId))

    def source_and_sink(self) -> None:
        queries = [timed(name, slack="1h") for name in ("a", "b")]
        with with_gateway(self.folder, *queries) as (fed, gateway):
            self._through(fed, gateway)
            gateway.flush(WAIT)
            found: list[int] = []
            with fed.subscribe("b.out", from_="oldest") as trains:
                while len(found) < ROWS + 100:
                    found += trains.next(WAIT).batch["v"].to_pylist()
        assert found[:ROWS] == [2 * number for number in range(ROWS)]
        assert sorted(found[ROWS:]) == list(range(100))

    def _through(self, fed: Any, gateway: Any) -> None:
        """By a streaming query in several tasks each; then a batch in and out."""
        options = {"endpoint": gateway.address, "stream": "a.out", "bytesPerPartition": "1000"}
        reader = self.spark.readStream.format("medusa").options(**options)
        read = reader.options(maxRowsPerBatch="200", reader="copy").load()
        write = read.selectExpr("ts", "v * 2 as v").writeStream.format("medusa")
        write = write.options(endpoint=gateway.address, stream="b.rows")
        write = write.option("checkpointLocation", str(self.folder / "copied"))
        df = self.spark.read.format("medusa").options(**options, meta="true").load()
        # What all readers have the node lets go: both begin before the first row.
        for name in ("copy", "spark"):
            gateway.wait("a.out", 0, name, WAIT)
        assert (read.columns, df.columns) == (["ts", "v"], ["ts", "v", "_seq", "_late"])
        for start in range(0, ROWS, 50):  # A task reads what was written to disk together.
            numbers = list(range(start, start + 50))
            fed.publish("a.rows", {"ts": numbers, "v": numbers})
            fed.flush(WAIT)
            gateway.wait("a.out", start + 50, "copy", WAIT)
        running = write.trigger(availableNow=True).start()
        running.awaitTermination()
        self._tell("source and sink", str(running.runId))
        gateway.wait("a.out", ROWS, "spark", WAIT)
        came = df.select("_seq", "v").where("not _late").toArrow().sort_by("_seq").to_pydict()
        assert came == {"_seq": list(range(ROWS)), "v": list(range(ROWS))}
        few = df.where("v < 100").select("v", "ts").write.format("medusa").mode("append")
        few.options(endpoint=gateway.address, stream="b.rows").save()

    def _tell(self, what: str, group: str) -> None:
        if is_connect(self.spark):
            return
        context = self.spark.sparkContext
        tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
        found = self.told.setdefault(what, [])
        for job in tracker.getJobIdsForGroup(group):
            for stage in tracker.getJobInfo(job).stageIds:
                tasks = store.taskList(stage, 0, 1_000)
                if tasks.size() > 1:
                    found.append(sorted({tasks.apply(i).executorId() for i in range(tasks.size())}))


def main(master: str, folder: str, conf: str) -> None:
    made = Elsewhere(master, Path(folder), json.loads(conf))
    made.batch()
    made.stream()
    made.source_and_sink()
    (Path(folder) / "told.json").write_text(json.dumps(made.told))
    made.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
