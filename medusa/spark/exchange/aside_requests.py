"""Questions to a node, asked aside for one who may not wait for its answer."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

from medusa.errors import LinkError, MedusaError
from medusa.spark.exchange.handlers import Later

__all__ = ["ASIDES_MAX", "Asides"]

ASIDES_MAX = 50
FETCHED_S = 60.0
"""An answer that nobody fetched for so long is nobody's. Too small: a slow one who asks again has it done
twice; too large: who asks anew later hears what was so then."""


class _Aside(threading.Thread):
    """Attributes:
    answer: what was returned, or raised; once it is done.
    done_s: when that was; None: it is being done.
    """

    def __init__(self, what: str, work: Callable[[], Any]) -> None:
        super().__init__(name=what, daemon=True)
        self._work = work
        self.answer: Any = None
        self.done_s: float | None = None

    def run(self) -> None:
        try:
            self.answer = self._work()
        except MedusaError as error:
            self.answer = error
        except Exception as error:
            why = f"{self.name} stopped: a fault of ours: {type(error).__name__}: {error}"
            self.answer = LinkError(why, code="link.gateway")
        self.done_s = time.monotonic()


class Asides:
    """What takes a node's answer, done in threads of their own for one who may not wait."""

    def __init__(self) -> None:
        self._running: dict[Hashable, _Aside] = {}
        self._lock = threading.Lock()

    def done(self, key: Hashable, what: str, work: Callable[[], Any]) -> Any:
        """What ``work`` returned; it is begun where it isn't being done.

        Raises:
            Later: it is being done, or too much else is: ask again.
            MedusaError: what it raised.
        """
        with self._lock:
            found = self._running.get(key)
            if found is None or (found.done_s or math.inf) < time.monotonic() - FETCHED_S:
                self._running.pop(key, None)
                self._make_room()
                found = self._running[key] = _Aside(what, work)
                found.start()
            if found.done_s is None:
                raise Later(f"{what} is being done")
            del self._running[key]
        if isinstance(found.answer, MedusaError):
            raise found.answer
        return found.answer

    def _make_room(self) -> None:
        if len(self._running) < ASIDES_MAX:
            return
        for key in [key for key, each in self._running.items() if each.done_s is not None]:
            del self._running[key]  # Nobody came for the answer.
        if len(self._running) >= ASIDES_MAX:
            raise Later(f"{ASIDES_MAX} questions to nodes are waiting")

    def join(self) -> None:
        """Wait for all of them."""
        for each in list(self._running.values()):
            each.join()
