"""Ctrl-C at a chosen moment of a call.

CPython handles signals where a Python function begins and after a call of a C function, which is what the
profiler is told of.
"""

from __future__ import annotations

import _thread
import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import medusa as md

__all__ = ["Press", "disturbed"]

OURS = str(Path(md.__file__).parent)


def ours(frame: FrameType | None) -> bool:
    """Our code, or what it called in other Python code."""
    for _ in range(4):
        if frame is None:
            return False
        if frame.f_code.co_filename.startswith(OURS):
            return True
        frame = frame.f_back
    return False


PRESSES: list[Callable[[], object]] = [
    lambda: signal.raise_signal(signal.SIGINT),
    _thread.interrupt_main,
]


class Press:
    """Presses Ctrl-C once, at one moment of a call.

    Attributes:
        made: whether there was such a moment.
        raised: KeyboardInterrupt came out of the call.
        result: of the call, else.
    """

    def __init__(self, call: Callable[[], object], at: int, *, everywhere: bool = False) -> None:
        self.made = self.raised = False
        self.result: Any = None
        self._moments, self._at = itertools.count(), at
        if everywhere:
            sys.settrace(self._trace)
        else:
            sys.setprofile(self._profile)
        try:
            self.result = call()
        except KeyboardInterrupt:
            self.raised = True
        finally:
            sys.settrace(None)
            sys.setprofile(None)

    def _count(self) -> None:
        if next(self._moments) == self._at:
            self.made = True
            PRESSES[self._at % len(PRESSES)]()

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and ours(frame):
            self._count()

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event in ("call", "opcode"):
            self._count()
        return self._trace


def disturbed(prepare: Callable[[int], Callable[[], object]], every: int = 1, **how: Any) -> Iterator[Press]:
    """The calls that ``prepare`` makes, each disturbed at a later moment, until one has no such moment."""
    for number in itertools.count():
        press = Press(prepare(number), number * every, **how)
        yield press
        if not press.made:
            assert number * every >= 5, "so few moments are seen in a call that something is wrong here"
            return
