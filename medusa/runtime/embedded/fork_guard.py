"""After a fork the parent goes on with its runs, and the child leaves what they share alone."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

from medusa.engine.run.checkpoints import RunCheckpoints
from medusa.engine.run.gate import RunGate
from medusa.runtime.machine.run_lock import SharedTurns

__all__ = ["ForkGuard"]


class ForkGuard:
    """Closes the gates of a run in a child, where both would write into the same files.

    Args:
        checkpoints: of the run.
        on_leave: called then, in the child; None: the run has no thread of its own, which wouldn't be there.
    """

    def __init__(
        self, gate: RunGate, checkpoints: RunCheckpoints, on_leave: Callable[[], None] | None = None
    ) -> None:
        self._fragment = gate.fragment
        self._writes_checkpoints = checkpoints.written
        self._on_leave = on_leave
        self._gates: weakref.WeakSet[RunGate] = weakref.WeakSet()
        self.watch(gate)
        _GUARDS.add(self)

    def watch(self, gate: RunGate) -> None:
        """Close this gate too; it keeps the guard."""
        self._gates.add(gate)
        gate.keep(self)

    def after_fork(self) -> None:
        """In the child."""
        if self._on_leave is None and not self._writes:
            return
        for gate in list(self._gates):
            gate.leave_to_parent(SharedTurns(gate.interrupts), threading.RLock())
        if self._on_leave is not None:
            self._on_leave()

    @property
    def _writes(self) -> bool:
        """Something of it is on disk."""
        storage = self._fragment.storage
        if self._writes_checkpoints or (storage is not None and storage.spool is not None):
            return True
        histories = [point.history for point in self._fragment.connections.values()]
        return any(each is not None and not each.port.memory for each in histories)


_GUARDS: weakref.WeakSet[ForkGuard] = weakref.WeakSet()


def _after_fork() -> None:
    for guard in list(_GUARDS):
        guard.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
