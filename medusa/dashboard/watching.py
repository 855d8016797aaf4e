"""Asks nodes how they are: each in a thread of its own, so that one that hangs keeps nobody waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from medusa.dashboard.network import Seen
from medusa.dashboard.said import Status, status_of
from medusa.errors import MedusaError

if TYPE_CHECKING:
    from medusa.runtime.client import Federation

__all__ = ["EVERY_S", "TIMEOUT_S", "Watcher", "ask_all"]

EVERY_S = 1.0
TIMEOUT_S = 2.0
CLOSE_S = 5.0
AT_ONCE = 32

Connect = Callable[[str], "Federation"]


def connector(timeout_s: float, keys: Mapping[str, str | None]) -> Connect:
    """A function that connects to a node with these keys and this deadline."""

    def connect_to(address: str) -> Federation:
        from medusa.runtime.client import connect

        return connect(address, f"{round(timeout_s * 1000)}ms", **keys)

    return connect_to


def ask_all(addresses: Sequence[str], connect: Connect) -> list[Seen]:
    """Ask each node once, all at the same time."""
    with ThreadPoolExecutor(min(len(addresses), AT_ONCE)) as pool:
        return list(pool.map(lambda address: _ask_once(address, connect), addresses))


def _ask_once(address: str, connect: Connect) -> Seen:
    try:
        fed = connect(address)
        try:
            return Seen(address=address, status=_status(fed))
        finally:
            fed.close()
    except MedusaError as error:
        return Seen(address=address, why=error.message)


def _status(fed: Federation) -> Status:
    from medusa.runtime.overview import check_entitled

    said: Any = fed.status()
    check_entitled(said)
    return status_of(said)


class Watcher:
    """Asks nodes every second, from ``start`` until ``close``; ``seen`` is what is known now."""

    def __init__(
        self,
        addresses: Sequence[str],
        connect: Connect,
        *,
        every_s: float = EVERY_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Begin with nothing known.

        Args:
            connect: calls a node; what it gives answers or fails within ``timeout_s``.
        """
        self._connect = connect
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._closing = threading.Event()
        self._watches = [_Watch(address) for address in dict.fromkeys(addresses)]
        self._threads = [
            threading.Thread(target=self._watch, args=(watch,), name="medusa-watch", daemon=True)
            for watch in self._watches
        ]

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End, at the latest with the deadlines of what is under way. A second time does nothing."""
        self._closing.set()
        for watch in self._watches:
            watch.hang_up()
        end = time.monotonic() + CLOSE_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(end - time.monotonic(), 0.0))

    def seen(self) -> list[Seen]:
        """What is known of each node; any thread may ask, nobody waits."""
        return [watch.seen(self._every_s + self._timeout_s + 1.0) for watch in self._watches]

    def _watch(self, watch: _Watch) -> None:
        while not self._closing.is_set():
            began = time.monotonic()
            watch.ask(self._connect, self._closing)
            self._closing.wait(max(self._every_s - (time.monotonic() - began), 0.0))
        watch.hang_up()


class _Watch:
    """One node: the connection to it, and what it said last."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._fed: Federation | None = None
        self._status: Status | None = None
        self._why = ""
        self._at = time.monotonic()

    def seen(self, stale_s: float) -> Seen:
        with self._lock:
            age_s = time.monotonic() - self._at
            why = self._why or ("no answer" if age_s > stale_s else "")
            return Seen(address=self._address, status=self._status, age_s=age_s, why=why)

    def ask(self, connect: Connect, closing: threading.Event) -> None:
        """Ask once; a connection that failed is made anew the next time."""
        try:
            if self._fed is None:
                self._fed = connect(self._address)
                if closing.is_set():
                    return
            status = _status(self._fed)
        except MedusaError as error:
            self._failed(error.message)
        except Exception as error:  # the page says so, and the others go on
            self._failed(f"{type(error).__name__}: {error}")
        else:
            with self._lock:
                self._status, self._why, self._at = status, "", time.monotonic()

    def _failed(self, why: str) -> None:
        with self._lock:
            self._why = why
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection, if there is one; whoever waits for an answer is told so."""
        fed, self._fed = self._fed, None
        if fed is not None:
            with suppress(MedusaError):
                fed.close()
