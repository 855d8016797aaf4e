"""Reads graphs that others send, in a thread beside the loop. Heartbeats and rows go on meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cached_property, partial

from medusa.errors import QueryError
from medusa.nodes.reports import Parsed
from medusa.runtime.machine.short_turns import ShortTurns
from medusa.runtime.machine.worker import Worker
from medusa.runtime.machine.worker_thread import WorkerThread
from medusa.wire.outbox import Parse

__all__ = ["GraphParser"]


class GraphParser:
    """Does ``Parse``.

    Args:
        wake: called from another thread when something has been read.
        worker: makes the thread of this name; a simulator gives one in virtual time.
    """

    def __init__(self, *, wake: Callable[[], None], worker: Callable[[str], Worker] | None = None) -> None:
        self._wake = wake
        self._broken: BaseException | None = None
        self._make_worker: Callable[[str], Worker] = worker or partial(WorkerThread, failed=self._break)
        self._done: deque[Parsed] = deque()

    def parse(self, effect: Parse) -> None:
        """Read it after all that was given before."""
        self._worker.give(partial(self._parse, effect))

    def finished(self) -> list[Parsed]:
        """What has been read since the last call.

        Raises:
            RuntimeError: the thread has failed, and reads nothing more: end the process.
        """
        if self._broken is not None:
            raise RuntimeError(f"the thread that reads graphs has failed: {self._broken}") from self._broken
        return [self._done.popleft() for _ in range(len(self._done))]

    def stop(self, timeout_s: float | None = None) -> bool:
        """Whether the thread has ended in time; else it ends with the process."""
        return self._worker.stop(timeout_s) if "_worker" in vars(self) else True

    @cached_property
    def _worker(self) -> Worker:
        """Most nodes need it seldom."""
        return ShortTurns(self._make_worker("medusa-parser"))

    def _break(self, error: BaseException) -> None:
        self._broken = error
        self._wake()

    def _parse(self, effect: Parse) -> None:
        found: object = None
        error: QueryError | None = None
        try:
            found = effect.read()
        except QueryError as refusal:
            error = refusal
        except Exception as broken:  # A fault of ours, or no memory: only this graph isn't taken.
            text = f"a graph of {effect.nbytes:,} bytes can't be read: {type(broken).__name__}: {broken}"
            error = QueryError(text[:500], code="E_SPEC")
        self._done.append(Parsed(effect.token, found, error))
        self._wake()
