"""Several connections for the streams of one link. Pure: no IO, no clock.

Of several connections between two sites, either a stream keeps to one (*pinned*: what is lost on one holds
up only its streams), or the frames of each go round over all (*striped*: one stream gets the bandwidth of
all). Iwashima, "A user-level library for allotting bandwidth among flows", MIT 2003, found both
useful; bench/test_lanes.py shows when.
"""

from __future__ import annotations

from zlib import crc32

from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.ports import Buffer
from medusa.wire import limits
from medusa.wire.messages import Message
from medusa.wire.messages.links import Attached, Boundary, Data, Progress, Refuse
from medusa.wire.messages.tentative import StreamState, TentativeBoundary, TentativeRows

__all__ = ["LaneOrder", "lane_of", "way_of"]

TENTATIVE_WAY = 1
"""Where the frames of a stream go round over connections, all of its tentative lane go by the one by which
this frame goes: they are taken in order, and none is asked for again."""

StreamMessage = Attached | Data | Boundary | Progress
Frame = tuple[StreamMessage, Buffer | None]


def lane_of(stream: str, lanes: int) -> int:
    """The connection to which a stream keeps, from 1 to ``lanes``: the same in every process and life."""
    return 1 + crc32(stream.encode()) % lanes


def way_of(message: Message) -> tuple[str, int | None]:
    """With which stream a message goes, and its number there; no stream: before all of them.

    With 0 an attachment begins or ends; None: it concerns all frames before it.
    """
    match message:
        case Data(stream=stream, frame=number) | Boundary(stream=stream, frame=number):
            return stream, number
        case Attached(stream=stream) | Refuse(stream=stream):
            return stream, 0
        case Progress(stream=stream):
            return stream, None
        case StreamState(stream=stream) | TentativeRows(stream=stream) | TentativeBoundary(stream=stream):
            return stream, TENTATIVE_WAY
    return "", None


class LaneOrder:
    """Frames of one incoming stream that come over several connections, put in order.

    Each connection keeps the order of what it carries, so a frame of an attachment is missing once every
    one of them has brought a later frame, or a ``Progress`` that counts it. Only then the next one is
    given: its number shows the receiver what is missing.

    Args:
        lanes: how many connections.
        window_bytes: no sender may have more under way to us than was granted, which is at most this.

    Attributes:
        held_bytes: of frames that wait for one before them.
    """

    def __init__(self, lanes: int, window_bytes: int) -> None:
        if lanes < 1:
            raise LocalProtocolError(f"{lanes} lanes", hint="at least 1")
        self.lanes = lanes
        self.held_bytes = 0
        self._window_bytes = window_bytes
        self._epoch = -1
        self._next = 0
        self._beyond = [0] * lanes
        """Per connection: frames below this number will not come by it any more."""
        self._held: dict[int, Frame] = {}
        self._gap = False
        """A frame of this attachment is missing; the receiver will begin another."""
        self._progress: Progress | None = None

    def receive(self, lane: int, message: StreamMessage, payload: Buffer | None = None) -> list[Frame]:
        """Take what came by a connection, 1 to ``lanes``; what the receiver may have now, in order.

        Raises:
            RemoteProtocolError: no such connection, or more than a sender may have under way.
        """
        if not 1 <= lane <= self.lanes:
            raise RemoteProtocolError(f"connection {lane} of {self.lanes}", code="E_IDENTITY")
        if message.epoch < self._epoch:
            return [(message, payload)]
        if message.epoch > self._epoch:
            self._begin(message.epoch)
        if isinstance(message, Progress):
            self._progress = message
            beyond = message.frames
        else:
            number = 0 if isinstance(message, Attached) else message.frame
            beyond = number + 1
            if number < self._next or self._gap:
                return [(message, payload)]  # The receiver counts it, and wants it no more.
            if number in self._held:
                return []
            self._hold(number, message, payload)
        self._beyond[lane - 1] = max(self._beyond[lane - 1], beyond)
        return self._ready()

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        self._next = self.held_bytes = 0
        self._beyond = [0] * self.lanes
        self._held.clear()
        self._gap = False
        self._progress = None

    def _hold(self, number: int, message: StreamMessage, payload: Buffer | None) -> None:
        if number != self._next:
            cost = _cost(message, payload)
            if self.held_bytes + cost > self._window_bytes:
                text = f"stream {message.stream!r}: {cost} bytes out of order beyond the credit"
                raise RemoteProtocolError(text, code="E_CREDIT")
        self.held_bytes += _cost(message, payload)
        self._held[number] = (message, payload)

    def _ready(self) -> list[Frame]:
        out: list[Frame] = []
        passed = min(self._beyond)
        while (frame := self._held.pop(self._next, None)) is not None:
            self.held_bytes -= _cost(*frame)
            self._next += 1
            out.append(frame)
        if self._held and self._next < passed:
            out.append(self._held[min(self._held)])  # Its number shows what is missing.
            self._gap = True
            self._held.clear()
            self.held_bytes = 0
        if self._progress is not None and passed >= self._progress.frames:
            out.append((self._progress, None))
            self._progress = None
        return out


def _cost(message: StreamMessage, payload: Buffer | None) -> int:
    note = b"" if isinstance(message, Progress) else message.note
    return limits.ENTRY_BYTES + len(note) + (0 if payload is None else memoryview(payload).nbytes)
