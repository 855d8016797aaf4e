"""Remote definitions: a part of a query that another node keeps ready, to be run by its name.

See ``nodes/remote/definitions.py`` for who may say what. A new term of what is agreed (a price, say) is a
field of ``Terms``, of ``DefineRemote`` and of ``KeepRemote``: it is kept, shown and passed on by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from medusa.wire import limits
from medusa.wire.messages.base import Count, MessageBase, Name, Names, Payload, Text

__all__ = [
    "DefineRemote",
    "DropRemote",
    "Instantiate",
    "KeepRemote",
    "RemoteMessage",
    "RevokeRemote",
    "StoppedRemote",
    "Terms",
]

Inputs = Annotated[tuple[tuple[Name, Name, Name], ...], Meta(max_length=limits.PLACES_MAX)]
Readers = Annotated[tuple[tuple[Name, Names], ...], Meta(max_length=limits.PLACES_MAX)]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What two nodes agree on beside the part itself. Each of them keeps it.

    Attributes:
        expires_us: it counts until then, in microseconds since the Unix epoch; 0: until it is revoked.
    """

    expires_us: Count = 0


class DefineRemote(MessageBase, frozen=True, tag="define-remote"):
    """From a client: let ``node`` keep its part of this query. Payload: the graph, as for ``Deploy``.

    Attributes:
        at: as in ``Deploy``; one fragment of it must be at ``node``.
        lifetime_us: it counts for so long from now; 0: until it is revoked.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    request: Count
    name: Name
    node: Name
    at: Annotated[tuple[tuple[Name, Names], ...], Meta(max_length=limits.PLACES_MAX)]
    lifetime_us: Count = 0

    def terms(self, time: Callable[[], int]) -> Terms:
        """What it asks for.

        Args:
            time: now, since the Unix epoch; asked only where it matters.
        """
        return Terms(expires_us=time() + self.lifetime_us if self.lifetime_us else 0)


class RevokeRemote(MessageBase, frozen=True, tag="revoke-remote"):
    """From a client: of its own node a definition that was made there; of the node that keeps one (then
    ``participant/name``), that too.

    Attributes:
        stop: what runs by it at the node that keeps it ends too.
    """

    request: Count
    name: Name
    stop: bool = False


class KeepRemote(MessageBase, frozen=True, tag="keep-remote"):
    """From a node: keep this fragment under this name, for us. Payload: its spec, as of ``Install``.

    After the name come the ``Terms``, one by one.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    request: Count
    name: Name
    expires_us: Count = 0

    @property
    def terms(self) -> Terms:
        """On which it is to be kept."""
        return Terms(**{term: getattr(self, term) for term in Terms.__struct_fields__})


class DropRemote(MessageBase, frozen=True, tag="drop-remote"):
    """From the node that had it kept: nobody shall run this any more.

    Attributes:
        since: it was never confirmed: only what the ``KeepRemote`` of this number brought goes; 0: whatever
            is kept under the name.
    """

    request: Count
    name: Name
    since: Count = 0


class Instantiate(MessageBase, frozen=True, tag="instantiate"):
    """``Install``, of a fragment that is kept under this name.

    Attributes:
        inputs: (source, node, stream) for each of its named inputs.
        readers: (sink, nodes) for each of its outputs that nodes read.
    """

    request: Count
    query: Name
    fragment: Name
    name: Name
    inputs: Inputs
    readers: Readers


class StoppedRemote(MessageBase, frozen=True, tag="stopped-remote"):
    """To the node that had it begun: this part of your query has ended here.

    ``code``: it took more than it may (``E_MEMORY``, ``E_BUSY``), as ``why`` says; empty: who runs this node
    has ended it. ``at_us``: when, since the Unix epoch; 0: this node didn't know.
    """

    request: Count
    query: Name
    fragment: Name
    code: Text = ""
    why: Text = ""
    at_us: Count = 0


RemoteMessage = DefineRemote | RevokeRemote | KeepRemote | DropRemote | Instantiate | StoppedRemote
