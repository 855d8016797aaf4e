"""The nodes that a gateway is a client of: each reader and each source by a connection of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from medusa.errors import LinkError
from medusa.query.boxes import Source
from medusa.runtime.client import Federation, connect
from medusa.runtime.client_keys import KeyGiven
from medusa.runtime.publishing import described
from medusa.spark.exchange.delivery import Port
from medusa.spark.exchange.workers import Reading

__all__ = ["FederationNodes"]


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

    def _connect(self) -> Federation:
        return connect(self.address, self.timeout, key=self.key, server_key=self.server_key)

    @contextlib.contextmanager
    def reading(self, stream: str, reader: str, start: str) -> Iterator[Reading]:
        fed = self._connect()
        try:
            from_: str | int = int(start) if start.isdigit() else start
            try:
                trains = fed.subscribe(stream, from_=from_, durable=reader)
            except LinkError as error:
                if error.code != "E_SEQ":
                    raise
                trains = fed.subscribe(
                    stream, from_="oldest", durable=reader
                )  # The name is known: it goes on.
            with trains:
                yield trains
        finally:
            fed.close()

    @contextlib.contextmanager
    def writing(self, stream: str) -> Iterator[tuple[Source, Port]]:
        fed = self._connect()
        try:
            source = _source(fed, stream)
            yield source, fed.publisher(stream, durable=self.name)
        finally:
            fed.close()

    def forget(self, stream: str, reader: str) -> None:
        fed = self._connect()
        try:
            fed.unsubscribe(stream, durable=reader)
        except LinkError as error:
            if error.code != "E_NAME":
                raise
        finally:
            fed.close()


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
