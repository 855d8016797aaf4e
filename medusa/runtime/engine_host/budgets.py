"""What fragments hold in memory, by query and owner, and whose query is over its budget.

A query that is over is ended alone: what it holds can't be taken from others, and it can't be held back any
more, since what it holds is state.

What a node finds on its disk when it starts is nobody's excess, whatever the limits say by then: it is taken
up, and its bound is what it held then and some room, where that is more than the limit.

A fork (``medusa.wire.outbox.Fork``) counts in its query, and goes before the query does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from medusa.nodes.config.settings import Limits
from medusa.units import size_text

__all__ = ["UNBOUNDED", "Budgets", "EngineBounds", "OverBudget", "bounds_of"]

NEVER = 1 << 62

ROOM = 8
"""What was found at a start may grow by this part of its limit. None: the row that comes next ends it."""

OWNERS_MAX = 1_000
"""Queries of which nothing runs whose owners are known. Too few: they are looked through too often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBounds:
    """What the engine of a node gives.

    Attributes:
        query_bytes: what the fragments of one query may hold.
        owner_bytes: what all queries of one owner may hold together.
        piece_us: CPU time that a fragment may take without a moment at which others could have their turn.
    """

    query_bytes: int
    owner_bytes: int
    piece_us: int


def bounds_of(limits: Limits) -> EngineBounds:
    """As a node is configured."""
    return EngineBounds(
        query_bytes=limits.query_memory_bytes,
        owner_bytes=limits.owner_memory_bytes,
        piece_us=limits.piece_time_us,
    )


UNBOUNDED = EngineBounds(query_bytes=NEVER, owner_bytes=NEVER, piece_us=NEVER)


@dataclass(frozen=True, slots=True)
class OverBudget:
    """A query that holds too much, which of its fragments have to end, and why: its forks; if there are none,
    all that are here."""

    query: str
    fragments: list[str]
    why: str


