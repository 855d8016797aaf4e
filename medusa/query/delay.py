"""By how much a failure may hold up an output before tentative rows stand in for it: X, the papers' bound."""

from __future__ import annotations

from medusa.errors import QueryError
from medusa.query.delay_policies import DELAY, PROCESS, SUSPEND, policies_line
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


def delay_line(delay_us: int | None, failure: str = PROCESS, stabilization: str = PROCESS) -> str:
    """In words: ``delay 2s``, and the policies where one isn't to process: ``delay 2s (delay & suspend)``.
    Empty where nobody bounded it."""
    if delay_us is None:
        return ""
    policies = policies_line(failure, stabilization)
    return f"delay {duration_text(delay_us)}" + (f" ({policies})" if policies else "")


def delay_promise(delay_us: int, least_us: int, failure: str = PROCESS, stabilization: str = PROCESS) -> str:
    """What an output with X is promised.

    Args:
        least_us: the least X of the fragments by which its rows come, which may be that of another output.
        failure, stabilization: the policies that hold for it.
    """
    if failure == SUSPEND:
        return (
            "nothing of it is tentative: new rows wait until a failure is over and corrected, and its state "
            f"says so after {duration_text(fork_after_us(least_us))}"
        )
    masked = duration_text(fork_after_us(least_us))
    margin = duration_text(margin_us(least_us))
    if least_us < delay_us:
        margin += f", as another output wants that has less ({duration_text(least_us)})"
    text = (
        f"a failure adds at most {duration_text(delay_us)} to what inputs that are reached bring, which is "
        f"tentative then and corrected afterwards; one of up to {masked} shows nothing (margin {margin})"
    )
    if failure == DELAY:
        text += f"; new rows wait {masked} while it lasts, and what is corrected by then is never tentative"
    if stabilization == DELAY:
        text += f"; while corrections come new rows wait {masked}"
    if stabilization == SUSPEND:
        text += "; while corrections come new rows wait for them, however long that takes"
    return text
