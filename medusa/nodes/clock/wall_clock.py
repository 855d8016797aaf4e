"""What time it is, as the driver told it: minds read no clock."""

from __future__ import annotations

__all__ = ["WallClock"]


class WallClock:
    """Microseconds since the Unix epoch, counted on from the moment at which they were told."""

    def __init__(self) -> None:
        self._told_us: tuple[int, int] | None = None

    def told(self, now_us: int, wall_us: int) -> None:
        """At ``now_us`` it was this time; from here on only ``now_us`` counts, until it is said again."""
        self._told_us = (now_us, wall_us)

    def at(self, now_us: int) -> int | None:
        """The time at ``now_us``; None: nobody has told it yet."""
        if self._told_us is None:
            return None
        then_us, wall_us = self._told_us
        return wall_us + now_us - then_us
