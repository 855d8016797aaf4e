"""The doors through which everything above the ground floor asks for IO.

The engine and the minds know only these protocols; ``medusa.runtime`` implements them with files
and clocks, ``medusa.sim`` with virtual time and a disk that can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

__all__ = [
    "Briefly",
    "Buffer",
    "Clock",
    "Content",
    "Interrupts",
    "Job",
    "Jobs",
    "Journal",
    "Lock",
    "NodeStore",
    "SIGNING_KEY",
    "SKEW_US",
    "Segments",
    "Signer",
    "Spill",
    "Store",
    "Synced",
    "Task",
    "Tasks",
    "Turns",
    "Verify",
    "Workers",
    "pieces_of",
]

Buffer = bytes | bytearray | memoryview
"""Bytes in one piece. ``pyarrow.Buffer`` is passed as ``memoryview(buffer)``."""

Content = Buffer | tuple[Buffer, ...]
"""Bytes of a file, perhaps in pieces that follow each other, so that nobody has to copy them together."""

SIGNING_KEY = r"\Aed25519:[0-9a-f]{64}\Z"
"""A public key of ``Signer`` and ``Verify`` as text."""

SKEW_US = 60_000_000
"""How far the clocks of two participants may differ: what one has signed counts so much longer."""

T = TypeVar("T")


def pieces_of(content: Content) -> tuple[Buffer, ...]:
    """The pieces of a file."""
    return content if isinstance(content, tuple) else (content,)


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

    def write(self, name: str, files: Mapping[str, Content]) -> None:
        """Store a new group durably; when this returns it survives a power cut.

        Raises:
            StateError: it couldn't be written; the group doesn't exist.
        """

    def write_all(self, groups: Mapping[str, Mapping[str, Content]]) -> None:
        """Store several new groups durably: a power cut meanwhile leaves any of them.

        Raises:
            StateError: one couldn't be written; none of them exists.
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


class Segments(Protocol):
    """The history of one connection point: segments, each named by the number of its first row.

    A segment is three files, ``rows``, ``index`` and a ``copy`` of the index, that only grow at their end;
    the last one may be cut. Numbers of segments ascend. Where a method raises, nothing is promised of the
    last segment but what was synced.

    Attributes:
        memory: it is memory of this process, gone with it.
    """

    memory: bool

    def names(self) -> list[int]:
        """The segments there are, ascending: those of which any file is."""

    def begin(self, first: int, rows: Buffer, index: Buffer) -> None:
        """Sync the last segment, and begin a new one with these bytes.

        Raises:
            StateError: it couldn't be written; so of all methods.
        """

    def append(self, rows: Buffer, index: Buffer) -> None:
        """Add to the files of the last segment, first ``rows``."""

    def sync(self) -> None:
        """When this returns, all rows and entries that were written survive a power cut; of the copy of the
        index only what is of earlier segments.
        """

    def indexes(self, first: int) -> tuple[Buffer, ...]:
        """The whole index of a segment, and its copy; empty, where a file is missing."""

    def rewrite_index(self, first: int, index: Buffer) -> None:
        """Let the index of a segment and its copy be this, each replaced as a whole and durably."""

    def read(self, first: int, start: int, length: int) -> Buffer:
        """So many bytes of its rows, fewer at the end."""

    def cut(self, first: int, rows_length: int, index_length: int) -> None:
        """Shorten the files of the last segment, durably; ``append`` goes on there."""

    def remove(self, first: int) -> None:
        """Forget a segment, the oldest or the last, durably."""

    def where(self, first: int, file: str = "rows") -> str:
        """A file as a person would look for it: for messages only."""


class Spill(Protocol):
    """Files that grow at their end, for what doesn't fit in memory while a run lasts.

    They need not survive the process: whoever opens the same place next removes them.
    """

    def append(self, name: str, parts: Sequence[Buffer]) -> None:
        """Write some bytes behind those that are there; the first call makes the file.

        Raises:
            StateError: they couldn't be written; the file is as before.
        """

    def read(self, name: str, start: int, length: int) -> Buffer:
        """Bytes of a file.

        Raises:
            StateError: they can't be read, or aren't there.
        """

    def map(self, name: str) -> Buffer:
        """The whole of a file, which is read where it is touched; it may be removed meanwhile.

        Raises:
            StateError: as ``read``.
        """

    def remove(self, name: str) -> None:
        """Forget a file; one that isn't there is no error."""

    def where(self, name: str) -> str:
        """The file as a person would look for it: for messages only."""


class Synced(NamedTuple):
    """The beginning of a log that was synced: its length in bytes, and their CRC-32C."""

    length: int
    crc: int


