"""What comes out of a run though nobody pushes: when sources are silent for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from medusa.engine.logged_fragment import LoggedFragment

__all__ = ["IdleClock", "PassingTime"]


class PassingTime(Protocol):
    """Brings on what comes though nobody pushes.

    Attributes:
        passes: there is something to bring on.
    """

    passes: bool

    def bring_on(self) -> None:
        """Let time pass, within a turn."""


class IdleClock:
    """Lets time pass for sources that may be idle, and for histories that are synced as it passes.

    Args:
        now_us: the moment up to which sources that gave nothing have been silent.
    """

    def __init__(self, fragment: LoggedFragment, now_us: Callable[[], int]) -> None:
        self._fragment = fragment
        self._now_us = now_us
        self.look()

    def look(self) -> None:
        """See which sources and histories there are: of a new query, or of one that has changed."""
        idle = any(box.spec.idle_us is not None for box in self._fragment.sources.values())
        self.passes = idle or bool(self._fragment.connections)

    def bring_on(self) -> None:
        self._fragment.tick(self._now_us())
