"""Who may speak with a node, who reads, and how others are told that they may not.

Until nodes have keys a name is believed: it is local.
"""

from __future__ import annotations

from collections.abc import Collection

from medusa.errors import LinkError, RemoteProtocolError
from medusa.mind.security import Refusal
from medusa.mind.settings import NAME, Settings
from medusa.mind.spec import Fragment
from medusa.wire import limits
from medusa.wire.messages import Attach, Hello, Message, Refuse, Reply
from medusa.wire.outbox import Outbox

__all__ = ["check_caller", "check_reader", "say_no"]

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


def check_reader(attach: Attach, peer: str, spec: Fragment, sink: str, *, client: bool) -> None:
    """Whether rows may be kept back for who wants to read.

    They would be kept for as long as it takes; only the plan may ask for that, and clients by a name.

    Raises:
        LinkError: they may not (``E_READER``).
    """
    if attach.plain or (attach.name and client) or peer in spec.readers.get(sink, ()):
        return
    raise LinkError(
        f"the plan of query {spec.query!r} doesn't name {peer!r} as a reader of stream {attach.stream!r}, so "
        "no rows are kept back for it",
        hint="attach as a plain receiver",
        code="E_READER",
    )


def say_no(outbox: Outbox, peer: str, message: Message, why: Refusal) -> None:
    """Answer a message that changes nothing, in the way in which its sender waits for an answer."""
    text, hint = why.text[: limits.TEXT_CHARS_MAX], why.hint[: limits.TEXT_CHARS_MAX]
    request = getattr(message, "request", 0)
    if request:
        outbox.send(peer, Reply(request=request, code=why.code, text=text, hint=hint))
    elif stream := getattr(message, "stream", ""):
        epoch = getattr(message, "epoch", 0)
        outbox.send(peer, Refuse(code=why.code, text=text, hint=hint, stream=stream, epoch=epoch))
