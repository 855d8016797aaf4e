"""What is done whenever the query of a run has come to rest."""

from __future__ import annotations

from collections.abc import Callable

from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.run.checkpoints import RunCheckpoints
from medusa.engine.run.idle_clock import PassingTime
from medusa.engine.run.output import RunOutput

__all__ = ["AtRest"]


class AtRest:
    """Lets time pass, tells callbacks and those that follow the run, and writes checkpoints that are due.

    Args:
        before: called first; None: nothing is.
    """

    def __init__(
        self,
        fragment: LoggedFragment,
        time: PassingTime,
        output: RunOutput,
        checkpoints: RunCheckpoints,
        before: Callable[[], None] | None = None,
    ) -> None:
        self._fragment = fragment
        self._time = time
        self._output = output
        self._checkpoints = checkpoints
        self._before = before
        self._followers: list[Callable[[], object]] = []

    def settle(self) -> None:
        """The query has come to rest, within a turn."""
        # Asked first, since most runs need none of it and every push comes here.
        if self._before is not None:
            self._before()
        if self._time.passes:
            self._time.bring_on()
        fragment = self._fragment
        if fragment.has_calls:
            fragment.poll()
        storage = fragment.storage
        if storage is not None and storage.budget_bytes is not None:
            storage.settle()
        if self._output.callbacks:
            self._output.call_back()
        if self._checkpoints.fall_due:
            self._checkpoints.save_if_due()
        if self._followers:
            for call in tuple(self._followers):
                call()

    def follow(self, call: Callable[[], object]) -> None:
        """Call it from now on, last of all."""
        if call not in self._followers:
            self._followers.append(call)

    def forget(self, call: Callable[[], object]) -> None:
        """Call it no more."""
        if call in self._followers:
            self._followers.remove(call)
