"""The provider's choice: which of the tasks that it is asked to run, and for how much. It does nothing.

NSDI 2004: one after the other, each that costs less than its price with those before it already here, and
all that was promised before. What would exceed the capacity is never taken, however it is paid: the
prototype took its cost for -1 then, which is below any price.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from medusa.market.negotiation.books import LoadBooks
from medusa.market.negotiation.contract_book import SignedContract
from medusa.market.negotiation.policies import LoadPolicy
from medusa.market.negotiation.reasons import TradeReason
from medusa.market.negotiation.settings import PPM, TradeSettings
from medusa.market.work import ResourceUse, TradedTask

__all__ = ["AnswerJudge", "JudgedTasks"]

_ROUNDING = 1e-9
_PROBE = 1e-3
"""Units a second: a little load."""

_ROOM_MAX = 1 << 20
"""Units a second: no larger a task is said."""

_HALVINGS = 6
"""The room that a provider says to have is less than what it has by 1/64 of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTasks:
    """What came of judging some tasks.

    Attributes:
        taken: in the order asked.
        refused: name -> why, of the others.
        dearest: the least price at which one of the others would be taken; None: at none.
    """

    taken: tuple[TradedTask, ...]
    refused: dict[str, TradeReason]
    dearest: int | None

    @property
    def reason(self) -> TradeReason:
        """Of the first that was refused."""
        return next(iter(self.refused.values()), TradeReason.TOO_DEAR)


