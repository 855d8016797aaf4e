"""Ctrl-C and SIGTERM at points of our choice."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interruption"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Inside, Ctrl-C and SIGTERM wait: for ``check``, or for the end.

    Else KeyboardInterrupt comes between any two steps, such as starting a process and noting it, or
    inside a lock of the standard library, which then nobody gives back. May be entered again inside;
    then the outermost end counts. In other threads than the main one it does nothing.

    Attributes:
        asked: how many signals came.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._last = signal.SIGINT
        self._depth = 0
        self._before: dict[signal.Signals, Any] = {}

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal came."""
        if self.asked:
            raise KeyboardInterrupt

    def _ask(self, number: int, frame: FrameType | None) -> None:
        # Nothing but plain values: it runs between any two steps of the main thread.
        self._last = signal.Signals(number)
        self.asked += 1

    def __enter__(self) -> Interruption:
        if self._depth == 0 and threading.current_thread() is threading.main_thread():
            self.asked = 0
            # What is ignored stays so; what C code handles is not ours.
            kept = (signal.SIG_IGN, None)
            self._before = {each: was for each in SIGNALS if (was := signal.getsignal(each)) not in kept}
            try:
                for each in self._before:
                    signal.signal(each, self._ask)
            except BaseException:
                self._end()
                raise
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._end()
        if self.asked and not isinstance(error, KeyboardInterrupt):
            signal.raise_signal(self._last)  # Nobody has looked: it comes now.

    def _end(self) -> None:
        for each, was in self._before.items():
            signal.signal(each, was)
