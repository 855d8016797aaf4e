"""What a reader of both lanes of a stream has to see as a table, said in the plainest way.

Of each key the last row that counts, over it the last one that may be wrong and isn't void. What
``CorrectedRows`` shows is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from medusa.elements import START_US

__all__ = ["Key", "PlainTable"]

Key: TypeAlias = tuple[Any, ...]


class PlainTable:
    """Of one stream. A row and a promise cost what all tentative rows that are held cost."""

    def __init__(self) -> None:
        self._stable: dict[Key, Mapping[str, Any]] = {}
        self._guesses: list[tuple[Key, Mapping[str, Any], int]] = []
        """Key, row and time."""
        self._boundary_us: int = START_US

    def stable(self, rows: Iterable[tuple[Key, Mapping[str, Any]]]) -> None:
        """Rows that count."""
        self._stable.update(rows)

    def tentative(self, rows: Iterable[tuple[Key, Mapping[str, Any], int]]) -> None:
        """Rows of the fork that there is, with their times."""
        self._guesses += (each for each in rows if each[2] >= self._boundary_us)

    def promised(self, boundary_us: int) -> None:
        """The stable lane has come so far: what is older is void."""
        self._boundary_us = max(boundary_us, self._boundary_us)
        self._guesses = [each for each in self._guesses if each[2] >= self._boundary_us]

    def has_another_fork(self) -> None:
        """Or none: what the last one put out is void."""
        self._guesses.clear()

    @property
    def tentative_keys(self) -> set[Key]:
        """Keys whose row may be wrong."""
        return {key for key, _, _ in self._guesses}

    def rows(self) -> dict[Key, Mapping[str, Any]]:
        """The table."""
        return self._stable | {key: row for key, row, _ in self._guesses}
