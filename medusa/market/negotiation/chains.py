"""Chains: who is full takes load all the same if a partner takes a task of its own for less.

    consumer ── task, at q ──> this participant ── another task, at r < q ──> partner

Nothing is promised to the consumer for it: the other task goes first, and then the consumer is told that
there is room. If it doesn't come, the task is called home again after it has been held.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from medusa.market.negotiation.books import LoadBooks
from medusa.market.negotiation.contract_book import SignedContract
from medusa.market.negotiation.prices import PriceBoard
from medusa.market.negotiation.requests import RequestPlanner
from medusa.market.negotiation.settings import TradeSettings
from medusa.market.work import ResourceUse, TradedTask

__all__ = ["ChainFinder", "ChainedMove"]

LOOKED_AT = 32
"""So many tasks of our own are looked at for one demand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainedMove:
    """A task that is to go so that another can come.

    Attributes:
        out: by which contract it goes; ``price_micro``: for how much.
        wanted, by, pays_micro: what is to come, by which contract, for how much.
        gain: money a second, in micro-units, if both are done.
    """

    task: TradedTask
    out: SignedContract
    price_micro: int
    wanted: TradedTask
    by: SignedContract
    pays_micro: int
    gain: float


class ChainFinder:
    """Asks the books and the planner of requests; it does nothing.

    Args:
        busy: whether a task is in a negotiation.
    """

    def __init__(
        self,
        settings: TradeSettings,
        *,
        books: LoadBooks,
        prices: PriceBoard,
        planner: RequestPlanner,
        busy: Callable[[str], bool],
    ) -> None:
        self._settings, self._books, self._prices = settings, books, prices
        self._planner, self._busy = planner, busy

    def find(
        self, now_us: int, by: SignedContract, wanted: TradedTask, pays_micro: int
    ) -> ChainedMove | None:
        """The best one by which this demand can be met at a gain."""
        found = [
            ChainedMove(
                task=task,
                out=out,
                price_micro=price,
                wanted=wanted,
                by=by,
                pays_micro=pays_micro,
                gain=gain,
            )
            for task, out, price in self._ways(now_us, by)
            if (gain := self.gain(out, task, price, by, wanted, pays_micro)) > 0
        ]
        return max(found, key=lambda each: each.gain, default=None)

    def price(self, now_us: int, by: SignedContract, like: TradedTask | None) -> int | None:
        """The least price in the range for which a task like this could come by a chain; None: none."""
        best: int | None = None
        load = self._books.load_promised()
        for task, out, price in self._ways(now_us, by):
            wanted = like or task
            units = by.units_per_s(wanted)
            if units <= 0:
                continue
            costs = self._costs(load, out, task, price, wanted)
            if costs is None:
                continue
            asked = max(math.floor(costs / units / (1 - self._settings.epsilon_ppm / 1e6)) + 1, price + 1)
            asked = max(asked, by.contract.least_micro)
            if asked <= by.contract.price_micro and (best is None or asked < best):
                best = asked
        return best

    def gain(
        self,
        out: SignedContract,
        task: TradedTask,
        price_micro: int,
        by: SignedContract,
        wanted: TradedTask,
        pays_micro: int,
    ) -> float:
        """What is earned with both done, less what it costs, with epsilon on each; not above 0: no gain."""
        costs = self._costs(self._books.load_promised(), out, task, price_micro, wanted)
        if costs is None or price_micro >= pays_micro:
            return 0.0
        return self._settings.below(pays_micro) * by.units_per_s(wanted) - costs

    def _costs(
        self,
        load: ResourceUse,
        out: SignedContract,
        task: TradedTask,
        price_micro: int,
        wanted: TradedTask,
    ) -> float | None:
        """By how much more is spent a second with both done; None: it doesn't fit even then."""
        after = load.minus(task.use).plus(wanted.use)
        if not self._books.fits(after):
            return None
        more = self._books.cost_of(after) - self._books.cost_of(load)
        return more + self._settings.above(price_micro) * out.units_per_s(task)

    def _ways(self, now_us: int, by: SignedContract) -> Iterator[tuple[TradedTask, SignedContract, int]]:
        """What might go to whom for how much: to partners who have said that they have room."""
        if by.contract.shadow:
            return
        here = tuple(itertools.islice(self._books.here(), LOOKED_AT))
        for out in self._planner.partners(now_us):
            room = self._prices.room_milli(now_us, out)
            price = self._prices.ask(now_us, out)
            if out.partner == by.partner or out.contract.shadow or not room:
                continue
            if price >= by.contract.price_micro:
                continue
            kinds = set()  # tasks alike gain alike: one of each does
            for task in here:
                kind = task.rows_per_s_milli, task.cpu_ns_per_row, task.bytes_per_row
                if kind in kinds or self._busy(task.name):
                    continue
                units_milli = out.units_per_s(task) * 1_000
                if 0 < units_milli <= room and self._planner.why_not(now_us, out, task) is None:
                    kinds.add(kind)
                    yield task, out, price
