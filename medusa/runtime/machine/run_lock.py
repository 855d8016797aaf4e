"""Who may work with a run: one caller at a time, refused or in line."""

from __future__ import annotations

import threading
from collections import deque

from medusa.engine.core.signal_gate import Locked
from medusa.ports import Interrupts, Lock

__all__ = ["LOOK_AGAIN_S", "OneTurn", "SharedTurns"]

LOOK_AGAIN_S = 0.25
"""How long after it came, at most, an interrupt ends a wait."""


class OneTurn:
    """For runs of one thread: whoever comes while another is at work is refused."""

    waits = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.leave = self._lock.release  # small trains cost what this costs

    def enter(self, wait: bool) -> bool:
        return self._lock.acquire(False)

    def pause(self) -> None:
        raise AssertionError("a run of one thread never waits for others")

    def briefly(self, state: Lock) -> Locked:
        return Locked(self._lock, state)


class SharedTurns:
    """For runs of several threads: callers wait for each other, first come, first served.

    Args:
        interrupts: deferred by whoever calls; here nothing is half done, so they end a wait.
    """

    waits = True

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._changed = threading.Condition(threading.Lock())
        self._owner: int | None = None
        self._line: deque[object] = deque()

    def enter(self, wait: bool) -> bool:
        me = threading.get_ident()
        with self._changed:
            if self._owner == me:
                return False  # from its own callback: waiting would be for ever
            if not wait and (self._owner is not None or self._line):
                return False
            self._stand_in_line()
            self._owner = me
        return True

    def _stand_in_line(self) -> None:
        place = object()
        self._line.append(place)
        try:
            while self._owner is not None or self._line[0] is not place:
                self._changed.wait(LOOK_AGAIN_S)
                self._interrupts.check()
        finally:  # also when an interrupt ends the wait
            self._line.remove(place)
            self._changed.notify_all()

    def leave(self) -> None:
        with self._changed:
            if self._owner == threading.get_ident():
                self._owner = None
                self._changed.notify_all()

    def pause(self) -> None:
        """Let others work; returns, with the turn again, after one of them has had his, or none came."""
        with self._changed:
            self._owner = None
            self._changed.notify_all()
            self._changed.wait(LOOK_AGAIN_S)
            self._interrupts.check()
            self._stand_in_line()
            self._owner = threading.get_ident()

    def briefly(self, state: Lock) -> None:
        return None
