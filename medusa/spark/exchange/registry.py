"""All readers of a gateway, and all sources that it writes to: made when they are asked for, ended when they
are forgotten."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from medusa.engine.state.checkpoint import seal, unseal
from medusa.errors import LinkError, MedusaError
from medusa.ports import Store
from medusa.query.boxes import Schema, Source
from medusa.query.suggest import did_you_mean
from medusa.runtime.store.folder_store import FolderStore, told
from medusa.runtime.store.history_files import FolderSegments, make_folder
from medusa.spark.exchange.background_calls import BackgroundCalls, Later
from medusa.spark.exchange.reader_log import columns_of
from medusa.spark.exchange.requests import ReaderLine, SourceLine
from medusa.spark.exchange.staging import Staging
from medusa.spark.exchange.workers import FOR_GOOD, Inlet, Nodes, Outlet
from medusa.wire import limits

__all__ = ["READERS_MAX", "SOURCES_MAX", "Inlets", "Outlets"]

READERS_MAX = 100
KEEP_S = 3600.0
SAID = "said"
SOURCES_MAX = 100
"""Each has a thread and a connection. Too large: one who asks for names that aren't there takes them all."""


class Outlets:
    """All sources that are written to. Any thread may call."""

    def __init__(self, nodes: Nodes, staging: Staging, notes: Store, report: Callable[[str], None]) -> None:
        self._nodes, self._staging, self._notes, self._report = nodes, staging, notes, report
        self._made: dict[str, Outlet] = {}
        self._lock = threading.Lock()
        self._calls = BackgroundCalls()

    def begin(self) -> None:
        for stream in self._staging.books.streams():
            self._outlet(stream)

    def _outlet(self, stream: str) -> Outlet:
        with self._lock:
            if stream not in self._made:
                self._made[stream] = Outlet(
                    self._nodes,
                    stream,
                    self._staging,
                    self._report,
                    stopped=self._stopped(stream),
                    note_stopped=lambda said: self._notes.write(
                        _folder_of(stream, ""), seal({SAID: said.encode()}, {})
                    ),
                )
                self._made[stream].start()
            return self._made[stream]

    def _stopped(self, stream: str) -> str:
        name = _folder_of(stream, "")
        if name not in self._notes.names():
            return ""
        _, files = unseal(self._notes.read(name), self._notes.where(name))
        return bytes(files[SAID]).decode()

    def source(self, stream: str) -> Source:
        """Raises: Later; LinkError: there is no such source, or there are too many."""
        if stream not in self._made and len(self._made) >= SOURCES_MAX:
            raise LinkError(
                f"this gateway writes to {SOURCES_MAX} sources",
                hint="forget those that nobody needs: medusa gateway forget --source",
                code="E_LIMIT",
            )
        outlet = self._outlet(stream)
        try:
            return outlet.source()
        except MedusaError:
            if outlet.refused is not None and not self._staging.books.end(stream):
                with self._lock:  # A wrong name, most likely: nothing stays of it.
                    outlet.closing.set()
                    self._made.pop(stream, None)
            raise

    def wake(self, stream: str) -> None:
        self._outlet(stream).wake()

    def finished(self, stream: str) -> bool:
        """End a source once all that was published is at its node: no more rows come from here.

        Returns:
            whether that is new.

        Raises:
            Later: it is being done; LinkError, DataError: as ``source``.
        """
        if stream not in self._made:
            self.source(stream)
        return self._outlet(stream).finish()

    def forget(self, stream: str, *, waiting: bool = False) -> bool:
        """Forget a source: its rows are numbered from 0 again, here and at its node.

        Args:
            waiting: give up the rows that wait for it.

        Returns:
            whether anything was known of it.

        Raises:
            LinkError: rows wait for it (``E_WAITING``), or its node doesn't answer: nothing was forgotten.
            StateError: it couldn't be noted: ask again.
        """
        with self._staging.lock:
            rows = self._staging.books.waiting(stream)
            known, end = stream in self._staging.books.streams(), self._staging.books.end(stream)
        if rows and not waiting:
            raise LinkError(
                f"{rows:,} rows wait for {stream!r}, and nobody else has them",
                hint="--drop-waiting gives them up (in a program: waiting=True)",
                code="E_WAITING",
            )
        with self._lock:
            outlet = self._made.pop(stream, None)
        if outlet is None and not known:
            return False
        try:
            if outlet is not None:
                outlet.close()
            self._nodes.drop(stream)
            with self._staging.lock:
                self._staging.drop(stream, end)
            self._notes.delete(_folder_of(stream, ""))
        except MedusaError as error:
            if known:
                self._outlet(stream)
            raise type(error)(
                f"{stream!r} is not forgotten: {error.message}", hint=error.hint, code=error.code
            ) from None
        return True

    def dropped(self, stream: str, *, waiting: bool) -> bool:
        """``forget``, for one who may not wait. Raises: Later; and as that."""
        what = f"forgetting source {stream!r}"
        done: bool = self._calls.result((stream, waiting), what, lambda: self.forget(stream, waiting=waiting))
        return done

    def lines(self) -> tuple[SourceLine, ...]:
        """All there are, and what waits for them."""
        with self._staging.lock:
            return tuple(
                SourceLine(
                    stream=name,
                    published=self._staging.books.end(name),
                    waiting=self._staging.books.waiting(name),
                    why=each.why[: limits.TEXT_CHARS_MAX],
                )
                for name, each in sorted(self._made.items())
            )

    def status(self) -> dict[str, dict[str, Any]]:
        """The same by name, as plain values."""
        return {
            each.stream: {"published": each.published, "waiting": each.waiting, "why": each.why}
            for each in self.lines()
        }

    def workers(self) -> list[Outlet]:
        """All there are."""
        return list(self._made.values())

    def close(self) -> None:
        """End all; the nodes are closed."""
        for each in list(self._made.values()):
            each.close()
        self._calls.close()


