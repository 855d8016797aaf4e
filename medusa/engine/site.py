"""What a box is told of its surroundings when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from medusa.engine.dead import DeadLetters
from medusa.query.boxes import Schema
from medusa.query.shape import Shape

__all__ = ["Site"]


@dataclass(frozen=True, slots=True)
class Site:
    """The streams around a box.

    Attributes:
        inputs: the stream of each input.
        output: the stream that leaves by the main port.
        letters: where rows go on which an expression fails.
        timed: whether anything below reads the times of the output.
    """

    inputs: Sequence[Shape]
    output: Shape
    letters: DeadLetters
    timed: bool

    @property
    def input(self) -> Shape:
        """The first input."""
        return self.inputs[0]

    @property
    def schemas(self) -> list[Schema]:
        """Columns of each input."""
        return [shape.schema for shape in self.inputs]
