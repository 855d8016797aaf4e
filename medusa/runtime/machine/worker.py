"""What does jobs beside the loop: a thread of a process, or a simulator's in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Worker"]


class Worker(Protocol):
    """Does what it is given, in order, beside the loop."""

    @property
    def idle(self) -> bool:
        """Nothing waits."""

    def give(self, job: Callable[[], None]) -> None:
        """Do this after everything given before."""

    def cpu_us(self) -> int | None:
        """CPU time that it has taken so far; None: unknown."""

    def stop(self, timeout_s: float | None = None, *, last: Callable[[], None] | None = None) -> bool:
        """Do what was given, then ``last``, then end; whether that was in time (None: wait for it)."""
