"""Bounds what libzmq holds of messages that aren't whole yet.

libzmq hands over a message when its last part has come. Until then it keeps all parts, however many:
``MAXMSGSIZE`` bounds one part, and the high-water mark counts whole messages. A peer that never sends the
last part fills our memory, unseen. The kernel's counts show it: once the loop has taken every whole
message, the bytes read from a connection since its last whole message belong to an unfinished one. If they
are more than a message may have, the connection is ended, and libzmq frees them.

    check: sample bytes ── the loop drains its sockets ── check: still no message? the sample is unfinished

A flood of messages may keep the loop from ever draining the socket where callers come in. It gives one
message of each of them in turn (``caller_rounds``): who brought none in several rounds had no whole one.

Only TCP connections on Linux are measured. An ipc socket is its owner's alone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from medusa.runtime.transport.caller_rounds import CallerRounds, RoundsMark
from medusa.runtime.transport.connection import Connection
from medusa.runtime.transport.sockets import FRAME_BYTES_MAX
from medusa.wire import limits

__all__ = ["Overrun", "ReceiveMeter"]

UNFINISHED_BYTES_MAX = FRAME_BYTES_MAX + limits.HEADER_BYTES_MAX + (64 << 10)
"""Of one connection: the largest frame, and what encryption and libzmq's buffers add. Too small: a large
frame never gets through; too large: memory, 30 times as much where parts are empty and not encrypted."""

ALL_UNFINISHED_BYTES_MAX = 8 * UNFINISHED_BYTES_MAX
"""Of all connections together. Beyond it the one that has waited longest for its last part ends."""

SLOW_CPU_S = 0.15
"""A message without encryption is slow once this process has worked so long since it began: a frame of 4 MiB
costs us 3 ms, parts of one byte cost 35 ns a byte and leave 600 MB of memory behind for each second."""

SLOW_BYTES_MAX = UNFINISHED_BYTES_MAX
"""Of all slow messages together, where nothing is encrypted and so every peer is on this machine. Too
small: of several honest peers that hardly run one has to send again; too large: memory, 30 times as much."""

UNTAKEN_BYTES_MAX = 64 << 20
"""Of one connection since the loop last took a message from it, whole or not: a bound while the loop is held
up. ``HIGH_WATER`` trains are half of it; a peer with more under way reconnects and sends it again."""

ALL_UNTAKEN_BYTES_MAX = 4 * UNTAKEN_BYTES_MAX
"""Of all connections together. Beyond it the one with the most ends."""

CHECK_S = 0.025
CHECK_SOON_S = 0.005
"""Where a sample is beyond a bound."""

CHECK_SHARE = 20
"""Checks take at most one part in so many of a core's time, however many connections there are."""


@dataclass(frozen=True, slots=True)
class Overrun:
    """A connection that was ended, with the bytes that were held of it.

    Attributes:
        called: we called it.
    """

    connection: Connection
    called: bool
    nbytes: int


