"""Work beside a thread that others wait for, which has its turn sooner meanwhile.

Threads share the interpreter. One that wants to go on waits for it up to ``sys.getswitchinterval()``, as a
rule 5 ms, and does so after each call that released it: some dozens in a turn of a node's loop. While
another thread works without a rest, the loop so takes half a second for what takes it 10 ms.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from medusa.runtime.machine.worker import Worker

__all__ = ["ShortTurns", "short_turns"]

TURN_US = 500
"""Shorter: the two threads spend their time on changing places; longer: the loop is late."""


class _Interval:
    """The interval of this process: short while anybody works so, and then again what it was.

    The program may set one of its own meanwhile, which stays.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working = 0
        self._forks = 0
        """Between this process and the first: who works was counted anew in each."""
        self._usual_us = 0
        """To be set again; 0: nothing, it wasn't changed."""

    def begin(self) -> int:
        """What ``end`` is to be told."""
        with self._lock:
            self._working += 1
            if self._working == 1 and (usual_us := _interval_us()) > TURN_US:
                self._usual_us = usual_us
                sys.setswitchinterval(TURN_US / 1e6)
            return self._forks

    def end(self, begun: int) -> None:
        with self._lock:
            if begun != self._forks:
                return  # A fork in the middle of the job: the child has forgotten it.
            self._working -= 1
            if not self._working:
                self._set_back()

    def forked(self) -> None:
        """In the child, where nobody works: those threads aren't there, and one may have held the lock."""
        self._lock = threading.Lock()
        self._working = 0
        self._forks += 1
        self._set_back()

    def _set_back(self) -> None:
        if self._usual_us and _interval_us() == TURN_US:
            sys.setswitchinterval(self._usual_us / 1e6)
        self._usual_us = 0


def _interval_us() -> int:
    return round(sys.getswitchinterval() * 1e6)


_INTERVAL = _Interval()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_INTERVAL.forked)


@contextmanager
def short_turns() -> Iterator[None]:
    """Meanwhile the threads of this process change places more often."""
    begun = _INTERVAL.begin()
    try:
        yield
    finally:
        _INTERVAL.end(begun)


class ShortTurns:
    """A worker during whose jobs the threads of this process change places more often."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def idle(self) -> bool:
        return self._worker.idle

    def give(self, job: Callable[[], None]) -> None:
        self._worker.give(partial(self._work, job))

    def cpu_us(self) -> int | None:
        return self._worker.cpu_us()

    def stop(self, timeout_s: float | None = None, *, last: Callable[[], None] | None = None) -> bool:
        return self._worker.stop(timeout_s, last=last)

    @staticmethod
    def _work(job: Callable[[], None]) -> None:
        with short_turns():
            job()
