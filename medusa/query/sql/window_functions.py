"""The functions that ask for windows in SQL, one row each: nothing else in ``sql`` lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = [
    "TABLE_FUNCTIONS",
    "WINDOW_BOUNDS",
    "WINDOW_FUNCTIONS",
    "WindowFunction",
    "WindowSpec",
    "windows_of_length",
]

BUCKET_ORIGIN_US = 10_959 * 86_400_000_000
"""2000-01-03, where DuckDB's and Timescale's time_bucket begins to count."""


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A window as the text asks for it: equal ones have the same method and arguments.

    Attributes:
        method: of a stream, which cuts it into these windows.
        given: its arguments.
        length_us: of every window; None: they differ.
    """

    method: Callable[..., Any]
    given: tuple[int, ...]
    length_us: int | None

    def of(self, stream: Stream) -> Any:
        """The stream cut into these windows."""
        return self.method(stream, *self.given)


def windows_of_length(length_us: int, advance_us: int | None = None) -> WindowSpec:
    """Windows of one length, one every ``advance_us``; None: one begins where the one before ends."""
    given = (length_us, length_us if advance_us is None else advance_us)
    return WindowSpec(_windows, given, length_us)


def _windows(stream: Stream, length_us: int, advance_us: int) -> Any:
    return stream.window(length_us, advance=None if advance_us == length_us else advance_us)


def _sessions(stream: Stream, gap_us: int) -> Any:
    return stream.session(gap_us)


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """What a window function takes and means.

    Attributes:
        form: a call as one writes it, which errors show.
        lengths: how many lengths it takes beside the time column.
        spec: the window that lengths in microseconds, in the order of the text, ask for.
            Raises QueryError, without a place in the text, where they contradict each other.
        in_from: it also stands in FROM, as a table function, and has ``..._START`` and ``..._END``.
        time_last: the time column comes after the lengths.
    """

    form: str
    lengths: int
    spec: Callable[[Sequence[int]], WindowSpec]
    in_from: bool = True
    time_last: bool = False


def _tumble(lengths: Sequence[int]) -> WindowSpec:
    return windows_of_length(lengths[0])


def _hop(lengths: Sequence[int]) -> WindowSpec:
    advance_us, size_us = lengths
    if advance_us > size_us:
        raise QueryError(
            "HOP: windows would start less often than they are long, so some rows would be in none",
            hint=WINDOW_FUNCTIONS["hop"].form,
            code="query.window",
        )
    return windows_of_length(size_us, advance_us)


def _session(lengths: Sequence[int]) -> WindowSpec:
    return WindowSpec(_sessions, (lengths[0],), None)


def _time_bucket(lengths: Sequence[int]) -> WindowSpec:
    if BUCKET_ORIGIN_US % lengths[0]:
        raise QueryError(
            "time_bucket counts from Monday, 2000-01-03, and windows from the epoch: this width differs",
            hint="TUMBLE(ts, ...) counts from 1970-01-01",
            code="query.window",
        )
    return _tumble(lengths)


WINDOW_FUNCTIONS = {
    "tumble": WindowFunction("TUMBLE(ts, INTERVAL '1' MINUTE)", 1, _tumble),
    "hop": WindowFunction(
        "HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE): how often one starts, then how long it is",
        2,
        _hop,
    ),
    "session": WindowFunction("SESSION(ts, INTERVAL '30' SECOND)", 1, _session),
    "time_bucket": WindowFunction(
        "time_bucket(INTERVAL '1' MINUTE, ts)", 1, _time_bucket, in_from=False, time_last=True
    ),
}

TABLE_FUNCTIONS = tuple(name for name, function in WINDOW_FUNCTIONS.items() if function.in_from)
"""Those that stand in FROM: ``TUMBLE(cars, ts, ...)``."""

WINDOW_BOUNDS = {f"{name}_{end}": f"window_{end}" for name in TABLE_FUNCTIONS for end in ("start", "end")}
"""``TUMBLE_START`` and its like: the column that each gives."""
