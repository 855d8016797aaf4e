"""Puts pieces of a query on nodes so that the largest load of a node is small, and little crosses. Pure.

The load of a node is the larger of two shares: of its processor, by what stands there and by the bytes that
it sends and receives; and of its link, by those bytes. Local search: from several first placements one piece
is moved, or two change places, as long as the loads, the largest first, become less. Then pieces are moved
back to what they are joined with where that costs at most ``SLACK`` of the largest load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Arc", "NodeCapacity", "PlacedPiece", "host_loads", "place"]

BYTE_S = 1.5e-9
"""Processor time to send or to receive a byte, in seconds: some 700 MB/s (docs/nodes.md)."""

SLACK = 0.05
"""The largest load may be so much larger for less traffic. Too small: arcs are cut for nothing; too large:
the load is not balanced."""

SWAPS_MAX = 60
"""With more pieces two no longer change places, and only those of the busiest node are moved: it takes the
square of their number."""

LEAST = 1e-9
"""A gain that is less is none: of a load; of traffic, so much of all bytes. Sums of floats are no better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPiece:
    """What can only be moved as a whole.

    Attributes:
        cost: the share of one core's time that it takes.
        at: where it must stand; empty: anywhere.
    """

    name: str
    cost: float
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """What goes from one piece to another, if they stand apart."""

    source: str
    target: str
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """A node.

    Attributes:
        load: the share of a core that it is busy with already.
        capacity: the cores that a query can use there.
        bandwidth: bytes per second that it can send and receive; None: unknown, its link never counts.
    """

    name: str
    load: float = 0.0
    capacity: float = 1.0
    bandwidth: float | None = None


def host_loads(
    pieces: Sequence[PlacedPiece], arcs: Sequence[Arc], hosts: Sequence[NodeCapacity], at: Mapping[str, str]
) -> dict[str, float]:
    """The load of each node under a placement: 1.0 is all that it can do."""
    busy = {host.name: host.load for host in hosts}
    for piece in pieces:
        busy[at[piece.name]] += piece.cost
    crossing = dict.fromkeys(busy, 0.0)
    for arc in arcs:
        source, target = at[arc.source], at[arc.target]
        if source != target:
            crossing[source] += arc.bytes_per_s
            crossing[target] += arc.bytes_per_s
    return {host.name: _load(host, busy[host.name], crossing[host.name]) for host in hosts}


def _load(host: NodeCapacity, busy: float, crossing: float) -> float:
    cpu = (busy + BYTE_S * crossing) / host.capacity
    return max(cpu, crossing / host.bandwidth) if host.bandwidth else cpu


def place(
    pieces: Sequence[PlacedPiece], arcs: Sequence[Arc], hosts: Sequence[NodeCapacity]
) -> dict[str, str]:
    """Piece -> node. The same input gives the same placement."""
    search = _Search(pieces, arcs, hosts)
    found = [search.settled(start) for start in search.starts()]
    most = min(search.at(each).worth()[0][0] for each in found) * (1 + SLACK)
    tidied = [search.tidied(each, most) for each in found]

    def order(at: dict[str, str]) -> tuple[bool, float, tuple[list[float], float]]:
        layout = search.at(at)
        loads, traffic = layout.worth()
        return loads[0] > most, traffic, (loads, traffic)

    return min(tidied, key=order)


class _Layout:
    """A placement, of all pieces or of those so far, and what comes of it; kept up to date move by move."""

    def __init__(self, search: _Search) -> None:
        self._search = search
        self.homes: dict[str, str] = {}
        self._busy = {host.name: host.load for host in search.hosts}
        self._crossing = {host.name: 0.0 for host in search.hosts}
        self._traffic = 0.0

    def put(self, piece: str, host: str) -> None:
        """It stands there, and no more where it stood."""
        before, cost = self.homes.get(piece), self._search.costs[piece]
        if before is not None:
            self._busy[before] -= cost
            self._count(piece, before, -1)
        self.homes[piece] = host
        self._busy[host] += cost
        self._count(piece, host, 1)

    def _count(self, piece: str, host: str, sign: int) -> None:
        for other, nbytes in self._search.joined[piece]:
            there = self.homes.get(other)
            if there is not None and there != host:
                self._crossing[host] += sign * nbytes
                self._crossing[there] += sign * nbytes
                self._traffic += sign * nbytes

    def loads(self) -> dict[str, float]:
        busy, crossing = self._busy, self._crossing
        return {host.name: _load(host, busy[host.name], crossing[host.name]) for host in self._search.hosts}

    def worth(self) -> tuple[list[float], float]:
        """What becomes less: the loads, the largest first, then the traffic."""
        return sorted(self.loads().values(), reverse=True), self._traffic

    def tried(self, change: Mapping[str, str]) -> tuple[list[float], float]:
        """The worth after this change, which isn't made."""
        before = {piece: self.homes[piece] for piece in change}
        self.change(change)
        worth = self.worth()
        self.change(before)
        return worth

    def change(self, change: Mapping[str, str]) -> None:
        for piece, host in change.items():
            self.put(piece, host)


