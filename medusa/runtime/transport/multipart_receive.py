"""Takes messages from ZeroMQ sockets part by part, and of a message with too many parts only the first.

A socket gives all parts of a message before it gives another message: until the rest of a refused one is
dropped, all other peers at this socket wait. So it is dropped fast, by libzmq's own functions with no object
for each part, and for a bounded time in each turn, so that other sockets go on meanwhile.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

import zmq

from medusa.engine.core.multipart import MultipartCalls, drop_parts

__all__ = ["DroppedParts"]

DROP_S = 0.05
"""So long parts are dropped in one turn: about a million of them."""

DROPPED_AT_ONCE = 10_000
"""Parts between two looks at the clock: less than a millisecond, 12 where pyzmq drops them."""


def libzmq_calls() -> MultipartCalls | None:
    """Functions of the libzmq that pyzmq uses; None: they can't be found."""
    path = getattr(sys.modules.get("zmq.backend.cython._zmq"), "__file__", None)
    if path is None:
        return None
    names = ("zmq_msg_init", "zmq_msg_recv", "zmq_msg_more", "zmq_msg_close")
    try:
        library = ctypes.CDLL(path)  # Loaded already; a name is looked for in what it is linked with, too.
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
    except (OSError, AttributeError):
        return None
    return MultipartCalls(*(address or 0 for address in found)) if all(found) else None


_LIBZMQ = libzmq_calls()


class DroppedParts:
    """What is left of messages that are being dropped, by socket.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._dropping: set[zmq.Socket[bytes] | None] = set()

    def take(self, source: zmq.Socket[bytes], most: int) -> list[zmq.Frame] | None:
        """The next message; of one with more than ``most`` parts the first ``most + 1``, and then call
        ``dropped``. None: there is none.
        """
        try:
            part = source.recv(zmq.DONTWAIT, copy=False)
        except zmq.Again:
            return None
        parts = [part]
        while part.more:  # Asked of the part itself: half the time of ``recv_multipart``.
            if len(parts) > most:
                self._dropping.add(source)
                break
            part = source.recv(zmq.DONTWAIT, copy=False)
            parts.append(part)
        return parts

    def forget(self, source: zmq.Socket[bytes] | None) -> None:
        """This socket is closed."""
        self._dropping.discard(source)

    def dropped(self, source: zmq.Socket[bytes]) -> bool:
        """Drop what is left of the last message, for ``DROP_S``; False: not all of it yet."""
        end_s = self._clock() + DROP_S
        while source in self._dropping:
            if _drop_some(source):
                self._dropping.discard(source)
            elif self._clock() >= end_s:
                return False
        return True


def _drop_some(source: zmq.Socket[bytes]) -> bool:
    """Drop so many parts as is done at once; whether the message ended with them."""
    taken, ended = 0, False
    if _LIBZMQ is not None:
        taken, ended = drop_parts(_LIBZMQ, int(source.underlying), DROPPED_AT_ONCE)
    for _ in range(taken, 0 if ended else DROPPED_AT_ONCE):
        source.recv(zmq.DONTWAIT)  # Raises what libzmq refused.
        if not source.getsockopt(zmq.RCVMORE):
            return True
    return ended
