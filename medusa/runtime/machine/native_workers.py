"""Threads that run native work beside the caller's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["ThreadWorkers"]

T = TypeVar("T")


class _Worker:
    """One thread. A pair of locks hands work over and back: cheaper than a queue.

    What counts are the turns; the locks only wake. So it does no harm when an interrupt makes the
    caller wake the thread twice, or stop between a wake and what follows it.
    """

    def __init__(self, name: str) -> None:
        self._given = threading.Lock()
        self._done = threading.Lock()
        self._given.acquire()
        self._done.acquire()
        self._work: Callable[[], None] | None = None
        self._turn = self._finished = 0
        self._closing = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._given.acquire()
            if self._closing:
                return
            work, turn = self._work, self._turn
            if work is None or turn == self._finished:
                continue
            try:
                work()
            except BaseException as error:  # it is raised again where the work was given
                self.error = error
            self._work = work = None  # what it holds ends here
            self._finished = turn
            _wake(self._done)

    def give(self, work: Callable[[], None]) -> None:
        self.error = None
        self._work = work
        self._turn += 1
        _wake(self._given)

    def wait(self) -> None:
        """Until what was given has ended; to be called again when it was interrupted."""
        if self._finished != self._turn:
            _wake(self._given)  # perhaps an interrupt came before the first one
        while self._finished != self._turn:
            self._done.acquire()

    def take_error(self) -> BaseException | None:
        """What the work raised; nobody is told again, so that nothing that it holds stays."""
        error, self.error = self.error, None
        return error

    def stop(self) -> None:
        self._closing = True
        _wake(self._given)

    def close(self) -> None:
        self.stop()
        self._thread.join()


def _wake(lock: threading.Lock) -> None:
    with suppress(RuntimeError):  # it has been woken already
        lock.release()


class ThreadWorkers:
    """The port ``Workers``: the caller's thread and ``count - 1`` others, which begin with the first work.

    One call at a time. The threads are daemons, so they hold up no exit; ``close`` ends them. In a
    child after a fork they are made anew, as no thread but the caller's is there.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._workers: list[_Worker] = []
        self._pid = 0

    def map(self, work: Callable[[T], None], parts: Sequence[T]) -> None:
        """Run ``work`` on each part, the first in the caller's thread, and return when all have ended.

        Raises:
            The error of the first part that has one, once all have ended; or what interrupted the
            caller (``KeyboardInterrupt``).
        """
        if len(parts) == 1:
            work(parts[0])
            return
        others = parts[1 : self.count]
        rest = parts[self.count :]
        workers = self._ready(len(others))
        errors: list[BaseException | None] = []
        interrupt: BaseException | None = None
        try:
            for worker, part in zip(workers, others, strict=False):
                worker.give(_bound(work, part))
            work(parts[0])
        except BaseException as error:
            errors.append(error)
        for worker in workers:
            while True:
                try:
                    worker.wait()
                    break
                except BaseException as error:  # an interrupt: what runs must end before it goes on
                    interrupt = interrupt or error
            errors.append(worker.take_error())
        if interrupt is not None:
            raise interrupt
        for found in errors:
            if found is not None:
                raise found
        if rest:
            self.map(work, rest)

    def _ready(self, count: int) -> list[_Worker]:
        if self._pid != os.getpid():
            self._workers, self._pid = [], os.getpid()
        while len(self._workers) < count:
            self._workers.append(_Worker(f"medusa-worker-{len(self._workers) + 1}"))
        return self._workers[:count]

    def close(self) -> None:
        """End the threads; a later ``map`` makes new ones."""
        workers, self._workers = self._workers, []
        if self._pid == os.getpid():
            for worker in workers:
                worker.close()

    def __del__(self) -> None:
        for worker in self._workers:  # nobody closed it
            worker.stop()


def _bound(work: Callable[[Any], None], part: Any) -> Callable[[], None]:
    return lambda: work(part)
