"""Spark's part, as its micro-batches go: plan, tasks that may fail and run again, commit or abort.

Beside it a world without threads and sockets: the request handler of a gateway whose disk dies when it is
told to, and a node that numbers what it is given. A request goes through the bytes of the protocol, and may
be lost on the way there or back.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from medusa.elements import START_US, Train
from medusa.engine.input.ingest import normalise
from medusa.errors import DataError, LinkError, StateError
from medusa.query.boxes import Field, Source
from medusa.spark.data_source_reader import StreamReader
from medusa.spark.data_source_writer import Staged, StreamWriter
from medusa.spark.exchange import requests as r
from medusa.spark.exchange.delivery import deliver
from medusa.spark.exchange.handlers import RequestHandler
from medusa.spark.exchange.reader_log import ReaderLog
from medusa.spark.exchange.staging import Staging
from medusa.spark.options import Options, options_from
from tests.engine.segments import Disk
from tests.gateway.dying_disk import DiedError, DyingDisk, Logs

__all__ = ["DriverDiedError", "Faults", "Query", "QueryFailedError", "World", "lives"]

SCHEMA = (Field("v", "int64"),)
SPOOL_BYTES = 3200
"""Each record has a segment of its own, so that what is let go is gone."""

ARROW = pa.schema([("v", pa.int64())])
SOURCE = Source(id="q.in", schema=SCHEMA, time=None, unit=None, slack_us=None, timed=False)


class DriverDiedError(BaseException):
    """``kill -9`` of the driver: nobody does anything more."""


class QueryFailedError(Exception):
    """Spark gave up; whoever runs it starts it again from its checkpoint."""


class TaskFailedError(Exception):
    """An attempt of a task failed."""


class SpoolDisk(Disk):
    """The disk of what is read: its steps are those of the other one."""

    def __init__(self, disk: DyingDisk) -> None:
        super().__init__()
        self._other = disk

    def _put(self, first: int, rows: Any, index: Any) -> None:
        dies = self._other._step()
        super()._put(first, rows, index)
        if dies:
            if self._other.end == "torn":
                half = self.files[first, "rows"]
                del half[len(half) - len(memoryview(rows)) // 2 :]
            self._other._die()

    def sync(self) -> None:
        dies = self._other._step()
        super().sync()
        if dies:
            self._other._die()

    def power_fails(self) -> None:
        for key, data in self.files.items():
            if self._other.end in ("before", "lost"):
                del data[self.synced[key] :]
        self.last = None


def left_of(written: list[int], sent: list[int], end: str) -> list[int]:
    """What is durable at a node of what was sent to it, where the gateway dies so."""
    more = len(sent) - len(written)
    return sent[: len(written) + {"lost": 0, "torn": more // 2, "kept": more}[end]]


class Node:
    """A node: a stream that is read, and a source that is written.

    Attributes:
        comes: rows that come later, some each time that somebody asks.
    """

    def __init__(self, rows: int, disk: DyingDisk) -> None:
        self.out = list(range(rows))
        self.comes = 0
        self._disk = disk
        self._sent: list[int] = []
        self.acked = 0
        self.written: list[int] = []

    def begin(self) -> Node:
        """The publisher, anew: what it had sent and wasn't durable is gone."""
        self._sent = list(self.written)
        return self

    @property
    def next_row(self) -> int:
        return len(self._sent)

    @property
    def durable_row(self) -> int:
        return len(self.written)

    def publish(self, data: pa.RecordBatch) -> None:
        self._sent += data["v"].to_pylist()

    def flush(self, timeout: str) -> None:
        """Who dies here has made none, half or all of it durable."""
        dies = self._disk._step()
        self.written[:] = left_of(self.written, self._sent, self._disk.end if dies else "kept")
        if dies:
            self._disk._die()

    def check(self) -> None:
        pass

    def finish(self) -> None:
        pass


