"""Whose turn it is in the engine's thread: the owner, then the query, then the fragment that had least of it.

Fair queueing by measured time: each share counts the CPU time that it was given, and the least goes next. One
that was idle comes back at the count of whoever goes next, so it saves nothing up and owes nothing.
"""

from __future__ import annotations

__all__ = ["FairTurns"]

RESTED_MAX = 1_000
"""Shares that aren't ready and had more than the least; those with the least of it are forgotten first."""


class _Ring:
    """Shares that stand side by side: those that are ready, and what each has had."""

    def __init__(self) -> None:
        self._ready: dict[str, int] = {}
        """Share -> microseconds that it has had; equal ones take turns."""
        self._rested: dict[str, int] = {}
        """The same of those that aren't ready, where it is more than the least."""
        self._least_us = 0

    def __bool__(self) -> bool:
        return bool(self._ready)

    def enter(self, name: str) -> None:
        if name not in self._ready:
            self._ready[name] = max(self._rested.pop(name, 0), self._least_us)

    def next(self) -> str:
        """Who has had least."""
        name = min(self._ready, key=self._ready.__getitem__)
        self._least_us = self._ready[name]
        return name

    def used(self, name: str, took_us: int) -> None:
        """It goes behind those that have had as much."""
        if name in self._ready:
            self._ready[name] = self._ready.pop(name) + took_us

    def leave(self, name: str) -> None:
        had_us = self._ready.pop(name, 0)
        if had_us <= self._least_us:
            return
        self._rested[name] = had_us
        if len(self._rested) > RESTED_MAX:
            most = sorted(self._rested, key=self._rested.__getitem__)[RESTED_MAX // 2 :]
            self._rested = {each: self._rested[each] for each in most if self._rested[each] > self._least_us}

    def forget(self, name: str) -> None:
        self._ready.pop(name, None)
        self._rested.pop(name, None)


class FairTurns:
    """Fragments that have something to do; only the engine's thread calls it."""

    def __init__(self) -> None:
        self._owners = _Ring()
        self._queries: dict[str, _Ring] = {}
        self._fragments: dict[tuple[str, str], _Ring] = {}
        self._shares: dict[str, tuple[str, str]] = {}
        """Fragment -> its owner and its query."""

    def __bool__(self) -> bool:
        """Somebody is ready."""
        return bool(self._owners)

    def enter(self, fragment: str, *, owner: str, query: str) -> None:
        """It has something to do; once more is no error."""
        owner, query = self._shares.setdefault(fragment, (owner, query))
        self._owners.enter(owner)
        self._queries.setdefault(owner, _Ring()).enter(query)
        self._fragments.setdefault((owner, query), _Ring()).enter(fragment)

    def next(self) -> str | None:
        """Whose turn it is, which stays ready; None: nobody is."""
        if not self._owners:
            return None
        owner = self._owners.next()
        query = self._queries[owner].next()
        return self._fragments[owner, query].next()

    def used(self, fragment: str, took_us: int) -> None:
        """Its turn took so long."""
        owner, query = self._shares[fragment]
        self._owners.used(owner, took_us)
        self._queries[owner].used(query, took_us)
        self._fragments[owner, query].used(fragment, took_us)

    def leave(self, fragment: str) -> None:
        """It has nothing to do; one that isn't ready is no error."""
        owner, query = self._shares.get(fragment, ("", ""))
        fragments = self._fragments.get((owner, query))
        if fragments is None:
            return
        fragments.leave(fragment)
        if not fragments:
            self._queries[owner].leave(query)
            if not self._queries[owner]:
                self._owners.leave(owner)

    def forget(self, fragment: str) -> None:
        """It is gone."""
        self.leave(fragment)
        owner, query = self._shares.pop(fragment, ("", ""))
        if owner in self._queries and (owner, query) not in self._shares.values():
            self._fragments.pop((owner, query), None)
            self._queries[owner].forget(query)
            if all(each != owner for each, _ in self._shares.values()):
                del self._queries[owner]  # what the owner had is remembered: who comes back owes it
        elif (owner, query) in self._fragments:
            self._fragments[owner, query].forget(fragment)
