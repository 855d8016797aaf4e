"""A run among the tasks of asyncio: rows out as they come, pushes that wait for room.

The work itself is done in the thread that calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from medusa.engine.core.watchers import Watchers
from medusa.errors import FullError, StateError

__all__ = ["LOOK_AGAIN_S", "AwaitedRun", "push_when_room", "stream_of"]

LOOK_AGAIN_S = 0.25
"""How often, at least, a stream looks whose run may go on though nobody pushes."""


class AwaitedRun(Protocol):
    """What has sinks, and can be waited for."""

    @property
    def output(self) -> Watchers: ...
    @property
    def ended(self) -> bool: ...
    @property
    def goes_on_alone(self) -> bool: ...
    def tick(self) -> None: ...


async def push_when_room(push: Callable[[], None], room: Watchers) -> None:
    """Push; where that raises FullError, wait and try again. Then other tasks have a turn."""
    with _events(room) as event:
        while True:
            event.clear()
            try:
                push()
                break
            except FullError:
                await event.wait()
    await asyncio.sleep(0)


async def stream_of(run: AwaitedRun, read: Callable[[], tuple[Any, bool]]) -> AsyncIterator[Any]:
    """What comes out of a sink, as it comes.

    Args:
        read: what has come out of it, and whether there are rows in it.
    """
    with _events(run.output) as event:
        while True:
            event.clear()
            ended = run.ended
            made: Any = []
            some = False
            try:
                made, some = read()
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
                await _something(run, event)


async def _something(run: AwaitedRun, event: asyncio.Event) -> None:
    if not run.goes_on_alone:
        await event.wait()
        return
    try:
        await asyncio.wait_for(event.wait(), LOOK_AGAIN_S)
    except TimeoutError:
        with suppress(StateError):  # closed, or another thread is at work
            run.tick()


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
