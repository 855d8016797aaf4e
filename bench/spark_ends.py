"""What the benches of Spark share: a node and a gateway as processes, rows, CPU seconds, and what Spark's
Python data sources cost by themselves (``floor``)."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import medusa as md
from bench.hops import NODE, processes
from bench.worker import Spent, descendants

START_US = 1_700_000_000_000_000
COLUMNS = {"number": "int64", "value": "float64", "at": "timestamp", "name": "utf8"}
NAMES = 1_000
WAIT = "120s"


def rows(count: int, first: int = 0) -> pa.Table:
    """An integer, a float, a time, a text of 11 characters: made of their numbers, so sums say what came."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    names = pa.array([f"sensor-{number:04d}" for number in range(NAMES)])
    return pa.table(
        {
            "number": numbers,
            "value": (numbers * 7919 % 10_007).astype(np.float64),
            "at": pa.array(START_US + numbers * 50, pa.timestamp("us", tz="UTC")),
            "name": names.take(pa.array(numbers % NAMES)),
        }
    )


def query(name: str) -> md.Query:
    """Rows as they come."""
    q = md.Query(name)
    q.sink("out", q.source("rows", COLUMNS, time="at", slack="1s"))
    return q


@dataclass
class World:
    """A node and a gateway, each a process, and the folder they are in."""

    folder: Path
    fed: md.Federation
    endpoint: str
    node: int
    gateway: int
    address: str
    _seen: dict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))

    def where(self, stream: str) -> dict[str, str]:
        return {"endpoint": self.endpoint, "stream": stream}

    def spent(self) -> dict[str, float]:
        """CPU seconds so far: Spark (this process, the JVM, its workers), the gateway, the node."""
        others = {"gateway": self.gateway, "node": self.node}
        mine = [os.getpid(), *descendants(os.getpid())]
        ours = {"spark": [each for each in mine if each not in others.values()]}
        ours |= {name: [process] for name, process in others.items()}
        return {name: self._seen[name].look(processes) for name, processes in ours.items()}


@contextlib.contextmanager
def world(*names: str) -> Iterator[World]:
    """A node with ``query(name)`` of each name, a gateway, a client."""
    with tempfile.TemporaryDirectory(prefix="medusa-spark-") as base:
        folder = Path(base)
        node = f"ipc://{base}/node.sock"
        (folder / "node.toml").write_text(f'name = "n"\nlisten = "{node}"\ndata = "node"\n')
        (folder / "gateway.toml").write_text(
            f'node = "{node}"\nlisten = "ipc://{base}/gateway.sock"\ndata = "gateway"\n'
            '[limits]\nspool = "8 GiB"\nstage = "8 GiB"\n'
        )
        commands = [
            [sys.executable, "-c", NODE, each, f"{folder}/{each}.toml"] for each in ("node", "gateway")
        ]
        with processes(commands) as started, md.connect(node, timeout=WAIT) as fed:
            for name in names:
                fed.deploy(query(name))
            yield World(folder, fed, f"ipc://{base}/gateway.sock", started[0].pid, started[1].pid, node)


@dataclass
class Timed:
    """Runs of one way."""

    rows: int
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[dict[str, float]] = field(default_factory=list)

    def run(self, world: World, does: Callable[[], Any], settle: Callable[[], Any]) -> None:
        before, began = world.spent(), time.perf_counter()
        does()
        self.wall_s.append(time.perf_counter() - began)
        settle()
        after = world.spent()
        self.cpu_s.append({name: after[name] - before[name] for name in after})

    def figures(self) -> dict[str, Any]:
        wall = median(self.wall_s)
        return {
            "rows_per_s": self.rows / wall,
            "spread": (max(self.wall_s) - min(self.wall_s)) / wall,
            "wall_s": self.wall_s,
            "cpu_s": {name: median(each[name] for each in self.cpu_s) for name in self.cpu_s[0]},
        }


def in_turns(
    ways: dict[str, tuple[int, Callable[[], Any]]],
    world: World,
    rounds: int,
    settle: Callable[[], Any] = lambda: None,
) -> dict[str, Any]:
    """Each way once, not counted, then in turns.

    Args:
        ways: name -> rows, what is timed.
        settle: called after each run: waits for what goes on behind it, whose CPU time counts.
    """
    timed = {name: Timed(count) for name, (count, _) in ways.items()}
    for turn in range(rounds + 1):
        for name, (_, does) in ways.items():
            if turn:
                timed[name].run(world, does, settle)
            else:
                does()
                settle()
    return {name: each.figures() for name, each in timed.items()}


def floor(path: Path, batch_rows: int, parts: int) -> type[Any]:
    """A Python data source without anything behind it: reads an Arrow file that lies in memory (mapped, each
    batch handed over as it is), and throws away what is written. Called ``floor``.

    It is defined in here so that Spark brings it to its workers by value: they needn't find this package.
    """
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
        WriterCommitMessage,
    )
    from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

    where = str(path)

    def read(number: int) -> Iterator[Any]:
        import pyarrow

        table = pyarrow.ipc.open_file(pyarrow.memory_map(where)).read_all()
        each = -(-len(table) // parts)
        yield from table.slice(number * each, each).to_batches(max_chunksize=batch_rows)

    class Reader(DataSourceReader):
        def partitions(self) -> list[Any]:
            return [InputPartition(each) for each in range(parts)]

        def read(self, partition: Any) -> Iterator[Any]:
            return read(partition.value)

    class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        """One micro-batch of all there is."""

        def initialOffset(self) -> dict[str, Any]:
            return {"part": 0}

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
            return {"part": parts}

        def getDefaultReadLimit(self) -> Any:
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            pass

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
            return [InputPartition(each) for each in range(start["part"], end["part"])]

        def read(self, partition: Any) -> Iterator[Any]:
            return read(partition.value)

        def commit(self, end: dict[str, Any]) -> None:
            pass

    class Writer(DataSourceArrowWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Floor(DataSource):
        @classmethod
        def name(cls) -> str:
            return "floor"

        def schema(self) -> str:
            return "number bigint, value double, at timestamp, name string"

        def reader(self, schema: Any) -> Any:
            return Reader()

        def streamReader(self, schema: Any) -> Any:
            return StreamReader()

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Writer()

    return Floor
