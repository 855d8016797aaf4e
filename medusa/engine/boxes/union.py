"""Union: the rows of several streams in the order in which their trains arrive."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.elements import END_US, Train
from medusa.engine.boxes.base import Stateless, show_time

__all__ = ["UnionBox"]


class UnionBox(Stateless):
    """Passes every train on; the boundary is the minimum of those of its inputs."""

    kind = "union"

    def on_train(self, input: int, train: Train) -> None:
        self.emit_train(train)

    def waits_for(self, names: Sequence[str]) -> str:
        if self.input_us >= END_US:
            return "finished"
        held_by = names[self.inputs_us.index(self.input_us)]
        return f"waits for rows; {held_by} holds its boundary at {show_time(self.input_us)}"
