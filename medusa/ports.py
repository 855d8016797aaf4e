"""The doors through which everything above the ground floor asks for IO.

The engine and the minds know only these protocols; ``medusa.runtime`` implements them with files
and clocks, ``medusa.sim`` with virtual time and a disk that can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeVar

__all__ = ["Buffer", "Clock", "Lock", "Store", "Task", "Tasks", "Turns", "Workers"]

Buffer = bytes | bytearray | memoryview
"""Bytes in one piece. ``pyarrow.Buffer`` is passed as ``memoryview(buffer)``."""

T = TypeVar("T")


class Clock(Protocol):
    """Time as the outside sees it."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch. May step; never used to order tuples."""

    def monotonic_us(self) -> int:
        """Microseconds since some fixed moment; never runs back."""


class Lock(Protocol):
    """A lock between threads, as ``threading.Lock`` and ``threading.RLock`` are."""

    def acquire(self, blocking: bool = True) -> bool:
        """Take it; without ``blocking`` say at once whether that was possible."""

    def release(self) -> None:
        """Give it back."""

    def __enter__(self) -> bool:
        """Wait for it and take it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Give it back."""


class Store(Protocol):
    """Named, immutable groups of files: a checkpoint is one group.

    A group is there whole or not at all, also after a power cut.
    """

    def write(self, name: str, files: Mapping[str, Buffer]) -> None:
        """Store a new group durably; when this returns it survives a power cut.

        Raises:
            StateError: it couldn't be written; the group doesn't exist.
        """

    def read(self, name: str) -> dict[str, Buffer]:
        """All files of a group.

        Raises:
            StateError: there is no such group, or it can't be read; names the path.
        """

    def names(self) -> list[str]:
        """Names of the whole groups, ascending."""

    def delete(self, name: str) -> None:
        """Forget a group; one that isn't there is no error."""

    def where(self, name: str, file: str = "") -> str:
        """The group (or one file of it) as a person would look for it: for messages only."""


class Task(Protocol):
    """A coroutine that runs elsewhere."""

    def done(self) -> bool:
        """Whether it has ended."""

    def result(self) -> Any:
        """What it gave, once it has ended; what it raised is raised."""


class Tasks(Protocol):
    """An event loop that runs coroutines beside the caller's thread."""

    def start(self, work: Coroutine[Any, Any, Any]) -> Task:
        """Run a coroutine; returns at once."""

    def close(self) -> None:
        """Cancel what still runs, and end."""


class Turns(Protocol):
    """Who may work with a run: one caller at a time.

    Attributes:
        waits: callers wait for each other, unless they don't want to; else they are refused.
    """

    waits: bool

    def enter(self, wait: bool) -> bool:
        """Take the turn; False: another has it and this one won't wait, or the caller has it already."""

    def leave(self) -> None:
        """Give it back, where the caller has it."""

    def pause(self) -> None:
        """Let others work until one of them has, and take the turn again."""


class Workers(Protocol):
    """Threads that run native work.

    Attributes:
        count: how many parts run at once.
    """

    count: int

    def map(self, work: Callable[[T], None], parts: Sequence[T]) -> None:
        """Run ``work`` on each part and return when all have ended; the first error is raised."""