class Inlet:
    """Takes from the node whatever there is whenever somebody asks."""

    why = life = ""
    begins = "oldest"
    anew = True
    ended = timed = False
    over = None

    def __init__(self, world: World, nbytes: int) -> None:
        self.lock = threading.RLock()
        self._world, self._bytes = world, nbytes
        self._spool = ReaderLog(world.rows, ARROW, bytes_max=nbytes)
        self._spool.begin(world.node.acked)

    def spool(self) -> ReaderLog:
        return self._spool

    def wake(self) -> None:
        node, spool = self._world.node, self._spool
        more = min(node.comes, 3)
        node.comes -= more
        node.out += range(len(node.out), len(node.out) + more)
        while spool.next_seq < len(node.out) and not spool.full:
            values = node.out[spool.next_seq : spool.next_seq + 7]
            batch = pa.record_batch({"v": pa.array(values, pa.int64())})
            spool.append(Train(batch=batch, first_seq=spool.next_seq), int(START_US))
            try:
                spool.sync()
            except StateError:  # As a worker does: anew, from what is on disk.
                self._world.rows.last = None
                spool = self._spool = ReaderLog(self._world.rows, ARROW, bytes_max=self._bytes)
        assert node.acked <= spool.durable_seq, "what was acknowledged is on disk"
        node.acked = spool.durable_seq


class World:
    """A gateway, its disk, its node, and the way of requests to it.

    Attributes:
        driven: steps of the disk before ``settle``.
        cut_at: the request, counted from 0, that is lost; before it arrives, or its answer.
        again_at: a request, and how many others there are until it comes a second time.
        now_s: the gateway's clock.
    """

    def __init__(self, rows: int = 40, *, spool_bytes: int = SPOOL_BYTES) -> None:
        self.disk = DyingDisk()
        self.node = Node(rows, self.disk)
        self.rows = SpoolDisk(self.disk)
        self.requests = 0
        self.cut_at: int | None = None
        self.cut_answer = False
        self.again_at: tuple[int, int] | None = None
        self._kept: list[bytes] = []
        self.now_s = 0.0
        self.deaths = 0
        self.driven = 0
        self._bytes = spool_bytes
        self._handler: RequestHandler | None = None

    # The gateway

    def _open(self) -> RequestHandler:
        self.staging = Staging(
            self.disk, Logs(self.disk), bytes_max=1 << 20, now_s=lambda: self.now_s, age_s=100.0
        )
        self._inlet = Inlet(self, self._bytes)
        return RequestHandler(self.staging, self, self)

    def columns(self, stream: str) -> tuple[Field, ...]:
        return SCHEMA

    def open(self, stream: str, reader: str, start: str, *, batch: bool) -> Inlet:
        self._inlet.wake()
        return self._inlet

    def get(self, stream: str, reader: str) -> Inlet:
        return self._inlet

    def forgotten(self, stream: str, reader: str) -> bool:
        return False

    def dropped(self, stream: str, *, waiting: bool) -> bool:
        return False

    def finished(self, stream: str) -> bool:
        return False

    def lines(self) -> tuple[()]:
        return ()

    def source(self, stream: str) -> Source:
        return SOURCE

    def wake(self, stream: str) -> None:
        for _ in range(2):  # As a worker does: again, where its disk failed.
            with contextlib.suppress(StateError):
                deliver(self.staging, stream, SCHEMA, self.node.begin())
                return

    # The way there

    def __call__(self, endpoint: object) -> World:
        """``caller(endpoint)``."""
        return self

    def ask(self, request: r.Request, payload: Any = None) -> tuple[r.Answer, Any]:
        for _ in range(5):
            frames = [bytes(each) for each in r.encode(request, payload)]
            self.requests += 1
            self._again(frames)
            cut = self.cut_at is not None and self.requests - 1 == self.cut_at
            if cut and not self.cut_answer:
                continue
            try:
                if self._handler is None:
                    self._handler = self._open()
                answer, found = self._handler.answer(*r.decode_request(frames))
            except StateError:  # It doesn't open; whoever runs it starts it again.
                continue
            except DiedError:
                self.deaths += 1
                self.disk.power_fails()
                self.rows.power_fails()
                self._handler = None
                continue
            if cut:
                continue
            answer, found = r.decode_answer([bytes(each) for each in r.encode(answer, found)])
            if isinstance(answer, r.Failed):
                if answer.again:
                    continue
                kind = DataError if answer.code.startswith("data") else LinkError
                raise kind(answer.text, hint=answer.hint, code=answer.code)
            return answer, found
        raise LinkError("the gateway doesn't answer", code="link.timeout")

    def _again(self, frames: list[bytes]) -> None:
        """What stood in a connection that was given up comes when another has long been made."""
        if self.again_at is None:
            return
        first, others = self.again_at
        if self.requests - 1 == first:
            self._kept = frames
        elif self.requests - 1 == first + others and self._handler is not None:
            self._handler.answer(*r.decode_request(self._kept))

    def settle(self) -> None:
        """All that is published reaches the node, after one more start of the gateway."""
        self.driven = self.disk.steps
        self.disk.die_at = None
        self.rows.last = None
        self._handler = self._open()
        self.wake("q.in")


