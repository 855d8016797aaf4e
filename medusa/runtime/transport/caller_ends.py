"""Connections of callers that have ended, as soon as libzmq has noticed it.

Whoever calls hears from its own socket that the connection broke. A socket where many call has one monitor
for all of them, which names a descriptor alone. The thread at the door reads it later than libzmq wrote it,
and the descriptor may be another connection's by then. So what counts is the inode of what was accepted, and
that its descriptor is closed:

    accepted 20: which inode? ── disconnected 20: closed, or another inode's? ── the loop drains: it is over

libzmq passes on all that came by a connection before it closes the descriptor. Once the loop has seen that
and then drained its socket, it has all that the peer ever said.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from medusa.runtime.transport.connection import Connection

__all__ = ["CLOSING_S", "CallerEnds"]

CLOSING_S = 0.05
"""A descriptor is closed microseconds after its end was told. One that stays open for so long is that of
another connection, which got it before the door had asked whose it is: that one goes on."""


class CallerEnds:
    """Ends of the connections at one socket.

    Args:
        wake: makes the loop ask for ``closed``.
        clock: seconds.

    The thread at the door calls ``accepted``, ``disconnected`` and ``gone``, the loop's thread all else.
    """

    def __init__(self, wake: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._wake = wake
        self._clock = clock
        self._open: dict[int, Connection] = {}
        self._told: deque[tuple[float, Connection]] = deque()
        self._closing: list[tuple[float, Connection]] = []
        self._gone: deque[int] = deque()
        """Descriptors of connections that had ended before the door asked whose they are."""

    def accepted(self, connection: Connection) -> None:
        """It stands; what had its descriptor before has ended, should that have escaped us."""
        before = self._open.get(connection.number)
        if before != connection:
            self.disconnected(connection.number)
        self._open[connection.number] = connection

    def disconnected(self, number: int) -> None:
        """What has this descriptor has ended, and closes it about now."""
        connection = self._open.pop(number, None)
        if connection is not None:
            self._told.append((self._clock(), connection))
            self._wake()

    def gone(self, number: int) -> None:
        """What was accepted under this descriptor is closed already."""
        self._gone.append(number)
        self._wake()

    def closed(self) -> list[Connection]:
        """Those whose descriptor has been closed since the last call."""
        if not self._told and not self._closing:
            return []
        self._closing += [self._told.popleft() for _ in range(len(self._told))]
        since_s = self._clock() - CLOSING_S
        over: list[Connection] = []
        waiting: list[tuple[float, Connection]] = []
        for told_s, connection in self._closing:
            if not connection.is_open():
                over.append(connection)
            elif told_s > since_s:
                waiting.append((told_s, connection))
        self._closing = waiting
        return over

    def closed_unseen(self) -> set[int]:
        """Descriptors of connections that came and ended while the door was busy: of those by which messages
        came, the closed ones have ended."""
        return {self._gone.popleft() for _ in range(len(self._gone))}

    @property
    def waits(self) -> bool:
        """Some are about to be closed: ask again in a moment."""
        return bool(self._told or self._closing)