class Journal(Protocol):
    """The decision logs of one run, numbered: each is bytes that only grow at their end."""

    def numbers(self) -> list[int]:
        """Those there are, ascending; also one that is gone of which something says that it was synced."""

    def read(self, number: int) -> Buffer:
        """The whole of one; nothing, where it is gone and ``numbers`` lists it.

        Raises:
            StateError: it can't be read; so of all methods.
        """

    def synced(self, number: int) -> Synced | None:
        """How much of one was synced, at least.

        None: its mark is missing or damaged, or it never had one, and it holds what its first sync did.
        """

    def append(self, number: int, data: Buffer) -> None:
        """Add to the end of one; the first call makes it. Durable only after ``sync``."""

    def sync(self, number: int) -> None:
        """When this returns, all that was appended survives a power cut, and ``synced`` says so.

        Of a log that was found, everything in it counts as synced from now on: look for damage before.
        """

    def cut(self, number: int, length: int) -> None:
        """Shorten one, durably; what is left counts as synced."""

    def remove(self, number: int) -> None:
        """Forget one; one that isn't there is no error."""

    def where(self, number: int) -> str:
        """One as a person would look for it: for messages only."""


class NodeJournal(Journal, Protocol):
    """The decision logs of a node, which keeps what it finds damaged."""

    def set_aside(self, number: int) -> str:
        """Keep a copy of one, as it is, where ``numbers`` doesn't list it; where that is, for messages."""


class NodeStore(Protocol):
    """Where a node keeps what it needs after its end; open until it is closed.

    Attributes:
        groups: checkpoints and its catalog.
        journal: its decision logs; None: it makes none, as nothing outlives it.
    """

    @property
    def groups(self) -> Store: ...

    @property
    def journal(self) -> NodeJournal | None: ...

    def age_s(self, group: str) -> float:
        """Seconds since a group was written; 0: that isn't known."""

    def beside(self, name: str) -> NodeStore:
        """A new, empty one for copies that an operator may put back; ``groups.where("")`` says where.

        Raises:
            StateError: it can't be made.
        """

    def close(self) -> None:
        """Give it free; safe to call twice."""


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

    @property
    def hurried(self) -> bool:
        """Whoever waits for a task is to go on without it, as an interrupt came."""

    def rest(self, task: Task) -> None:
        """Wait for it to end, but a moment at most."""

    def close(self) -> None:
        """Cancel what still runs, and end."""


class Job(Protocol):
    """Work that another thread does."""

    def done(self) -> bool:
        """Whether it has ended."""

    def result(self) -> Any:
        """Wait until it has ended; what it gave, and what it raised is raised."""


class Jobs(Protocol):
    """Threads beside the caller's."""

    def start(self, work: Callable[[], Any]) -> Job:
        """Have something done; returns at once."""

    def pause(self) -> None:
        """For a job: let others go on for a moment."""


class Briefly(Protocol):
    """Calls a function within a turn that is given back whatever signals come; they aren't deferred."""

    def __call__(self, work: Callable[..., T], *arguments: Any) -> T | None:
        """What ``work`` gives; None: somebody else has the turn, and it wasn't called."""


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
        """Let others work for a while, and take the turn again."""

    def briefly(self, state: Lock) -> Briefly | None:
        """Calls short work within a turn, with ``state`` held; None: callers wait in line."""


class Interrupts(Protocol):
    """Defers signal handlers that may raise, such as that of Ctrl-C, while something must be done whole.

    A context manager; holds nest. It does nothing in threads that run no handlers.

    Attributes:
        passed: since the outermost hold a handler wasn't deferred any longer, and raised.
        came: this thread holds it, and there is a handler to call.
    """

    @property
    def came(self) -> bool: ...

    @property
    def passed(self) -> bool: ...

    def hold(self) -> None:
        """Defer from now on."""

    def release(self) -> None:
        """Stop deferring; the last release calls the handlers whose signals came, and raises their error."""

    def check(self) -> None:
        """Call those handlers now, where nothing is half done, and raise their error."""

    def __enter__(self) -> None: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...


class Workers(Protocol):
    """Threads that run native work.

    Attributes:
        count: how many parts run at once.
    """

    count: int

    def map(self, work: Callable[[T], None], parts: Sequence[T]) -> None:
        """Run ``work`` on each part and return when all have ended; the first error is raised."""


class Signer(Protocol):
    """The Ed25519 key of a participant.

    Attributes:
        key: its public half as text: ``ed25519:`` and 64 hexadecimal digits.
    """

    @property
    def key(self) -> str: ...

    def sign(self, data: Buffer) -> bytes:
        """64 bytes that only this key makes of these bytes."""


Verify = Callable[[str, Buffer, bytes], bool]
"""Whether a signature (third) was made of these bytes by the key with this text. Never raises."""
