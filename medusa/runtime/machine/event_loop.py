"""An event loop in a thread of its own, for async functions of users."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any

from medusa.ports import Interrupts, Task
from medusa.runtime.machine.interrupts import INTERRUPTS
from medusa.runtime.machine.run_lock import LOOK_AGAIN_S

__all__ = ["LoopTasks"]


class LoopTasks:
    """The port ``Tasks``: the loop and its thread begin with the first coroutine and end with ``close``.

    Args:
        interrupts: deferred by whoever waits.
    """

    def __init__(self, interrupts: Interrupts = INTERRUPTS) -> None:
        self._interrupts = interrupts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        if self._loop is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="medusa-calls", daemon=True)
            try:
                thread.start()
            except BaseException:
                loop.close()
                raise
            self._loop, self._thread = loop, thread
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @property
    def hurried(self) -> bool:
        return self._interrupts.came

    def rest(self, task: Task) -> None:
        assert isinstance(task, Future), "others nobody started here"
        wait([task], LOOK_AGAIN_S)

    def close(self) -> None:
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._loop = self._thread = None
        asyncio.run_coroutine_threadsafe(_wind_down(loop), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _wind_down(loop: asyncio.AbstractEventLoop) -> None:
    """All of it in the loop's own thread: that of the caller may have a loop that runs."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_asyncgens()
