"""The gateway between Spark and nodes: what a stream gives waits here until Spark has committed it, and what
Spark writes becomes rows of a stream here, an epoch at a time.

    DATA/staged/       rows that Spark writes, and the journal that says which of them are published
    DATA/readers/      who reads which stream
    DATA/rows/NAME/    what a reader's stream gave
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from medusa.engine.checkpoint import seal, unseal
from medusa.errors import ConfigError, LinkError, MedusaError, RemoteProtocolError
from medusa.mind.config_file import NAME, NAME_RULE
from medusa.query.boxes import Source
from medusa.query.suggest import did_you_mean
from medusa.runtime.client_keys import KeyGiven
from medusa.runtime.files import FolderStore, path_of, told
from medusa.runtime.history import FolderSegments, make_folder
from medusa.runtime.journal import FolderJournal
from medusa.runtime.keys import CurveKey, read_curve_key, read_public
from medusa.runtime.link_events import Arrival, Refused
from medusa.runtime.zeromq import Transport
from medusa.spark.exchange.desk import Desk
from medusa.spark.exchange.nodes import FederationNodes
from medusa.spark.exchange.requests import decode_request, encode
from medusa.spark.exchange.staging import Staging
from medusa.spark.exchange.workers import Inlet, Nodes, Outlet
from medusa.units import Duration, byte_count, duration_us
from medusa.wire.statement import is_curve_key

__all__ = ["Gateway", "gateway"]

LOGGER = logging.getLogger("medusa.gateway")
READERS_MAX = 100
WAIT_MS = 200


def gateway(
    node: str,
    data: str | os.PathLike[str],
    *,
    listen: str = "tcp://127.0.0.1:*",
    name: str = "spark",
    key: KeyGiven | None = None,
    server_key: KeyGiven | None = None,
    gateway_key: str | os.PathLike[str] | None = None,
    clients: Sequence[KeyGiven] = (),
    spool: str | int = "1 GiB",
    stage: str | int = "1 GiB",
    keep_staged: Duration = "1d",
    report: Callable[[str], None] | None = None,
) -> Gateway:
    """A gateway between Spark and a node, in threads of this program, until it is closed.

    Spark's data source ``medusa`` asks it: ``.option("endpoint", gateway.address)``. One that was killed
    goes on from its folder when it is started again.

    Args:
        node: the address of a node, as for ``md.connect``; streams and sources may be at others.
        data: a folder for what is under way; it is made where it doesn't exist (its parent must).
        listen: where Spark calls: ``tcp://127.0.0.1:*`` takes a free port.
        name: under which the nodes number what this gateway publishes: no other gateway has it.
        key, server_key: as for ``md.connect``, where the node has keys.
        gateway_key: a secret key of the kind ``node``: then all of Spark's connections are encrypted, only
            ``clients`` are let in, and ``listen`` may be any address.
        clients: public keys, or their files, of those who may ask.
        spool: how much may wait of each stream that nobody reads; then the node keeps it.
        stage: how much may be written that no node has taken yet.
        keep_staged: what was written so long ago and never published is forgotten.
        report: called with a line where something goes wrong; None: the logger ``medusa.gateway`` is told.

    Raises:
        ConfigError: an argument or a key can't be used.
        StateError: the folder can't be used, or another gateway has it.
        LinkError: it can't listen there. That the node is away is no error: it is called until it is there.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(f"gateway: name {name!r:.80}", hint=NAME_RULE, code="config.value")
    if (gateway_key is None) is bool(clients):
        raise ConfigError(
            "gateway: gateway_key= and clients= go together",
            hint="medusa keygen node gateway.key; clients are the .pub files of those who run Spark",
            code="config.keys",
        )
    return Gateway(
        FederationNodes(node, name, key, server_key),
        name,
        path_of(data, "data"),
        listen=listen,
        key=None if gateway_key is None else read_curve_key(gateway_key, "node"),
        trusted=[_public(each) for each in clients],
        spool_bytes=byte_count(spool, what="spool", error=ConfigError),
        stage_bytes=byte_count(stage, what="stage", error=ConfigError),
        age_s=duration_us(keep_staged, what="keep_staged", minimum_us=1, error=ConfigError) / 1e6,
        report=report or LOGGER.warning,
    )


def _public(given: KeyGiven) -> str:
    if isinstance(given, str) and is_curve_key(given):
        return given
    return read_public(given, "client", "node")


