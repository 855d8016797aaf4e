"""Which entries a member of the catalog between participants hands on when members come and go. Pure."""

from __future__ import annotations

from medusa.mind.dht_ring import Table
from medusa.mind.dht_search import REPLICAS
from medusa.mind.dht_shelf import Held, Shelf

__all__ = ["Keeper"]

HANDERS = 2
"""Of those that hold an entry, so many hand it on at once: one may not know yet, or be gone too."""

DUE_MAX = 50
"""Entries said again in one round."""


class Keeper:
    """Looks at the shelf by who is near each entry, as far as the table knows.

    Args:
        name, place: of this member.
    """

    def __init__(self, name: str, place: int, table: Table, shelf: Shelf) -> None:
        self._name, self._place = name, place
        self._table = table
        self._shelf = shelf

    def _nearest(self, place: int) -> list[tuple[int, str]]:
        """Those that should hold what belongs at a place, the nearest first."""
        found = [*self._table.closest(place, REPLICAS), (self._place ^ place, self._name)]
        return sorted(found)[:REPLICAS]

    def should_hold(self, name: str) -> bool:
        """Whether this member is one of those nearest to an entry that it holds."""
        held = self._shelf.held(name)
        return held is not None and any(who == self._name for _, who in self._nearest(held.place))

    def appeared(self, peer: str, place: int) -> list[tuple[str, bytes]]:
        """A member came: (it, entry) for each that it should hold."""
        found = []
        for held in self._shelf:
            near = [who for _, who in self._nearest(held.place)]
            if peer in near and self._hands_on([who for who in near if who != peer]):
                found.append((peer, held.data))
        return found

    def _hands_on(self, holders: list[str]) -> bool:
        # Whoever isn't one of them any more holds what perhaps nobody else does.
        return self._name in holders[:HANDERS] or self._name not in holders

    def went(self, peer: str, place: int) -> list[tuple[str, bytes]]:
        """A member went: (who takes its place, entry) for each that it held."""
        found = []
        for held in self._shelf:
            near = self._nearest(held.place)
            distance, last = near[-1]
            was_near = place ^ held.place < distance and last != self._name
            if was_near and self._hands_on([who for _, who in near[:-1]]):
                found.append((last, held.data))
        return found

    def leaving(self) -> list[tuple[str, bytes]]:
        """(Who takes my place, entry) for each that is held."""
        found = []
        for held in self._shelf:
            near = self._table.closest(held.place, REPLICAS)
            if near:
                found.append((near[-1][1], held.data))
        return found

    def due(self, now_us: int, every_us: int) -> list[Held]:
        """Entries that nobody has brought for so long; the nearest holder comes first, so that the others
        have been told by then."""
        found = []
        for held in self._shelf:
            if now_us - held.since_us < every_us:
                continue
            near = [who for _, who in self._nearest(held.place)]
            rank = near.index(self._name) if self._name in near else REPLICAS
            if now_us - held.since_us >= every_us + rank * every_us // 4:
                found.append(held)
                if len(found) >= DUE_MAX:
                    break
        return found
