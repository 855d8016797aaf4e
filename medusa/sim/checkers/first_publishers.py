"""When somebody published into each source of a run first, as seen from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["FirstPublishers"]


class FirstPublishers:
    """Looked at now and then, so that a publisher is there up to one look later than it was.

    Args:
        sources: by name.
        has_one: whether a node knows of somebody who publishes into a source.
    """

    def __init__(self, sources: Iterable[str], has_one: Callable[[str], bool]) -> None:
        self._has_one = has_one
        self._without = set(sources)
        self._last_us = 0

    def look(self, now_us: int) -> None:
        """Take note of who is there."""
        here = {source for source in self._without if self._has_one(source)}
        if here:
            self._without -= here
            self._last_us = now_us

    @property
    def last_us(self) -> int | None:
        """When the last of the sources had its first publisher; None: one has had none yet."""
        return None if self._without else self._last_us