class AnswerJudge:
    """Asks the books and the owner's policy."""

    def __init__(self, name: str, settings: TradeSettings, *, books: LoadBooks, policy: LoadPolicy) -> None:
        self._name, self._settings, self._books, self._policy = name, settings, books, policy

    def load(self, signed: SignedContract) -> ResourceUse:
        return self._books.load_promised(virtual=signed.contract.shadow)

    def judge(
        self,
        signed: SignedContract,
        tasks: Sequence[TradedTask],
        price_micro: int,
        *,
        floor_micro: int = 0,
        without: ResourceUse | None = None,
        units_without: float = 0.0,
        known: bool = False,
    ) -> JudgedTasks:
        """Which of them to take for this price.

        Args:
            floor_micro: nothing is taken for less, whatever it costs.
            without: room that is kept for these very tasks at this price, and doesn't count;
                ``units_without``: theirs.
            known: they are: they have room already.
        """
        load = self.load(signed)
        if without is not None:
            load = load.minus(without)
        contract = signed.contract
        limit = contract.units_per_s_max_milli / 1_000 - self._books.units_taken(signed) + units_without
        capped = contract.cap_micro / contract.settlement_s
        owed = self._books.owed_micro_per_s(signed, taken=True) - units_without * price_micro
        most = self._settings.below(price_micro)
        taken: list[TradedTask] = []
        refused: dict[str, TradeReason] = {}
        dearest: int | None = None
        # Of a unit on top of what is taken so far; and the least price for which it would be taken.
        costs: dict[tuple[int, int, int], tuple[float, int | None]] = {}
        for task in tasks:
            units = signed.units_per_s(task)
            reason = self.forbidden(signed, task, known=known)
            if reason is None and (units <= 0 or units > limit * (1 + _ROUNDING)):
                reason = TradeReason.OVER_LIMIT
            if reason is None and capped and owed + units * price_micro > capped * (1 + _ROUNDING):
                reason = TradeReason.CAP
            if reason is None and not self._books.fits(load.plus(task.use)):
                reason = TradeReason.FULL
            if reason is None:
                if task.shape not in costs:
                    added = self._books.added(load, task, units)
                    costs[task.shape] = added, self._price_for(signed, added)
                added, wanted = costs[task.shape]
            if reason is None and (not added < most or price_micro < floor_micro):
                reason = TradeReason.TOO_DEAR
                beyond = floor_micro > contract.price_micro
                wanted = None if wanted is None or beyond else max(wanted, floor_micro)
                if wanted is not None and wanted > price_micro:
                    dearest = wanted if dearest is None else min(dearest, wanted)
            if reason is not None:
                refused[task.name] = reason
                continue
            taken.append(task)
            costs.clear()
            load, limit, owed = load.plus(task.use), limit - units, owed + units * price_micro
        return JudgedTasks(taken=tuple(taken), refused=refused, dearest=dearest)

    def forbidden(
        self, signed: SignedContract, task: TradedTask, *, known: bool = False
    ) -> TradeReason | None:
        """Why a task may not come, whatever is paid for it; None: it may.

        Args:
            known: it has room already.
        """
        if not known and self._books.knows(task.name, virtual=signed.contract.shadow):
            return TradeReason.TAKEN
        if task.owner == self._name or not signed.allows(task):
            return TradeReason.TASK_NOT_ALLOWED
        return None if self._policy.may_take(task, signed.partner) else TradeReason.POLICY

    def _price_for(self, signed: SignedContract, added: float, *, rounded: bool = True) -> int | None:
        """The least price in the range at which this is less than the price, less epsilon; None: none is.

        Args:
            rounded: up to a step of the range, so that others that cost a little more go with it.
        """
        contract = signed.contract
        if not added < self._settings.below(contract.price_micro):
            return None
        wanted = max(math.floor(added * PPM / (PPM - self._settings.epsilon_ppm)) + 1, contract.least_micro)
        while wanted < contract.price_micro and not added < self._settings.below(wanted):
            wanted += 1
        if not rounded:
            return wanted
        step = max(contract.range_micro // self._settings.price_steps, 1)
        above = contract.least_micro + -(-(wanted - contract.least_micro) // step) * step
        return min(above, contract.price_micro)

    def offers(
        self, asked: Iterable[tuple[SignedContract, TradedTask | None]]
    ) -> Iterator[tuple[SignedContract, int, int]]:
        """Of each contract what would be taken for a little more load now, in the range; and how large a task
        would be taken at the top of it, in units a second times 1,000. 0: none, and then the price is the
        top. All by the load of when it begins: contracts with the same terms have the same answer.

        Args:
            asked: contracts, each with a task that the load is like; None: processor time alone.
        """
        loads: dict[bool, ResourceUse] = {}
        taken = self._books.all_units_taken()
        known: dict[tuple[bool, int, int, float, float], tuple[int, float]] = {}
        for signed, like in asked:
            contract = signed.contract
            limit = contract.units_per_s_max_milli / 1_000 - taken.get(signed.key, 0.0)
            cores, nbytes = _shape(signed, like)
            terms = contract.shadow, contract.price_micro, contract.range_micro, cores, nbytes
            if contract.shadow not in loads:
                loads[contract.shadow] = self._books.load_promised(virtual=contract.shadow)
            if terms not in known:
                known[terms] = self._offered(signed, loads[contract.shadow], cores, nbytes)
            price, room = known[terms]
            if limit <= 0 or not room:
                yield signed, contract.price_micro, 0
            else:
                yield signed, price, max(int(min(room, limit) * 1_000), 1)

    def _offered(
        self, signed: SignedContract, load: ResourceUse, cores: float, nbytes: float
    ) -> tuple[int, float]:
        """Price, and size in units a second whatever the contract's limit; 0: not even a small one."""
        contract = signed.contract
        most, bare = self._settings.below(contract.price_micro), self._books.cost_of(load)

        def added(units: float) -> float:
            """By what a unit of so much in one task would raise the cost."""
            after = load.plus(ResourceUse(cpu_cores=cores * units, bytes_per_s=nbytes * units))
            return (self._books.cost_of(after) - bare) / units if self._books.fits(after) else math.inf

        first = added(_PROBE)
        if not first < most:
            return contract.price_micro, 0.0
        price = self._price_for(signed, first, rounded=False)
        low, high = _PROBE, _PROBE * 2
        while high < _ROOM_MAX and added(high) < most:
            low, high = high, high * 2
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if added(middle) < most else (low, middle)
        return contract.price_micro if price is None else price, low


def _shape(signed: SignedContract, like: TradedTask | None) -> tuple[float, float]:
    """Cores and bytes a second of a unit of load."""
    units = signed.units_per_s(like) if like is not None else 0.0
    if like is None or units <= 0:
        return 1.0, 0.0
    return like.use.cpu_cores / units, like.use.bytes_per_s / units
