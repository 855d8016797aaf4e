"""What fragments hold in memory, by query and owner, and whose query is over its budget.

A query that is over is ended alone: what it holds can't be taken from others, and it can't be held back any
more, since what it holds is state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from medusa.mind.settings import Limits
from medusa.units import size_text

__all__ = ["UNBOUNDED", "Bounds", "Budgets", "Over", "bounds_of"]

NEVER = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the engine of a node gives.

    Attributes:
        query_bytes: what the fragments of one query may hold.
        owner_bytes: what all queries of one owner may hold together.
        piece_us: CPU time that a fragment may take without a moment at which others could have their turn.
    """

    query_bytes: int
    owner_bytes: int
    piece_us: int


def bounds_of(limits: Limits) -> Bounds:
    """As a node is configured."""
    return Bounds(
        query_bytes=limits.query_memory_bytes,
        owner_bytes=limits.owner_memory_bytes,
        piece_us=limits.piece_time_us,
    )


UNBOUNDED = Bounds(query_bytes=NEVER, owner_bytes=NEVER, piece_us=NEVER)


@dataclass(frozen=True, slots=True)
class Over:
    """A query that has to end, its fragments here, and why."""

    query: str
    fragments: list[str]
    why: str


class Budgets:
    """Counts for one engine; only its thread calls it, but ``owned``.

    Attributes:
        bounds: what it gives.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._owners: dict[str, str] = {}
        self._queries: dict[str, dict[str, int]] = {}
        """Query -> bytes of each of its fragments."""
        self._follows: dict[str, frozenset[str]] = {}
        """Fragment -> those in whose place it comes, while they are still there."""

    def owned(self, query: str, owner: str) -> None:
        """Whose query it is; of one that nobody has told the owner is unknown, and one of many such."""
        self._owners[query] = owner

    def owner(self, query: str) -> str:
        return self._owners.get(query, "")

    def follows(self, fragment: str, before: Iterable[str]) -> None:
        """It comes in the place of others, and has their state too: it counts once one of them is gone."""
        self._follows[fragment] = frozenset(before)

    def held(self, fragment: str, query: str, nbytes: int) -> Over | None:
        """A fragment holds so much now; who has to end for it: its query, or the largest of its owner."""
        fragments = self._queries.setdefault(query, {})
        fragments[fragment] = nbytes
        bounds, total = self.bounds, self._total(fragments)
        if total > bounds.query_bytes:
            allowed = size_text(bounds.query_bytes)
            why = f"query {query!r} holds {size_text(total)} in memory, allowed are {allowed} (query_memory)"
            return Over(query, list(fragments), why)
        owner = self.owner(query)
        each = {name: self._total(of) for name, of in self._queries.items() if self.owner(name) == owner}
        if sum(each.values()) <= bounds.owner_bytes:
            return None
        most = max(each, key=lambda name: (each[name], name))
        held, allowed = size_text(sum(each.values())), size_text(bounds.owner_bytes)
        why = (
            f"the queries of {owner!r} hold {held} in memory, allowed are {allowed} (owner_memory);"
            f" query {most!r} holds most: {size_text(each[most])}"
        )
        return Over(most, list(self._queries[most]), why)

    def forget(self, fragment: str, query: str) -> int:
        """It is gone, and holds nothing; how much it held."""
        for after in [after for after, before in self._follows.items() if fragment in before]:
            del self._follows[after]
        self._follows.pop(fragment, None)
        fragments = self._queries.get(query, {})
        nbytes = fragments.pop(fragment, 0)
        if not fragments:
            self._queries.pop(query, None)
        return nbytes

    def _total(self, fragments: Mapping[str, int]) -> int:
        """Of a query. While a box is split or merged its state is there twice: the larger of them counts."""
        after = sum(nbytes for name, nbytes in fragments.items() if name in self._follows)
        replaced = {name for each in fragments for name in self._follows.get(each, ())}
        before = sum(nbytes for name, nbytes in fragments.items() if name in replaced)
        return sum(fragments.values()) - min(before, after)
