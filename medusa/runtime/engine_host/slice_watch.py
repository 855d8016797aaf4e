"""When a slice has had its time, and whether a piece of it took so long that others waited."""

from __future__ import annotations

from collections.abc import Callable

from medusa.ports import Clock
from medusa.runtime.engine_host.slices import SLICE_US

__all__ = ["SliceWatch"]


class SliceWatch:
    """Of one slice, which begins now.

    Args:
        cpu_us: CPU time that the thread has taken so far; None: unknown, and no piece is too long. Time alone
            tells nothing: the process may have been stopped.
        piece_us: CPU time that a piece may take.
    """

    def __init__(self, clock: Clock, cpu_us: Callable[[], int | None], piece_us: int) -> None:
        self._clock = clock
        self._thread_us = cpu_us
        self._piece_us = piece_us
        self._began_us = self._since_us = clock.monotonic_us()
        self._cpu_us = cpu_us()
        self._held_us: int | None = None

    def ended(self) -> bool:
        """A piece is done: whether that was the last of this slice."""
        now_us = self._clock.monotonic_us()
        if now_us - self._since_us > self._piece_us:
            self._look()
        self._since_us = now_us
        return now_us >= self._began_us + SLICE_US or self._held_us is not None

    def took_cpu_us(self) -> int | None:
        """CPU time of the slice so far; None: unknown."""
        now_us = self._thread_us()
        return None if self._cpu_us is None or now_us is None else now_us - self._cpu_us

    def held_us(self) -> int | None:
        """The slice is done: how long it held the thread in a piece that took too long; None: none did."""
        self.ended()
        return self._held_us

    def _look(self) -> None:
        """What came before this piece in the slice took less than ``SLICE_US``."""
        now_us = self._thread_us()
        if self._cpu_us is not None and now_us is not None and now_us - self._cpu_us > self._piece_us:
            self._held_us = now_us - self._cpu_us
