"""Who has a contract with whom: graphs of participants, numbered from 0 on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from random import Random

from medusa.errors import ConfigError

__all__ = ["GRAPHS", "MESH_MAX", "ContractGraph", "contract_graph"]

MESH_MAX = 200
"""Participants of a mesh: it has n * (n - 1) contracts. More: a company has no thousand contracts, and the
simulation no memory for a million."""

EXACT_MAX = 400
"""Up to so many participants the diameter is looked for from each one: n breadth-first searches."""

SWEEPS = 8
"""In larger graphs it is looked for so often, each time from the farthest one found before."""


@dataclass(frozen=True)
class ContractGraph:
    """An edge is two contracts: either one may be the provider.

    Attributes:
        size: how many participants.
        edges: pairs, the lower number first, ascending; each once.
    """

    size: int
    edges: tuple[tuple[int, int], ...]

    @cached_property
    def partners(self) -> tuple[tuple[int, ...], ...]:
        """Of each participant, ascending."""
        found: list[list[int]] = [[] for _ in range(self.size)]
        for first, second in self.edges:
            found[first].append(second)
            found[second].append(first)
        return tuple(tuple(sorted(each)) for each in found)

    @cached_property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """Participants between whom load can travel, each group ascending."""
        seen: set[int] = set()
        found = []
        for start in range(self.size):
            if start not in seen:
                group = tuple(sorted(self._steps(start)))
                seen.update(group)
                found.append(group)
        return tuple(found)

    @cached_property
    def diameter(self) -> int:
        """The most steps between two who are connected. Beyond 400 participants it is a lower bound, exact
        in trees and rings."""
        if self.size <= EXACT_MAX:
            return max(max(self._steps(start).values()) for start in range(self.size))
        longest, start = 0, max(self.components, key=len)[0]
        for _ in range(SWEEPS):
            steps = self._steps(start)
            start = max(steps, key=lambda each: (steps[each], -each))
            longest = max(longest, steps[start])
        return longest

    def _steps(self, start: int) -> dict[int, int]:
        """How many steps it is to each one who can be reached."""
        found, waiting = {start: 0}, deque((start,))
        while waiting:
            here = waiting.popleft()
            for partner in self.partners[here]:
                if partner not in found:
                    found[partner] = found[here] + 1
                    waiting.append(partner)
        return found


def contract_graph(kind: str, size: int, contracts: int, dice: Random) -> ContractGraph:
    """Draw one.

    Args:
        kind: one of ``GRAPHS``.
        contracts: partners that each one has at least; of a random graph only.

    Raises:
        ConfigError: no such kind; too many contracts for so few participants; too large a mesh.
    """
    if kind not in GRAPHS:
        raise ConfigError(f"graph is {kind!r}: one of {', '.join(GRAPHS)}", code="config.value")
    if size < 2:
        raise ConfigError(f"participants is {size}: a market takes two at least", code="config.value")
    if kind == "random" and not 1 <= contracts < size:
        raise ConfigError(
            f"contracts is {contracts}: with {size} participants each one has from 1 to {size - 1} partners",
            code="config.value",
        )
    if kind == "mesh" and size > MESH_MAX:
        raise ConfigError(
            f"a mesh of {size:,} participants has {size * (size - 1):,} contracts: at most {MESH_MAX}",
            hint="a random graph with 20 contracts each is as good as a mesh",
            code="config.value",
        )
    edges = GRAPHS[kind](size, contracts, dice)
    return ContractGraph(size, tuple(sorted(edges)))


def _random(size: int, contracts: int, dice: Random) -> set[tuple[int, int]]:
    """Each one, in a random order, signs with others drawn evenly until it has enough partners. As others
    sign with it too, the mean is above the minimum."""
    partners: list[set[int]] = [set() for _ in range(size)]
    order = list(range(size))
    dice.shuffle(order)
    for here in order:
        while len(partners[here]) < contracts:
            other = dice.randrange(size)
            if other != here:
                partners[here].add(other)
                partners[other].add(here)
    return {(here, other) for here in range(size) for other in partners[here] if here < other}


def _mesh(size: int, _: int, __: Random) -> set[tuple[int, int]]:
    return {(first, second) for first in range(size) for second in range(first + 1, size)}


def _star(size: int, _: int, __: Random) -> set[tuple[int, int]]:
    return {(0, other) for other in range(1, size)}


def _chain(size: int, _: int, __: Random) -> set[tuple[int, int]]:
    return {(here, here + 1) for here in range(size - 1)}


def _ring(size: int, _: int, dice: Random) -> set[tuple[int, int]]:
    return _chain(size, _, dice) | {(0, size - 1)}


def _grid(size: int, _: int, __: Random) -> set[tuple[int, int]]:
    """Rows as long as the square root, the last one perhaps shorter: four partners for most."""
    width = max(int(size**0.5), 1)
    right = {(here, here + 1) for here in range(size - 1) if (here + 1) % width}
    return right | {(here, here + width) for here in range(size - width)}


GRAPHS: dict[str, Callable[[int, int, Random], set[tuple[int, int]]]] = {
    "random": _random,
    "mesh": _mesh,
    "star": _star,
    "chain": _chain,
    "ring": _ring,
    "grid": _grid,
}
"""Name -> the edges of so many participants with so many contracts."""
