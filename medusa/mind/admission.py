"""Who may speak with a node, and who reads. Until nodes have keys a name is believed: it is local."""

from __future__ import annotations

from collections.abc import Collection

from medusa.errors import LinkError, RemoteProtocolError
from medusa.mind.settings import NAME, Settings
from medusa.wire.messages import Hello

__all__ = ["check_caller", "no_reader"]

CLIENTS_MAX = 1000


def check_caller(hello: Hello, settings: Settings, clients: Collection[str]) -> None:
    """Whether who says this may be here.

    Args:
        clients: those that are here already.

    Raises:
        RemoteProtocolError: no name, not one of our peers, a client under the name of a node, or one
            client too many.
    """
    name = hello.node
    if not NAME.fullmatch(name):
        raise RemoteProtocolError(f"{name[:80]!r} is no name", code="E_IDENTITY")
    if hello.client:
        if name == settings.name or name in settings.peers:
            raise RemoteProtocolError(f"a client calls itself {name!r}, a node", code="E_IDENTITY")
        if name not in clients and len(clients) >= CLIENTS_MAX:
            raise RemoteProtocolError(f"{CLIENTS_MAX} clients are here already", code="E_LIMIT")
    elif name not in settings.peers:
        raise RemoteProtocolError(
            f"node {name!r} is no peer of node {settings.name!r}",
            hint=f"add {name} to [peers] in its configuration",
            code="E_IDENTITY",
        )


def no_reader(query: str, stream: str, peer: str) -> LinkError:
    """What a node hears that wants rows kept back for it, and that the plan doesn't name.

    They would be kept for as long as it takes; only the plan may ask for that.
    """
    return LinkError(
        f"the plan of query {query!r} doesn't name {peer!r} as a reader of stream {stream!r}, so no rows are "
        "kept back for it",
        hint="attach as a plain receiver",
        code="E_READER",
    )
