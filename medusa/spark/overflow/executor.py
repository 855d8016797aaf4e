"""Where the groups of fragments run: the port. ``on_spark`` implements it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from medusa.ports import Buffer
from medusa.query.boxes import Graph
from medusa.query.user_registry import registered
from medusa.spark.overflow.group import Made

__all__ = ["Executor", "LostError", "modules_of"]


class LostError(Exception):
    """A trigger failed, or the state of a group is gone: what ran there is begun again from what is known."""


class Executor(Protocol):
    """Runs groups, which are numbered from 0, of fragments, which have keys. One thread calls it."""

    @property
    def cores(self) -> int:
        """That it has."""

    @property
    def down(self) -> str:
        """Why nothing can run there any more, as far as calls have met it; empty: it can."""

    def begin(self, key: str, groups: Mapping[int, tuple[Graph, Mapping[str, Buffer]]]) -> None:
        """Hold these, with their state, instead of what it may hold under that key. Raises LostError."""

    def run(self, key: str, work: Mapping[int, bytes]) -> dict[int, Made]:
        """One trigger: feed groups what ``items.encode`` gives; what each of these made.

        Raises LostError: all of the key is lost. A group without an answer is taken for lost, too.
        """

    def states(self, key: str) -> dict[int, dict[str, Buffer]]:
        """The state of each group. Raises LostError."""

    def end(self, key: str) -> None:
        """Hold it no more; unknown: nothing."""


def modules_of(graph: Graph) -> tuple[str, ...]:
    """The modules that register the functions of its boxes."""
    named = (function for box in graph.boxes for function in box.functions)
    found = (registered(each.name, each.version) for each in named)
    return tuple(dict.fromkeys(each.__module__ for each in found if each is not None))
