"""The threads of a demonstration, and waiting for what they do while progress is shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.screens import Progress, Screen
from medusa.errors import LinkError

__all__ = ["Crew"]

LOOK_EVERY_S = 0.02


class Crew:
    """Threads of one run: the failure of one ends it, and so does an interruption, at the next look.

    Attributes:
        threads: those that were started and may still run, in order.
    """

    def __init__(self, screen: Screen, progress: Progress, interruption: Interruption) -> None:
        self.threads: list[threading.Thread] = []
        self._screen, self._progress = screen, progress
        self._interruption = interruption
        self._failure: BaseException | None = None

    def start(self, work: Callable[..., object], *arguments: Any) -> threading.Thread:
        """A thread that runs, and doesn't outlive the program."""

        def guarded() -> None:
            try:
                work(*arguments)
            except BaseException as failure:
                self._failure = self._failure or failure

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        self.threads = [*(each for each in self.threads if each.is_alive()), thread]
        return thread

    def look(self) -> None:
        """Show how far it is.

        Raises:
            BaseException: that with which a thread has ended first.
            KeyboardInterrupt: it was interrupted.
        """
        if self._failure is not None:
            raise self._failure
        self._interruption.check()
        self._screen.update(self._progress)

    def wait(self, done: Callable[[], bool], missing: Callable[[], str], timeout_s: float) -> None:
        """Look until something is done, and once behind it.

        Args:
            missing: what isn't there, for the error's message.

        Raises:
            LinkError: it took too long; besides, what ``look`` raises.
        """
        deadline = time.monotonic() + timeout_s
        while not done():
            self.look()
            if time.monotonic() > deadline:
                raise LinkError(f"{missing()} after {timeout_s:.0f} s", code="link.drain")
            time.sleep(LOOK_EVERY_S)
        self.look()
