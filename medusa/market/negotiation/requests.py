"""The consumer's choice: which tasks to offer to whom, for how much. It decides, and does nothing.

NSDI 2004: the cheapest partner first; one task after the other in order, each for which a unit saves more
than the price once those before it are gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from medusa.market.negotiation.backoff import Backoff
from medusa.market.negotiation.books import LoadBooks
from medusa.market.negotiation.contract_book import ContractBook, SignedContract
from medusa.market.negotiation.policies import LoadPolicy
from medusa.market.negotiation.prices import PriceBoard
from medusa.market.negotiation.reasons import TradeReason
from medusa.market.negotiation.settings import PPM, TradeSettings
from medusa.market.work import ResourceUse, TradedTask

__all__ = ["PlannedRequest", "RequestPlanner"]

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """What to offer to one partner.

    Attributes:
        tasks: first those that are worth it together, then those that would be instead of others.
        saved_micro_per_s: by so much the cost falls, less what is paid, if the former are taken.
    """

    signed: SignedContract
    tasks: tuple[TradedTask, ...]
    price_micro: int
    saved_micro_per_s: float


class RequestPlanner:
    """Asks the books, the contracts and the owner's policy.

    Args:
        name: whose it is.
        reachable: whether a partner is.
        pick: a number in [0, n), at random: the order among partners who cost the same.
    """

    def __init__(
        self,
        name: str,
        settings: TradeSettings,
        *,
        books: LoadBooks,
        contracts: ContractBook,
        prices: PriceBoard,
        policy: LoadPolicy,
        rests: Backoff,
        reachable: Callable[[str], bool],
        pick: Callable[[int], int],
    ) -> None:
        self._name, self._settings = name, settings
        self._books, self._contracts, self._prices = books, contracts, prices
        self._policy, self._rests, self._reachable, self._pick = policy, rests, reachable, pick

    def askable(self, now_us: int) -> Iterator[SignedContract]:
        """Contracts by which load may be offered now, in no order. Those who have said that they are full
        aren't asked."""
        return (
            signed
            for signed in self._contracts.consuming(now_us)
            if self._reachable(signed.partner)
            and not self._rests.rests(now_us, signed.key)
            and not self._prices.full(now_us, signed)
        )

    def partners(self, now_us: int) -> list[SignedContract]:
        """The same in the order in which to ask: by the owner's preference, then by price."""
        found = [
            (
                self._policy.rank(signed.partner),
                self._prices.ask(now_us, signed),
                self._pick(1 << 16),
                signed,
            )
            for signed in self.askable(now_us)
        ]
        found.sort(key=itemgetter(0, 1, 2))
        return [each[-1] for each in found]

    def plan(self, now_us: int, busy: Collection[str]) -> Iterator[PlannedRequest]:
        """What is worth asking for, best first.

        Args:
            busy: tasks that are in another negotiation.
        """
        dearest: dict[tuple[bool, int], float] = {}
        for signed in self.partners(now_us):
            price = self._prices.ask(now_us, signed)
            like = signed.contract.shadow, signed.contract.bytes_per_unit
            if like not in dearest:
                dearest[like] = self._dearest(signed)
            if dearest[like] <= self._settings.above(price):
                continue
            allowed = [task for task in self._candidates(signed) if task.name not in busy]
            allowed = [task for task in allowed if self.why_not(now_us, signed, task) is None]
            tasks = self.worthwhile(signed, allowed, price)
            if tasks:
                yield PlannedRequest(
                    signed=signed,
                    tasks=(*tasks, *self._instead(signed, allowed, price, tasks)),
                    price_micro=price,
                    saved_micro_per_s=self.saved(signed, tasks, price),
                )

    def _dearest(self, signed: SignedContract) -> float:
        """What a unit of the task saves that saves most alone: no price above that is worth a look."""
        load = self._books.load(virtual=signed.contract.shadow)
        shapes = {task.shape: task for task in self._candidates(signed)}
        saved = (
            self._books.saved(load, task, units)
            for task in shapes.values()
            if (units := signed.units_per_s(task)) > 0
        )
        return max(saved, default=0.0)

    def _instead(
        self,
        signed: SignedContract,
        tasks: Iterable[TradedTask],
        price_micro: int,
        chosen: Sequence[TradedTask],
    ) -> list[TradedTask]:
        """Others that would be worth it alone: the provider may have no room for the first, and for these.
        What it agrees to is chosen from once more before anything is moved."""
        load = self._books.load(virtual=signed.contract.shadow)
        names = {task.name for task in chosen}
        worth: dict[tuple[int, int, int], bool] = {}
        others = []
        for task in tasks:
            if task.name in names:
                continue
            shape = task.shape
            if shape not in worth:
                worth[shape] = self._worthwhile_alone(signed, task, price_micro, load)
            if worth[shape]:
                others.append(task)
        return others[: self._settings.tasks_max - len(chosen)]

    def _worthwhile_alone(
        self, signed: SignedContract, task: TradedTask, price_micro: int, load: ResourceUse
    ) -> bool:
        units = signed.units_per_s(task)
        return self._books.saved(load, task, units) > self._settings.above(price_micro)

    def look_again_us(self, now_us: int) -> int | None:
        """When something may be worth asking for that isn't now: a contract has rested, a price is forgotten,
        or a task was here long enough. None: not before something else changes."""
        times = []
        for signed in self._contracts.consuming(now_us):
            forgets_us = self._prices.forgets_at_us(now_us, signed)
            times += [self._rests.until_us(signed.key), forgets_us or 0]
        times += [came_us + self._settings.hold_us for came_us in self._books.arrivals()]
        return min((each for each in times if each > now_us), default=None)

    def _candidates(self, signed: SignedContract) -> Sequence[TradedTask]:
        virtual = signed.contract.shadow
        here = [task for task in self._books.here() if not self._books.moving(task.name)]
        if virtual:
            here = [task for task in here if (task.name, True) not in self._books.away]
        return self._policy.shed_order(here)

    def why_not(self, now_us: int, signed: SignedContract, task: TradedTask) -> TradeReason | None:
        """What forbids this task to go there, whatever it costs; None: nothing."""
        guest = self._books.guests.get((task.name, False))
        units = signed.units_per_s(task)
        if units <= 0 or units * 1_000 > signed.contract.units_per_s_max_milli:
            return TradeReason.OVER_LIMIT
        if not signed.allows(task):
            return TradeReason.TASK_NOT_ALLOWED
        if not self._policy.may_move(task, signed.partner):
            return TradeReason.POLICY
        if guest is not None:
            if signed.partner in (guest.partner, task.owner) or guest.leaving:
                return TradeReason.TASK_NOT_ALLOWED
            if not signed.may_follow(guest.signed):
                return TradeReason.TASK_NOT_ALLOWED
        elif task.owner != self._name:
            return TradeReason.NO_CONTRACT
        came_us = self._books.came_us(task.name)
        held = came_us is not None and now_us - came_us < self._settings.hold_us
        return TradeReason.BUSY if held and not self._books.overloaded else None

    def worthwhile(
        self, signed: SignedContract, tasks: Iterable[TradedTask], price_micro: int
    ) -> list[TradedTask]:
        """Those that save more than the price, each with those before it gone; within the contract's limits.

        Returns:
            At most ``tasks_max``; none has to go for another to be worth it, since costs are convex.
        """
        load = self._books.load(virtual=signed.contract.shadow)
        limit = signed.contract.units_per_s_max_milli / 1_000 - self._books.units_away(signed)
        capped = signed.contract.cap_micro / signed.contract.settlement_s
        owed = self._books.owed_micro_per_s(signed, taken=False)
        least = self._settings.above(price_micro)
        chosen: list[TradedTask] = []
        dull: set[tuple[int, int, int]] = set()  # not worth it on top of what is left now
        for task in tasks:
            shape = task.shape
            if shape in dull:
                continue
            units = signed.units_per_s(task)
            if units <= 0 or units > limit * (1 + _ROUNDING):
                continue
            if capped and owed + units * price_micro > capped * (1 + _ROUNDING):
                continue
            if self._books.saved(load, task, units) > least:
                chosen.append(task)
                load, limit, owed = load.minus(task.use), limit - units, owed + units * price_micro
                dull.clear()
                if len(chosen) == self._settings.tasks_max:
                    break
            else:
                dull.add(shape)
        return chosen

    def highest(self, signed: SignedContract, tasks: Sequence[TradedTask], below_micro: int) -> int | None:
        """The highest price below this at which one of these is worth it; None: none in the range is."""
        load = self._books.load(virtual=signed.contract.shadow)
        bids = []
        for task in tasks:
            saved = self._books.saved(load, task, signed.units_per_s(task))
            bid = math.ceil(min(saved * PPM / (PPM + self._settings.epsilon_ppm), below_micro)) - 1
            while bid >= signed.contract.least_micro and not saved > self._settings.above(bid):
                bid -= 1
            bids.append(bid)
        best = max(bids, default=-1)
        return best if best >= signed.contract.least_micro else None

    def saved(self, signed: SignedContract, tasks: Sequence[TradedTask], price_micro: int) -> float:
        """What it saves, less what is paid, in micro-units a second."""
        load = self._books.load(virtual=signed.contract.shadow)
        after = load
        for task in tasks:
            after = after.minus(task.use)
        paid = price_micro * sum(signed.units_per_s(task) for task in tasks)
        return self._books.cost_of(load) - self._books.cost_of(after) - paid

    def cheaper_elsewhere(
        self, now_us: int, signed: SignedContract, tasks: Sequence[TradedTask], price_micro: int
    ) -> SignedContract | None:
        """A partner who would take some of these for less, as far as is known."""
        for other in self.partners(now_us):
            if other.key == signed.key:
                continue
            rank = self._policy.rank(other.partner)
            if rank > self._policy.rank(signed.partner) or self._prices.ask(now_us, other) >= price_micro:
                continue
            allowed = [task for task in tasks if self.why_not(now_us, other, task) is None]
            if self.worthwhile(other, allowed, self._prices.ask(now_us, other)):
                return other
        return None
