"""Chains: who is full takes load all the same if a partner takes a task of its own for less.

    consumer ── task, at q ──> this participant ── another task, at r < q ──> partner

Nothing is promised to the consumer for it: the other task goes first, and then the consumer is told that
there is room. If it doesn't come, the task is called home again after it has been held.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from medusa.market.negotiation.books import LoadBooks
from medusa.market.negotiation.contract_book import SignedContract
from medusa.market.negotiation.prices import PriceBoard
from medusa.market.negotiation.requests import RequestPlanner
from medusa.market.negotiation.settings import TradeSettings
from medusa.market.work import ResourceUse, TradedTask

__all__ = ["ChainFinder", "ChainPrices", "ChainedMove"]

_Shape = tuple[int, int, int]

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


@dataclass(frozen=True, slots=True)
class _Way:
    """A task that might go, by which contract, for how much; ``units_per_s``: its own, by that."""

    task: TradedTask
    out: SignedContract
    price_micro: int
    units_per_s: float


class ChainFinder:
    """Asks the books and the planner of requests; it does nothing.

    Args:
        busy: tasks that are in a negotiation.
    """

    def __init__(
        self,
        settings: TradeSettings,
        *,
        books: LoadBooks,
        prices: PriceBoard,
        planner: RequestPlanner,
        busy: Callable[[], Collection[str]],
    ) -> None:
        self._settings, self._books, self._prices = settings, books, prices
        self._planner, self._busy = planner, busy

    def find(
        self, now_us: int, by: SignedContract, wanted: TradedTask, pays_micro: int
    ) -> ChainedMove | None:
        """The best one by which this demand can be met at a gain."""
        if by.contract.shadow:
            return None
        load = self._books.load_promised()
        found = [
            ChainedMove(
                task=way.task,
                out=way.out,
                price_micro=way.price_micro,
                wanted=wanted,
                by=by,
                pays_micro=pays_micro,
                gain=gain,
            )
            for way in self._ways(now_us, self._planner.partners(now_us))
            if _fits(way, by)
            and (gain := self._gain(load, way.out, way.task, way.price_micro, by, wanted, pays_micro)) > 0
        ]
        return max(found, key=lambda each: each.gain, default=None)

    def prices(self, now_us: int) -> ChainPrices:
        """Those of this moment."""
        return ChainPrices(
            self._settings, self._books, lambda: self._ways(now_us, self._planner.askable(now_us)), self._more
        )

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
        return self._gain(self._books.load_promised(), out, task, price_micro, by, wanted, pays_micro)

    def _gain(
        self,
        load: ResourceUse,
        out: SignedContract,
        task: TradedTask,
        price_micro: int,
        by: SignedContract,
        wanted: TradedTask,
        pays_micro: int,
    ) -> float:
        more = self._more(load, task, wanted)
        if more is None or price_micro >= pays_micro:
            return 0.0
        costs = more + self._settings.above(price_micro) * out.units_per_s(task)
        return self._settings.below(pays_micro) * by.units_per_s(wanted) - costs

    def _more(self, load: ResourceUse, task: TradedTask, wanted: TradedTask) -> float | None:
        """By how much the load costs more a second with both done; None: it doesn't fit even then."""
        after = load.minus(task.use).plus(wanted.use)
        if not self._books.fits(after):
            return None
        return self._books.cost_of(after) - self._books.cost_of(load)

    def _ways(self, now_us: int, partners: Iterable[SignedContract]) -> Iterator[_Way]:
        """What might go to which of these for how much: to those who have said that they have room."""
        busy = self._busy()
        here = [task for task in itertools.islice(self._books.here(), LOOKED_AT) if task.name not in busy]
        for out in partners:
            room = self._prices.room_milli(now_us, out)
            if out.contract.shadow or not room:
                continue
            price = self._prices.ask(now_us, out)
            seen = set()  # tasks alike gain alike: one of each does
            for task in here:
                if task.shape in seen:
                    continue
                units = out.units_per_s(task)
                if not 0 < units * 1_000 <= room:
                    seen.add(task.shape)
                elif self._planner.why_not(now_us, out, task) is None:
                    seen.add(task.shape)
                    yield _Way(task, out, price, units)


class ChainPrices:
    """For how much a task could come by a chain, by the load and the prices of one moment. What all contracts
    have in common is looked for once, and only where somebody asks.

    Args:
        ways: what might go to whom.
        more: by how much a load costs more a second with a task gone and another one here.
    """

    def __init__(
        self,
        settings: TradeSettings,
        books: LoadBooks,
        ways: Callable[[], Iterable[_Way]],
        more: Callable[[ResourceUse, TradedTask, TradedTask], float | None],
    ) -> None:
        self._settings, self._books, self._find, self._more = settings, books, ways, more
        self._found: tuple[ResourceUse, list[_Way]] | None = None
        self._known: dict[tuple[_Shape, _Shape], float | None] = {}

    def least(self, by: SignedContract, like: TradedTask | None) -> int | None:
        """The least price in the range for which a task like this could come; None: none."""
        if by.contract.shadow:
            return None
        if self._found is None:
            self._found = self._books.load_promised(), list(self._find())
        load, ways = self._found
        best: int | None = None
        for way in ways:
            wanted = like or way.task
            units = by.units_per_s(wanted)
            if units <= 0 or not _fits(way, by):
                continue
            shapes = way.task.shape, wanted.shape
            if shapes not in self._known:
                self._known[shapes] = self._more(load, way.task, wanted)
            added, price = self._known[shapes], way.price_micro
            if added is None:
                continue
            costs = added + self._settings.above(price) * way.units_per_s
            asked = max(math.floor(costs / units / (1 - self._settings.epsilon_ppm / 1e6)) + 1, price + 1)
            asked = max(asked, by.contract.least_micro)
            if asked <= by.contract.price_micro and (best is None or asked < best):
                best = asked
        return best


def _fits(way: _Way, by: SignedContract) -> bool:
    """Whether a task that comes by this contract may be the reason: from somebody else, for more."""
    return way.out.partner != by.partner and way.price_micro < by.contract.price_micro