class _Search:
    def __init__(
        self, pieces: Sequence[PlacedPiece], arcs: Sequence[Arc], hosts: Sequence[NodeCapacity]
    ) -> None:
        self.hosts = hosts
        self.costs = {piece.name: piece.cost for piece in pieces}
        self.joined: dict[str, list[tuple[str, float]]] = {piece.name: [] for piece in pieces}
        for arc in arcs:
            if arc.source != arc.target:
                self.joined[arc.source].append((arc.target, arc.bytes_per_s))
                self.joined[arc.target].append((arc.source, arc.bytes_per_s))
        self._least_bytes = LEAST * (1.0 + sum(arc.bytes_per_s for arc in arcs))
        self._names = [host.name for host in hosts]
        self._free = [piece.name for piece in pieces if not piece.at]
        self._pinned = {piece.name: piece.at for piece in pieces if piece.at}

    def at(self, homes: Mapping[str, str]) -> _Layout:
        layout = _Layout(self)
        layout.change(homes)
        return layout

    # --- first placements ---------------------------------------------------------------------------

    def starts(self) -> Iterator[dict[str, str]]:
        """The heaviest first, each where it is best; along the query, each where it is best, or node by node,
        each with its share; of few pieces also all on one node, for each."""
        yield self._one_by_one(sorted(self._free, key=lambda name: -self.costs[name]))
        yield self._one_by_one(self._free)
        for names in (self._names, self._names[::-1]):
            yield self._along(names)
        for name in self._names if len(self._free) <= SWAPS_MAX else ():
            yield {**self._pinned, **dict.fromkeys(self._free, name)}

    def _one_by_one(self, order: Sequence[str]) -> dict[str, str]:
        layout = self.at(self._pinned)
        for piece in order:
            worths = {}
            for name in self._names:
                layout.put(piece, name)
                worths[name] = layout.worth()
            layout.put(piece, min(worths, key=worths.__getitem__))
        return layout.homes

    def _along(self, names: Sequence[str]) -> dict[str, str]:
        at, place, filled = dict(self._pinned), 0, 0.0
        share = sum(self.costs[piece] for piece in self._free) / len(names)
        for piece in self._free:
            if filled + self.costs[piece] / 2 > share * (place + 1) and place + 1 < len(names):
                place += 1
            filled += self.costs[piece]
            at[piece] = names[place]
        return at

    # --- better ones ----------------------------------------------------------------------------------

    def settled(self, homes: Mapping[str, str]) -> dict[str, str]:
        """As good as single moves and exchanges make it."""
        layout = self.at(homes)
        while True:
            best = self._best(layout, self._moves(layout))
            if best is None and len(self._free) <= SWAPS_MAX:
                best = self._best(layout, self._swaps(layout.homes))
            if best is None:
                return layout.homes
            layout.change(best)

    def _best(self, layout: _Layout, changes: Iterator[dict[str, str]]) -> dict[str, str] | None:
        """The best of these changes, if one is better than nothing."""
        best, worth = None, layout.worth()
        for change in changes:
            other = layout.tried(change)
            if self._less(other, worth):
                best, worth = change, other
        return best

    def _moves(self, layout: _Layout) -> Iterator[dict[str, str]]:
        at, free = layout.homes, self._free
        if len(free) > SWAPS_MAX:  # Only what leaves the node with the largest load makes that less.
            loads = layout.loads()
            worst = max(loads, key=loads.__getitem__)
            free = [piece for piece in free if at[piece] == worst]
        for piece in free:
            yield from ({piece: name} for name in self._names if name != at[piece])

    def _swaps(self, at: Mapping[str, str]) -> Iterator[dict[str, str]]:
        for place, one in enumerate(self._free):
            for other in self._free[place + 1 :]:
                if at[one] != at[other]:
                    yield {one: at[other], other: at[one]}
        for one in self._free:  # Two that are joined go together.
            for other, _ in self.joined[one]:
                if other not in self._pinned and one < other:
                    yield from ({one: name, other: name} for name in self._names)

    def tidied(self, homes: Mapping[str, str], most: float) -> dict[str, str]:
        """Less traffic, as long as the largest load stays below this."""
        layout = self.at(homes)
        while True:
            best, traffic = None, layout.worth()[1] - self._least_bytes
            for piece in self._free:
                near = dict.fromkeys(layout.homes[other] for other, _ in self.joined[piece])
                for name in near:
                    loads, crossing = layout.tried({piece: name})
                    if crossing < traffic and loads[0] <= most:
                        best, traffic = {piece: name}, crossing
            if best is None:
                return layout.homes
            layout.change(best)

    def _less(self, one: tuple[list[float], float], other: tuple[list[float], float]) -> bool:
        for mine, its in zip(one[0], other[0], strict=True):
            if abs(mine - its) > LEAST:
                return mine < its
        return one[1] < other[1] - self._least_bytes
