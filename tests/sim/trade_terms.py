"""A contract by which ``bob`` works for ``alice``, for tests of what the simulator checks of trades."""

from __future__ import annotations

from medusa.market.contract.terms import Contract, TaskTerms
from medusa.sim.world.clock import EPOCH_US

__all__ = ["with_bob"]


def with_bob(*, lasts_s: int) -> Contract:
    """From the start of the simulated world on."""
    return Contract(
        id="with-bob",
        provider="bob",
        consumer="alice",
        begins_us=EPOCH_US,
        ends_us=EPOCH_US + lasts_s * 1_000_000,
        price_micro=2_000_000,
        range_micro=1_000_000,
        units_per_s_max_milli=2_000,
        interval_s=1,
        settlement_s=4,
        tasks=TaskTerms(boxes=("aggregate",), streams=("q.*",)),
    )
