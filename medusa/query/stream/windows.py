"""Methods of streams for windows and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa.query.boxes.checks import check_sizes, need_time
from medusa.query.stream.base import StreamBase
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from medusa.query.stream.time_windows import WindowedStream

__all__ = ["WindowMethods"]


class WindowMethods(StreamBase):
    """Windows."""

    __slots__ = ()

    def window(self, size: Duration, advance: Duration | None = None) -> WindowedStream:
        """Windows of a length of time, aligned to the epoch, half-open ``[start, end)``.

        Go on with ``.aggregate(...)``, or ``.group_by(...).aggregate(...)``.

        Args:
            size: ``"5 min"``, a timedelta, or microseconds.
            advance: how often a window starts, at most ``size``; None: as often as one ends.
        """
        from medusa.query.stream.time_windows import WindowedStream

        size_us = duration_us(size, what="window: size", minimum_us=1)
        advance_us = (
            size_us if advance is None else duration_us(advance, what="window: advance", minimum_us=1)
        )
        label = self._labelled("window", None)
        need_time(self._shape, label, "a window")
        check_sizes(size_us, advance_us, label=label)
        return WindowedStream(self, size_us, advance_us)
