"""By how much a failure may hold up an output before tentative rows stand in for it: X, the papers' bound."""

from __future__ import annotations

from medusa.errors import QueryError
from medusa.units import duration_text

__all__ = [
    "DELAY_US_MAX",
    "MARGIN_US_LEAST",
    "check_delay",
    "delay_least_us",
    "delay_line",
    "delay_promise",
    "fork_after_us",
    "margin_us",
]

DELAY_US_MAX = 3_600_000_000
"""An hour. Larger: what waits so long is held in memory, and nobody would wait for it."""

MARGIN_US_LEAST = 100_000
"""Of X so much at least is left for what happens once an input has been missing for too long: a copy of the
state is made, which then answers. Too small: rows come later than X; too large: short failures show."""

MARGIN_SHARE = 10


def check_delay(delay_us: object, timed: bool, label: str) -> None:
    """Whether an output can have this bound, as far as no node need be asked.

    Args:
        timed: its rows have times.

    Raises:
        QueryError: no number of microseconds, more than an hour, or rows without times.
    """
    if delay_us is None:
        return
    if not isinstance(delay_us, int) or isinstance(delay_us, bool) or not 0 < delay_us <= DELAY_US_MAX:
        shown = duration_text(delay_us) if type(delay_us) is int and delay_us > 0 else repr(delay_us)[:80]
        raise QueryError(
            f"{label}: delay: expected a duration of more than 0 and at most "
            f"{duration_text(DELAY_US_MAX)}, got {shown}",
            hint='delay="2s"; left out, rows wait until the failure is over',
            code="query.delay",
        )
    if not timed:
        raise QueryError(
            f"{label}: delay: its rows have no time, by which tentative ones could be taken back",
            hint="leave delay out: rows without time wait for no other input",
            code="query.delay",
        )


def margin_us(delay_us: int) -> int:
    """What of X is left for the copy and its answer."""
    return max(delay_us // MARGIN_SHARE, MARGIN_US_LEAST)


def fork_after_us(delay_us: int) -> int:
    """How long an input may be missing before anything tentative is made: a shorter failure shows nothing."""
    return max(delay_us - margin_us(delay_us), 0)


def delay_least_us(noticed_us: int) -> int:
    """The least X that leaves its margin where a silent link is noticed after so long; in whole ms."""
    exact = max(noticed_us + MARGIN_US_LEAST, -(-noticed_us * MARGIN_SHARE // (MARGIN_SHARE - 1)))
    return -(-exact // 1000) * 1000


def delay_line(delay_us: int | None) -> str:
    """In words: ``delay 2s``; empty where nobody bounded it."""
    return "" if delay_us is None else f"delay {duration_text(delay_us)}"


def delay_promise(delay_us: int, least_us: int) -> str:
    """What an output with X is promised.

    Args:
        least_us: the least X of the fragments by which its rows come, which may be that of another output.
    """
    masked = duration_text(fork_after_us(least_us))
    margin = duration_text(margin_us(least_us))
    if least_us < delay_us:
        margin += f", as another output wants that has less ({duration_text(least_us)})"
    return (
        f"a failure adds at most {duration_text(delay_us)} to what inputs that are reached bring, which is "
        f"tentative then and corrected afterwards; one of up to {masked} shows nothing (margin {margin})"
    )
