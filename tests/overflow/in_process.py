"""An executor that runs groups in this process."""

from __future__ import annotations

from collections.abc import Mapping

from medusa.ports import Buffer
from medusa.query.boxes import Graph
from medusa.query.codec import graph_to_msgpack
from medusa.spark.overflow.executor import LostError
from medusa.spark.overflow.group import GroupTask, Made, State, run_group

__all__ = ["InProcess"]


class InProcess:
    """Runs groups here, one after the other, so that tests need no cluster.

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