class Inlets:
    """All that is being read. Any thread may call."""

    def __init__(
        self,
        nodes: Nodes,
        data: str,
        spool_bytes: int,
        report: Callable[[str], None],
        keep_s: float = KEEP_S,
    ) -> None:
        self._nodes, self._data, self._bytes, self._report = nodes, data, spool_bytes, report
        self._keep_s = keep_s
        self._expiring: set[tuple[str, str]] = set()
        self._made: dict[tuple[str, str], Inlet] = {}
        self._leaving: set[tuple[str, str]] = set()
        """Gone here, and not at the node yet: one of that name would be forgotten there too."""
        self._ports: dict[str, FolderSegments] = {}
        self._store = FolderStore(f"{data}/readers")
        self._lock = threading.Lock()
        self._calls = BackgroundCalls()
        with told(f"{data}/rows", "can't be opened"):
            make_folder(f"{data}/rows")

    def begin(self) -> None:
        for name in self._store.names():
            _, files = unseal(self._store.read(name), self._store.where(name))
            if "reader" in files:
                said = json.loads(bytes(files["reader"]))
                batch = said.get("batch", False) and _note(name, "s") not in self._store.names()
                self._make(said["stream"], said["reader"], said["start"], said.get("life", ""), batch)

    def _make(self, stream: str, reader: str, start: str, life: str, batch: bool) -> Inlet:
        name = _folder_of(stream, reader)
        begun = _note(name, "b")
        made = Inlet(
            self._nodes,
            stream,
            reader,
            start,
            lambda: self._port(name),
            bytes_max=self._bytes,
            report=self._report,
            life=life,
            batch=batch,
            begun=begun in self._store.names(),
            note_begun=lambda: self._store.write(begun, seal({}, {})),
        )
        self._made[stream, reader] = made
        made.start()
        return made

    def _port(self, name: str) -> FolderSegments:
        if name in self._ports:
            self._ports[name].close()
        path = f"{self._data}/rows/{name}"
        made = self._ports[name] = FolderSegments(path)
        if os.path.isdir(path):
            made.sweep()  # Else rows of a segment that was being begun would be in its way.
        return made

    def columns(self, stream: str) -> Schema:
        """Of a stream, whether or not anybody reads it.

        Raises:
            Later: its node is being asked, or doesn't answer.
            LinkError: it refuses.
        """
        for (name, _), each in list(self._made.items()):
            if name == stream and each.known:
                with each.lock:
                    return columns_of(each.spool().schema)
        try:
            asked = self._calls.result(stream, f"asking for {stream!r}", lambda: self._nodes.columns(stream))
        except LinkError as error:
            if error.code in FOR_GOOD:
                raise
            raise Later(f"{stream!r} can't be read yet: {error.message}") from None
        found: Schema = asked
        return found

    def expire(self) -> None:
        """Forget readers that only batch reads have used, and nobody has asked for for long."""
        end_s = time.monotonic() - self._keep_s
        for key, each in list(self._made.items()):
            if each.batch and each.asked_s < end_s:
                self._expiring.add(key)
                each.stop()
        for key in list(self._expiring):
            try:
                self._calls.result(
                    ("expire", *key), f"forgetting {key}", functools.partial(self.forget, *key)
                )
            except Later:
                continue
            except MedusaError as error:
                self._report(f"reader {key[1]!r} of {key[0]!r}: {error}")
            self._expiring.discard(key)

    def open(self, stream: str, reader: str, start: str, *, batch: bool = False) -> Inlet:
        """Raises: Later: one of that name is being forgotten; LinkError: there are too many, or the node
        refuses."""
        with self._lock:
            found = self._made.get((stream, reader))
            if (stream, reader) in self._leaving or (found is not None and found.closing.is_set()):
                raise Later(f"{stream!r} of {reader!r} is being forgotten")
            if found is not None and (found.refused is None or found.known):
                found.asked_s = time.monotonic()
                if found.batch and not batch:
                    self._store.write(_note(_folder_of(stream, reader), "s"), seal({}, {}))
                    found.batch = False
                return found
            if found is not None:
                # A wrong name, most likely: nothing stays of it.
                self._drop(found)
                assert found.refused is not None
                raise found.refused
            if len(self._made) >= READERS_MAX:
                raise LinkError(
                    f"this gateway has {READERS_MAX} readers",
                    hint="forget those that nobody needs: medusa gateway status, medusa gateway forget",
                    code="E_LIMIT",
                )
            life = os.urandom(8).hex()
            said = {"stream": stream, "reader": reader, "start": start, "life": life, "batch": batch}
            self._store.write(_folder_of(stream, reader), seal({"reader": json.dumps(said).encode()}, {}))
            return self._make(stream, reader, start, life, batch)

    def _drop(self, inlet: Inlet) -> None:
        inlet.closing.set()  # It ends by itself: nobody waits for it here.
        del self._made[inlet.stream, inlet.reader]
        self._delete(_folder_of(inlet.stream, inlet.reader))

    def _delete(self, name: str) -> None:
        for each in (_note(name, "b"), _note(name, "s"), name):
            self._store.delete(each)

    def get(self, stream: str, reader: str) -> Inlet:
        found = self._made.get((stream, reader))
        if found is None:
            raise LinkError(
                f"nobody reads {stream!r} as {reader!r} here",
                hint=did_you_mean(stream, {name for name, _ in self._made}),
                code="E_READER",
            )
        found.asked_s = time.monotonic()
        return found

    def forget(self, stream: str, reader: str) -> bool:
        """End a reader for good, here and at its node.

        Returns:
            whether there was one.

        Raises:
            LinkError: the node doesn't answer; its rows here are gone all the same.
        """
        with self._lock:
            found = self._made.get((stream, reader))
        if found is None:
            return False
        found.close()
        with self._lock:
            if self._made.pop((stream, reader), None) is None:
                return False
            self._leaving.add((stream, reader))
        try:
            self._remove(stream, reader)
        finally:
            self._leaving.discard((stream, reader))
        return True

    def _remove(self, stream: str, reader: str) -> None:
        with self._lock:
            name = _folder_of(stream, reader)
            port = self._port(name)
            for first in reversed(port.names()):
                port.remove(first)
            self._delete(name)
        try:
            self._nodes.forget(stream, reader)
        except MedusaError as error:
            raise LinkError(
                f"the node still keeps {stream!r} for {reader!r}: {error.message}",
                hint="fed.unsubscribe(stream, durable=reader) ends it there",
                code=error.code,
            ) from None

    def forgotten(self, stream: str, reader: str) -> bool:
        """``forget``, for one who may not wait. Raises: Later; and as that."""
        what = f"forgetting {stream!r} of {reader!r}"
        done: bool = self._calls.result((stream, reader), what, lambda: self.forget(stream, reader))
        return done

    def lines(self) -> tuple[ReaderLine, ...]:
        """All there are, and how far each is."""
        return tuple(_line(each) for _, each in sorted(self._made.items()))

    def status(self) -> list[dict[str, Any]]:
        """The same as plain values."""
        found = []
        for each in self.lines():
            line: dict[str, Any] = {"stream": each.stream, "reader": each.reader, "why": each.why}
            if each.known:
                line |= {"earliest": each.earliest, "latest": each.latest, "bytes": each.nbytes}
                line |= {"full": each.full, "missing_rows": each.missing, "ended": each.ended}
            found.append(line)
        return found

    def workers(self) -> list[Inlet]:
        """All there are."""
        return list(self._made.values())

    def close(self) -> None:
        """End all; the nodes are closed."""
        for each in list(self._made.values()):
            each.close()
        self._calls.close()
        for port in self._ports.values():
            port.close()
        self._store.close()


def _line(inlet: Inlet) -> ReaderLine:
    with inlet.lock:
        plain = ReaderLine(
            stream=inlet.stream,
            reader=inlet.reader,
            missing=inlet.missing_rows,
            gone=inlet.gone,
            ended=inlet.ended,
            silent_s=round(time.monotonic() - inlet.asked_s),
            why=inlet.why[: limits.TEXT_CHARS_MAX],
        )
        try:
            spool = inlet.spool()
        except MedusaError:
            return plain
        return msgspec.structs.replace(
            plain,
            known=True,
            earliest=spool.earliest,
            latest=spool.durable_seq,
            read=spool.read_seq,
            nbytes=spool.nbytes,
            full=spool.full,
        )


def _folder_of(stream: str, reader: str) -> str:
    """A name for files: readable, and no other stream and reader has it."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", f"{reader}-{stream}").strip("-")[:60]
    return f"r{hashlib.sha256(json.dumps([stream, reader]).encode()).hexdigest()[:16]}-{plain}"


def _note(folder: str, kind: str) -> str:
    """A note on a reader: ``b``: the node has known it; ``s``: a stream has used it."""
    return f"{kind}{folder[1:]}"
