"""A connection to a node that we call: its sockets, its state, what waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field

import zmq

from medusa.errors import LinkError
from medusa.runtime.transport.send_queue import Frames, SendQueue, hand
from medusa.wire.link.lanes import lane_of

__all__ = ["OutgoingConnection"]

CALL_AGAIN_S = 0.1
"""Between the end of a connection and the next call, so that a refusal is no busy loop."""

CALL_AGAIN_MAX_S = 2.0
"""The same after several handshakes in a row that failed."""


@dataclass(slots=True, eq=False)
class OutgoingConnection:
    """One connection to a node that we call, or the lack of it until ``again_s``.

    Attributes:
        up: the handshake is done.
        opened: of a data lane: it was introduced, and streams may follow.
        number: descriptor of the connection; -1: there is none.
        lanes: of lane 0: the others.
    """

    peer: str
    address: str
    lane: int = 0
    dealer: zmq.Socket[bytes] | None = None
    monitor: zmq.Socket[bytes] | None = None
    key: str = ""
    number: int = -1
    up: bool = False
    opened: bool = False
    failures: int = 0
    again_s: float = 0.0
    lanes: list[OutgoingConnection] = field(default_factory=list)
    waiting: SendQueue = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = SendQueue(self._give)

    def _give(self, frames: Frames) -> bool:
        assert self.dealer is not None
        hand(self.dealer, frames)
        return True

    @property
    def ready(self) -> bool:
        """Something may be sent."""
        return self.dealer is not None and (self.opened or self.lane == 0)

    def send(self, frames: Frames, stream: str, weight: int) -> None:
        """Send, or keep while the connection is full; a lane keeps while it isn't open."""
        if self.ready:
            self.waiting.send(frames, stream, weight)
            if not self.up and self.lane == 0:
                self.waiting.clear()  # Nothing is kept for a connection that doesn't stand.
        elif self.lane:
            self.waiting.put(frames, stream, weight)

    def sockets(self) -> list[zmq.Socket[bytes]]:
        """What to poll; empty while there is no connection."""
        return [each for each in (self.dealer, self.monitor) if each is not None]

    def connect(self, dealer: zmq.Socket[bytes], key: str, events: int) -> None:
        """Call by this socket and hear of these events.

        Raises:
            LinkError: no address that can be called. The socket is closed.
        """
        monitor = dealer.get_monitor_socket(events)
        try:
            dealer.connect(self.address)
        except zmq.ZMQError as error:
            _discard(dealer, monitor)
            raise LinkError(f"can't call {self.address}: {error}", code="link.address") from None
        self.dealer, self.monitor, self.key = dealer, monitor, key

    def call_at(self, address: str) -> None:
        """The node is at another address: all of its lanes are called there."""
        for each in (self, *self.lanes):
            each.address = address

    def call_again_after(self, now_s: float) -> None:
        """Rest a while before the next call, longer after each handshake that failed."""
        self.again_s = now_s + min(CALL_AGAIN_S * 2 ** min(self.failures, 10), CALL_AGAIN_MAX_S)

    def reached(self, number: int) -> None:
        """There is a connection, with this descriptor; the handshake is still to come."""
        self.number = number

    def stand(self) -> None:
        """The handshake is done."""
        self.up, self.failures = True, 0

    def fail(self) -> None:
        """The handshake failed."""
        self.failures += 1

    def introduce(self, frames: Frames) -> None:
        """Say these first words on a data lane; what waits for it follows."""
        self.waiting.put(frames, "", 1)
        self.opened = True
        self.waiting.flush()

    def hang_up(self) -> None:
        """End the connection; what waits for it is lost."""
        if self.dealer is not None and self.monitor is not None:
            _discard(self.dealer, self.monitor)
        self.dealer = self.monitor = None
        self.number = -1
        self.up = self.opened = False
        self.waiting.clear()

    def lanes_of(self, stream: str, frame: int | None, *, striped: bool) -> list[OutgoingConnection]:
        """By which connections a frame goes; a stream is on the same one in each life of a process."""
        lanes = self.lanes
        if not stream or not lanes:
            return [self]
        if not striped:
            return [lanes[lane_of(stream, len(lanes)) - 1]]
        return lanes if frame is None else [lanes[frame % len(lanes)]]


def _discard(dealer: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
    # In this order: an event that finds its reader gone blocks libzmq's thread with the lock held
    # that disabling wants, and with it everybody who wants the GIL.
    dealer.disable_monitor()
    monitor.close(linger=0)
    dealer.close(linger=0)
