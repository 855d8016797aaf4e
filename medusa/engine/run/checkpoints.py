"""The checkpoints of a run: when they are written, and what rows that leave depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.run.run_warnings import RunWarnings
from medusa.engine.state import background_copy
from medusa.engine.state.background_copy import BackgroundCopy
from medusa.engine.state.checkpoint import Checkpoints
from medusa.errors import CheckpointWarning, StateError
from medusa.ports import Clock, Job, Jobs, Lock
from medusa.query.boxes import Graph
from medusa.query.codec import graph_values

__all__ = ["RunCheckpoints"]

_FAILS = (StateError, MemoryError)
"""After these the run goes on, and the next one is tried."""


@dataclass(slots=True)
class _Begun:
    """A checkpoint of some moment.

    Attributes:
        log: number of the decision log that begins after it.
        facts: for its manifest, besides the graph.
        rows: to be copied, when it began.
        dropped: nothing comes of it.
    """

    graph: Graph
    copying: BackgroundCopy
    log: int
    facts: dict[str, Any]
    rows: int
    began_us: int
    dropped: bool = False


class RunCheckpoints:
    """Writes checkpoints of a run: when asked, when one falls due, and before rows leave that need one.

    One that falls due of a large state is of that moment, but copied piece by piece: one whenever the query
    comes to rest, and others by a job while nobody is at work with the run. The job writes it then. All
    others are durable when the call ends. Only who has the turn calls this.

    Args:
        store: None: the run writes none.
        jobs: what is due is written there.
        state: held by whoever is at work with the run.
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
        jobs: Jobs,
        state: Lock,
        every_us: int | None,
        settings: dict[str, Any],
    ) -> None:
        self._fragment = fragment
        self._clock = clock
        self._warnings = warnings
        self._store = store
        self._jobs = jobs
        self._state = state
        self._every_us = every_us
        self._settings = settings
        self.written = store is not None
        self.fall_due = store is not None and every_us is not None
        self._based = store is not None and bool(store.names())
        self._due_us = clock.monotonic_us() + (every_us or 0)
        self._under_way: tuple[_Begun, Job] | None = None

    def save(self) -> str:
        """Write a checkpoint; calls of async functions are waited for.

        Raises:
            StateError: there is no place for it, or it couldn't be written.
        """
        if self._store is None:
            raise StateError(
                "this run has no folder for checkpoints", hint="start(q, checkpoint=...)", code="state.none"
            )
        self.rest()
        return self._write_now(self._store, self._begin(self._store, patient=False))

    def sync(self) -> None:
        """Rows are about to leave: what they depend on is made durable first.

        The log stands on a checkpoint: where there is none yet, one is written in its place.
        """
        if self._based:
            self._fragment.sync()
        else:
            self.save()

    def save_if_due(self) -> None:
        """Go on with the one under way, or begin the one that has fallen due; one that fails warns."""
        if self._under_way is not None:
            self._go_on(*self._under_way)
        elif self._store is not None and self._clock.monotonic_us() >= self._due_us:
            try:
                self._begin_due(self._store)
            except StateError as error:
                self._warn(error)

    def change(self) -> None:
        """The query has changed: the log of decisions stands on the one that was, so one is written now."""
        if self._store is not None:
            self._based = False
            try:
                self.save()
            except StateError as error:
                self._warn(error)

    def rest(self) -> None:
        """When this returns none is under way: what is being written is waited for, and warns if it fails; of
        what is still being copied nothing comes, and the next is due."""
        if self._under_way is None:
            return
        begun, job = self._under_way
        if begun.copying.done or job.done():
            self._end(begun, job)
        else:
            self._drop(begun)
            self._due_us = self._clock.monotonic_us()

    # Of a moment

    def _begin(self, store: Checkpoints, *, patient: bool) -> _Begun:
        fragment = self._fragment
        if fragment.has_calls:
            fragment.wait()
        copying = fragment.captured(store.capture(), patient=patient)
        try:
            log = fragment.turn()
        except BaseException:
            copying.drop()  # boxes have one copy at a time
            raise
        facts = {
            "settings": self._settings,
            "positions": fragment.accepted(),
            "sinks": {id: {"taken": s.taken, "next": s.next_seq} for id, s in fragment.sinks.items()},
            "decisions": log,
            "shedding": None if fragment.drops is None else fragment.drops.save(),
        }
        return _Begun(fragment.graph, copying, log, facts, copying.left, self._clock.monotonic_us())

    def _begin_due(self, store: Checkpoints) -> None:
        begun = self._begin(store, patient=True)
        if begun.copying.done:
            self._write_now(store, begun)
        elif self._fragment.go_on_after(begun.log):
            job = self._jobs.start(partial(_written_meanwhile, store, begun, self._state, self._jobs.pause))
            self._under_way = begun, job
            self._put_off()
        else:  # rows can't leave until it is durable
            begun.copying.finish()
            self._write_now(store, begun)

    def _write_now(self, store: Checkpoints, begun: _Begun) -> str:
        name = _write(store, begun)
        self._durable(store, begun, name)
        self._put_off()
        return name

    def _durable(self, store: Checkpoints, begun: _Begun, name: str) -> None:
        self._fragment.turned(begun.log, name, store.logged())
        self._based = True

    # While rows come

    def _go_on(self, begun: _Begun, job: Job) -> None:
        if job.done():
            self._end(begun, job)
        elif not begun.copying.done:
            try:
                begun.copying.step(self._rows_now(begun))
            except Exception as error:
                self._drop(begun)
                if not isinstance(error, _FAILS):
                    raise
                self._warn(error)

    def _rows_now(self, begun: _Begun) -> int:
        """A piece; more, where it wouldn't all be copied when the next is due."""
        passed_us, every_us = self._clock.monotonic_us() - begun.began_us, self._every_us or 1
        wanted = begun.rows * passed_us // every_us
        return max(background_copy.SLICE_ROWS, wanted - (begun.rows - begun.copying.left))

    def _end(self, begun: _Begun, job: Job) -> None:
        """Wait for the job."""
        assert self._store is not None, "one is under way"
        try:
            name = job.result()
        except Exception as error:
            self._drop(begun)
            if not isinstance(error, _FAILS):
                raise
            self._warn(error)
        else:
            self._under_way = None
            self._durable(self._store, begun, name)

    def _drop(self, begun: _Begun) -> None:
        begun.dropped = True  # first: what was dropped is done too
        begun.copying.drop()
        self._under_way = None

    def _warn(self, error: Exception) -> None:
        self._put_off()
        text = f"the checkpoint that fell due was not written: {error}"
        self._warnings.caution(text, CheckpointWarning)

    def _put_off(self) -> None:
        self._due_us = self._clock.monotonic_us() + (self._every_us or 0)


def _write(store: Checkpoints, begun: _Begun) -> str:
    facts = {"query": graph_values(begun.graph), **begun.facts}
    return store.save(begun.copying.contents(), facts, begun.copying.known())


def _written_meanwhile(
    store: Checkpoints, begun: _Begun, state: Lock, pause: Callable[[], None]
) -> str | None:
    """The name of a checkpoint, once it is copied and written; None: it was dropped.

    It waits for nobody: who has ``state`` may wait for it.
    """
    while not begun.copying.done:
        pause()
        if state.acquire(blocking=False):
            try:
                begun.copying.step()
            finally:
                state.release()
    if begun.dropped:
        return None
    name = _write(store, begun)
    begun.copying.drop()  # here: to give back its memory takes as long as some pieces
    return name
