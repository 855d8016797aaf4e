"""Calls of nodes for clients that must not wait: a thread makes the call, and the client asks again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from medusa.errors import LinkError, MedusaError

__all__ = ["CALLS_MAX", "BackgroundCalls", "Later"]

CALLS_MAX = 50
FETCHED_S = 60.0
"""An answer that no client has fetched for so long expires. Too small: a slow client that asks again has the
call made twice; too large: a later client gets what was true then."""


class Later(MedusaError):
    """The answer isn't known yet: ask again soon."""

    code = "E_LATER"


class BackgroundCalls:
    """A pool of threads, and one call for each key at a time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="medusa-gateway-call")
        self._calls: dict[Hashable, Future[tuple[Any, float]]] = {}
        """Each results in its answer, which may be an error, and when that came."""
        self._lock = threading.Lock()

    def result(self, key: Hashable, what: str, call: Callable[[], Any]) -> Any:
        """What ``call`` returned; it is started unless it runs already.

        Raises:
            Later: it runs, or too many others do: ask again.
            MedusaError: what it raised.
        """
        with self._lock:
            found = self._calls.get(key)
            if found is None or _is_expired(found):
                self._calls.pop(key, None)
                self._make_room()
                found = self._calls[key] = self._pool.submit(_answer, what, call)
            if not found.done():
                raise Later(f"{what} is being done")
            del self._calls[key]
        answer, _ = found.result()
        if isinstance(answer, MedusaError):
            raise answer
        return answer

    def _make_room(self) -> None:
        if len(self._calls) < CALLS_MAX:
            return
        self._calls = {key: each for key, each in self._calls.items() if not each.done()}
        if len(self._calls) >= CALLS_MAX:
            raise Later(f"{CALLS_MAX} questions to nodes are waiting")

    def close(self) -> None:
        """Wait until none runs; no other can be started."""
        self._pool.shutdown()


def _answer(what: str, call: Callable[[], Any]) -> tuple[Any, float]:
    try:
        answer = call()
    except MedusaError as error:
        answer = error
    except Exception as error:
        why = f"{what} stopped: a fault of ours: {type(error).__name__}: {error}"
        answer = LinkError(why, code="link.gateway")
    return answer, time.monotonic()


def _is_expired(call: Future[tuple[Any, float]]) -> bool:
    return call.done() and call.result()[1] < time.monotonic() - FETCHED_S
