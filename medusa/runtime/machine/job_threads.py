"""Jobs that are done beside the thread that asks for them."""

from __future__ import annotations

import _thread
import atexit
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from medusa.runtime.machine.short_turns import short_turns

__all__ = ["JobThreads"]

PAUSE_S = 0.002
"""Long enough that who waits for what a job holds has it first; 60 of them don't make a checkpoint late."""

_UNDER_WAY: set[Future[Any]] = set()
atexit.register(lambda: wait(list(_UNDER_WAY)))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_UNDER_WAY.clear)  # those threads aren't there


class JobThreads:
    """A thread for each job, so that none waits for work, and who works beside it has its turns soon. A
    program that ends waits for those under way."""

    def start(self, work: Callable[[], Any]) -> Future[Any]:
        job: Future[Any] = Future()
        _UNDER_WAY.add(job)
        try:
            # Not threading.Thread: its start waits until the thread has a processor.
            _thread.start_new_thread(_do, (job, work))
        except RuntimeError:  # there can be no more of them
            _do(job, work)
        return job

    def pause(self) -> None:
        time.sleep(PAUSE_S)


def _do(job: Future[Any], work: Callable[[], Any]) -> None:
    try:
        with short_turns():
            made = work()
    except BaseException as error:
        job.set_exception(error)
    else:
        job.set_result(made)
    finally:
        _UNDER_WAY.discard(job)