@dataclass(slots=True)
class _Metered:
    """One connection.

    Attributes:
        called: we called it: it has a socket of its own.
        messages: taken from it when we looked last.
        base: bytes read from it when a message had just been taken.
        since_s: when that was.
        begun_cpu_s: our CPU time when bytes were first seen after ``base``.
        sample, sampled_s, mark: bytes read at a time, and the rounds until then; the next drain or some more
            rounds show whether they were whole messages.
        held: read since ``base``.
        unfinished: of those, surely not of whole messages.
    """

    connection: Connection
    called: bool
    since_s: float
    begun_cpu_s: float
    mark: RoundsMark
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
        keyed: all connections are encrypted; their peers may be far away, and small parts cost them dear.
        bytes_read: of a connection so far; None: it is gone, or can't be measured.
        cpu_s: CPU time of this process so far.

    The loop's thread calls ``took``, ``turned`` and ``ended``; one other may call the rest.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        *,
        keyed: bool,
        bytes_read: Callable[[Connection], int | None] = Connection.bytes_read,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._wake = wake
        self._keyed = keyed
        self._bytes_read = bytes_read
        self._cpu_s = cpu_s
        self._lock = threading.Lock()
        self._metered: dict[int, _Metered] = {}
        self._messages: dict[int, int] = {}
        """Descriptor -> whole messages that came by it."""
        self._rounds = CallerRounds()
        self._turned_s = self._drained_s = float("-inf")
        self._ended: deque[Overrun] = deque()
        self._check_at_s = 0.0

    # --- the loop ---------------------------------------------------------------------------------

    def took(self, number: int, *, called: bool = False) -> None:
        """A whole message came by this descriptor; ``called``: of a connection that we called."""
        self._messages[number] = self._messages.get(number, 0) + 1
        if not called:
            self._rounds.took(number)  # After the count: who sees a round sees its messages.

    def turned(self, since_s: float, *, drained: bool) -> None:
        """A turn is over: of each called connection that had a whole message at this time, one was taken.

        Args:
            drained: all that callers had whole at this time was taken too.
        """
        self._turned_s = since_s
        if drained:
            self._drained_s = since_s

    def ended(self) -> list[Overrun]:
        """Connections that were ended since the last call."""
        return [self._ended.popleft() for _ in range(len(self._ended))]

    # --- connections ------------------------------------------------------------------------------

    def opened(self, now_s: float, connection: Connection, *, called: bool = False) -> None:
        """A connection stands; nothing was read from it before, and nothing taken."""
        with self._lock:
            self._messages.pop(connection.number, None)
            self._metered[connection.number] = _Metered(
                connection, called, now_s, self._cpu_s(), self._rounds.mark()
            )

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

    def check(self, now_s: float) -> None:
        """Look at all connections if that is due; those beyond a bound are ended."""
        if now_s < self._check_at_s:
            return
        began_s = time.thread_time()  # Not by the clock: on a busy machine it would check less often.
        # In this order: what was drained was counted before.
        turned_s, drained_s, mark = self._turned_s, self._drained_s, self._rounds.mark()
        cpu_s = self._cpu_s()
        with self._lock:
            for number in list(self._metered):
                each = self._metered[number]
                after_s = turned_s if each.called else drained_s
                shown = after_s > each.sampled_s or (not each.called and mark.shows(each.mark))
                self._look(now_s, cpu_s, each, shown=shown)
            self._end_some(cpu_s)
            over = self._may_be_over(cpu_s)
        share_s = CHECK_SHARE * (time.thread_time() - began_s)
        self._check_at_s = now_s + max(CHECK_SOON_S if over else CHECK_S, share_s)
        if over:
            self._wake()

    def _look(self, now_s: float, cpu_s: float, each: _Metered, *, shown: bool) -> None:
        """Count anew; ``shown``: of what was whole at the last sample, a message was taken."""
        number = each.connection.number
        messages = self._messages.get(number, 0)  # Before the bytes: what is taken meanwhile shows next time.
        read = self._bytes_read(each.connection)
        if read is None:
            del self._metered[number]
            return
        if messages != each.messages:
            each.messages, each.base, each.since_s = messages, read, now_s
            each.sample, each.held, each.unfinished = None, 0, 0
            each.begun_cpu_s = cpu_s
            return
        if each.sample is not None and shown:
            each.unfinished, each.sample = each.sample - each.base, None
        if each.sample is None:
            each.sample, each.sampled_s = read, now_s
            each.mark = self._rounds.mark()  # After the bytes: a round before them shows nothing.
        each.held = read - each.base
        if not each.held:
            each.begun_cpu_s = cpu_s

    def _slow(self, cpu_s: float) -> list[_Metered]:
        """Those whose message hasn't come in ``SLOW_CPU_S``, where that is bounded."""
        if self._keyed:
            return []
        return [each for each in self._metered.values() if cpu_s - each.begun_cpu_s > SLOW_CPU_S]

    def _may_be_over(self, cpu_s: float) -> bool:
        """Whether a bound is broken, should what is held be of unfinished messages."""
        held = [each.held for each in self._metered.values()]
        return (
            sum(held) > ALL_UNFINISHED_BYTES_MAX
            or max(held, default=0) > UNFINISHED_BYTES_MAX
            or sum(each.held for each in self._slow(cpu_s)) > SLOW_BYTES_MAX
        )

    def _end_some(self, cpu_s: float) -> None:
        for each in list(self._metered.values()):
            if each.unfinished > UNFINISHED_BYTES_MAX or each.held > UNTAKEN_BYTES_MAX:
                self._end(each)
        unfinished = sorted(self._metered.values(), key=lambda each: each.since_s)
        self._end_first(unfinished, [each.unfinished for each in unfinished], ALL_UNFINISHED_BYTES_MAX)
        slow = sorted(self._slow(cpu_s), key=lambda each: each.begun_cpu_s)
        self._end_first(slow, [each.held if each.unfinished else 0 for each in slow], SLOW_BYTES_MAX)
        untaken = sorted(self._metered.values(), key=lambda each: -each.held)
        self._end_first(untaken, [each.held for each in untaken], ALL_UNTAKEN_BYTES_MAX)

    def _end_first(self, candidates: list[_Metered], nbytes: list[int], most: int) -> None:
        """End connections in this order until the rest have no more than ``most``."""
        total = sum(nbytes)
        for each, size in zip(candidates, nbytes, strict=True):
            if total <= most:
                break
            if size:
                total -= size
                self._end(each)

    def _end(self, each: _Metered) -> None:
        del self._metered[each.connection.number]
        each.connection.cut(reset=True)
        self._ended.append(Overrun(each.connection, each.called, each.held))
