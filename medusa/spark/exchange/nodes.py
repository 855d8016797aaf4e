"""The nodes that a gateway is a client of: each reader and each source by a connection of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from medusa.errors import ConfigError, LinkError
from medusa.nodes.config.settings import check_address
from medusa.query.boxes import Schema, Source
from medusa.runtime.client.client import dial
from medusa.runtime.client.client_loop import ClientLoop
from medusa.runtime.client.federation import Federation
from medusa.runtime.client.publisher import described
from medusa.runtime.keys.client_keys import KeyGiven, client_keys
from medusa.spark.exchange.delivery import Port
from medusa.spark.exchange.workers import NamedSubscription, RetryingWorker

__all__ = ["FederationNodes", "Greeting"]


@dataclass(frozen=True, slots=True)
class FederationNodes:
    """Implements ``Nodes`` by the client of a node.

    Attributes:
        name: of the gateway: under it the nodes number what it publishes.
        key, server_key: as for ``md.connect``.
    """

    address: str
    name: str
    key: KeyGiven | None = None
    server_key: KeyGiven | None = None
    timeout: str = "5s"
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _ends: list[Callable[[], None]] = field(default_factory=list, repr=False, compare=False)
    """What ends each connection that there is, or that is being made."""
    _over: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    def check(self) -> None:
        """Whether the node can be called at all, without calling it.

        Raises:
            LinkError: no address, or a key that can't be read or used.
        """
        keys = client_keys(self.address, 1000, self.key, self.server_key, None)
        try:
            check_address(self.address, bind=False, keyed=keys is not None)
        except ConfigError as error:
            raise LinkError(f"gateway: node: {error.message}", hint=error.hint, code=error.code) from None

    def greet(self) -> None:
        """Raises: LinkError: the node doesn't answer."""
        with self._connected():
            return

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Federation]:
        with contextlib.ExitStack() as held:

            def begun(loop: ClientLoop) -> None:
                held.enter_context(self._ended_by(loop.close))

            fed = dial(self.address, self.timeout, key=self.key, server_key=self.server_key, begun=begun)
            held.callback(fed.close)
            held.enter_context(self._ended_by(fed.close))
            yield fed

    @contextlib.contextmanager
    def _ended_by(self, end: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            if self._over.is_set():
                raise LinkError("the gateway is being closed", code="link.closed")
            self._ends.append(end)
        try:
            yield
        finally:
            with self._lock:
                self._ends.remove(end)

    def close(self) -> None:
        """End all connections: who waits for a node hears so at once, and no other is made. Any thread may
        call."""
        with self._lock:
            self._over.set()
            ends = list(self._ends)
        for end in reversed(ends):
            end()

    @contextlib.contextmanager
    def reading(self, stream: str, reader: str, start: str | None) -> Iterator[NamedSubscription]:
        with self._connected() as fed:
            from_: str | int = "oldest" if start is None else int(start) if start.isdigit() else start
            with fed.subscribe(stream, from_=from_, durable=reader, known=start is None) as trains:
                yield trains

    def columns(self, stream: str) -> Schema:
        with self._connected() as fed:
            return fed.stream(stream).columns

    @contextlib.contextmanager
    def writing(self, stream: str) -> Iterator[tuple[Source, Port]]:
        with self._connected() as fed:
            source = _source(fed, stream)
            yield source, fed.publisher(stream, durable=self.name)

    def forget(self, stream: str, reader: str) -> None:
        with self._connected() as fed:
            try:
                fed.unsubscribe(stream, durable=reader)
            except LinkError as error:
                if error.code != "E_NAME":
                    raise

    def drop(self, stream: str) -> None:
        with self._connected() as fed:
            try:
                fed.unpublish(stream, durable=self.name)
            except LinkError as error:
                if error.code not in ("E_NAME", "E_STREAM"):
                    raise


class Greeting(RetryingWorker):
    """Calls the node until it has answered once, and warns while it doesn't: a gateway that nobody asks yet
    would call nobody."""

    def __init__(self, nodes: FederationNodes, report: Callable[[str], None]) -> None:
        super().__init__(f"node {nodes.address}", report)
        self._nodes = nodes
        self.why = "it is being called"

    def work(self) -> None:
        self._nodes.greet()
        self.why = ""


def _source(fed: Federation, stream: str) -> Source:
    """A source by its name, or by that of a stream that was defined."""
    try:
        found: dict[str, Any] = fed.find(stream, "source")
    except LinkError as error:
        if error.code != "E_STREAM":
            raise
        try:
            found = fed.find(fed.find(stream, "definition")["source"], "source")
        except LinkError:
            raise error from None
    return described(found["name"], found)
