"""What waits for one connection, and how much of what was sent ZeroMQ still holds.

ZeroMQ takes what it is given into a queue of its own, in the order in which it came. So it is given
little: once ``WINDOW_BYTES`` are handed over and not yet on their way, the rest waits here, where
weights order it and urgent things go first. libzmq says when it has done with a buffer that
it was lent; such a buffer stands for all smaller frames before it, which are copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import zmq

from medusa.wire.limits import ENTRY_BYTES
from medusa.wire.link.fair_queue import FairQueue

__all__ = ["WINDOW_BYTES", "Frames", "SendQueue", "hand"]

Frames: TypeAlias = Sequence[Any]

WINDOW_BYTES = 4 << 20
"""Bytes given to libzmq and not yet on their way. Too small: the connection runs dry between two
looks at it; too large: so much goes before what is urgent, or has a larger weight."""

LENT_BYTES = 64 << 10
"""From so many bytes on libzmq is lent the buffer; below, and until so many have come together, copying
is cheaper than hearing when a buffer is free again."""

_AND_MORE = zmq.DONTWAIT | zmq.SNDMORE


class SendQueue:
    """Frames for one connection.

    Args:
        give: hands parts to ZeroMQ without waiting: raises ``zmq.Again`` where it takes no more,
            and returns False where the connection is gone.

    Waiting queues for a connection that is not there yet: ``flush`` once it is.
    """

    def __init__(self, give: Callable[[Frames], bool]) -> None:
        self._give = give
        self._queue: FairQueue[Frames] = FairQueue()
        self._next: Frames | None = None
        """Taken from the queue and refused by ZeroMQ: it goes first."""
        self._lent: deque[tuple[Any, int]] = deque()
        """(tracker, bytes up to it) of buffers that libzmq has."""
        self._lent_bytes = 0
        self._copied_bytes = 0
        """Since the last buffer that was lent."""

    def __bool__(self) -> bool:
        """Something waits."""
        return self._next is not None or len(self._queue) > 0

    @property
    def heads(self) -> int:
        """How many frames of no stream wait, and streams."""
        return self._queue.heads

    def send(self, frames: Frames, stream: str, weight: int) -> bool:
        """Hand over, or queue; False: the connection is gone."""
        if self or not self._has_room():
            self.put(frames, stream, weight)
            return self.flush()
        try:
            return self._hand(frames)
        except zmq.Again:
            self._next = frames
            return True

    def put(self, frames: Frames, stream: str, weight: int) -> None:
        """Queue frames; ``stream`` empty: before all streams."""
        if stream:
            self._queue.put(stream, weight, _size(frames) + ENTRY_BYTES, frames)
        else:
            self._queue.put_first(frames)

    def drop(self, stream: str) -> None:
        """Nobody wants what waits of this stream any more."""
        self._queue.drop(stream)

    def clear(self) -> None:
        """The connection is over: what waits and what ZeroMQ held are lost."""
        self._queue.clear()
        self._next = None
        self._lent.clear()
        self._lent_bytes = self._copied_bytes = 0

    def flush(self) -> bool:
        """Give ZeroMQ what it may have; False: the connection is gone."""
        while self._has_room():
            frames = self._next if self._next is not None else self._queue.take()
            if frames is None:
                return True
            self._next = None
            try:
                if not self._hand(frames):
                    return False
            except zmq.Again:
                self._next = frames
                return True
        return True

    def _has_room(self) -> bool:
        if self._lent_bytes + self._copied_bytes >= WINDOW_BYTES:
            while self._lent and self._lent[0][0].done:
                self._lent_bytes -= self._lent.popleft()[1]
        return self._lent_bytes + self._copied_bytes < WINDOW_BYTES

    def _hand(self, frames: Frames) -> bool:
        nbytes = _size(frames)
        if self._copied_bytes + nbytes < LENT_BYTES:
            if not self._give(frames):
                return False
            self._copied_bytes += nbytes
            return True
        last = zmq.Frame(frames[-1], track=True, copy=False, copy_threshold=0)
        if not self._give([*frames[:-1], last]):
            return False
        self._lent.append((last.tracker, self._copied_bytes + nbytes))
        self._lent_bytes += self._copied_bytes + nbytes
        self._copied_bytes = 0
        return True


def hand(socket: zmq.Socket[bytes], frames: Frames) -> None:
    """Give ZeroMQ a message without waiting; it is lent the last part where that is a ``zmq.Frame``.

    Raises:
        zmq.ZMQError: it takes nothing now (``zmq.Again``), or not from us.
    """
    last = len(frames) - 1
    for part in frames[:last]:
        socket.send(part, _AND_MORE)
    socket.send(frames[last], zmq.DONTWAIT, copy=not isinstance(frames[last], zmq.Frame))


def _size(frames: Frames) -> int:
    return sum(memoryview(frame).nbytes for frame in frames)
