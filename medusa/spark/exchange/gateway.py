"""The gateway between Spark and nodes: what a stream gives waits here until Spark has committed it, and what
Spark writes becomes rows of a stream here, an epoch at a time.

    DATA/staged/       rows that Spark writes, and the journal that says which of them are published
    DATA/refused/      of sources that have refused rows: what their node said
    DATA/readers/      who reads which stream
    DATA/rows/NAME/    what a reader's stream gave
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from medusa.errors import ConfigError, LinkError, RemoteProtocolError
from medusa.nodes.config.config_file import NAME, NAME_RULE
from medusa.runtime.keys.client_keys import KeyGiven
from medusa.runtime.keys.key_files import CurveKey, read_curve_key, read_public
from medusa.runtime.store.folder_store import FolderStore, path_of, told
from medusa.runtime.store.history_files import make_folder
from medusa.runtime.store.journal import FolderJournal
from medusa.runtime.transport.link_events import Arrival, Refused
from medusa.runtime.transport.zeromq import Transport
from medusa.spark.exchange.background_calls import Later
from medusa.spark.exchange.handlers import RequestHandler
from medusa.spark.exchange.nodes import FederationNodes, Greeting
from medusa.spark.exchange.registry import KEEP_S, Inlets, Outlets
from medusa.spark.exchange.requests import decode_request, encode
from medusa.spark.exchange.staging import Staging
from medusa.spark.exchange.workers import Nodes, Worker
from medusa.units import Duration, byte_count, duration_us
from medusa.wire.statement import is_curve_key

__all__ = ["Gateway", "gateway"]

LOGGER = logging.getLogger("medusa.gateway")
WAIT_MS = 200
EXPIRE_EVERY_S = 1.0

PARTING_S = 0.5
"""For so long those who are with a node may say what they have; who waits for one is cut short."""


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
    keep_readers: Duration = "1h",
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
        keep_readers: a reader that only batch reads have used is forgotten, here and at the node, when nobody
            has asked for it for so long.
        report: called with a line where something goes wrong; None: the logger ``medusa.gateway`` is told.

    Raises:
        ConfigError: an argument or a key can't be used.
        StateError: the folder can't be used, or another gateway has it.
        LinkError: it can't listen there; the node's address, or a key for it, can't be. That the node is away
            is no error: it is called until it is there.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(f"gateway: name {name!r:.80}", hint=NAME_RULE, code="config.value")
    if (gateway_key is None) is bool(clients):
        raise ConfigError(
            "gateway: gateway_key= and clients= go together",
            hint="medusa keygen node gateway.key; clients are the .pub files of those who run Spark",
            code="config.keys",
        )
    nodes = FederationNodes(node, name, key, server_key)
    nodes.check()
    report = report or LOGGER.warning
    return Gateway(
        nodes,
        name,
        path_of(data, "data"),
        listen=listen,
        key=None if gateway_key is None else read_curve_key(gateway_key, "node"),
        trusted=[_public(each) for each in clients],
        spool_bytes=byte_count(spool, what="spool", error=ConfigError),
        stage_bytes=byte_count(stage, what="stage", error=ConfigError),
        age_s=duration_us(keep_staged, what="keep_staged", minimum_us=1, error=ConfigError) / 1e6,
        keep_s=duration_us(keep_readers, what="keep_readers", minimum_us=1, error=ConfigError) / 1e6,
        report=report,
        greeting=Greeting(nodes, report),
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
        keep_s: float = KEEP_S,
        report: Callable[[str], None] = LOGGER.warning,
        greeting: Worker | None = None,
    ) -> None:
        self.name = name
        self._closing = threading.Event()
        self._report = report
        self._nodes = nodes
        self._greeting = greeting
        self._held = ExitStack()
        try:
            with told(data, "can't be opened"):
                make_folder(data)
            store = FolderStore(f"{data}/staged")
            self._held.callback(store.close)
            journal = FolderJournal(f"{data}/staged")
            self._held.callback(journal.close)
            self._staging = Staging(store, journal, bytes_max=stage_bytes, now_s=time.monotonic, age_s=age_s)
            notes = FolderStore(f"{data}/refused")
            self._held.callback(notes.close)
            self._outlets = Outlets(nodes, self._staging, notes, report)
            self._held.callback(self._outlets.close)
            self._inlets = Inlets(nodes, data, spool_bytes, report, keep_s)
            self._held.callback(self._inlets.close)
            self._handler = RequestHandler(
                self._staging, self._inlets, self._outlets, spool_bytes, self._node_why
            )
            if key is None:
                self._transport = Transport(listen=listen)
            else:
                self._transport = Transport(listen=listen, key=key, trusted=trusted)
            self.address = self._transport.endpoint
        except BaseException:
            self._held.close()
            raise
        try:
            self._inlets.begin()
            self._outlets.begin()
        except BaseException:
            self._transport.close()
            self._nodes.close()
            self._held.close()
            raise
        if greeting is not None:
            greeting.start()
        self._thread = threading.Thread(target=self._run, name="medusa-gateway", daemon=True)
        self._thread.start()

    def _node_why(self) -> str:
        return "" if self._greeting is None else self._greeting.why

    def _run(self) -> None:
        try:
            looked_s = time.monotonic()
            while not self._closing.is_set():
                if time.monotonic() - looked_s > EXPIRE_EVERY_S:
                    looked_s = time.monotonic()
                    self._inlets.expire()
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
            answer, found = self._handler.answer(request, payload)
            self._transport.send(event.link, encode(answer, found))
        except Exception as error:
            # A fault of ours: this request stays without answer, all others go on.
            self._report(f"{type(request).__name__}: {type(error).__name__}: {error}")

    def status(self) -> dict[str, Any]:
        """What waits here, for whom, and why.

        Returns:
            ``readers``: of each stream and reader ``earliest``, ``latest`` (row numbers), ``bytes``,
            ``full``, ``missing_rows``, ``ended``, ``why`` (what keeps rows away, empty: nothing);
            ``sources``: of each source that is written to ``published``, ``waiting`` (rows) and ``why``;
            ``node_why`` (why the node hasn't answered since the start; empty: it has);
            ``staged_bytes`` (that no node has taken), of them ``unpublished_bytes`` (of no epoch yet).
        """
        return {
            "address": self.address,
            "node_why": self._node_why(),
            "readers": self._inlets.status(),
            "sources": self._outlets.status(),
            "staged_bytes": self._staging.nbytes,
            "unpublished_bytes": self._staging.unpublished_bytes,
        }

    def flush(self, timeout: Duration = "30s") -> None:
        """Wait until the nodes hold durably all that was published here.

        Raises:
            LinkError: not in time; says what keeps it.
        """

        def behind() -> str:
            for each in self._outlets.lines():
                if each.waiting:
                    why = each.why or "it is slow"
                    return f"{each.waiting:,} rows for {each.stream!r} are not at the node: {why}"
            return ""

        _wait(behind, timeout, "flush")

    def wait(self, stream: str, row: int, reader: str = "spark", timeout: Duration = "30s") -> None:
        """Wait until the rows of a stream below this number are here, so that Spark reads them. A reader that
        isn't known begins with the oldest that the node keeps; with number 0 it has begun when this returns.

        Raises:
            LinkError: not in time; says what keeps them. There is no such stream.
        """

        def missing() -> str:
            try:
                inlet = self._inlets.open(stream, reader, "oldest", batch=True)
            except Later as why:
                return why.message
            with inlet.lock:
                known = inlet.known
                there = inlet.spool().durable_seq if known else 0
            if known and there >= row:
                return ""
            why_not = inlet.why or "the node hasn't sent them"
            return f"of {stream!r} the rows below {there} are here, not {row}: {why_not}"

        _wait(missing, timeout, "wait")

    def forget(self, stream: str, reader: str = "spark") -> None:
        """End a reader for good: the node keeps nothing for it any more, and its rows here are removed.

        Raises:
            LinkError: there is no such reader; or the node can't be reached, then its rows here are gone all
                the same.
        """
        if not self._inlets.forget(stream, reader):
            raise LinkError(f"nobody reads {stream!r} as {reader!r}", code="E_READER")

    def finish(self, stream: str, timeout: Duration = "30s") -> None:
        """End a source that was written to: no more rows come into it from here, so that its windows close
        when all others who publish there have ended it too. Safe to call again.

        Raises:
            LinkError: not in time: what is published isn't at its node; or there is no such source.
            DataError: the node has refused rows of it.
        """

        def unfinished() -> str:
            try:
                self._outlets.finished(stream)
            except Later as why:
                return why.message
            return ""

        _wait(unfinished, timeout, "finish")

    def forget_source(self, stream: str, *, waiting: bool = False) -> None:
        """Forget a source that was written to: its rows are numbered from 0 again, here and at its node.

        For one that was removed, or deployed anew. Its writers are remembered: no epoch of theirs is
        published again.

        Args:
            waiting: also where rows wait for it, which are given up.

        Raises:
            LinkError: nothing was ever written to it; rows wait for it (``E_WAITING``); or its node doesn't
                answer. Nothing changed.
        """
        if not self._outlets.forget(stream, waiting=waiting):
            raise LinkError(f"nobody writes to {stream!r} here", code="E_WRITER")

    def close(self) -> None:
        """Stop; all that was acknowledged to anybody is on disk. Safe to call twice."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._transport.wake()
        self._thread.join()
        workers: list[Worker] = [*self._inlets.workers(), *self._outlets.workers()]
        workers += [] if self._greeting is None else [self._greeting]
        for each in workers:
            each.stop()
        end_s = time.monotonic() + PARTING_S
        for each in workers:
            each.close(max(end_s - time.monotonic(), 0.0))
        self._nodes.close()
        self._held.close()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<medusa.spark.Gateway at {self.address}>"


def _wait(why_not: Callable[[], str], timeout: Duration, what: str) -> None:
    """Until nothing is said against it any more.

    Raises:
        LinkError: not in time; says what was said last.
    """
    end_s = time.monotonic() + duration_us(timeout, what=f"{what}: timeout", error=LinkError) / 1e6
    while why := why_not():
        if time.monotonic() > end_s:
            raise LinkError(why, code="link.timeout")
        time.sleep(0.02)
