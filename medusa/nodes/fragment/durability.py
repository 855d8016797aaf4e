"""What must be true before output leaves a fragment, and before its input is acknowledged: one policy object.

    part          a decision's output leaves once   what came before a moment is acknowledged once
    ───────────   ───────────────────────────────   ──────────────────────────────────────────────────────
    own disk      it has the decision               it has the checkpoint of that moment
    receivers     it is there                       they have all that had come out by then
    secondaries   each has the decision             each has what that checkpoint holds: on its disk, or, of a
                                                    passive standby, in memory

A fragment's policy is made of such parts, and all of them have to agree: ``OwnDisk`` where its node has
one, ``Receivers`` where the node keeps nothing (``store = "memory"``), and ``Secondaries`` beside where
others stand by. What a successor could contradict so never leaves: it has every decision that anything shown
depends on, and its senders still have every row that it hasn't.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Protocol, TypeVar

__all__ = [
    "Durability",
    "FragmentProgress",
    "Moment",
    "OwnDisk",
    "Part",
    "Receivers",
    "Secondaries",
    "policy_of",
]

ALL = 1 << 62
"""More decisions than a fragment makes."""


class FragmentProgress(Protocol):
    """How far a fragment is, as its policy asks it."""

    @property
    def decisions_on_disk(self) -> int:
        """Decisions below it are on the own disk."""
        ...

    @property
    def checkpoint_on_disk(self) -> int:
        """The newest checkpoint that is on the own disk, by token; 0: none."""
        ...

    def received(self, sink: str) -> int | None:
        """Every receiver of this output has the rows below it; None: there is no receiver."""
        ...


class Moment(Protocol):
    """Where a fragment stood between two runs of its engine: a checkpoint, or a cut that neighbours keep."""

    @property
    def token(self) -> int:
        """A later one has a larger one."""
        ...

    @property
    def outputs(self) -> Collection[tuple[str, int]]:
        """(sink, next row) of each output."""
        ...


M = TypeVar("M", bound=Moment)


class Part(Protocol):
    """One whose word counts.

    Attributes:
        keeps: it takes decisions and checkpoints, so the fragment has to write them.
    """

    keeps: bool

    def released(self, of: FragmentProgress) -> int:
        """It has the decisions below this one."""
        ...

    def covers(self, moment: Moment, of: FragmentProgress) -> bool:
        """Whether nothing that came before this moment has to be sent to the fragment again."""
        ...


class OwnDisk:
    """The disk of the fragment's node: it comes back with what it had written."""

    keeps = True

    def released(self, of: FragmentProgress) -> int:
        return of.decisions_on_disk

    def covers(self, moment: Moment, of: FragmentProgress) -> bool:
        return moment.token <= of.checkpoint_on_disk


class Receivers:
    """Nothing is kept at the node: input may be forgotten once what came of it is received."""

    keeps = False

    def released(self, of: FragmentProgress) -> int:
        return ALL

    def covers(self, moment: Moment, of: FragmentProgress) -> bool:
        received = ((seq, of.received(sink)) for sink, seq in moment.outputs)
        return all(reached is None or seq <= reached for seq, reached in received)


class Secondaries:
    """The nodes that stand by and whose word counts, and what each has said.

    Args:
        decisions: a decision's output waits until they have it; else they make their own.
    """

    keeps = False

    def __init__(self, *, decisions: bool = True) -> None:
        self._decisions = decisions
        self._decided: dict[str, int] = {}
        """Secondary -> decisions below this one it has, and feeds before any other."""
        self._covered: dict[str, int] = {}
        """Secondary -> the newest checkpoint of ours all of which is on its disk, by token."""

    @property
    def names(self) -> Collection[str]:
        """Those whose word counts."""
        return self._decided.keys()

    def require(self, secondaries: Collection[str]) -> None:
        """From now on the words of these count, and of no others; a new one has said nothing yet."""
        self._decided = {each: self._decided.get(each, 0) for each in secondaries}
        self._covered = {each: self._covered.get(each, 0) for each in secondaries}

    def heard(self, secondary: str, *, decided: int, covered: int) -> bool:
        """A secondary has all decisions below ``decided``, and has on disk what checkpoint ``covered``
        holds; whether that is more than it said before, and counts."""
        if secondary not in self._decided:
            return False
        if decided <= self._decided[secondary] and covered <= self._covered[secondary]:
            return False
        self._decided[secondary] = max(self._decided[secondary], decided)
        self._covered[secondary] = max(self._covered[secondary], covered)
        return True

    def has(self, secondary: str, *, decided: int, covered: int) -> bool:
        """Whether one whose word counts has said so much."""
        if secondary not in self._decided:
            return False
        knows = not self._decisions or self._decided[secondary] >= decided
        return knows and self._covered[secondary] >= covered

    def released(self, of: FragmentProgress) -> int:
        return min(self._decided.values(), default=ALL) if self._decisions else ALL

    def covers(self, moment: Moment, of: FragmentProgress) -> bool:
        return all(moment.token <= at for at in self._covered.values())


class Durability:
    """The policy of one fragment: its host asks what may leave and what may be forgotten, and nothing else.

    Args:
        parts: what each of them says has to be true.
        secondaries: one of these parts, where others stand by for the fragment.

    Attributes:
        guarded: the own disk alone is no proof: others stand by.
        keeps: decisions and checkpoints are written at all.
    """

    def __init__(self, *parts: Part, secondaries: Secondaries | None = None) -> None:
        self._secondaries = secondaries
        self._parts: tuple[Part, ...] = parts if secondaries is None else (*parts, secondaries)
        self.guarded = secondaries is not None
        self.keeps = any(part.keeps for part in self._parts)

    def released(self, of: FragmentProgress) -> int:
        """Output that depends on decisions below this one may leave."""
        return min((part.released(of) for part in self._parts), default=ALL)

    def acknowledged(self, moments: deque[M], of: FragmentProgress) -> list[M]:
        """Take out the moments that all parts cover: senders may forget what came before each.

        Args:
            moments: oldest first. One that isn't covered holds up those after it.
        """
        covered: list[M] = []
        while moments and all(part.covers(moments[0], of) for part in self._parts):
            covered.append(moments.popleft())
        return covered

    # --- who stands by ----------------------------------------------------------------------------

    @property
    def secondaries(self) -> Collection[str]:
        """Those whose word counts."""
        return () if self._secondaries is None else self._secondaries.names

    def require(self, secondaries: Collection[str]) -> None:
        """From now on the words of these count, and of no others: see ``Secondaries.require``."""
        assert self._secondaries is not None or not secondaries, "nobody stands by for this fragment"
        if self._secondaries is not None:
            self._secondaries.require(secondaries)

    def heard(self, secondary: str, *, decided: int, covered: int) -> bool:
        """A secondary has so much: see ``Secondaries.heard``."""
        known = self._secondaries
        return known is not None and known.heard(secondary, decided=decided, covered=covered)

    def has(self, secondary: str, *, decided: int, covered: int) -> bool:
        """Whether one whose word counts has said so much."""
        if self._secondaries is None:
            return False
        return self._secondaries.has(secondary, decided=decided, covered=covered)


def policy_of(*, disk: bool, guarded: bool, decisions: bool = True) -> Durability:
    """What holds for a fragment.

    Args:
        disk: its node keeps what it writes over its end.
        guarded: others stand by for it.
        decisions: as in ``Secondaries``.
    """
    own: Part = OwnDisk() if disk else Receivers()
    return Durability(own, secondaries=Secondaries(decisions=decisions) if guarded else None)
