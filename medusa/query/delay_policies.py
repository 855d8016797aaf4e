"""What becomes of new rows while an input is missing, and while corrections come: the papers' policies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from medusa.errors import QueryError
from medusa.query.suggest import did_you_mean
from medusa.units import Duration, duration_us

__all__ = [
    "DELAY",
    "POLICIES",
    "PROCESS",
    "SUSPEND",
    "Delay",
    "Policies",
    "check_policies",
    "policies_line",
    "policies_met",
    "soonest",
]

PROCESS = "process"
"""At once, tentatively."""

DELAY = "delay"
"""Tentatively, after as long as X allows: what is corrected by then never shows tentatively."""

SUSPEND = "suspend"
"""Not before the right results come."""

POLICIES = (PROCESS, DELAY, SUSPEND)
"""Each shows new rows later than the one before."""


@dataclass(frozen=True, slots=True)
class Delay:
    """By how much a failure may hold up an output, and what becomes of new rows meanwhile (docs/dpc.md):
    ``q.sink(name, stream, delay=md.Delay("2s", failure="delay"))``. ``delay="2s"`` is ``md.Delay("2s")``.

    Attributes:
        within: X, a duration of more than 0 and at most an hour.
        failure: while an input is missing: ``"process"``: shown at once, tentatively; ``"delay"``: as late as
            X allows, tentatively; ``"suspend"``: not before the failure is over and corrected.
        stabilization: the same while corrections come. None: ``"suspend"`` with ``failure="suspend"``, else
            ``"process"``.

    Raises:
        QueryError: no such duration or policy, or two that don't go together.
    """

    within: Duration
    failure: str = PROCESS
    stabilization: str | None = None

    def __post_init__(self) -> None:
        duration_us(self.within, what="Delay: within", minimum_us=1)
        if self.stabilization is None:
            object.__setattr__(self, "stabilization", SUSPEND if self.failure == SUSPEND else PROCESS)
        check_policies(self.failure, self.stabilization, "Delay")

    @property
    def delay_us(self) -> int:
        """X in microseconds."""
        return duration_us(self.within)

    @property
    def policies(self) -> str:
        """As the papers write them: ``process & delay`` is that of a failure and that of corrections."""
        return f"{self.failure} & {self.stabilization}"


def check_policies(failure: object, stabilization: object, label: str) -> None:
    """Whether there are such policies, and whether these two go together.

    Raises:
        QueryError: names the one that is wrong, and what can be chosen.
    """
    for what, given in (("failure", failure), ("stabilization", stabilization)):
        if not isinstance(given, str) or given not in POLICIES:
            raise QueryError(
                f"{label}: {what}: expected one of {', '.join(map(repr, POLICIES))}, got {given!r:.80}",
                hint=did_you_mean(given, POLICIES) if isinstance(given, str) else "",
                code="query.delay",
            )
    if failure == SUSPEND and stabilization != SUSPEND:
        raise QueryError(
            f"{label}: stabilization: {stabilization!r} doesn't go with failure={SUSPEND!r}: no copy of the "
            "state is made in a failure then, so there is none that new rows could go into afterwards",
            hint=f"leave stabilization out, or choose failure={PROCESS!r} or {DELAY!r}",
            code="query.delay",
        )


def soonest(policies: Iterable[str]) -> str:
    """That by which new rows show first."""
    return min(policies, key=POLICIES.index)


Policies: TypeAlias = tuple[str, str]
"""While an input is missing, and while corrections come."""


def policies_met(wished: Policies, met: Iterable[Policies]) -> Policies:
    """What holds for an output whose rows come by fragments that have these policies. To suspend is its own
    affair; for the rest that one holds by which rows show first."""
    failures, stabilizations = zip(wished, *met, strict=True)
    return tuple(  # type: ignore[return-value]
        SUSPEND if mine == SUSPEND else soonest(all_)
        for mine, all_ in zip(wished, (failures, stabilizations), strict=True)
    )


def policies_line(failure: str, stabilization: str) -> str:
    """In words, ``delay & suspend``; empty where new rows are always processed at once."""
    return "" if failure == stabilization == PROCESS else f"{failure} & {stabilization}"
