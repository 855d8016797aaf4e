"""What a box is told of its surroundings when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.memory_bounds import Storage
from medusa.errors import QueryError
from medusa.ports import Segments, Tasks, Workers
from medusa.query.boxes import Box, Schema
from medusa.query.shape import StreamShape
from medusa.query.user_registry import resolve

__all__ = ["Site"]


@dataclass(frozen=True, slots=True)
class Site:
    """The streams around a box.

    Attributes:
        inputs: the stream of each input.
        output: the stream that leaves by the main port.
        letters: where rows go on which an expression fails.
        timed: whether anything below reads the times of the output.
        functions: of users, by box, where they aren't registered.
        tasks: runs async functions; None: nothing does.
        workers: run copies of a box over disjoint keys; None: there is one copy.
        histories: where each connection point keeps its history; None: they keep none.
        storage: bounds of memory, and where to spill; None: there are none.
        origins: the boxes from which the inputs come.
    """

    inputs: Sequence[StreamShape]
    output: StreamShape
    letters: DeadLetters
    timed: bool
    functions: Mapping[str, object] = field(default_factory=dict)
    tasks: Tasks | None = None
    workers: Workers | None = None
    histories: Callable[[str], Segments] | None = None
    storage: Storage | None = None
    origins: Sequence[Box] = ()

    def function(self, box: Box, *, label: str) -> Any:
        """What the first function that a box names is: registered, or beside the graph.

        Raises:
            QueryError: neither.
        """
        named = box.functions[0]
        if named.name:
            return resolve(named, label=label)
        if box.id not in self.functions:
            raise QueryError(
                f"{label}: its function is not registered, and only the md.Query that it was written in"
                " knows it",
                hint='write @md.register("name", version=1) above it',
                code="query.function",
            )
        return self.functions[box.id]

    @property
    def input(self) -> StreamShape:
        """The first input."""
        return self.inputs[0]

    @property
    def schemas(self) -> list[Schema]:
        """Columns of each input."""
        return [shape.schema for shape in self.inputs]
