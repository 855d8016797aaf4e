"""Who may work with a run: one caller at a time, refused or in line."""

from __future__ import annotations

import threading

__all__ = ["OneTurn", "SharedTurns"]


class OneTurn:
    """For runs of one thread: whoever comes while another is at work is refused."""

    waits = False

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def enter(self, wait: bool) -> bool:
        return self._lock.acquire(blocking=False)

    def leave(self) -> None:
        self._lock.release()

    def pause(self) -> None:
        raise AssertionError("a run of one thread never waits for others")


class SharedTurns:
    """For runs of several threads: callers wait for each other."""

    waits = True

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._owner: int | None = None

    def enter(self, wait: bool) -> bool:
        me = threading.get_ident()
        with self._changed:
            if self._owner == me:
                return False  # from its own callback: waiting would be for ever
            while self._owner is not None:
                if not wait:
                    return False
                self._changed.wait()
            self._owner = me
        return True

    def leave(self) -> None:
        with self._changed:
            if self._owner == threading.get_ident():
                self._owner = None
                self._changed.notify_all()

    def pause(self) -> None:
        """Let others work; returns, with the turn again, after one of them has had his."""
        me = threading.get_ident()
        with self._changed:
            self._owner = None
            self._changed.notify_all()
            self._changed.wait()
            while self._owner is not None:
                self._changed.wait()
            self._owner = me
