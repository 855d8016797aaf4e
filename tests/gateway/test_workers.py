"""What reads a stream to disk, at a node and on a disk that fail at every step: each row is there once."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from medusa.elements import START_US, Train
from medusa.errors import LinkError, StateError
from medusa.query.boxes import Field, Source
from medusa.spark.exchange import workers
from medusa.spark.exchange.reader_log import ReaderLog
from medusa.spark.exchange.staging import Staging
from medusa.spark.exchange.workers import Inlet, Outlet
from tests.engine.segments import Disk
from tests.gateway.dying_disk import DyingDisk, Logs
from tests.gateway.test_staging import FIELDS, Port, stage, token_of
from tests.system.nodes import until

SCHEMA = pa.schema([("v", pa.int64())])
ROWS = 20


def spool_of(disk: Disk) -> ReaderLog:
    """After the power failed."""
    left = copy.deepcopy(disk)
    for key, data in left.files.items():
        del data[left.synced[key] :]
    left.last = left.fail_in = None
    return ReaderLog(left, SCHEMA, bytes_max=1 << 20)


class Node:
    """A named subscription: it begins with the train that has the first row not acknowledged."""

    schema = SCHEMA
    timed = False
    boundary_us = int(START_US)

    def __init__(self, disk: Disk, fails_at: int | None) -> None:
        self.disk, self.fails_at = disk, fails_at
        self.acked = self.next_row = self.asked = 0
        self.train = 2
        self.quiet = threading.Event()

    @contextlib.contextmanager
    def reading(self, stream: str, reader: str, start: str | None) -> Iterator[Node]:
        self.train += 1  # Trains are cut otherwise, so that rows come again that are there.
        self.next_row = self.acked // self.train * self.train
        yield self

    def next(self, timeout: str) -> Train:
        self.asked += 1
        if self.asked - 1 == self.fails_at:
            raise LinkError("the node went away", code="link.down")
        if self.next_row >= ROWS:
            self.quiet.wait(0.005)
            raise LinkError("nothing comes", code="link.timeout")
        first = self.next_row
        self.next_row = min(first + self.train, ROWS)
        values = pa.array(range(first, self.next_row), pa.int64())
        return Train(batch=pa.record_batch({"v": values}), first_seq=first)

    def ack(self, seq: int) -> None:
        assert spool_of(self.disk).durable_seq >= seq, "what is acknowledged is on disk"
        self.acked = max(self.acked, seq)


class Failing(Disk):
    """It fails once."""

    def opened(self) -> Failing:
        if self.fail_in is not None and self.fail_in < 0:
            self.fail_in = None
        for first, file in list(self.files):
            if file == "rows" and first not in self.names():  # As the gateway sweeps them.
                del self.files[first, file], self.synced[first, file]
        self.last = None
        return self


STEPS = [("node", step) for step in range(7)] + [("disk", step) for step in range(23)]


@pytest.mark.parametrize(("what", "step"), STEPS)
def test_what_is_acknowledged_is_on_disk_whatever_fails(monkeypatch, what, step):
    monkeypatch.setattr(workers, "AGAIN_S", (0.0,))
    disk, told = Failing(), []
    disk.fail_in = step if what == "disk" else None
    node = Node(disk, step if what == "node" else None)
    given = {"bytes_max": 1 << 20, "report": told.append, "sync_every_s": 0.0}
    inlet = Inlet(node, "q.out", "spark", "oldest", disk.opened, **given)
    inlet.start()
    until(lambda: node.acked == ROWS or any("Assertion" in each for each in told), what="all rows")
    inlet.close()
    assert not any("Assertion" in each for each in told), told
    assert len(told) == 1, "it failed once"
    spool, rows = spool_of(disk), []
    while len(rows) < ROWS:
        piece = spool.read(len(rows), ROWS)
        rows += piece.train.batch["v"].to_pylist()
    assert rows == list(range(ROWS))
    assert inlet.missing_rows == 0


class Stuck(Port):
    """A node that takes rows, and holds none of them durably."""

    def __init__(self) -> None:
        super().__init__([])
        self.opened = 0

    @contextlib.contextmanager
    def writing(self, stream: str) -> Iterator[tuple[Source, Port]]:
        self.opened += 1
        self.sent = list(self.node)
        yield Source(id="in", schema=(Field("v", "int64"),), time=None), self

    def flush(self, timeout: str) -> None:
        raise LinkError("its disk is full", code="link.timeout")


def test_a_node_that_holds_nothing_is_called_anew_and_what_is_wrong_is_told(monkeypatch):
    monkeypatch.setattr(workers, "HOLDS_S", 0.0)
    monkeypatch.setattr(workers, "AGAIN_S", (0.0,))
    disk, node, told = DyingDisk(), Stuck(), []
    staging = Staging(disk, Logs(disk), bytes_max=1 << 20, now_s=lambda: 0.0, age_s=100.0)
    whole = stage(staging, token_of("w", 0, 0, FIELDS[0]), [1, 2])
    staging.publish("q.in", "w", "o", 0, (whole,))
    outlet = Outlet(node, "q.in", staging, told.append)
    outlet.start()
    until(lambda: node.opened > 2, what="called anew")
    outlet.close()
    assert "its disk is full" in told[0]
    assert node.sent == [1, 2], "each time they are sent again"


@pytest.mark.parametrize("step", range(5))
def test_what_could_not_be_synced_is_not_shown(step):
    disk = Disk()
    spool = ReaderLog(disk, SCHEMA, bytes_max=1 << 20)
    disk.fail_in = step
    spool.append(Train(batch=pa.record_batch({"v": pa.array([1], pa.int64())}), first_seq=0), int(START_US))
    for why in ("couldn't be", "writing failed before"):
        with pytest.raises(StateError, match=why):
            spool.sync()
        assert spool.durable_seq == 0
