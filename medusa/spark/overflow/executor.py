"""Where the groups of fragments run: the port, and one that runs them in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from medusa.ports import Buffer
from medusa.query.boxes import Graph
from medusa.query.codec import graph_to_msgpack
from medusa.query.user_registry import registered
from medusa.spark.overflow.group import GroupTask, Made, State, run_group

__all__ = ["Executor", "InProcess", "LostError", "modules_of"]


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


class InProcess:
    """Runs groups here, one after the other: for tests, and to see what a query does without a cluster.

    Attributes:
        triggers: that there were.
        fails: numbers of triggers that are lost, with all state.
        down: set it, and nothing can begin.
    """

    cores = 1

    def __init__(self) -> None:
        self._held: dict[str, dict[int, tuple[bytes, State]]] = {}
        self.triggers = 0
        self.fails: set[int] = set()
        self.down = ""

    def begin(self, key: str, groups: Mapping[int, tuple[Graph, Mapping[str, Buffer]]]) -> None:
        if self.down:
            raise LostError(self.down)
        self._held[key] = {
            number: (graph_to_msgpack(graph), State.of(files)) for number, (graph, files) in groups.items()
        }

    def run(self, key: str, work: Mapping[int, bytes]) -> dict[int, Made]:
        self.triggers += 1
        if self.triggers in self.fails:
            self._held.clear()
        held, found = self._of(key), {}
        for number, items in work.items():
            graph, state = held[number]
            task = GroupTask(graph=graph, modules=(), items=items)
            found[number], after = run_group(task, state)
            held[number] = graph, after
        return found

    def states(self, key: str) -> dict[int, dict[str, Buffer]]:
        return {number: dict(state.files) for number, (_, state) in self._of(key).items()}

    def end(self, key: str) -> None:
        self._held.pop(key, None)

    def _of(self, key: str) -> dict[int, tuple[bytes, State]]:
        if key not in self._held:
            raise LostError(f"nothing is held of {key!r}")
        return self._held[key]
