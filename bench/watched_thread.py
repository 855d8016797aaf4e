"""A thread of a benchmark, whose failure is heard by who waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["WatchedThread"]

DEADLINE_S = 120.0


class WatchedThread:
    """Work beside the measurement.

    Args:
        work: runs from here on.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failed = error

    def look(self) -> None:
        """Raises what it has failed with."""
        if self._failed is not None:
            raise self._failed

    def join(self, what: str) -> None:
        """Raises what it has failed with, or an AssertionError that says ``what`` isn't done in time."""
        self._thread.join(DEADLINE_S)
        self.look()
        assert not self._thread.is_alive(), what
