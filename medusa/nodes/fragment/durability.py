"""What must be true before output leaves a fragment, and before its input is acknowledged: one policy object.

    own disk       has the decision           ─┐
    each secondary has fed what it decided    ─┴─> output that depends on it leaves
    own disk       has the checkpoint         ─┐
    each secondary has one that holds as much ─┴─> input is acknowledged: senders forget it

What a successor could contradict so never leaves: it has every decision that anything shown depends on, and
its senders still have every row that it hasn't.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["Durability"]


class Durability:
    """The secondaries whose word counts, and what each has said.

    Without secondaries the own disk decides alone.
    """

    def __init__(self) -> None:
        self._decided: dict[str, int] = {}
        """Secondary -> decisions below this one it has fed."""
        self._covered: dict[str, int] = {}
        """Secondary -> the newest checkpoint of ours all of which is on its disk, by token."""

    @property
    def secondaries(self) -> Collection[str]:
        """Those whose word counts."""
        return self._decided.keys()

    def require(self, secondaries: Collection[str]) -> None:
        """From now on the words of these count, and of no others; a new one has said nothing yet."""
        self._decided = {each: self._decided.get(each, 0) for each in secondaries}
        self._covered = {each: self._covered.get(each, 0) for each in secondaries}

    def heard(self, secondary: str, *, decided: int, covered: int) -> None:
        """A secondary has fed all decisions below ``decided``, and has on disk what checkpoint ``covered``
        holds."""
        if secondary in self._decided:
            self._decided[secondary] = max(self._decided[secondary], decided)
            self._covered[secondary] = max(self._covered[secondary], covered)

    def has_decision(self, number: int) -> bool:
        """Whether every secondary has fed this decision."""
        return all(number < at for at in self._decided.values())

    def covers(self, token: int) -> bool:
        """Whether every secondary has on its disk what this checkpoint of ours holds."""
        return all(token <= at for at in self._covered.values())

    def has(self, secondary: str, *, decided: int, covered: int) -> bool:
        """Whether one whose word counts has said so much."""
        if secondary not in self._decided:
            return False
        return self._decided[secondary] >= decided and self._covered[secondary] >= covered
