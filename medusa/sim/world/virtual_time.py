"""Virtual time: one heap of events, one seed, one trace. Nothing here knows about nodes.

The same seed gives the same run, event by event, on any machine and under any ``PYTHONHASHSEED``:
ties are broken by order of creation, and every random choice comes from ``World.dice``.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from random import Random

__all__ = ["SimulationError", "World"]

LAST_LINES_MAX = 60
"""Trace lines kept for the report of a failure."""


class SimulationError(AssertionError):
    """An invariant doesn't hold, or the world never comes to rest."""


class World:
    """The clock, the dice and the trace.

    Args:
        seed: decides everything random, together with ``name``.
        keep_trace: keep every line (for scenarios that compare them), not only the last.
    """

    def __init__(self, seed: int, *, name: str = "", keep_trace: bool = False) -> None:
        self.seed = seed
        self._name = name
        self.now_us = 0
        self.events = 0
        self._observer: Callable[..., None] = lambda machines, fault: None
        self.lines: deque[str] = deque(maxlen=None if keep_trace else LAST_LINES_MAX)
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._hash = blake2b(digest_size=8)

    def observe(self, observer: Callable[..., None]) -> None:
        """Tell of each fault that begins: on which machines, and which."""
        self._observer = observer

    def tell_fault(self, machines: object, fault: object) -> None:
        """A fault begins."""
        self._observer(machines, fault)

    def at(self, when_us: int, action: Callable[[], None]) -> None:
        """Do this then; ties are done in the order in which they were asked for."""
        assert when_us >= self.now_us, "virtual time never runs back"
        heapq.heappush(self._heap, (when_us, self._order, action))
        self._order += 1

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do this so much later."""
        self.at(self.now_us + delay_us, action)

    def dice(self, purpose: str) -> Random:
        """Dice of their own for each purpose, so that a fault left out doesn't change the input."""
        return Random(f"{self._name} {self.seed} {purpose}")

    def trace(self, who: str, what: str) -> None:
        """Say what happened: goes into the hash that makes two runs comparable."""
        line = f"{self.now_us / 1e6:9.6f}s {who:<8} {what}"
        self._hash.update(line.encode() + b"\n")
        self.lines.append(line)

    @property
    def trace_hash(self) -> str:
        """Of every line so far."""
        return self._hash.hexdigest()

    def run(self, *, until_us: int, events_max: int, done: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass until ``done``, the heap is empty or the next event lies beyond ``until_us``.

        Returns:
            whether ``done`` came true. Otherwise the clock stands at ``until_us``.

        Raises:
            SimulationError: too many events: livelock.
        """
        for _ in range(events_max):
            if done():
                return True
            if not self._heap or self._heap[0][0] > until_us:
                self.now_us = max(self.now_us, until_us)
                return done()
            self.now_us, _, action = heapq.heappop(self._heap)
            self.events += 1
            action()
        raise SimulationError(f"no rest after {events_max:,} events: livelock?")
