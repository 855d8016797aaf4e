"""What a fragment has to do, in slices: other fragments, and closing this one, needn't wait for all of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

__all__ = ["SLICE_US", "Slices"]

SLICE_US = 20_000
"""How long a slice takes, and the piece that it ends with. Longer: other fragments wait; shorter: each slice
costs a turn of the engine's thread."""


class Slices:
    """Of one fragment; only the engine's thread calls it.

    Jobs are done in the order in which they come. While an element is under way they wait for its end.
    """

    def __init__(self) -> None:
        self._go_on: Callable[[], bool] | None = None
        self._jobs: deque[Callable[[], None]] = deque()

    @property
    def busy(self) -> bool:
        """An element is under way, or jobs wait."""
        return self._go_on is not None or bool(self._jobs)

    def put(self, job: Callable[[], None]) -> None:
        """Do it when what came before is done."""
        self._jobs.append(job)

    def begin(self, go_on: Callable[[], bool]) -> None:
        """From within a job: an element isn't done; ``go_on`` runs its next slice, and says whether it is."""
        self._go_on = go_on

    def step(self) -> None:
        """Do one job, or the next slice of the element under way; something is left to do."""
        if self._go_on is None:
            self._jobs.popleft()()
        elif self._go_on():
            self._go_on = None

    def finish(self) -> None:
        """Do now all that is left."""
        while self.busy:
            self.step()

    def drop(self) -> None:
        """Leave the element under way as it is."""
        self._go_on = None
