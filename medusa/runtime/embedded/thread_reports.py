"""What the thread of a run has to say to callers: warnings, at their places, and what it ran into."""

from __future__ import annotations

from medusa.engine.run.gate import RunGate
from medusa.engine.run.run_warnings import RunWarnings
from medusa.errors import StateError
from medusa.runtime.embedded.queue_state import QueueState

__all__ = ["ThreadReports"]


class ThreadReports(RunWarnings):
    """Keeps what is to be said in the thread of the run until the next caller comes."""

    def __init__(self, gate: RunGate, belt: QueueState) -> None:
        super().__init__(gate.fragment)
        self._gate = gate
        self._belt = belt
        self._untold: set[str] = set()  # sources to warn about
        self._cautions: list[tuple[str, type[Warning]]] = []

    def warn(self, source: str) -> None:
        if not self._belt.is_mine():
            super().warn(source)
        elif self.due(source):
            self._untold.add(source)

    def caution(self, text: str, category: type[Warning]) -> None:
        if self._belt.is_mine():
            self._cautions.append((text, category))
        else:
            super().caution(text, category)

    def hear(self) -> None:
        """A caller has come: give it the warnings, then what went wrong, with interrupts deferred."""
        with self._gate.interrupts:
            self.tell_caller()

    def tell_caller(self) -> None:
        """As ``hear``, where interrupts are deferred already."""
        self._gate.refuse_closed()
        if self._untold or self._cautions:
            self.tell_warnings()
        self.refuse_error()

    def tell_warnings(self) -> None:
        """Warn of what was kept."""
        if self._belt.is_mine():
            return
        while self._untold:
            super().warn(self._untold.pop())
        while self._cautions:
            super().caution(*self._cautions.pop(0))

    def refuse_error(self) -> None:
        """Raise what the thread ran into; then it goes on."""
        if self._belt.error is None or self._belt.is_mine():
            return
        error = self._belt.take_error()
        if error is not None:
            raise error

    def refuse_stopped(self) -> None:
        """Raises DataError when a row failed with ``on_error="stop"``."""
        if self._fragment.stopped:
            self._fragment.check(next(iter(self._fragment.sources.values())), ())

    def refuse_own_thread(self) -> None:
        """Raises StateError where the thread of the run, in a callback, would wait for itself."""
        if self._belt.is_mine():
            raise StateError(
                "the run is at work: a callback called it",
                hint="in a callback, note what to do and do it in another thread",
                code="run.busy",
            )
