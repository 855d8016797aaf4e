"""What a client orders of remote definitions: parts of its queries that other nodes keep ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medusa.query.codec import graph_to_msgpack
from medusa.runtime.client.home_node import HomeNode
from medusa.wire.messages.remote import DefineRemote, RevokeRemote

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["RemoteOrders"]


class RemoteOrders:
    """Has the home node define and revoke them."""

    def __init__(self, home: HomeNode) -> None:
        self._home = home

    def define(
        self,
        name: str,
        q: Query,
        at: Mapping[str, Sequence[str]],
        node: str,
        **terms: int,
    ) -> None:
        """As ``Federation.define_remote``; ``terms`` as ``DefineRemote`` has them."""
        places = tuple((each, tuple(boxes)) for each, boxes in at.items())
        self._home.ask(
            lambda number: DefineRemote(request=number, name=name, node=node, at=places, **terms),
            graph_to_msgpack(q.graph),
            spread=True,
        )

    def revoke(self, name: str, *, stop: bool) -> None:
        """As ``Federation.revoke``."""
        self._home.ask(lambda number: RevokeRemote(request=number, name=name, stop=stop), spread=True)

    def definitions(self) -> dict[str, Any]:
        """As ``Federation.remote_definitions``."""
        found: dict[str, Any] = self._home.status()["remote"]
        return found