class Budgets:
    """Counts for one engine; only its thread calls it.

    Attributes:
        bounds: what it gives.
    """

    def __init__(self, bounds: EngineBounds) -> None:
        self.bounds = bounds
        self._owners: dict[str, str] = {}
        self._queries: dict[str, dict[str, int]] = {}
        """Query -> bytes of each of its fragments."""
        self._follows: dict[str, frozenset[str]] = {}
        """Fragment -> those in whose place it comes, while they are still there."""
        self._forks: set[str] = set()
        self._found: dict[str, int] = {}
        """Query of which something was found at the start -> bytes of that."""
        self._warned: set[tuple[str, str]] = set()
        """(limit, query or owner) of what was found."""

    def owned(self, query: str, owner: str) -> list[str]:
        """Whose query it is; of one that nobody has told the owner is unknown, and one of many such.

        It is told again before each fragment of it, so those of which nothing runs may be forgotten.

        Returns:
            warnings of what was found at the start over its limit, each once.
        """
        self._owners.pop(query, None)
        self._owners[query] = owner
        if len(self._owners) > OWNERS_MAX + len(self._queries):
            idle = [name for name in self._owners if name not in self._queries and name != query]
            for name in idle[: len(idle) // 2]:
                del self._owners[name]
        return self._warnings(query)

    def owner(self, query: str) -> str:
        return self._owners.get(query, "")

    def follows(self, fragment: str, before: Iterable[str]) -> None:
        """It comes in the place of others, and has their state too: it counts once one of them is gone."""
        self._follows[fragment] = frozenset(before)

    def forks(self, fragment: str) -> None:
        """It is a fork, and goes before others do."""
        self._forks.add(fragment)

    def found(self, fragment: str, query: str, nbytes: int) -> None:
        """Count what was found at the start: it is never too much."""
        self._queries.setdefault(query, {})[fragment] = nbytes
        self._found[query] = self._found.get(query, 0) + nbytes

    def _warnings(self, query: str) -> list[str]:
        if query not in self._found:
            return []
        texts, held, owner = [], self._found[query], self.owner(query)
        ours = sum(nbytes for name, nbytes in self._found.items() if self.owner(name) == owner)
        if held > self.bounds.query_bytes and ("query_memory", query) not in self._warned:
            self._warned.add(("query_memory", query))
            limit, most = size_text(self.bounds.query_bytes), size_text(self._query_bound(query))
            texts.append(
                f"query {query!r} was found with {size_text(held)} in memory, allowed are {limit}"
                f" (query_memory): it goes on, and ends beyond {most};"
                " raise query_memory, or split its box over nodes"
            )
        if ours > self.bounds.owner_bytes and ("owner_memory", owner) not in self._warned:
            self._warned.add(("owner_memory", owner))
            texts.append(
                f"the queries of {owner!r} were found with more in memory than the"
                f" {size_text(self.bounds.owner_bytes)} that are allowed (owner_memory): they go on, others"
                " are refused, and if they grow the largest ends; raise owner_memory, or undeploy one"
            )
        return texts

    def admit(self, fragment: str, query: str, nbytes: int) -> str:
        """Count a fragment that is to come; why there is no room for it, and then nothing is changed.

        One that comes in the place of others has their bound; any other has none but the limits.
        """
        before, follows = self._queries.get(query, {}).get(fragment), fragment in self._follows
        self._queries.setdefault(query, {})[fragment] = nbytes
        of_query = self._query_bound(query) if follows else self.bounds.query_bytes
        of_owner = self._owner_bound(query) if follows else self.bounds.owner_bytes
        why = self._query_over(query, of_query)
        if not why and (each := self._owner_over(query, of_owner)):
            held, allowed = size_text(sum(each.values())), size_text(of_owner)
            why = (
                f"with fragment {fragment!r} the queries of {self.owner(query)!r} would hold {held}"
                f" in memory, allowed are {allowed} (owner_memory)"
            )
        if why and before is not None:
            self._queries[query][fragment] = before
        elif why:
            self.forget(fragment, query)
        return why

    def held(self, fragment: str, query: str, nbytes: int) -> OverBudget | None:
        """A fragment holds so much now; who has to end for it: forks, else its query, or the largest of its
        owner."""
        self._queries.setdefault(query, {})[fragment] = nbytes
        if why := self._query_over(query, self._query_bound(query)):
            return OverBudget(query, self._forks_of([query]) or list(self._queries[query]), why)
        bound = self._owner_bound(query)
        if not (each := self._owner_over(query, bound)):
            return None
        most = max(each, key=lambda name: (each[name], name))
        held, allowed = size_text(sum(each.values())), size_text(bound)
        why = (
            f"the queries of {self.owner(query)!r} hold {held} in memory, allowed are {allowed}"
            f" (owner_memory); query {most!r} holds most: {size_text(each[most])}"
        )
        return OverBudget(most, self._forks_of(each) or list(self._queries[most]), why)

    def _forks_of(self, queries: Iterable[str]) -> list[str]:
        return [fragment for query in queries for fragment in self._queries[query] if fragment in self._forks]

    def _query_bound(self, query: str) -> int:
        limit, found = self.bounds.query_bytes, self._found.get(query, 0)
        return max(limit, found + limit // ROOM) if found else limit

    def _owner_bound(self, query: str) -> int:
        limit, owner = self.bounds.owner_bytes, self.owner(query)
        found = sum(nbytes for name, nbytes in self._found.items() if self.owner(name) == owner)
        return max(limit, found + limit // ROOM) if found else limit

    def _query_over(self, query: str, bound: int) -> str:
        """Why a query has to end; empty: it needn't."""
        if (total := self._total(self._queries[query])) <= bound:
            return ""
        allowed = size_text(bound)
        return f"query {query!r} holds {size_text(total)} in memory, allowed are {allowed} (query_memory)"

    def _owner_over(self, query: str, bound: int) -> dict[str, int]:
        """What the queries of its owner hold, where that is too much."""
        owner = self.owner(query)
        each = {name: self._total(of) for name, of in self._queries.items() if self.owner(name) == owner}
        return each if sum(each.values()) > bound else {}

    def forget(self, fragment: str, query: str) -> int:
        """It is gone, and holds nothing; how much it held."""
        for after in [after for after, before in self._follows.items() if fragment in before]:
            del self._follows[after]
        self._follows.pop(fragment, None)
        self._forks.discard(fragment)
        fragments = self._queries.get(query, {})
        nbytes = fragments.pop(fragment, 0)
        if not fragments:
            self._queries.pop(query, None)
            self._found.pop(query, None)
        return nbytes

    def _total(self, fragments: Mapping[str, int]) -> int:
        """Of a query. While a box is split or merged its state is there twice: the larger of them counts."""
        after = sum(nbytes for name, nbytes in fragments.items() if name in self._follows)
        replaced = {name for each in fragments for name in self._follows.get(each, ())}
        before = sum(nbytes for name, nbytes in fragments.items() if name in replaced)
        return sum(fragments.values()) - min(before, after)
