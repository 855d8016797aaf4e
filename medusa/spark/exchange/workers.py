"""The threads between a gateway's disk and its nodes: one for each reader, one for each source written to.

A thread does its work until something fails, says why, waits a little, and begins anew from what is on disk.
What it talks to is behind ``Nodes``: the node, or in tests one that fails when it is told to.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from medusa.elements import Train
from medusa.errors import DataError, LinkError, MedusaError
from medusa.ports import Segments
from medusa.query.boxes import Schema, Source
from medusa.spark.exchange.background_calls import Later
from medusa.spark.exchange.delivery import Port, deliver
from medusa.spark.exchange.reader_log import RECORD_BYTES, ReaderLog, schema_of
from medusa.spark.exchange.staging import Staging

__all__ = ["Inlet", "Nodes", "Outlet", "NamedSubscription", "RetryingWorker"]

SYNC_EVERY_S = 0.05
"""Rows wait so long for others to share their sync. Too small: the disk syncs all the time; too large: Spark
sees rows later."""

FOR_GOOD = ("E_STREAM", "E_ROLE", "E_READER", "E_LIMIT", "E_SEQ", "E_ANEW", "link.argument")
"""What a node says that asking again at once won't change."""

AGAIN_S = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Rests between attempts."""

LOOK_EVERY_S = 0.2
FINISH = "10s"
HOLDS_S = 30.0
"""A node that takes rows and holds no more of them durably for so long is called anew."""

COLLECT_EVERY_S = 60.0


class NamedSubscription(Protocol):
    """A named subscription: ``medusa.runtime.client.subscription.Subscription``."""

    schema: pa.Schema
    timed: bool
    boundary_us: int

    @property
    def next_row(self) -> int: ...

    def next(self, timeout: str) -> Train | None: ...

    def ack(self, seq: int) -> None: ...


class Nodes(Protocol):
    """What a gateway does at its nodes. Everything raises ``LinkError``."""

    def reading(
        self, stream: str, reader: str, start: str | None
    ) -> AbstractContextManager[NamedSubscription]:
        """Read a stream under a name, from ``start`` on; None: only go on, where the name is known
        (else ``E_NAME``)."""

    def columns(self, stream: str) -> Schema:
        """Of a stream; nothing is read."""

    def writing(self, stream: str) -> AbstractContextManager[tuple[Source, Port]]:
        """The source that rows are written to, and what takes them."""

    def forget(self, stream: str, reader: str) -> None:
        """End what is kept for a name."""

    def drop(self, stream: str) -> None:
        """Forget how many rows of this gateway a source has; one that isn't there is no error."""

    def close(self) -> None:
        """Whoever waits for a node hears at once that it is over; nothing is done there any more."""


