"""What a client orders of remote definitions: parts of its queries that other nodes keep ready."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medusa.query.codec import graph_to_msgpack
from medusa.units import Duration, duration_us
from medusa.wire.messages.links_and_commands import Message
from medusa.wire.messages.remote import DefineRemote, RevokeRemote

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["RemoteMethods"]


class RemoteMethods(ABC):
    """The methods of a ``Federation`` about remote definitions."""

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """Of the node that is asked."""

    @abstractmethod
    def _ask(
        self, make: Callable[[int], Message], payload: bytes | None = None, *, spread: bool = False
    ) -> Any:
        """Send a command to our node and wait for its answer."""

    def define_remote(
        self,
        name: str,
        q: Query,
        at: Mapping[str, Sequence[str]],
        node: str,
        *,
        expires: Duration | None = None,
    ) -> None:
        """Let another node keep its part of a query, ready to be run by name: docs/remote.md.

        From then on ``deploy`` of that part at that node sends the name and the inputs, not the spec. At a
        node of another participant that is the only way, within what it offers.

        Args:
            name: of the definition, at this node.
            at: the placement, as for ``deploy``; other inputs and readers may be elsewhere later.
            node: who shall keep its part; that must be one connected part.
            expires: it counts for so long from now, as if it were revoked then; None: until it is revoked.
                Defined again as it is, it counts from now.

        Raises:
            LinkError: the node doesn't offer that (``E_OFFER``), keeps too many (``E_LIMIT``), keeps another
                under that name (``E_DEFINED``), or didn't answer. Nothing changed.
            QueryError: the query or ``at`` doesn't hold.
        """
        places = tuple((each, tuple(boxes)) for each, boxes in at.items())
        lifetime_us = 0
        if expires is not None:
            lifetime_us = duration_us(expires, what="define_remote: expires", minimum_us=1)
        self._ask(
            lambda number: DefineRemote(
                request=number, name=name, node=node, at=places, lifetime_us=lifetime_us
            ),
            graph_to_msgpack(q.graph),
            spread=True,
        )

    def revoke(self, name: str, *, stop: bool = False) -> None:
        """Nobody shall run this remote definition any more; what runs goes on until it is undeployed.

        Args:
            name: as it was defined at this node; or ``participant/name`` of one that this node keeps.
            stop: at the node that keeps it: what runs here by it ends now, as if its query were undeployed
                here, also where the definition was revoked before. Who had it begun is told. Where nothing
                is defined under the name, ``participant/query`` means all parts of that query at this node.

        Raises:
            LinkError: no such definition, and nothing to stop (``E_NO_DEFINITION``); or the node that keeps
                it didn't answer: this node uses it no more, ask again there; or ``stop`` is asked of the
                node that had it kept (``E_QUERY``): nothing changed.
        """
        self._ask(lambda number: RevokeRemote(request=number, name=name, stop=stop), spread=True)

    def remote_definitions(self) -> dict[str, Any]:
        """Of this node: ``defined`` (kept elsewhere, by name), ``kept`` (for others, full name), ``offers``,
        ``stopped`` (parts of others that were ended here).

        Raises:
            LinkError: no answer in time.
        """
        found: dict[str, Any] = self.status()["remote"]
        return found
