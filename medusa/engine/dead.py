"""Rows on which an expression failed: counted, the first of each box kept, one warning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from medusa.errors import DataError

__all__ = ["DeadLetters", "DeadRow"]

KEPT_MAX = 100
"""Dead rows kept of each box."""


@dataclass(frozen=True, slots=True)
class DeadRow:
    """A row that was left out.

    Attributes:
        box: where it failed.
        error: why.
        row: the input row of that box, by column.
    """

    box: str
    error: str
    row: Mapping[str, Any]


class DeadLetters:
    """What failed in one fragment.

    Args:
        stop: raise at the first failed row instead of leaving it out.
    """

    def __init__(self, *, stop: bool = False) -> None:
        self._stop = stop
        self._kept: dict[str, list[DeadRow]] = {}
        self.fresh: DeadRow | None = None
        """The first dead row ever, until the owner has warned of it and cleared this."""
        self._any = False

    def room(self, box: str) -> int:
        """How many more rows of this box are kept."""
        return KEPT_MAX - len(self._kept.get(box, ()))

    def add(self, row: DeadRow) -> None:
        """Keep a row.

        Raises:
            DataError: failed rows are to stop the run.
        """
        if self._stop:
            raise DataError(
                f"box {row.box!r}: {row.error}",
                hint=f'the row is {dict(row.row)}; on_error="dead" leaves such rows out and counts them',
                code="data.dead",
            )
        kept = self._kept.setdefault(row.box, [])
        if len(kept) < KEPT_MAX:
            kept.append(row)
        if not self._any:
            self._any = True
            self.fresh = row

    def rows(self) -> list[DeadRow]:
        """Those kept, by box in order of first failure, then in order of failure."""
        return [row for kept in self._kept.values() for row in kept]