class RetryingWorker(ABC):
    """A thread that tries again until it is closed."""

    def __init__(self, name: str, report: Callable[[str], None]) -> None:
        self._report = report
        self._told = ""
        self.why = ""
        self.refused: MedusaError | None = None
        """What the node said, where that is ``FOR_GOOD``."""
        self.closing = threading.Event()
        self._bell = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End soon."""
        self.closing.set()
        self._bell.set()

    def close(self, wait_s: float | None = None) -> None:
        """End; returns when it has, or after so long."""
        self.stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(wait_s)

    def wake(self) -> None:
        """Look again now."""
        self._bell.set()

    def rest(self, seconds: float) -> None:
        """Until somebody wakes us, or so long."""
        self._bell.wait(seconds)
        self._bell.clear()

    def _run(self) -> None:
        failures = 0
        while not self.closing.is_set():
            began_s = time.monotonic()
            try:
                self.work()
                return
            except MedusaError as error:
                self.why = str(error)[:1500]
                self.refused = error if error.code in FOR_GOOD else None
            except Exception as error:
                self.why = f"{type(error).__name__}: {error}"[:1500]
            if self.why != self._told and not self.closing.is_set():
                self._told = self.why
                self._report(f"{self._thread.name}: {self.why}")
            failures = 0 if time.monotonic() - began_s > 5 else failures + 1
            self.closing.wait(AGAIN_S[min(failures, len(AGAIN_S) - 1)])

    @abstractmethod
    def work(self) -> None:
        """Until ``closing`` is set; whatever it raises, it is begun again."""


class Inlet(RetryingWorker):
    """Reads a stream for one reader, to disk.

    Args:
        port: makes what the rows lie in.
        start: where it begins, as ``Open`` says it.
        life: what tells this reader from others of its name, before and after; empty: nothing does.
        batch: only batch reads have used it.
        begun: the node has known the name: it never begins again, since the stream would be another one.
        note_begun: keeps that; raises ``StateError``.
        sync_every_s: see ``SYNC_EVERY_S``.
    """

    def __init__(
        self,
        nodes: Nodes,
        stream: str,
        reader: str,
        start: str,
        port: Callable[[], Segments],
        *,
        bytes_max: int,
        report: Callable[[str], None],
        life: str = "",
        batch: bool = False,
        begun: bool = False,
        note_begun: Callable[[], None] = lambda: None,
        sync_every_s: float = SYNC_EVERY_S,
    ) -> None:
        super().__init__(f"reader {reader!r} of {stream!r}", report)
        self.stream, self.reader, self.begins, self.life = stream, reader, start, life
        self.batch = batch
        self._begun, self._note_begun = begun, note_begun
        self.anew = not begun
        self.gone = 0
        """Rows before the first that a reader from ``oldest`` on got, as far as it began since the start."""
        self._nodes, self._port, self._bytes_max = nodes, port, bytes_max
        self._sync_every_s = sync_every_s
        self.lock = threading.RLock()
        self._spool: ReaderLog | None = None
        self.ended = self.timed = False
        self.over: LinkError | None = None
        """Why nothing comes behind what is here, ever; None while something may."""
        self.asked_s = time.monotonic()
        """When Spark last wanted something of it."""

    def touch(self) -> None:
        """Spark has asked for it."""
        self.asked_s = time.monotonic()

    def keep(self) -> None:
        """A stream reads it: it doesn't expire as what only batch reads have used does."""
        self.batch = False

    @property
    def known(self) -> bool:
        """The node has told the columns."""
        return self._spool is not None

    @property
    def missing_rows(self) -> int:
        """That the node no longer had, between rows that are here or came since it was started."""
        return 0 if self._spool is None else self._spool.missing_rows

    def spool(self) -> ReaderLog:
        """What is on disk; for one who holds the lock.

        Raises:
            Later: the node hasn't told the columns yet.
            LinkError: the node refuses it.
        """
        if self._spool is None:
            if self.refused is not None:
                raise self.refused
            raise Later(f"{self.stream!r} can't be read yet: {self.why or 'the node is being asked'}")
        return self._spool

    def work(self) -> None:
        if self.over is not None:
            self.closing.wait()
            return
        with self.lock:
            if self._spool is None and (schema := schema_of(port := self._port())) is not None:
                # What is here can be read before the node answers, or without it.
                self._spool = ReaderLog(port, schema, bytes_max=self._bytes_max)
        try:
            self._read(None if self._begun or self._spool is not None else self.begins)
        except LinkError as error:
            if error.code != "E_NAME":
                raise
            self.over = LinkError(
                f"stream {self.stream!r} was removed since {self.reader!r} began to read it: what it is now "
                "has other rows under the same numbers",
                hint=f"medusa gateway forget {self.stream} --reader {self.reader}, and begin with a "
                "checkpoint of its own; or another option `reader`",
                code="E_ANEW",
            )
            raise self.over from None

    def _read(self, start: str | None) -> None:
        with self._nodes.reading(self.stream, self.reader, start) as reading:
            if not self._begun:
                self._note_begun()
                self._begun = True
            with self.lock:
                # From disk: what an attempt before hadn't synced comes again.
                before = self._spool
                spool = self._spool = ReaderLog(self._port(), reading.schema, bytes_max=self._bytes_max)
                spool.begin(reading.next_row)
                if before is not None:
                    spool.was_read(before.read_seq)
                if start == "oldest" and reading.next_row:
                    self._begins_behind(reading.next_row)
            self.why, self.refused, self.ended, self.timed = "", None, False, reading.timed
            self._take(reading, spool)

    def _begins_behind(self, row: int) -> None:
        """Rows are kept for those who read already: who comes later doesn't get what all of them have had."""
        self.gone = row
        self._report(
            f"{self._thread.name} begins with row {row:,}: the {row:,} before it are gone: those who read "
            "already have had them, or the node keeps no more. Start every reader before the first one "
            "reads on"
        )

    def _take(self, reading: NamedSubscription, spool: ReaderLog) -> None:
        due_s: float | None = None
        while not self.closing.is_set():
            with self.lock:
                full = spool.full
            if full:
                self._sync(reading, spool)
                due_s = None
                self.why = "it is full of rows that nobody has read"
                self.rest(LOOK_EVERY_S)
                continue
            self.why = ""
            left_s = LOOK_EVERY_S if due_s is None else max(due_s - time.monotonic(), 0.001)
            train, ended = self._next(reading, left_s)
            if train is not None:
                self._append(reading, spool, train)
            with self.lock:
                spool.promise(reading.boundary_us)
            if train is not None:
                due_s = due_s or time.monotonic() + self._sync_every_s
            if due_s is not None and (
                ended or time.monotonic() >= due_s or spool.waiting_bytes >= RECORD_BYTES
            ):
                self._sync(reading, spool)
                due_s = None
            if ended:
                self.ended = True
                self.rest(LOOK_EVERY_S)
        self._sync(reading, spool)

    def _next(self, reading: NamedSubscription, wait_s: float) -> tuple[Train | None, bool]:
        """A train, if one comes, and whether the stream is over."""
        try:
            train = reading.next(f"{max(round(wait_s * 1000), 1)}ms")
        except LinkError as error:
            if error.code != "link.timeout":
                raise
            return None, False
        return train, train is None

    def _append(self, reading: NamedSubscription, spool: ReaderLog, train: Train) -> None:
        with self.lock:
            if train.first_seq + len(train) <= spool.next_seq:
                return
            skip = spool.next_seq - train.first_seq
            if skip > 0:
                train = train.part(skip, len(train) - skip)
            elif skip < 0:
                self._report(f"{self._thread.name}: the node no longer has {-skip:,} rows")
            spool.append(train, reading.boundary_us)

    def _sync(self, reading: NamedSubscription, spool: ReaderLog) -> None:
        with self.lock:
            spool.sync()
            durable = spool.durable_seq
        if durable <= reading.next_row:
            reading.ack(durable)


