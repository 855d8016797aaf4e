"""Who wants to know that something happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Watchers"]


class Watchers:
    """They are told in whatever thread it happened."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def tell(self) -> None:
        if not self._calls:
            return
        for call in tuple(self._calls):
            call()

    @contextmanager
    def watching(self, call: Callable[[], None]) -> Iterator[None]:
        """While this is open, ``call`` is told."""
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)
