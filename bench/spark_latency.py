"""How long a row takes from a publisher through a node, the gateway, Spark, the gateway and a node to a
subscriber, at a steady rate. Part of ``bench.spark``.

A row has the time at which it was made. Spark's query only copies. The first seconds, in which Spark loads
and compiles, are not counted; all rows must come, each once.
"""

from __future__ import annotations

import tempfile
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa

import medusa as md
from bench import spark_ends

TRAINS_PER_S = 100
WARM_S = 20.0


def train(first: int, count: int) -> pa.RecordBatch:
    """Made now."""
    [batch] = spark_ends.rows(count, first).combine_chunks().to_batches()
    now = pa.array([time.time_ns() // 1000], pa.timestamp("us", tz="UTC"))
    place = batch.schema.get_field_index("at")
    return batch.set_column(place, "at", now.take(pa.array(np.zeros(count, np.int64))))


class Publisher:
    """Publishes at a steady rate from a thread; one that is behind catches up."""

    def __init__(self, fed: md.Federation, rate: int) -> None:
        self._fed, self._each = fed, rate // TRAINS_PER_S
        self.published = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        began = time.perf_counter()
        turn = 0
        while not self._over.wait(max(began + turn / TRAINS_PER_S - time.perf_counter(), 0)):
            self._fed.publish("a.rows", train(self.published, self._each))
            self.published += self._each
            turn += 1

    def end(self) -> None:
        self._over.set()
        self._thread.join()


class Subscriber:
    """Notes of each train when it came."""

    def __init__(self, node: str) -> None:
        self._node = node
        self.came = 0
        self.total = 0
        self.took_ms: list[np.ndarray] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with md.connect(self._node) as fed, fed.subscribe("b.out", from_="oldest", timeout="1s") as trains:
            while not self._over.is_set():
                try:
                    got = trains.next("200ms")
                except md.LinkError as error:
                    if error.code != "link.timeout":
                        raise
                    continue
                if got is None:
                    return
                now_us = time.time_ns() // 1000
                made = got.batch["at"].cast(pa.int64()).to_numpy()
                self.took_ms.append(np.stack([made, now_us - made]))
                self.total += int(got.batch["number"].to_numpy().sum())
                self.came += len(made)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def percentiles(values: Any) -> dict[str, float]:
    return {"p50": float(np.percentile(values, 50)), "p99": float(np.percentile(values, 99))}


def measure(spark: Any, rate: int, seconds: float) -> dict[str, Any]:
    """ms from creation to the subscriber, and of triggers with their parts."""
    # Spark keeps what the last hundred triggers told, and here are more.
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    with spark_ends.world("a", "b") as world, tempfile.TemporaryDirectory(prefix="medusa-") as folder:
        frame = spark.readStream.format("medusa").options(**world.where("a.out")).load()
        writer = frame.writeStream.format("medusa").options(**world.where("b.rows"))
        query = writer.option("checkpointLocation", folder).start()
        subscriber = Subscriber(world.address)
        publisher = Publisher(world.fed, rate)
        begin_us = time.time_ns() // 1000 + int(WARM_S * 1e6)
        try:
            time.sleep(WARM_S + seconds)
            progress = [each for each in query.recentProgress if each["numInputRows"]]
        finally:
            publisher.end()
        end_s = time.monotonic() + 60
        while subscriber.came < publisher.published and time.monotonic() < end_s:
            time.sleep(0.1)
        query.stop()
        subscriber.end()
        if subscriber.came != publisher.published or subscriber.total != sum(range(publisher.published)):
            raise SystemExit(f"{subscriber.came:,} rows came of {publisher.published:,}")
        made, took = np.concatenate(subscriber.took_ms, axis=1)
        counted = took[made >= begin_us] / 1000
        warm = [each for each in progress if _made_us(each) >= begin_us]
        parts = {name for each in warm for name in each["durationMs"]}
        return {
            "rate": rate,
            "seconds": seconds,
            "rows": len(counted),
            "row_ms": percentiles(counted),
            "triggers": len(warm),
            "trigger_ms": {
                name: percentiles([each["durationMs"].get(name, 0) for each in warm])
                for name in sorted(parts)
            },
        }


def _made_us(progress: Any) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp() * 1e6)
