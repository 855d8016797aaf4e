"""What a consumer believes that each provider would take: heard as heartbeats, learnt by asking."""

from __future__ import annotations

from dataclasses import dataclass

from medusa.market.negotiation.contract_book import SignedContract

__all__ = ["PriceBoard"]


@dataclass(frozen=True, slots=True)
class _Heard:
    price_micro: int
    units_per_s_milli: int
    at_us: int


class PriceBoard:
    """By contract. What is older than ``memory_us`` doesn't count: then the lowest price is tried again.

    Args:
        steps: in so many an offer rises from the bottom of the range to the top.
    """

    def __init__(self, memory_us: int, steps: int) -> None:
        self._memory_us, self._steps = memory_us, steps
        self._heard: dict[tuple[str, str], _Heard] = {}
        self._learnt: dict[tuple[str, str], tuple[int, int]] = {}
        self._too_large: dict[tuple[str, str], int] = {}

    def step(self, signed: SignedContract) -> int:
        return max(signed.contract.range_micro // self._steps, 1)

    def ask(self, now_us: int, signed: SignedContract) -> int:
        """What to offer next, in micro-units for a unit: always in the range."""
        least, most = signed.contract.least_micro, signed.contract.price_micro
        learnt = self._learnt.get(signed.key)
        if learnt is not None and now_us - learnt[1] < self._memory_us:
            return min(max(learnt[0], least), most)
        heard = self._heard.get(signed.key)
        if heard is not None and now_us - heard.at_us < self._memory_us:
            return min(max(heard.price_micro, least), most)
        return least

    def full(self, now_us: int, signed: SignedContract) -> bool:
        """Whether the provider has said that it has no room."""
        heard = self._heard.get(signed.key)
        return heard is not None and now_us - heard.at_us < self._memory_us and not heard.units_per_s_milli

    def room_milli(self, now_us: int, signed: SignedContract) -> int | None:
        """Units a second, times 1,000, for which it has said to have room; None: not heard of late."""
        heard = self._heard.get(signed.key)
        fresh = heard is not None and now_us - heard.at_us < self._memory_us
        return heard.units_per_s_milli if heard is not None and fresh else None

    def heard(self, now_us: int, signed: SignedContract, price_micro: int, units_per_s_milli: int) -> bool:
        """A heartbeat came; whether it is good news: cheaper, or room where there was none, or too little of
        it for what was asked for."""
        before = self._heard.get(signed.key)
        self._heard[signed.key] = _Heard(price_micro, units_per_s_milli, now_us)
        wanted = self._too_large.get(signed.key)
        if wanted is not None and units_per_s_milli >= wanted:
            del self._too_large[signed.key]
            if before is None or before.units_per_s_milli < wanted:
                return True
        if before is not None and (before.price_micro, before.units_per_s_milli > 0) == (
            price_micro,
            units_per_s_milli > 0,
        ):
            return False
        self._learnt.pop(signed.key, None)
        return units_per_s_milli > 0 and (
            before is None or price_micro < before.price_micro or not before.units_per_s_milli
        )

    def learnt(self, now_us: int, signed: SignedContract, price_micro: int) -> None:
        """It takes, or would take, this."""
        self._learnt[signed.key] = price_micro, now_us

    def refused(self, now_us: int, signed: SignedContract, price_micro: int) -> bool:
        """It didn't take this: the next offer is a step higher; False: it was at the top of the range."""
        most = signed.contract.price_micro
        higher = min(price_micro + self.step(signed), most)
        self._learnt[signed.key] = higher, now_us
        return price_micro < most

    def has_no_room(self, signed: SignedContract, units_per_s_milli: int) -> None:
        """It didn't take what is so large, at whatever price: room for that is news."""
        self._too_large[signed.key] = units_per_s_milli

    def forgets_at_us(self, now_us: int, signed: SignedContract) -> int | None:
        """When what was learnt of its price counts no more; None: nothing does."""
        learnt = self._learnt.get(signed.key)
        until_us = learnt[1] + self._memory_us if learnt is not None else 0
        return until_us if until_us > now_us else None

    def forget(self, signed: SignedContract) -> None:
        self._heard.pop(signed.key, None)
        self._learnt.pop(signed.key, None)
        self._too_large.pop(signed.key, None)
