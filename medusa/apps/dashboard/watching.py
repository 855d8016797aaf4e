"""Asks nodes how they are: each in a thread of its own, so that one that hangs keeps nobody waiting."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa.apps.dashboard.network import Seen
from medusa.errors import MedusaError
from medusa.wire.status_and_metrics import NodeStatus

if TYPE_CHECKING:
    from medusa.runtime.client.federation import Federation

__all__ = ["EVERY_S", "TIMEOUT_S", "Watcher", "ask_all"]

EVERY_S = 1.0
TIMEOUT_S = 2.0
CLOSE_S = 5.0
AT_ONCE = 32
NODES_MAX = 200

Connect = Callable[[str, str], "Federation"]
"""Calls the node at an address; with its public key, where another node said it."""


def connector(timeout_s: float, key: str | None, server_keys: Mapping[str, str]) -> Connect:
    """A function that connects to a node with our key, those of nodes by address, and this deadline."""
    # Loading it takes seconds of a busy machine, and the interpreter: done here, no page waits for it.
    from medusa.runtime.client.client import connect

    def connect_to(address: str, server_key: str) -> Federation:
        theirs = server_keys.get(address) or server_key or None
        return connect(address, f"{round(timeout_s * 1000)}ms", key=key, server_key=theirs)

    return connect_to


def ask_all(addresses: Sequence[str], connect: Connect) -> list[Seen]:
    """Ask each node once, all at the same time, and then those that they know of."""
    watches = [_Watch(_Place("", address, "")) for address in dict.fromkeys(addresses)]
    never = threading.Event()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        places = [
            place for found in pool.map(lambda each: each.ask(connect, never), watches) for place in found
        ]
        more = [_Watch(place) for place in _new(places, watches)]
        list(pool.map(lambda each: each.ask(connect, never), more))
        list(pool.map(_Watch.hang_up, [*watches, *more]))
    return [each.seen(math.inf) for each in [*watches, *more]]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node is, as the user or another node says."""

    name: str
    address: str
    server_key: str


def _new(places: Iterable[_Place], watches: Sequence[_Watch]) -> list[_Place]:
    """Nodes that nobody watches yet, each once."""
    known = {each.name for each in watches} | {each.place.address for each in watches}
    found = {
        place.name: place for place in places if place.address and not {place.name, place.address} & known
    }
    return [found[name] for name in sorted(found)][: max(NODES_MAX - len(watches), 0)]


class Watcher:
    """Asks nodes every second, from ``start`` until ``close``; ``seen`` is what is known now.

    Nodes that they know of, in the catalog of their participant, are asked too.
    """

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
        self._lock = threading.Lock()
        self._watches = [_Watch(_Place("", address, "")) for address in dict.fromkeys(addresses)]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to ask."""
        with self._lock:
            for watch in self._watches:
                self._begin(watch)

    def close(self) -> None:
        """End, at the latest with the deadlines of what is under way. A second time does nothing."""
        self._closing.set()
        with self._lock:
            watches, threads = list(self._watches), list(self._threads)
        for watch in watches:
            watch.hang_up()
        end = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0.0))

    def seen(self) -> list[Seen]:
        """What is known of each node; any thread may ask, nobody waits."""
        with self._lock:
            watches = list(self._watches)
        return [watch.seen(self._every_s + self._timeout_s + 1.0) for watch in watches]

    def _begin(self, watch: _Watch) -> None:
        thread = threading.Thread(target=self._watch, args=(watch,), name="medusa-watch", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _watch(self, watch: _Watch) -> None:
        while not self._closing.is_set():
            began = time.monotonic()
            places = watch.ask(self._connect, self._closing)
            with self._lock:
                for place in [] if self._closing.is_set() else _new(places, self._watches):
                    self._watches.append(_Watch(place))
                    self._begin(self._watches[-1])
            self._closing.wait(max(self._every_s - (time.monotonic() - began), 0.0))
        watch.hang_up()


class _Watch:
    """One node: the connection to it, and what it said last."""

    def __init__(self, place: _Place) -> None:
        self.place = place
        self._lock = threading.Lock()
        self._fed: Federation | None = None
        self._status: NodeStatus | None = None
        self._why = self._hint = ""
        self._at = time.monotonic()

    @property
    def name(self) -> str:
        """Of the node; empty: nobody has said it yet."""
        return self.place.name if self._status is None else self._status.node

    def seen(self, stale_s: float) -> Seen:
        """What is known; one that has said nothing for ``stale_s`` doesn't answer."""
        with self._lock:
            age_s = time.monotonic() - self._at
            why = self._why or ("no answer" if age_s > stale_s else "")
            return Seen(
                address=self.place.address,
                name=self.place.name,
                status=self._status,
                age_s=age_s,
                why=why,
                hint=self._hint,
            )

    def ask(self, connect: Connect, closing: threading.Event) -> list[_Place]:
        """Ask once; a connection that failed is made anew the next time.

        Returns:
            the nodes that it knows of.
        """
        fed = self._fed  # Another thread may hang up meanwhile.
        try:
            if fed is None:
                fed = self._fed = connect(self.place.address, self.place.server_key)
            if closing.is_set():
                return []
            status = _status(fed)
        except MedusaError as error:
            self._failed(error.message, error.hint)
        except Exception as error:  # the page says so, and the others go on
            self._failed(f"{type(error).__name__}: {error}")
        else:
            with self._lock:
                self._status, self._at = status, time.monotonic()
                self._why = self._hint = ""
            return _places(fed)
        return []

    def _failed(self, why: str, hint: str = "") -> None:
        with self._lock:
            self._why, self._hint = why, hint
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection, if there is one; whoever waits for an answer is told so."""
        fed, self._fed = self._fed, None
        if fed is not None:
            with suppress(MedusaError):
                fed.close()


def _status(fed: Federation) -> NodeStatus:
    from medusa.runtime.client.status.overview import whole

    return whole(fed.status())


def _places(fed: Federation) -> list[_Place]:
    """The nodes of its participant; none where it doesn't say."""
    with suppress(MedusaError, KeyError, TypeError):
        found = fed.nodes()
        return [_Place(str(each["node"]), str(each["address"]), str(each["server_key"])) for each in found]
    return []
