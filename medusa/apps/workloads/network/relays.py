"""Connections between processes of this machine that can be cut, without any rights.

    caller ── folder/A.call ──┐
    caller ── folder/A ───────┴─ relay ── folder/A.inside ── node A

Nodes call each other at ``A.call``. Later they may also call where A says that it listens, ``folder/A``: so
A's socket is renamed once it is there, and the relay listens in its place. Who calls, the kernel says.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Relays"]

PIECE_BYTES = 65536
END_S = 10.0
LOOK_EVERY_S = 0.02

Pair = tuple[str, str]


class Relays:
    """Carries the bytes of all connections to some nodes, in a thread of its own; any thread may call.

    Args:
        folder: where they listen, each at a Unix socket that has its name.
        names: of the nodes.
        pids: node -> its process. Who is none of them is called ``""``.
    """

    def __init__(self, folder: Path, names: Iterable[str], pids: Callable[[], Mapping[str, int]]) -> None:
        self._folder = folder
        self._pids = pids
        self._isolated: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._renamed: dict[str, asyncio.Lock] = {name: asyncio.Lock() for name in names}
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        for name in self._renamed:
            self._do(self._listen(name, f"{name}.call"))

    def isolate(self, *names: str) -> None:
        """No byte passes any more to or from these, and to or from all others it does; none is lost."""
        self._do(self._isolate(frozenset(names)))

    def close(self) -> None:
        """All connections end."""
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_S)
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(END_S)

    # --- in the thread ------------------------------------------------------------------------------

    async def _isolate(self, names: frozenset[str]) -> None:
        self._isolated = names
        self._changed.set()
        self._changed = asyncio.Event()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, name: str, path: str) -> None:
        async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Cancelled by nobody but _end: then asyncio would complain that a callback was.
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await self._carry(name, reader, writer)

        self._servers.append(await asyncio.start_unix_server(called, self._folder / path))

    async def _carry(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection to a node, until one of its ends closes it."""
        pair = self._caller(writer), name
        with contextlib.closing(writer):
            await self._open(pair)
            inside, there = await self._node(name)
            with contextlib.closing(there):
                ways = {
                    asyncio.ensure_future(self._pass(pair, reader, there)),
                    asyncio.ensure_future(self._pass(pair, inside, writer)),
                }
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)

    async def _pass(self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE_BYTES):
            await self._open(pair)
            writer.write(data)
            await writer.drain()
        await self._open(pair)  # That the other end has closed isn't heard over a cut either.

    async def _open(self, pair: Pair) -> None:
        while len(self._isolated.intersection(pair)) == 1:
            await self._changed.wait()

    def _caller(self, writer: asyncio.StreamWriter) -> str:
        connection = writer.get_extra_info("socket")
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid = struct.unpack("3i", told)[0]
        return next((name for name, each in self._pids().items() if each == pid), "")

    async def _node(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a node itself; one that doesn't listen yet is waited for."""
        for _ in range(round(END_S / LOOK_EVERY_S)):
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                return await asyncio.open_unix_connection(await self._inside(name))
            await asyncio.sleep(LOOK_EVERY_S)
        raise ConnectionRefusedError(f"node {name} doesn't listen")

    async def _inside(self, name: str) -> Path:
        """Where the node itself listens; what was its door is a relay's from now on."""
        door, inside = self._folder / name, self._folder / f"{name}.inside"
        async with self._renamed[name]:
            if not inside.exists():
                os.rename(door, inside)
                await self._listen(name, name)
        return inside