class Gateway:
    """A gateway that runs; ``md.spark.gateway`` makes it. Any thread may call.

    Attributes:
        name: under which the nodes know it.
        address: where it listens: the option ``endpoint`` of Spark's data source.
    """

    def __init__(
        self,
        nodes: Nodes,
        name: str,
        data: str,
        *,
        listen: str,
        key: CurveKey | None = None,
        trusted: Sequence[str] = (),
        spool_bytes: int = 1 << 30,
        stage_bytes: int = 1 << 30,
        age_s: float = 86_400.0,
        report: Callable[[str], None] = LOGGER.warning,
    ) -> None:
        self.name = name
        self._closing = threading.Event()
        self._report = report
        self._held = ExitStack()
        try:
            with told(data, "can't be opened"):
                make_folder(data)
            store = FolderStore(f"{data}/staged")
            self._held.callback(store.close)
            journal = FolderJournal(f"{data}/staged")
            self._held.callback(journal.close)
            self._staging = Staging(store, journal, bytes_max=stage_bytes, now_s=time.monotonic, age_s=age_s)
            self._outlets = _Outlets(nodes, self._staging, report)
            self._held.callback(self._outlets.close)
            self._inlets = _Inlets(nodes, data, spool_bytes, report)
            self._held.callback(self._inlets.close)
            self._desk = Desk(self._staging, self._inlets, self._outlets)
            if key is None:
                self._transport = Transport(listen=listen)
            else:
                self._transport = Transport(listen=listen, key=key, trusted=trusted)
            self.address = self._transport.endpoint
        except BaseException:
            self._held.close()
            raise
        self._inlets.begin()
        self._outlets.begin()
        self._thread = threading.Thread(target=self._run, name="medusa-gateway", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                for event in self._transport.wait(WAIT_MS):
                    if isinstance(event, Arrival):
                        self._asked(event)
                    elif isinstance(event, Refused):
                        self._report(f"{event.count} callers from {event.address} were refused: {event.why}")
        finally:
            self._transport.close()

    def _asked(self, event: Arrival) -> None:
        try:
            request, payload = decode_request(event.frames, event.link)
        except RemoteProtocolError as error:
            self._report(f"a caller was cut off: {error}")
            self._transport.cut(event.link)
            return
        try:
            answer, found = self._desk.answer(request, payload)
            self._transport.send(event.link, encode(answer, found))
        except Exception as error:
            # A fault of ours: this request stays without answer, all others go on.
            self._report(f"{type(request).__name__}: {type(error).__name__}: {error}")

    def status(self) -> dict[str, Any]:
        """What waits here, for whom, and why.

        Returns:
            ``readers``: of each stream and reader ``earliest``, ``latest`` (row numbers), ``bytes``,
            ``full``, ``missing_rows``, ``why`` (what keeps rows away, empty: nothing); ``sources``: of each
            source that is written to ``published``, ``waiting`` (rows) and ``why``; ``staged_bytes``.
        """
        return {
            "address": self.address,
            "readers": self._inlets.status(),
            "sources": self._outlets.status(),
            "staged_bytes": self._staging.nbytes,
        }

    def flush(self, timeout: Duration = "30s") -> None:
        """Wait until the nodes hold durably all that was published here.

        Raises:
            LinkError: not in time; says what keeps it.
        """
        end_s = time.monotonic() + duration_us(timeout, what="flush: timeout", error=LinkError) / 1e6
        while True:
            behind = {name: each for name, each in self._outlets.status().items() if each["waiting"]}
            if not behind:
                return
            if time.monotonic() > end_s:
                name, first = next(iter(behind.items()))
                why = first["why"] or "it is slow"
                raise LinkError(
                    f"{first['waiting']:,} rows for {name!r} are not at the node: {why}", code="link.timeout"
                )
            time.sleep(0.02)

    def wait(self, stream: str, row: int, reader: str = "spark", timeout: Duration = "30s") -> None:
        """Wait until the rows of a stream below this number are here, so that Spark reads them.

        Raises:
            LinkError: not in time; says what keeps them. Nobody reads the stream under this name.
        """
        end_s = time.monotonic() + duration_us(timeout, what="wait: timeout", error=LinkError) / 1e6
        inlet = self._inlets.get(stream, reader)
        while True:
            with inlet.lock:
                there = inlet.spool().durable_seq if inlet.known else 0
            if there >= row:
                return
            if time.monotonic() > end_s:
                why = inlet.why or "the node hasn't sent them"
                raise LinkError(
                    f"of {stream!r} the rows below {there} are here, not {row}: {why}", code="link.timeout"
                )
            time.sleep(0.02)

    def forget(self, stream: str, reader: str = "spark") -> None:
        """End a reader for good: the node keeps nothing for it any more, and its rows here are removed.

        Raises:
            LinkError: there is no such reader; or the node can't be reached, then its rows here are gone all
                the same.
        """
        if not self._inlets.forget(stream, reader):
            raise LinkError(f"nobody reads {stream!r} as {reader!r}", code="E_READER")

    def close(self) -> None:
        """Stop; all that was acknowledged to anybody is on disk. Safe to call twice."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._transport.wake()
        self._thread.join()
        self._held.close()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<medusa.spark.Gateway at {self.address}>"


class _Outlets:
    def __init__(self, nodes: Nodes, staging: Staging, report: Callable[[str], None]) -> None:
        self._nodes, self._staging, self._report = nodes, staging, report
        self._made: dict[str, Outlet] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        for stream in self._staging.books.streams():
            self._outlet(stream)

    def _outlet(self, stream: str) -> Outlet:
        with self._lock:
            if stream not in self._made:
                self._made[stream] = Outlet(self._nodes, stream, self._staging, self._report)
                self._made[stream].start()
            return self._made[stream]

    def source(self, stream: str) -> Source:
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

    def status(self) -> dict[str, dict[str, Any]]:
        found = {}
        with self._staging.lock:
            for name, each in list(self._made.items()):
                waiting = sum(one.published.rows for one in self._staging.books.queue(name))
                published = self._staging.books.end(name)
                found[name] = {"published": published, "waiting": waiting, "why": each.why}
        return found

    def close(self) -> None:
        for each in list(self._made.values()):
            each.close()


class _Inlets:
    def __init__(self, nodes: Nodes, data: str, spool_bytes: int, report: Callable[[str], None]) -> None:
        self._nodes, self._data, self._bytes, self._report = nodes, data, spool_bytes, report
        self._made: dict[tuple[str, str], Inlet] = {}
        self._ports: dict[str, FolderSegments] = {}
        self._store = FolderStore(f"{data}/readers")
        self._lock = threading.Lock()
        with told(f"{data}/rows", "can't be opened"):
            make_folder(f"{data}/rows")

    def begin(self) -> None:
        for name in self._store.names():
            _, files = unseal(self._store.read(name), self._store.where(name))
            said = json.loads(bytes(files["reader"]))
            self._make(said["stream"], said["reader"], said["start"])

    def _make(self, stream: str, reader: str, start: str) -> Inlet:
        name = _folder_of(stream, reader)
        made = Inlet(
            self._nodes,
            stream,
            reader,
            start,
            lambda: self._port(name),
            bytes_max=self._bytes,
            report=self._report,
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

    def open(self, stream: str, reader: str, start: str) -> Inlet:
        with self._lock:
            found = self._made.get((stream, reader))
            if found is not None and (found.refused is None or found.known):
                return found
            if found is not None:
                # A wrong name, most likely: nothing stays of it.
                self._drop(found)
                assert found.refused is not None
                raise found.refused
            if len(self._made) >= READERS_MAX:
                raise LinkError(
                    f"this gateway has {READERS_MAX} readers",
                    hint="forget those that nobody needs: gateway.forget(stream, reader)",
                    code="E_LIMIT",
                )
            said = json.dumps({"stream": stream, "reader": reader, "start": start}).encode()
            self._store.write(_folder_of(stream, reader), seal({"reader": said}, {}))
            return self._make(stream, reader, start)

    def _drop(self, inlet: Inlet) -> None:
        inlet.closing.set()  # It ends by itself: nobody waits for it here.
        del self._made[inlet.stream, inlet.reader]
        self._store.delete(_folder_of(inlet.stream, inlet.reader))

    def get(self, stream: str, reader: str) -> Inlet:
        found = self._made.get((stream, reader))
        if found is None:
            raise LinkError(
                f"nobody reads {stream!r} as {reader!r} here",
                hint=did_you_mean(stream, {name for name, _ in self._made}),
                code="E_READER",
            )
        return found

    def forget(self, stream: str, reader: str) -> bool:
        with self._lock:
            found = self._made.pop((stream, reader), None)
            if found is None:
                return False
            found.close()
            name = _folder_of(stream, reader)
            port = self._port(name)
            for first in reversed(port.names()):
                port.remove(first)
            self._store.delete(name)
        try:
            self._nodes.forget(stream, reader)
        except MedusaError as error:
            raise LinkError(
                f"the node still keeps {stream!r} for {reader!r}: {error.message}",
                hint="fed.unsubscribe(stream, durable=reader) ends it there",
                code=error.code,
            ) from None
        return True

    def status(self) -> list[dict[str, Any]]:
        found = []
        for (stream, reader), each in list(self._made.items()):
            line: dict[str, Any] = {"stream": stream, "reader": reader, "why": each.why}
            with each.lock, contextlib.suppress(MedusaError):
                spool = each.spool()
                line |= {"earliest": spool.earliest, "latest": spool.durable_seq, "bytes": spool.nbytes}
                line |= {"full": spool.full, "missing_rows": each.missing_rows}
            found.append(line)
        return found

    def close(self) -> None:
        for each in list(self._made.values()):
            each.close()
        for port in self._ports.values():
            port.close()
        self._store.close()


def _folder_of(stream: str, reader: str) -> str:
    """A name for files: readable, and no other stream and reader has it."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", f"{reader}-{stream}").strip("-")[:60]
    return f"r{hashlib.sha256(json.dumps([stream, reader]).encode()).hexdigest()[:16]}-{plain}"