class Outlet(RetryingWorker):
    """Sends what is published into a source.

    A node counts rows that it refuses like those that it takes: it can't be sent them again. So then
    nothing more is sent, and what was published stays here, until somebody decides.

    Args:
        stopped: what the node said when it refused rows, in an earlier life; empty: it never did.
        note_stopped: keeps that; raises ``StateError``.
    """

    def __init__(
        self,
        nodes: Nodes,
        stream: str,
        staging: Staging,
        report: Callable[[str], None],
        *,
        stopped: str = "",
        note_stopped: Callable[[str], None] = lambda said: None,
    ) -> None:
        super().__init__(f"source {stream!r}", report)
        self.stream = stream
        self._nodes, self._staging = nodes, staging
        self._stopped, self._note_stopped, self._noted = stopped, note_stopped, bool(stopped)
        self._source: Source | None = None
        self._finishing = False
        self.finished = False
        """The node knows durably that no more rows come from here."""

    def finish(self) -> bool:
        """End the source once all that was published is at its node.

        Returns:
            whether that is new; where it is done already, it isn't.

        Raises:
            Later: it is being done: ask again.
            LinkError, DataError: as ``source``.
        """
        if self.finished:
            return False
        if not self._finishing:
            self.source()
            self._finishing = True
            self.wake()
        raise Later(f"{self.stream!r} is being finished: {self.why or 'rows are on their way'}")

    def source(self) -> Source:
        """As the node describes it.

        Raises:
            Later: it hasn't yet.
            LinkError: the node refuses it.
            DataError: it has refused rows: no more are taken for it.
        """
        if self._stopped:
            raise self._refusal()
        if self.finished:
            raise LinkError(
                f"{self.stream!r} was finished: it takes no more rows from here",
                hint="once it is deployed anew, `medusa gateway forget --source` begins anew",
                code="E_FINISHED",
            )
        found = self._source
        if found is None:
            if self.refused is not None:
                raise self.refused
            raise Later(f"{self.stream!r} can't be written yet: {self.why or 'the node is being asked'}")
        return found

    def _refusal(self) -> DataError:
        return DataError(
            f"{self.stream!r} has refused rows that were published: {self._stopped}",
            hint="they and all behind them wait here. `medusa gateway forget --source --drop-waiting` gives "
            "them up, and begins anew",
            code="data.refused",
        )

    def work(self) -> None:
        if not self._stopped:
            try:
                self._deliver()
                return
            except LinkError as error:
                if error.code != "E_FINISHED":
                    raise
                self.finished = True
            except DataError as error:
                if error.code != "E_ROWS":
                    raise
                self._stopped = error.message
        if self.finished:
            self._rest_finished()
            return
        if not self._noted:
            self._note_stopped(self._stopped)
            self._noted = True
        if self.why != (why := str(self._refusal())[:1500]):
            self.why = why
            self._report(f"source {self.stream!r}: {why}")
        self.closing.wait()

    def _rest_finished(self) -> None:
        while not self.closing.is_set():
            _, late = self._staging.counts(self.stream)
            self.why = f"it was finished before {late:,} rows were published" if late else ""
            self.rest(LOOK_EVERY_S * 5)

    def _deliver(self) -> None:
        with self._nodes.writing(self.stream) as (source, port):
            self._source = source
            self.why, self.refused = "", None
            collected_s = moved_s = time.monotonic()
            held = port.durable_row
            while not self.closing.is_set():
                deliver(self._staging, self.stream, source.schema, port)
                if port.durable_row != held or port.durable_row == port.next_row:
                    held, moved_s = port.durable_row, time.monotonic()
                elif time.monotonic() - moved_s > HOLDS_S:
                    port.flush("1s")  # It says what is wrong.
                if self._finishing and held == port.next_row and not self._staging.counts(self.stream)[1]:
                    port.finish()
                    port.flush(FINISH)
                    self.finished = True
                    raise LinkError("it was finished", code="E_FINISHED")
                if held == port.next_row:
                    self.rest(LOOK_EVERY_S * 5)
                if time.monotonic() - collected_s > COLLECT_EVERY_S:
                    collected_s = time.monotonic()
                    self._staging.collect()
