"""From and up to which row tasks of ours are paid for: told to the partner until it says that it knows.

Both parties have to begin and end with the same numbers. Who owns a task knows them: the row at which it was
handed over, and the one at which it came home.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from medusa.nodes.catalog.kept_market import TaskMark
from medusa.nodes.market.market_words import TaskRows, TaskRowsHeard

__all__ = ["MarkKey", "TaskMarks"]

MarkKey = tuple[str, str, int, str]
"""Partner, contract, negotiation, task."""

AGAIN_US = 2_000_000
AGAIN_US_MAX = 60_000_000
"""What isn't answered is said again after so long, doubled each time up to this."""


class TaskMarks:
    """Those of one node.

    Args:
        kept: as they were before a restart.
    """

    def __init__(self, kept: Iterable[TaskMark] = ()) -> None:
        self._marks = {_key(mark): mark for mark in kept}
        self._due: dict[MarkKey, tuple[int, int]] = {}
        """When it is said again, and after how long the time after that."""

    def kept(self) -> tuple[TaskMark, ...]:
        """For the next life."""
        return tuple(self._marks.values())

    def find(self, partner: str, contract: str, negotiation: int, task: str) -> TaskMark | None:
        return self._marks.get((partner, contract, negotiation, task))

    def began(self, partner: str, contract: str, negotiation: int, task: str, row: int) -> None:
        """It was handed over with the rows before this one."""
        key = partner, contract, negotiation, task
        if key not in self._marks:
            self._marks[key] = TaskMark(
                partner=partner, contract=contract, negotiation=negotiation, task=task, begin_row=row
            )

    def ended(self, partner: str, contract: str, negotiation: int, task: str, row: int) -> None:
        """It is home, with the rows before this one."""
        key = partner, contract, negotiation, task
        mark = self._marks.get(key)
        if mark is not None and mark.end_row is None:
            self._marks[key] = msgspec.structs.replace(mark, end_row=row)
            self._due.pop(key, None)

    def heard(self, partner: str, word: TaskRowsHeard) -> None:
        """The partner knows. What isn't ours, or is over, is no news."""
        key = partner, word.contract, word.negotiation, word.task
        mark = self._marks.get(key)
        if mark is None:
            return
        if word.ended and mark.end_row is not None:
            del self._marks[key]
            self._due.pop(key, None)
        elif not mark.heard_begin:
            self._marks[key] = msgspec.structs.replace(mark, heard_begin=True)

    def due(self, time_us: int) -> Iterator[tuple[str, TaskRows]]:
        """What is to be said now, and to whom."""
        for key, mark in self._marks.items():
            if mark.end_row is None and mark.heard_begin:
                continue
            at_us, pause_us = self._due.get(key, (time_us, AGAIN_US))
            if time_us >= at_us:
                self._due[key] = time_us + pause_us, min(2 * pause_us, AGAIN_US_MAX)
                yield (
                    mark.partner,
                    TaskRows(
                        contract=mark.contract,
                        negotiation=mark.negotiation,
                        task=mark.task,
                        begin_row=mark.begin_row,
                        end_row=mark.end_row,
                    ),
                )

    def is_reached(self, partner: str) -> None:
        """It is there again: nothing waits for its time."""
        for key in [key for key in self._due if key[0] == partner]:
            del self._due[key]

    def wake_at_us(self, time_us: int) -> int | None:
        """When something is to be said."""
        waiting = (
            key for key, mark in self._marks.items() if mark.end_row is not None or not mark.heard_begin
        )
        return min((self._due.get(key, (time_us, 0))[0] for key in waiting), default=None)


def _key(mark: TaskMark) -> MarkKey:
    return mark.partner, mark.contract, mark.negotiation, mark.task
