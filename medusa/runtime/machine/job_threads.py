"""Jobs that are done beside the thread that asks for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["JobThreads"]

PAUSE_S = 0.002
"""Long enough that who waits for what a job holds has it first; 60 of them don't make a checkpoint late."""


class JobThreads:
    """A thread for each job, so that none waits for work. A program that ends waits for those under way."""

    def __init__(self, name: str) -> None:
        self._name = name

    def start(self, work: Callable[[], Any]) -> Future[Any]:
        job: Future[Any] = Future()
        try:
            threading.Thread(target=_do, args=(job, work), name=self._name).start()
        except RuntimeError:  # there can be no more of them
            _do(job, work)
        return job

    def pause(self) -> None:
        time.sleep(PAUSE_S)


def _do(job: Future[Any], work: Callable[[], Any]) -> None:
    try:
        job.set_result(work())
    except BaseException as error:
        job.set_exception(error)
