"""Bounds what libzmq holds of messages that aren't whole yet.

libzmq hands over a message when its last part has come. Until then it keeps all parts, however many:
``MAXMSGSIZE`` bounds one part, and the high-water mark counts whole messages. A peer that never sends the
last part fills our memory, unseen. The kernel's counts show it: once the loop has taken every whole
message, the bytes read from a connection since its last whole message belong to an unfinished one. If they
are more than a message may have, the connection is ended, and libzmq frees them.

    check: sample bytes ── the loop drains its sockets ── check: still no message? the sample is unfinished

Only TCP connections on Linux are measured. An ipc socket is its owner's alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from medusa.runtime.connection import Connection
from medusa.runtime.sockets import FRAME_BYTES_MAX
from medusa.wire import limits

__all__ = ["Overrun", "ReceiveMeter"]

UNFINISHED_BYTES_MAX = FRAME_BYTES_MAX + limits.HEADER_BYTES_MAX + (64 << 10)
"""Of one connection: the largest frame, and what encryption and libzmq's buffers add. Too small: a large
frame never gets through; too large: memory, 21 times as much where parts have one byte and no encryption."""

ALL_UNFINISHED_BYTES_MAX = 8 * UNFINISHED_BYTES_MAX
"""Of all connections together. Beyond it the one that has waited longest for its last part ends."""

UNTAKEN_BYTES_MAX = 64 << 20
"""Of one connection since the loop last took a message from it, whole or not: a bound while the loop is held
up. ``HIGH_WATER`` trains are half of it; a peer with more under way reconnects and sends it again."""

CHECK_S = 0.025
CHECK_SOON_S = 0.005
"""Where a sample is beyond a bound."""

CHECK_SHARE = 20
"""Checks take at most one part in so many of a core's time, however many connections there are."""


@dataclass(frozen=True, slots=True)
class Overrun:
    """A connection that was ended, with the bytes that were held of its message."""

    connection: Connection
    nbytes: int


@dataclass(slots=True)
class _Metered:
    """One connection.

    Attributes:
        messages: taken from it when we looked last.
        base: bytes read from it when a message had just been taken.
        since_s: when that was.
        sample, sampled_s: bytes read at a time; the next drain shows whether they were whole messages.
        held: read since ``base``.
        unfinished: of those, surely not of whole messages.
    """

    connection: Connection
    since_s: float
    messages: int = 0
    base: int = 0
    sample: int | None = None
    sampled_s: float = 0.0
    held: int = 0
    unfinished: int = 0


class ReceiveMeter:
    """What is held of each connection of a transport.

    Args:
        wake: makes the loop drain its sockets soon; called where a sample is beyond a bound.
        bytes_read: of a connection so far; None: it is gone, or can't be measured.

    The loop's thread calls ``took``, ``drained`` and ``ended``; one other may call the rest.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        bytes_read: Callable[[Connection], int | None] = Connection.bytes_read,
    ) -> None:
        self._wake = wake
        self._bytes_read = bytes_read
        self._lock = threading.Lock()
        self._metered: dict[int, _Metered] = {}
        self._messages: dict[int, int] = {}
        """Descriptor -> whole messages that came by it."""
        self._drained_s = float("-inf")
        self._ended: deque[Overrun] = deque()
        self._check_at_s = 0.0

    # --- the loop ---------------------------------------------------------------------------------

    def took(self, number: int) -> None:
        """A whole message came by this descriptor."""
        self._messages[number] = self._messages.get(number, 0) + 1

    def drained(self, since_s: float) -> None:
        """All that was whole at this time has been taken, and ``took`` was called for it."""
        self._drained_s = since_s

    def ended(self) -> list[Overrun]:
        """Connections that were ended since the last call."""
        return [self._ended.popleft() for _ in range(len(self._ended))]

    # --- connections ------------------------------------------------------------------------------

    def opened(self, now_s: float, connection: Connection) -> None:
        """A connection stands; nothing was read from it before."""
        with self._lock:
            self._metered[connection.number] = _Metered(connection, now_s)

    def closed(self, number: int) -> None:
        """It has ended; its descriptor may be another's soon."""
        with self._lock:
            self._metered.pop(number, None)
            self._messages.pop(number, None)

    def has_spoken(self, number: int) -> bool:
        """Whether a whole message came by it: with keys, its peer was let in."""
        return number in self._messages

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until the next check; None: there is nothing to check."""
        return max(self._check_at_s - now_s, 0.0) if self._metered else None

    def check(self, now_s: float, clock: Callable[[], float]) -> None:
        """Look at all connections if that is due; those beyond a bound are ended."""
        if now_s < self._check_at_s:
            return
        # In this order: what was drained was counted before.
        drained_s = self._drained_s
        with self._lock:
            for number in list(self._metered):
                self._look(now_s, self._metered[number], drained_s)
            self._end_some()
            held = [each.held for each in self._metered.values()]
        over = sum(held) > ALL_UNFINISHED_BYTES_MAX or max(held, default=0) > UNFINISHED_BYTES_MAX
        after_s = clock()
        self._check_at_s = after_s + max(CHECK_SOON_S if over else CHECK_S, CHECK_SHARE * (after_s - now_s))
        if over:
            self._wake()

    def _look(self, now_s: float, each: _Metered, drained_s: float) -> None:
        number = each.connection.number
        messages = self._messages.get(number, 0)  # Before the bytes: what is taken meanwhile shows next time.
        read = self._bytes_read(each.connection)
        if read is None:
            del self._metered[number]
            return
        if messages != each.messages:
            each.messages, each.base, each.since_s = messages, read, now_s
            each.sample, each.held, each.unfinished = None, 0, 0
            return
        if each.sample is not None and drained_s > each.sampled_s:
            each.unfinished, each.sample = each.sample - each.base, None
        if each.sample is None:
            each.sample, each.sampled_s = read, now_s
        each.held = read - each.base

    def _end_some(self) -> None:
        for each in list(self._metered.values()):
            if each.unfinished > UNFINISHED_BYTES_MAX or each.held > UNTAKEN_BYTES_MAX:
                self._end(each)
        oldest_first = sorted(self._metered.values(), key=lambda each: each.since_s)
        total = sum(each.unfinished for each in oldest_first)
        for each in oldest_first:
            if total <= ALL_UNFINISHED_BYTES_MAX:
                break
            if each.unfinished:
                total -= each.unfinished
                self._end(each)

    def _end(self, each: _Metered) -> None:
        del self._metered[each.connection.number]
        each.connection.cut(reset=True)
        self._ended.append(Overrun(each.connection, each.held))
