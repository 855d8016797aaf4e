"""Which entries a member of the catalog between participants hands on when members come and go. Pure."""

from __future__ import annotations

from medusa.nodes.dht.routing_table import RoutingTable
from medusa.nodes.dht.search import REPLICAS
from medusa.nodes.dht.storage import DhtStorage, StoredEntry

__all__ = ["DhtReplication"]

HANDERS = 2
"""Of those that hold an entry, so many hand it on at once: one may not know yet, or be gone too."""

DUE_MAX = 50
"""Entries said again in one round."""


class DhtReplication:
    """Looks at the shelf by who is near each entry, as far as the table knows.

    Args:
        name, place: of this member.
    """

    def __init__(self, name: str, place: int, table: RoutingTable, shelf: DhtStorage) -> None:
        self._name, self._place = name, place
        self._table = table
        self._shelf = shelf

    def _nearest(self, held: StoredEntry) -> list[str]:
        """Those that should hold an entry, the nearest first."""
        found = [*self._table.closest(held.place, REPLICAS), (self._place ^ held.place, self._name)]
        found.sort()
        del found[REPLICAS:]
        held.reaches(found[-1][0] if len(found) == REPLICAS else 1 << 160)
        return [who for _, who in found]

    def should_hold(self, name: str) -> bool:
        """Whether this member is one of those nearest to an entry that it holds."""
        held = self._shelf.held(name)
        return held is not None and self._name in self._nearest(held)

    def appeared(self, peer: str, place: int) -> list[tuple[str, bytes]]:
        """A member came: (it, entry) for each that it should hold."""
        found = []
        for held in self._shelf:
            if place ^ held.place > held.radius:
                continue
            near = self._nearest(held)
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
            if place ^ held.place > held.radius:
                continue
            near = self._nearest(held)
            if near[-1] != self._name and self._hands_on(near[:-1]):
                found.append((near[-1], held.data))
        return found

    def leaving(self) -> list[tuple[str, bytes]]:
        """(Who takes my place, entry) for each that is held."""
        found = []
        for held in self._shelf:
            near = self._table.closest(held.place, REPLICAS)
            if near:
                found.append((near[-1][1], held.data))
        return found

    def due(self, now_us: int, every_us: int) -> list[StoredEntry]:
        """Entries that nobody has brought for so long; the nearest holder comes first, so that the others
        have been told by then."""
        found = []
        for held in self._shelf:
            if now_us - held.since_us < every_us:
                continue
            near = self._nearest(held)
            rank = near.index(self._name) if self._name in near else REPLICAS
            if now_us - held.since_us >= every_us + rank * every_us // 4:
                found.append(held)
                if len(found) >= DUE_MAX:
                    break
        return found
