"""Events for several browsers, some of them slow."""

from __future__ import annotations

import asyncio

from medusa.apps.dashboard.hub import LOOKERS_MAX, Hub


async def begun(hub: Hub):
    """A stream that somebody reads: the task that waits for its first event, and the rest."""
    stream = hub.look()
    assert stream is not None
    hub.wanted.clear()
    first = asyncio.ensure_future(anext(stream))
    await hub.wanted.wait()
    return stream, first


def test_who_is_slow_gets_the_newest_and_delays_nobody() -> None:
    async def scene() -> None:
        hub = Hub()
        quick, first = await begun(hub)
        slow, slow_first = await begun(hub)
        hub.publish(b"0")
        assert await slow_first == b"0"
        got = [await first]
        for number in range(1, 1000):
            hub.publish(b"%d" % number)
            got.append(await anext(quick))
        assert got == [b"%d" % number for number in range(1000)]
        assert await anext(slow) == b"999"
        hub.close()
        assert [event async for event in slow] == []

    asyncio.run(scene())


def test_closing_ends_all_streams_and_there_are_no_new_ones() -> None:
    async def scene() -> None:
        hub = Hub()
        _, first = await begun(hub)
        hub.close()
        assert isinstance((await asyncio.gather(first, return_exceptions=True))[0], StopAsyncIteration)
        assert hub.lookers == 0
        assert hub.look() is None

    asyncio.run(scene())


def test_who_goes_leaves_the_place_to_another() -> None:
    async def scene() -> None:
        hub = Hub()
        for _ in range(3 * LOOKERS_MAX):
            stream, first = await begun(hub)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await stream.aclose()
            assert hub.look() is not None  # nobody reads it: it takes no place
        assert hub.lookers == 0
        streams = [await begun(hub) for _ in range(LOOKERS_MAX)]
        assert hub.look() is None
        hub.close()
        await asyncio.gather(*(first for _, first in streams), return_exceptions=True)

    asyncio.run(scene())


def test_somebody_new_is_known_at_once() -> None:
    async def scene() -> None:
        hub = Hub()
        assert not hub.wanted.is_set()
        _, first = await begun(hub)
        assert hub.wanted.is_set()
        hub.close()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(scene())
