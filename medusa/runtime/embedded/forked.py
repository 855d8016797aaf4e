"""A run after a fork: its parent goes on with it, and the child leaves what they share alone."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from medusa.errors import StateError
from medusa.runtime.embedded.shedding import SheddingRun
from medusa.runtime.machine.run_lock import SharedTurns

__all__ = ["ForkedRun"]


class ForkedRun(SheddingRun):
    """A run that is closed in a child where both would write into the same files."""

    _forked = False

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        _RUNS.add(self)

    @property
    def _writes(self) -> bool:
        """Something of it is on disk."""
        storage = self._fragment.storage
        if self._checkpoints is not None or (storage is not None and storage.spool is not None):
            return True
        histories = [point.history for point in self._fragment.connections.values()]
        return any(each is not None and not each.port.memory for each in histories)

    def _refuse_closed(self) -> None:
        if self._forked:
            raise StateError(
                f"the run of {self._fragment.graph.name!r} belongs to the process that was forked",
                hint="start a run after the fork",
                code="run.forked",
            )
        super()._refuse_closed()

    def _after_fork(self) -> None:
        """In the child."""
        if self._writes:
            self._leave_to_parent()

    def _leave_to_parent(self) -> None:
        """Be closed; locks may be held by threads that aren't there."""
        self._closed = self._forked = True
        self._turns, self._state = SharedTurns(self._interrupts), threading.RLock()
        self._briefly = None


_RUNS: weakref.WeakSet[ForkedRun] = weakref.WeakSet()


def _after_fork() -> None:
    for run in list(_RUNS):
        run._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
