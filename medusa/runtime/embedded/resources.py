"""What a run works with: opened bit by bit, and closed together."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.overload.qos_scheduler import Ordering
from medusa.engine.state.checkpoint import Checkpoints
from medusa.errors import MedusaError, QueryError, StateError
from medusa.ports import Clock
from medusa.runtime.embedded.memory_options import MemoryBounds
from medusa.runtime.embedded.run import Run
from medusa.runtime.embedded.run_parts import QueueOptions
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.machine.event_loop import LoopTasks
from medusa.runtime.machine.interrupts import INTERRUPTS
from medusa.runtime.machine.job_threads import JobThreads
from medusa.runtime.machine.native_workers import ThreadWorkers
from medusa.runtime.machine.run_lock import OneTurn, SharedTurns
from medusa.runtime.store.folder_store import FolderStore
from medusa.runtime.store.history_store import HistoryFolder, HistoryMemory

__all__ = ["RunResources", "checkpoints_in", "given_up", "holding", "workers_of"]

THREADS_MAX = 64


@contextmanager
def holding() -> Iterator[ExitStack]:
    """What a run holds open. It is closed here if the run can't be made, else when the run is closed."""
    held = ExitStack()
    try:
        yield held
    except BaseException as error:
        try:
            held.close()
        except MedusaError as other:  # the error on its way out is the news
            error.add_note(f"besides, closing what was open failed: {other}")
        raise


@contextmanager
def given_up(run: Run) -> Iterator[None]:
    """The last steps of making a run: where one fails, nobody gets it, and it is closed unsaved."""
    try:
        yield
    except BaseException as error:
        try:
            run._give_up()
        except MedusaError as other:
            error.add_note(f"besides, closing the run failed: {other}")
        raise


@dataclass(frozen=True, slots=True)
class RunResources:
    """What a run works with but for its checkpoints.

    Attributes:
        held: closes it, with the run.
    """

    held: ExitStack
    clock: Clock
    workers: ThreadWorkers | None
    tasks: LoopTasks
    place: HistoryFolder | HistoryMemory
    bounds: MemoryBounds

    @classmethod
    def of(
        cls,
        held: ExitStack,
        *,
        workers: ThreadWorkers | None,
        clock: Clock | None,
        place: HistoryFolder | HistoryMemory,
        bounds: MemoryBounds,
    ) -> RunResources:
        """Those of a run that is being made; nothing is done on disk.

        Raises:
            QueryError: the clock is none.
        """
        if clock is not None and not all(hasattr(clock, name) for name in ("now_us", "monotonic_us")):
            raise QueryError(
                f"clock: expected an object with now_us() and monotonic_us(), got {clock!r:.80}",
                hint="clock=md.testing.ManualClock()",
                code="query.clock",
            )
        held.callback(bounds.close)
        held.callback(place.close)
        if workers is not None:
            held.callback(workers.close)
        tasks = LoopTasks()
        held.callback(tasks.close)
        return cls(held, clock or SystemClock(), workers, tasks, place, bounds)

    def of_fragment(self) -> dict[str, Any]:
        """What a fragment is made with; opens the folder to spill to.

        Raises:
            StateError: that can't be used, or another run has it.
        """
        return {
            "clock": self.clock,
            "tasks": self.tasks,
            "workers": self.workers,
            "histories": self.place.segments,
            "storage": self.bounds.open(),
        }

    def sweep(self, store: FolderStore | None) -> None:
        """Remove what killed runs left in the folders and nobody needs: drafts, what was spilled, segments
        that were being begun or removed. Only once all that is there was checked, and the run can go on.

        Args:
            store: of the checkpoints; None: there are none.

        Raises:
            StateError: something can't be removed.
        """
        if store is not None:
            store.sweep()
        self.place.sweep()
        self.bounds.sweep()

    def run(
        self,
        fragment: LoggedFragment,
        settings: dict[str, Any],
        *,
        ordering: Ordering | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> Run:
        """The run of a fragment; it closes what is held."""
        threads = 1 if self.workers is None else self.workers.count
        queue_bytes = _queue_bytes(settings)
        queue = None if queue_bytes is None else QueueOptions(queue_bytes, threads, ordering)
        return Run(
            fragment,
            clock=self.clock,
            memory_bytes=settings["memory_bytes"],
            settings=settings,
            turns=OneTurn() if threads == 1 and queue is None else SharedTurns(INTERRUPTS),
            state=threading.RLock(),
            interrupts=INTERRUPTS,
            jobs=JobThreads(),
            checkpoints=checkpoints,
            checkpoint_every_us=None if checkpoints is None else settings["checkpoint_every_us"],
            queue=queue,
            on_close=self.held.close,
        )


def _queue_bytes(settings: Mapping[str, Any]) -> int | None:
    """Of the input queue, by the settings of a run, which may come from a checkpoint; None: it has none.

    Raises:
        StateError: no such settings were written.
    """
    queue_bytes = settings.get("queue_bytes")
    if queue_bytes is not None and (type(queue_bytes) is not int or queue_bytes < 0):
        raise StateError(f"not the settings of a run: queue_bytes {queue_bytes!r:.80}", code="state.corrupt")
    return queue_bytes


def workers_of(threads: Any) -> ThreadWorkers | None:
    """Threads that begin with the first work that is large enough to be split; None: one is enough."""
    if type(threads) is not int or not 1 <= threads <= THREADS_MAX:
        raise QueryError(
            f"threads={threads!r:.80}: expected a whole number of 1 to {THREADS_MAX}", code="query.threads"
        )
    return ThreadWorkers(threads) if threads > 1 else None


def checkpoints_in(store: FolderStore) -> Checkpoints:
    """The checkpoints in a folder."""
    return Checkpoints(store, secret=(secrets.randbits(64), secrets.randbits(64)))
