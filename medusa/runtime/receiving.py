"""Takes messages from ZeroMQ sockets part by part, and of a message with too many parts only the first.

A socket gives all parts of a message before it gives another message. The rest of a refused message is
therefore taken and dropped, a bounded number of parts in each turn, so that heartbeats go on meanwhile.
"""

from __future__ import annotations

import zmq

__all__ = ["DROPPED_MAX", "Parts"]

DROPPED_MAX = 50_000
"""Parts that are dropped in one turn: some 30 ms."""


class Parts:
    """What is left of messages that are being dropped, by socket."""

    def __init__(self) -> None:
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
        """Drop what is left of the last message; False: not all of it yet."""
        if source not in self._dropping:
            return True
        for _ in range(DROPPED_MAX):
            source.recv(zmq.DONTWAIT)
            if not source.getsockopt(zmq.RCVMORE):
                self._dropping.discard(source)
                return True
        return False
