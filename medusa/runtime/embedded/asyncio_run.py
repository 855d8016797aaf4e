"""A run among the tasks of asyncio: rows out as they come, pushes that wait for room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from medusa.engine.core.watchers import Watchers
from medusa.errors import FullError, StateError
from medusa.runtime.embedded.forked import ForkedRun

__all__ = ["LiveRun", "Run"]

LOOK_AGAIN_S = 0.25
"""How often, at least, a stream looks whose run may go on though nobody pushes."""


class LiveRun(ForkedRun):
    """A run with methods for asyncio. The work itself is done in the thread that calls."""

    async def push_async(self, source: str, data: Any, **options: Any) -> None:
        """``push``; but where it would raise ``FullError`` this waits until rows have been taken.

        The query runs in the thread of the loop, which does nothing else meanwhile; then other
        tasks have a turn.

        Raises:
            DataError, StateError: as ``push``.
        """
        with _events(self.room) as event:
            while True:
                event.clear()
                try:
                    self.push(source, data, wait=False, **options)
                    break
                except FullError:
                    await event.wait()
        await asyncio.sleep(0)

    async def stream(self, sink: str, *, changes: bool = False) -> AsyncIterator[Any]:
        """What comes out of a sink, as it comes: ``async for table in run.stream("tolls")``.

        It ends when the run is closed (what was not taken by then is in the checkpoint, where there
        is one), or has finished and all has been taken.

        Args:
            changes: lists of elements as of ``take(sink, changes=True)``, in place of tables.

        Raises:
            DataError: there is no such sink.
        """
        with _events(self.output) as event:
            while True:
                event.clear()
                ended = self.ended
                made: Any = []
                some = False
                try:
                    made, some = self._take(sink, changes, None)
                except StateError as error:
                    if error.code == "run.closed":
                        return
                    if error.code != "run.busy":
                        raise  # else another thread is at work: it tells when it is done
                if some:
                    yield made
                elif ended:
                    return
                else:
                    await self._something(event)

    async def _something(self, event: asyncio.Event) -> None:
        if not self.goes_on_alone:
            await event.wait()
            return
        try:
            await asyncio.wait_for(event.wait(), LOOK_AGAIN_S)
        except TimeoutError:
            with suppress(StateError):  # closed, or another thread is at work
                self.tick()


Run = LiveRun
"""Its public name, ``md.Run``."""


@contextmanager
def _events(watchers: Watchers) -> Iterator[asyncio.Event]:
    """An event of the running loop that is set whenever the watchers are told."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def call() -> None:
        try:
            ours = asyncio.get_running_loop() is loop
        except RuntimeError:  # a thread without a loop
            ours = False
        if ours:
            event.set()  # whoever waits has its turn before the one who pushed
            return
        with suppress(RuntimeError):  # the loop has ended; so has whoever waited
            loop.call_soon_threadsafe(event.set)

    with watchers.watching(call):
        yield event
