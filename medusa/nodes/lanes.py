"""The connections for streams, as a brain sees them. They don't say whether a peer is there."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from medusa.errors import RemoteProtocolError
from medusa.nodes.config.settings import Settings
from medusa.nodes.fragment.host import FragmentHost
from medusa.ports import Buffer
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.lanes import LaneOrder, lane_of
from medusa.wire.link.session import check_version
from medusa.wire.messages.links import Attached, Boundary, Data, Hello, Progress
from medusa.wire.messages.tentative import LaneMessage

__all__ = ["Lanes"]


class Lanes:
    """Connections for streams to and from all peers.

    Args:
        me: what we say ``Hello`` with.
        fragments: those of the brain, as they come and go.
    """

    def __init__(self, me: Hello, settings: Settings, fragments: Mapping[str, FragmentHost]) -> None:
        self._rules = settings.links
        self._window_bytes = settings.limits.credit_bytes
        self._me = me
        self._fragments = fragments
        self._striped: dict[str, int] = {}
        """Peer that stripes -> over how many connections the frames of a stream go round."""
        self._orders: dict[tuple[str, str], LaneOrder] = {}
        """(peer, stream) -> what is not yet in order."""

    def hello(self, lane: int) -> Hello:
        """The first words on a connection for streams; they want no answer."""
        striped = self._rules.connections if self._rules.striped else 0
        return msgspec.structs.replace(self._me, lane=lane, striped=striped)

    def admit(self, hello: Hello) -> None:
        """Whether who says this may send streams by a connection of their own.

        Raises:
            RemoteProtocolError: a client, or another version. (On connections for control the session
                sees to that.)
        """
        if not hello.lane:
            return
        if hello.client:
            raise RemoteProtocolError("a client has one connection", code="E_ROLE")
        check_version(self._me, hello)
        if hello.striped > 1:
            self._striped[hello.node] = hello.striped
        else:
            self._striped.pop(hello.node, None)

    def changed(self, now_us: int, peer: str, lane: int, *, flowing: bool) -> None:
        """A connection to a peer broke, or is there (again): its streams rest, or go on.

        Args:
            flowing: it is there and so is the peer. What was under way on an earlier one is lost: the
                receivers hear how much was sent, and attach anew where they miss something.
        """
        rules = self._rules
        for hosted in self._fragments.values():
            for output in hosted.outputs.values():
                if rules.striped or lane_of(output.stream, rules.connections) == lane:
                    output.sender.peer(now_us, peer, LinkEvent.PEER_DOWN)
                    if flowing:
                        output.sender.peer(now_us, peer, LinkEvent.PEER_UP)

    def receive(
        self,
        now_us: int,
        peer: str,
        lane: int,
        message: Attached | Data | Boundary | Progress,
        payload: Buffer | None,
    ) -> bool:
        """Bring a frame to the inputs that want it, in the order in which it was sent; whether any does.

        Raises:
            RemoteProtocolError: it came by no connection that there is, or is too much.
        """
        wanted = [
            (hosted, input)
            for hosted in self._fragments.values()
            if (input := hosted.input_of(message.stream, peer)) is not None
        ]
        if not wanted:
            return False
        frames: list[tuple[Attached | Data | Boundary | Progress, Buffer | None]] = [(message, payload)]
        lanes = self._striped.get(peer, 0) if lane else 0
        if lanes:
            frames = self._order(peer, message.stream, lanes).receive(lane, message, payload)
        for hosted, input in wanted:
            for each, its_payload in frames:
                hosted.receive(now_us, input, each, its_payload)
        return True

    def receive_tentative(self, now_us: int, peer: str, message: LaneMessage, payload: Buffer | None) -> None:
        """Bring a frame of the tentative lane, all of which come by one connection."""
        for hosted in list(self._fragments.values()):
            if (input := hosted.input_of(message.stream, peer)) is not None:
                hosted.receive(now_us, input, message, payload)

    def _order(self, peer: str, stream: str, lanes: int) -> LaneOrder:
        order = self._orders.get((peer, stream))
        if order is None or order.lanes != lanes:
            for other, name in list(self._orders):
                if all(hosted.input_of(name, other) is None for hosted in self._fragments.values()):
                    del self._orders[other, name]
            order = self._orders[peer, stream] = LaneOrder(lanes, self._window_bytes)
        return order
