"""Bells: how those who wait, in threads or in asyncio, hear that another thread has done something.

Whoever waits takes a bell with the lock held under which he looked, and looks again when it rings. Not a
Condition: Ctrl-C may interrupt its wait where the lock is not yet taken back (see ``client_loop``).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

__all__ = ["RING_MAX_S", "Notifiers"]

RING_MAX_S = 60.0
"""Waits of any length are made of such; what is waited for rings far more often, or when it is there."""


class Notifiers:
    """Bells that ring once, together. All methods are called with one lock held."""

    def __init__(self) -> None:
        self._ringers: list[Callable[[], None]] = []

    def of_thread(self) -> threading.Lock:
        """A lock that can be taken when it has rung."""
        bell = threading.Lock()
        bell.acquire()
        self._ringers.append(bell.release)
        return bell

    def of_task(self) -> asyncio.Event:
        """An event of the running loop that is set when it has rung."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def ring() -> None:
            with contextlib.suppress(RuntimeError):  # The loop has ended; so has whoever waited.
                loop.call_soon_threadsafe(event.set)

        self._ringers.append(ring)
        return event

    def ring(self) -> None:
        """Let those who wait look again."""
        ringers, self._ringers = self._ringers, []
        for ring in ringers:
            ring()
