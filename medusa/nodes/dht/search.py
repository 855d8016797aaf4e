"""One search in the catalog between participants: ask those nearest to a place for nearer ones. Pure.

Iterative, as Kademlia's (Maymounkov and Mazières, IPTPS 2002, 2.3): who searches asks, each answer names
members that are nearer, and it ends when the nearest that live have all answered. So no member is trusted
with more than its own answer: one that names nobody, or nobody near, is outvoted by what the others name.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass

from medusa.wire.dht_entry import Age, DhtEntry, age_of

__all__ = ["ALPHA", "REPLICAS", "DhtSearch", "Ended", "SearchOutcome"]

REPLICAS = 3
"""Members that hold an entry, the nearest to its name. All of them are asked: two that hold the youngest
entry are more than one that lies."""

WIDE = 2 * REPLICAS
"""So many are asked before it is said that nobody holds an entry: the nearest may have come just now."""

ALPHA = 3
"""Questions under way at once. Too few: a dead member holds up the search; too many: messages for nothing."""

CANDIDATES_MAX = 200
"""Members that one search looks at, however many are named to it."""

NEW, ASKED, SLOW, ANSWERED, FAILED = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """How a search ended.

    Attributes:
        entry: the youngest that counts; None: there is none, or it is gone.
        data, age: its signed bytes and age, also of one that is gone; empty and None: there is none.
        nearest: members that answered, the nearest first, at most ``REPLICAS``; the searcher may be one.
        stale: of these, those that hold an older entry, or none.
        hops: so many answers, one after the other, led to the nearest.
        asked: questions.
        whole: the nearest have all answered in time.
    """

    name: str
    entry: DhtEntry | None
    data: bytes
    age: Age | None
    nearest: tuple[str, ...]
    stale: tuple[str, ...]
    hops: int
    asked: int
    whole: bool


Ended = Callable[[int, SearchOutcome], None]
"""Told when, and what was found."""


class DhtSearch:
    """A search that goes on.

    Args:
        target: the place.
        name: whose entry is wanted too; empty: only members are.
        deadline_us: then it ends with what there is.
        then: gets what was found.
    """

    def __init__(self, target: int, name: str, *, deadline_us: int, then: Ended) -> None:
        self.target = target
        self.name = name
        self.deadline_us = deadline_us
        self.then = then
        self.number = 0
        self.questions = 0
        self._asked = 0
        self._order: list[tuple[int, str]] = []
        """(distance, member), the nearest first, without those that failed."""
        self._states: dict[str, int] = {}
        self._depths: dict[str, int] = {}
        self._said: dict[str, Age] = {}
        """Member -> age of the entry that it holds, where it counts."""
        self._data: tuple[Age, bytes, DhtEntry] | None = None

    def add(self, member: str, distance: int, depth: int, *, answered: bool = False) -> None:
        """Somebody was named."""
        if member in self._states or len(self._states) >= CANDIDATES_MAX:
            return
        self._states[member] = ANSWERED if answered else NEW
        self._depths[member] = depth
        insort(self._order, (distance, member))

    def knows(self, member: str) -> bool:
        """Whether it was named already."""
        return member in self._states

    def holds(self, member: str, entry: DhtEntry, data: bytes) -> None:
        """A member showed an entry, which counts."""
        age = age_of(entry)
        self._said[member] = age
        if self._data is None or (age, data) > self._data[:2]:
            self._data = (age, data, entry)

    def answered(self, member: str) -> int:
        """A member answered; the depth of those whom it named."""
        if self._states.get(member) == ASKED:
            self._asked -= 1
        self._states[member] = ANSWERED
        return self._depths.get(member, 0) + 1

    def failed(self, member: str) -> None:
        """A member doesn't answer."""
        self.slow(member)
        if self._states.get(member) == SLOW:
            self._states[member] = FAILED
            self._order = [each for each in self._order if each[1] != member]

    def slow(self, member: str) -> None:
        """A member hasn't answered yet and was asked again: the search goes on without it meanwhile."""
        if self._states.get(member) == ASKED:
            self._asked -= 1
            self._states[member] = SLOW

    @property
    def _width(self) -> int:
        return WIDE if self.name and self._data is None else REPLICAS

    def _wanted(self) -> list[str]:
        """Those who have to answer, as far as is known now."""
        states = self._states
        return [member for _, member in self._order if states[member] != SLOW][: self._width]

    def next(self) -> list[str]:
        """Whom to ask now."""
        free = ALPHA - self._asked
        if free <= 0:
            return []
        found = [member for member in self._wanted() if self._states[member] == NEW][:free]
        for member in found:
            self._states[member] = ASKED
        self._asked += len(found)
        self.questions += len(found)
        return found

    @property
    def done(self) -> bool:
        """The nearest have answered."""
        wanted = self._wanted()
        if any(self._states[member] != ANSWERED for member in wanted):
            return False
        return len(wanted) == self._width or SLOW not in self._states.values()

    def found(self) -> SearchOutcome:
        """What there is now."""
        nearest = [member for _, member in self._order if self._states[member] == ANSWERED][:REPLICAS]
        age, data, entry = self._data or (None, b"", None)
        return SearchOutcome(
            name=self.name,
            entry=None if entry is None or entry.gone else entry,
            data=data,
            age=age,
            nearest=tuple(nearest),
            stale=tuple(member for member in nearest if age is not None and self._said.get(member) != age),
            hops=self._depths[nearest[0]] if nearest else 0,
            asked=self.questions,
            whole=self.done,
        )
