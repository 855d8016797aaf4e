"""What those gain who lie: the same market twice, once with them honest."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import msgspec

from medusa.sim.market.run import MarketRun, run_market
from medusa.sim.market.setup import MarketSetup

__all__ = ["LiarFigures", "liar_figures"]


class LiarFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Micro-units a second, of participants on average, over all seeds.

    Attributes:
        lie: of ``LIES``.
        liars: how many there were, in all seeds together.
        profit_lying, profit_honest: of these, against staying alone.
        gain: the first less the second; ``gain_error``: its standard error; ``gain_median``: of one liar.
        gained: how many of them did better.
        others_lying, others_honest: of all others.
        losers: of all others, how many did worse than alone, beyond what is stated, where they were lied to.
        rule_breaks: messages that receivers refused as against the protocol, where some lie.
    """

    lie: str
    seeds: int
    liars: int
    profit_lying: float
    profit_honest: float
    gain: float
    gain_error: float
    gain_median: float
    gained: int
    others_lying: float
    others_honest: float
    losers: int = 0
    rule_breaks: int = 0


def liar_figures(
    setup: MarketSetup,
    seeds: Sequence[int],
    *,
    honest_run: Callable[[MarketSetup], MarketRun] | None = None,
    watch: Callable[[float], None] = lambda seconds: None,
) -> LiarFigures:
    """Both runs take as long: profits are what was earned until ``limit_s``, not at rest only.

    Args:
        setup: with ``lie`` and ``liars``.
        honest_run: runs the market without liars: several lies in the same one can share it. Without it each
            call runs its own.

    Raises:
        ConfigError, SimulationError: as ``run_market``.
    """
    lying: list[float] = []
    honest: list[float] = []
    others: tuple[list[float], list[float]] = [], []
    losers = rule_breaks = 0
    for seed in seeds:
        # At rest nothing changes any more, so a run as long as the limit is not a longer one to compute.
        asked = msgspec.structs.replace(setup, seed=seed, quiet_s=setup.limit_s)
        with_lie = run_market(asked, watch=watch)
        truly = msgspec.structs.replace(asked, lie="", liars=0.0)
        without = honest_run(truly) if honest_run else run_market(truly, watch=watch)
        losers += with_lie.figures.losers
        rule_breaks += with_lie.figures.rule_breaks
        for member, (one, other) in enumerate(zip(with_lie.profits, without.profits, strict=True)):
            if member in with_lie.liars:
                lying.append(one)
                honest.append(other)
            else:
                others[0].append(one)
                others[1].append(other)
    gains = [one - other for one, other in zip(lying, honest, strict=True)]
    return LiarFigures(
        lie=setup.lie,
        seeds=len(seeds),
        liars=len(gains),
        profit_lying=statistics.fmean(lying),
        profit_honest=statistics.fmean(honest),
        gain=statistics.fmean(gains),
        gain_error=statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0,
        gain_median=statistics.median(gains),
        gained=sum(gain > 0 for gain in gains),
        others_lying=statistics.fmean(others[0]),
        others_honest=statistics.fmean(others[1]),
        losers=losers,
        rule_breaks=rule_breaks,
    )
