"""Which words of a coordinator are overtaken by later ones of its own.

The questions of a coordinator bear growing numbers, over all its lives. A network may repeat one, or
bring it late: an ``Install`` from before the ``Remove`` that undid it would leave a fragment that nobody
knows of, and a ``Remove`` from before a new deployment would take a part out of that. Remembered in memory:
what was under way to an earlier life of a node never reaches a later one.
"""

from __future__ import annotations

__all__ = ["StaleRequests"]

REMEMBERED = 1000
"""Queries of which the last word is remembered; a word is late by seconds at most, not by so many."""


class StaleRequests:
    """The last word of each coordinator about each query."""

    def __init__(self) -> None:
        self._removed: dict[tuple[str, str], int] = {}
        self._installed: dict[tuple[str, str], int] = {}

    def install(self, owner: str, query: str, request: int) -> bool:
        """Take notice of an ``Install``; whether it is from before the last ``Remove``."""
        if request < self._removed.get((owner, query), -1):
            return True
        _note(self._installed, (owner, query), request)
        return False

    def remove(self, owner: str, query: str, request: int) -> bool:
        """Take notice of a ``Remove``; whether it is from before the last ``Install``."""
        if request < self._installed.get((owner, query), -1):
            return True
        _note(self._removed, (owner, query), request)
        return False

    def end(self, owner: str, query: str) -> None:
        """Somebody else ended it: what was said of it until now brings it back no more."""
        last = self._installed.get((owner, query))
        if last is not None:
            _note(self._removed, (owner, query), last + 1)


def _note(words: dict[tuple[str, str], int], about: tuple[str, str], request: int) -> None:
    last = max(words.pop(about, -1), request)
    words[about] = last
    if len(words) > REMEMBERED:
        del words[next(iter(words))]
