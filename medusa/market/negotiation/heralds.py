"""The heartbeat of a contract: what the provider would take for a little more load, said when it changes."""

from __future__ import annotations

from collections.abc import Callable

from medusa.market.negotiation.answers import AnswerJudge
from medusa.market.negotiation.chains import ChainFinder, ChainPrices
from medusa.market.negotiation.contract_book import ContractBook, SignedContract
from medusa.market.negotiation.effects import TradeEffects
from medusa.market.negotiation.messages import PriceSaid
from medusa.market.negotiation.settings import PPM, TradeSettings
from medusa.market.work import TradedTask

__all__ = ["PriceHerald"]


class PriceHerald:
    """Says prices to consumers.

    Args:
        like: what was asked for last under a contract.
        floor_micro: what any has to bring at least.
        reachable: whether a partner is.
    """

    def __init__(
        self,
        settings: TradeSettings,
        *,
        contracts: ContractBook,
        judge: AnswerJudge,
        chains: ChainFinder,
        effects: TradeEffects,
        like: Callable[[SignedContract], TradedTask | None],
        floor_micro: Callable[[int], int],
        reachable: Callable[[str], bool],
    ) -> None:
        self._settings, self._contracts, self._judge, self._chains = settings, contracts, judge, chains
        self._effects, self._like, self._floor_micro = effects, like, floor_micro
        self._reachable = reachable
        self._said: dict[tuple[str, str], tuple[int, int, int]] = {}
        self._said_us = 0  # when any of them was said last
        self._look_us: int | None = 0

    def said(self, signed: SignedContract) -> tuple[int, int] | None:
        """Price and room that were said last."""
        found = self._said.get(signed.key)
        return found[1:] if found is not None else None

    def changed(self, now_us: int) -> None:
        """Load has: look again soon."""
        soon_us = now_us
        if self._said:
            soon_us = max(self._said_us + self._settings.round_us, now_us)
        self._look_us = soon_us if self._look_us is None else min(self._look_us, soon_us)

    def tick(self, now_us: int) -> None:
        if self._look_us is None or now_us < self._look_us:
            return
        due_us = []
        chained, floor_micro = self._chains.prices(now_us), self._floor_micro(now_us)
        consumers = (each for each in self._contracts.providing(now_us) if self._reachable(each.partner))
        for signed, *offer in self._judge.offers((each, self._like(each)) for each in consumers):
            price, room = self._offered(signed, chained, floor_micro, *offer)
            before = self._said.get(signed.key)
            if before is None or self._differs(before, price, room) or self._due(before) <= now_us:
                self._said[signed.key] = now_us, price, room
                self._said_us = now_us
                contract = signed.contract
                self._effects.say(
                    signed.partner,
                    PriceSaid(
                        contract=contract.id,
                        version=contract.version,
                        price_micro=price,
                        units_per_s_milli=room,
                    ),
                )
            due_us.append(self._due(self._said[signed.key]))
        self._look_us = min(due_us, default=None)

    def _offered(
        self,
        signed: SignedContract,
        chained: ChainPrices,
        floor_micro: int,
        price: int,
        room: int,
    ) -> tuple[int, int]:
        """Price and room; where there is no room, those by a chain."""
        if room:
            least_micro = price if signed.contract.shadow else max(price, floor_micro)
            most_micro = signed.contract.price_micro
            return (least_micro, room) if least_micro <= most_micro else (most_micro, 0)
        like = self._like(signed)
        by_chain = chained.least(signed, like)
        if by_chain is None:
            return price, 0
        return by_chain, max(int(signed.units_per_s(like) * 1_000), 1) if like is not None else 1

    def _due(self, said: tuple[int, int, int]) -> int:
        return said[0] + self._settings.heartbeat_us

    def _differs(self, said: tuple[int, int, int], price: int, room: int) -> bool:
        """Whether it changes what a consumer would do: by more than epsilon, or room where there was none."""
        apart = abs(price - said[1]) * PPM > self._settings.epsilon_ppm * max(said[1], 1)
        return apart or (room > 0) != (said[2] > 0)

    def wake_at_us(self) -> int | None:
        return self._look_us
