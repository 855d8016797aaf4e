"""The thread of a worker: does what it is given, in order.

A job that raises ends it: what was given after that could build on what wasn't done.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from medusa.runtime.machine.usage import thread_cpu_us

__all__ = ["WorkerThread"]


class WorkerThread:
    """The worker of a process.

    Args:
        failed: told in that thread why a job raised; the thread does nothing more.
    """

    def __init__(self, name: str, *, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        return self._jobs.empty()

    def give(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def cpu_us(self) -> int | None:
        return thread_cpu_us(self._thread)

    def stop(self, timeout_s: float | None = None, *, last: Callable[[], None] | None = None) -> bool:
        if last is not None:
            self._jobs.put(last)
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException as error:
                self._failed(error)
                return