class Faults:
    """What goes wrong at which step of the driver or a task.

    Args:
        at: the step, counted from 0; None: nothing does.
        kind: ``die`` (the driver is killed), ``task`` (a task fails once it has staged), ``tasks`` (it fails
            for good), ``commit`` (the commit raises once it has published).
    """

    def __init__(self, at: int | None = None, kind: str = "die") -> None:
        self.at, self.kind = at, kind
        self.steps = 0
        self.came = False

    def step(self, *kinds: str) -> bool:
        """A step at which the driver may die, or one of these may happen; whether it does."""
        self.steps += 1
        if self.at is None or self.steps - 1 != self.at or self.kind not in ("die", *kinds):
            return False
        self.came = True
        if self.kind == "die":
            raise DriverDiedError
        return True


class Query:
    """A query from the stream to the source, by the trigger AvailableNow, and its checkpoint."""

    def __init__(self, faults: Faults, *, rows: int | None = 15, name: str = "id-1") -> None:
        self.faults = faults
        self.name = name
        self.offsets: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self.commits: set[int] = set()
        self.batches: list[int] = []
        self.attempts = 0
        self.rows = rows
        self.options: Options = options_from(
            {"endpoint": "tcp://127.0.0.1:1", "stream": "q.out", "bytesPerPartition": "1"}
        )
        self.to: Options = options_from({"endpoint": "tcp://127.0.0.1:1", "stream": "q.in"})

    def run(self) -> None:
        """One life of the driver."""
        reader, writer = StreamReader(self.options), StreamWriter(self.to)
        number = max(self.offsets, default=-1)
        if number >= 0 and number not in self.commits:
            self._batch(reader, writer, number)
        reader.stop_at_latest()
        while True:
            number = max(self.offsets, default=-1) + 1
            self.faults.step()
            start = self.offsets[number - 1][1] if number else reader.first_offset()
            end = reader.next_offset(start, self.rows)
            if end == start:
                return
            self.faults.step()
            self.offsets[number] = (start, end)
            self.faults.step()
            if number:
                reader.committed(start)
            self._batch(reader, writer, number)

    def _batch(self, reader: StreamReader, writer: StreamWriter, number: int) -> None:
        self.batches.append(number)
        start, end = self.offsets[number]
        parts = reader.parts(start, end)
        messages: list[Staged | None] = [None] * len(parts)
        for place, part in enumerate(parts):
            for _attempt in range(2):
                task_reader, task_writer = copy.deepcopy(reader), copy.deepcopy(writer)
                self.attempts += 1
                try:
                    staged = task_writer.task(
                        self._mapped(task_reader.rows(part)), query=self.name, epoch=number, partition=place
                    )
                    self._task_step()
                except TaskFailedError:
                    if self.faults.kind == "task":
                        continue
                    writer.give_up(messages, number)
                    raise QueryFailedError from None
                messages[place] = staged
                break
        self.faults.step()
        # As in Spark, the writer of the commit is made anew.
        writer = StreamWriter(self.to)
        writer.publish(messages, number)
        if self.faults.step("commit"):
            writer.give_up(messages, number)
            raise QueryFailedError
        self.commits.add(number)
        self.faults.step()

    def _task_step(self) -> None:
        if self.faults.step("task", "tasks"):
            raise TaskFailedError

    def _mapped(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """No two attempts of a task cut their rows alike, and one may fail having staged some of them."""
        size = 1 + (self.attempts + 2) % 5
        for batch in batches:
            for start in range(0, batch.num_rows, size):
                if start:
                    self._task_step()
                yield self.doubled(batch.slice(start, size))

    def doubled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What the query does."""
        [made] = normalise({"v": [2 * each for each in batch["v"].to_pylist()]}, SCHEMA)
        return made


def lives(query: Query, most: int = 6) -> int:
    """Start it again until it is through; how many lives it took."""
    for life in range(1, most + 1):
        try:
            query.run()
            return life
        except (DriverDiedError, QueryFailedError, LinkError):
            pass
    raise AssertionError("it never gets through")
