"""Who may speak with a node, who reads, and how others are told that they may not.

Until nodes have keys a name is believed: it is local.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from medusa.errors import LinkError, RemoteProtocolError
from medusa.nodes.config.settings import NAME, Settings
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.security.registry import Caller, Refusal
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.units import size_text
from medusa.wire import limits
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.links import Attach, Hello, Refuse
from medusa.wire.outbox import Outbox

__all__ = [
    "CLIENTS_PER_KEY",
    "check_caller",
    "check_memory",
    "check_reader",
    "makes_room",
    "refusal_of",
    "say_no",
]

CLIENTS_MAX = 1000
GONE_US = 1_000_000
"""Who is silent for so long makes room. Too small: the link of one that goes on was only slow; too large:
programs that connect anew for each question are refused while those before them count."""

CLIENTS_PER_KEY = 100
"""Programs that use one key at the same time: less than all clients that a node takes, so that one key
can't shut out the others."""


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


def makes_room(now_us: int, name: str, clients: Mapping[str, int], same: Collection[str]) -> str | None:
    """Who goes, so that one more client may come: of those that ended without a word, or have been cut off
    for a while, the one that was silent for longest; None: there is room, or none was for ``GONE_US``.

    Args:
        name: of the one that comes; it may be here already.
        clients: each with the time from which on it was silent; 0: it speaks.
        same: those with the key of the one that comes.
    """
    if name in clients:
        return None
    among = same if len(same) >= CLIENTS_PER_KEY else clients if len(clients) >= CLIENTS_MAX else ()
    silent = [(at_us, each) for each in among if 0 < (at_us := clients.get(each, 0)) <= now_us - GONE_US]
    return min(silent)[1] if silent else None


def check_reader(
    attach: Attach, peer: str, spec: FragmentSpec, sink: str, *, client: bool, awaited: int = 0
) -> None:
    """Whether rows may be kept back for who wants to read.

    They would be kept for as long as it takes; only the plan may ask for that, and clients by a name.

    Args:
        awaited: the epoch of the fragment that is to be moved to that node, and to read there; 0: none is.
            One that the node had before, and doesn't know yet that it was taken, hasn't come back by that.

    Raises:
        LinkError: they may not (``E_READER``).
    """
    if attach.plain or (attach.name and client):
        return
    if peer in spec.readers.get(sink, ()):
        if not 0 < attach.fragment_epoch < awaited:
            return
        raise LinkError(
            f"node {peer!r} is to read stream {attach.stream!r} in epoch {awaited} of what reads it, and "
            f"asks for it in epoch {attach.fragment_epoch}",
            hint="ask again once that is there",
            code="E_READER",
        )
    raise LinkError(
        f"the plan of query {spec.query!r} doesn't name {peer!r} as a reader of stream {attach.stream!r}, so "
        "no rows are kept back for it",
        hint="attach as a plain receiver",
        code="E_READER",
    )


def check_memory(
    settings: Settings, fragments: Collection[FragmentHost], streams: int, caller: Caller | None
) -> None:
    """Whether so many more incoming streams may be given credit.

    Args:
        caller: who has the key of the client that they come from: has at most half of the memory, so
            that others can publish too.

    Raises:
        LinkError: no.
    """
    limits_ = settings.limits
    used = sum(hosted.streams_in for hosted in fragments)
    if (used + streams) * limits_.credit_bytes > limits_.memory_bytes:
        raise LinkError(
            f"node {settings.name!r} has {used} incoming streams, each with "
            f"{size_text(limits_.credit_bytes)} of credit; {streams} more go beyond its memory of "
            f"{size_text(limits_.memory_bytes)}",
            hint="raise limits.memory or lower limits.credit",
            code="E_MEMORY",
        )
    if caller is None or caller.rules is None:
        return
    inputs = (each for hosted in fragments for each in hosted.inputs.values() if each.silent_since_us is None)
    mine = sum(f"{each.by}-".startswith(f"{caller.called}-") for each in inputs)
    if mine and 2 * (mine + streams) * limits_.credit_bytes > limits_.memory_bytes:
        raise LinkError(
            f"client {caller.name!r} publishes {mine} streams into node {settings.name!r}; "
            f"with more it would have over half of its memory of {size_text(limits_.memory_bytes)}",
            hint="raise limits.memory or lower limits.credit",
            code="E_MEMORY",
        )


def refusal_of(request: int, code: str, text: str, hint: str = "") -> Reply:
    """The answer to a question that is refused; texts are cut to what a message may have."""
    most = limits.TEXT_CHARS_MAX
    return Reply(request=request, code=code, text=text[:most], hint=hint[:most])


def say_no(outbox: Outbox, peer: str, message: Message, why: Refusal) -> None:
    """Answer a message that changes nothing, in the way in which its sender waits for an answer."""
    text, hint = why.text[: limits.TEXT_CHARS_MAX], why.hint[: limits.TEXT_CHARS_MAX]
    request = getattr(message, "request", 0)
    if request:
        outbox.send(peer, refusal_of(request, why.code, why.text, why.hint))
    elif stream := getattr(message, "stream", ""):
        epoch = getattr(message, "epoch", 0)
        outbox.send(peer, Refuse(code=why.code, text=text, hint=hint, stream=stream, epoch=epoch))
