"""The checkpoints of a run: when they are written, and what rows that leave depend on."""

from __future__ import annotations

from typing import Any

from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.run.run_warnings import RunWarnings
from medusa.engine.state.checkpoint import Checkpoints
from medusa.errors import CheckpointWarning, StateError
from medusa.ports import Clock

__all__ = ["RunCheckpoints"]


class RunCheckpoints:
    """Writes checkpoints of a run: when asked, when one falls due, and before rows leave that need one.

    Args:
        store: None: the run writes none.
        every_us: how often one falls due; None: never.
        settings: of the run; they are written too.

    Attributes:
        written: the run writes checkpoints.
        fall_due: they are written as time passes.
    """

    def __init__(
        self,
        fragment: LoggedFragment,
        clock: Clock,
        warnings: RunWarnings,
        *,
        store: Checkpoints | None,
        every_us: int | None,
        settings: dict[str, Any],
    ) -> None:
        self._fragment = fragment
        self._clock = clock
        self._warnings = warnings
        self._store = store
        self._every_us = every_us
        self._settings = settings
        self.written = store is not None
        self.fall_due = store is not None and every_us is not None
        self._based = store is not None and bool(store.names())
        self._due_us = clock.monotonic_us() + (every_us or 0)

    def save(self) -> str:
        """Write a checkpoint; calls of async functions are waited for.

        Raises:
            StateError: there is no place for it, or it couldn't be written.
        """
        if self._store is None:
            raise StateError(
                "this run has no folder for checkpoints", hint="start(q, checkpoint=...)", code="state.none"
            )
        fragment = self._fragment
        if fragment.has_calls:
            fragment.wait()
        state, number = fragment.captured(self._store.capture()), fragment.turn()
        name = self._store.save(
            state.files(),
            {
                "query": fragment.graph_json(),
                "settings": self._settings,
                "positions": fragment.accepted(),
                "sinks": {id: {"taken": s.taken, "next": s.next_seq} for id, s in fragment.sinks.items()},
                "decisions": number,
                "shedding": None if fragment.drops is None else fragment.drops.save(),
            },
            state.known(),
        )
        fragment.turned(number, name, self._store.logged())
        self._based = True
        self._put_off()
        return name

    def sync(self) -> None:
        """Rows are about to leave: what they depend on is made durable first.

        The log stands on a checkpoint: where there is none yet, one is written in its place.
        """
        if self._based:
            self._fragment.sync()
        else:
            self.save()

    def save_if_due(self) -> None:
        """Write the one that has fallen due; one that fails warns."""
        if self._clock.monotonic_us() >= self._due_us:
            self._save_or_warn()

    def change(self) -> None:
        """The query has changed: the log of decisions stands on the one that was, so one is written now."""
        if self._store is not None:
            self._based = False
            self._save_or_warn()

    def _save_or_warn(self) -> None:
        try:
            self.save()
        except StateError as error:
            self._put_off()
            text = f"the checkpoint that fell due was not written: {error}"
            self._warnings.caution(text, CheckpointWarning)

    def _put_off(self) -> None:
        self._due_us = self._clock.monotonic_us() + (self._every_us or 0)
