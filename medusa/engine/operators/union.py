"""Union: the rows of several streams in the order in which their trains arrive."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.elements import Train
from medusa.engine.core.box import Stateless

__all__ = ["UnionBox"]


class UnionBox(Stateless):
    """Passes every train on; the boundary is the minimum of those of its inputs."""

    kind = "union"

    def on_train(self, input: int, train: Train) -> None:
        self.emit_train(train)

    def waits_open(self, names: Sequence[str]) -> str:
        return f"waits for rows; {self.held(names)}"
