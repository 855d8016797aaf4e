"""The functions that ask for windows in SQL, one row each: nothing else in ``sql`` lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["TABLE_FUNCTIONS", "WINDOW_BOUNDS", "WINDOW_FUNCTIONS", "WindowFunction", "WindowSpec"]

BUCKET_ORIGIN_US = 10_959 * 86_400_000_000
"""2000-01-03, where DuckDB's and Timescale's time_bucket begins to count."""


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A window as the text asks for it; lengths in microseconds, ``advance`` None for sessions."""

    kind: str
    size_us: int
    advance_us: int | None

    def of(self, stream: Stream) -> Any:
        """The stream cut into these windows."""
        if self.kind == "session":
            return stream.session(self.size_us)
        if self.advance_us == self.size_us:
            return stream.window(self.size_us)
        return stream.window(self.size_us, advance=self.advance_us)


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
    return WindowSpec("window", lengths[0], lengths[0])


def _hop(lengths: Sequence[int]) -> WindowSpec:
    advance_us, size_us = lengths
    if advance_us > size_us:
        raise QueryError(
            "HOP: windows would start less often than they are long, so some rows would be in none",
            hint=WINDOW_FUNCTIONS["hop"].form,
            code="query.window",
        )
    return WindowSpec("window", size_us, advance_us)


def _session(lengths: Sequence[int]) -> WindowSpec:
    return WindowSpec("session", lengths[0], None)


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
