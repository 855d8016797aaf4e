"""The connections for streams, as a brain sees them. They don't say whether a peer is there."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from medusa.errors import RemoteProtocolError
from medusa.mind.hosting import Hosted
from medusa.mind.settings_links import LinkRules
from medusa.wire import limits
from medusa.wire.lanes import lane_of
from medusa.wire.link import LinkEvent
from medusa.wire.messages import Hello

__all__ = ["check_lane", "lane_changed", "lane_hello"]


def lane_hello(me: Hello, lane: int) -> Hello:
    """The first words on a connection for streams; they want no answer."""
    return msgspec.structs.replace(me, lane=lane)


def check_lane(hello: Hello) -> None:
    """Whether who says this may send streams by a connection of their own.

    Raises:
        RemoteProtocolError: a client, or another version. (Of control connections, its session sees to that.)
    """
    if not hello.lane:
        return
    if hello.client:
        raise RemoteProtocolError("a client has one connection", code="E_ROLE")
    if hello.version != limits.PROTOCOL_VERSION:
        text = f"speaks version {hello.version}, we speak {limits.PROTOCOL_VERSION}"
        raise RemoteProtocolError(text, code="E_VERSION", hint="install the same version of Medusa on both")


def lane_changed(
    now_us: int, peer: str, lane: int, fragments: Mapping[str, Hosted], rules: LinkRules, *, flowing: bool
) -> None:
    """Such a connection to a peer broke, or is there (again): its streams rest, or go on.

    Args:
        flowing: it is there and so is the peer. What was under way on an earlier one is lost: the
            receivers hear how much was sent, and attach anew where they miss something.
    """
    for hosted in fragments.values():
        for output in hosted.outputs.values():
            if rules.striped or lane_of(output.stream, rules.connections) == lane:
                output.sender.peer(now_us, peer, LinkEvent.PEER_DOWN)
                if flowing:
                    output.sender.peer(now_us, peer, LinkEvent.PEER_UP)
