"""What follows from the receipts of one contract so far, and what the next one has to say.

Both parties have one, and who reads a statement: whoever has the same receipts gets the same figures.
A receipt says which rows of which tasks it pays for, from where the one before ended, and carries on the
rounding rest and the totals: one that is missing, comes twice or is altered shows in the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from medusa.market.contract.terms import Contract
from medusa.market.ledger.intervals import Slot
from medusa.market.ledger.receipts import LoadReading, TaskReading
from medusa.market.money import MONEY_MAX
from medusa.market.work import NANO, price_of_work

__all__ = [
    "ChainState",
    "LoadBill",
    "ReceiptChain",
    "TaskKey",
    "exposure_most_micro",
    "interval_most_nano",
    "worth_micro",
]

TaskKey: TypeAlias = tuple[int, str]
"""(negotiation, name of the task): who hands it over again does so by another negotiation."""

Number = Annotated[int, Meta(ge=0, le=1 << 62)]


class LoadBill(NamedTuple):
    """Attributes:
    amounts: of each task, in their order; together ``amount_micro``.
    rest: in nano-units times micro-units.
    """

    amounts: tuple[int, ...]
    amount_micro: int
    rest: int
    breach_micro: int


class ChainState(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="chain_state"):
    """A chain, as it is kept.

    Attributes:
        ends: (negotiation, task, row) to which each task is paid.
        period: (version, index) of the payment period of the last receipt; ``period_micro``: billed in it.
    """

    number: Number = 0
    version: Number = 0
    interval: Number = 0
    rest: Number = 0
    total_micro: Number = 0
    breaches_micro: Number = 0
    period: tuple[Number, Number] = (0, 0)
    period_micro: Number = 0
    ends: tuple[tuple[Number, str, Number], ...] = ()


def interval_most_nano(contract: Contract) -> int:
    """Most work of all tasks together that a contract allows in an interval, in nano-units."""
    return contract.units_per_s_max_milli * contract.interval_s * NANO // 1_000


def exposure_most_micro(contract: Contract) -> int:
    """Most that a party can lose to the other one: two intervals at the highest load and price."""
    return 2 * (worth_micro(interval_most_nano(contract), contract.price_micro) + 1)


def worth_micro(nano_units: int, price_micro: int) -> int:
    """What so much work is worth, rounded down."""
    return price_of_work(nano_units, price_micro)[0]


class ReceiptChain:
    """The receipts of one contract, in order, up to the last one. Only figures are held."""

    def __init__(self, state: ChainState | None = None) -> None:
        state = ChainState() if state is None else state
        self.number = state.number
        self._slot = Slot(state.version, state.interval)
        self.rest = state.rest
        self.total_micro, self.breaches_micro = state.total_micro, state.breaches_micro
        self._period, self._period_micro = Slot(*state.period), state.period_micro
        self._ends: dict[TaskKey, int] = {(number, task): row for number, task, row in state.ends}

    @property
    def last(self) -> Slot | None:
        """The interval to which all is receipted; None: nothing is yet."""
        return self._slot if self.number else None

    def end_row(self, key: TaskKey, begin_row: int) -> int:
        """To which row a task is paid.

        Args:
            begin_row: where it began.
        """
        return max(self._ends.get(key, begin_row), begin_row)

    def left_micro(self, contract: Contract, slot: Slot) -> int:
        """How much may still be billed in the payment period of an interval."""
        most = MONEY_MAX - self.total_micro
        if not contract.cap_micro:
            return most
        spent = self._period_micro if _period(contract, slot) == self._period else 0
        return max(min(contract.cap_micro - spent, most), 0)

    def bill(self, contract: Contract, slot: Slot, tasks: Sequence[TaskReading], broken: int) -> LoadBill:
        """What these rows cost. Beyond a cap work costs nothing, and no rest of it is carried on."""
        left, rest, amounts = self.left_micro(contract, slot), self.rest, []
        for task in tasks:
            nano = (task.end_row - task.begin_row) * task.nano_units_per_row
            amount, rest = price_of_work(nano, task.price_micro, rest)
            if amount > left:
                amount, rest = left, 0
            left -= amount
            amounts.append(amount)
        breach_micro = min(broken * contract.breach_micro, MONEY_MAX - self.breaches_micro)
        return LoadBill(tuple(amounts), sum(amounts), rest, breach_micro)

    def draft(
        self,
        federation: str,
        contract: Contract,
        slot: Slot,
        tasks: Sequence[TaskReading],
        broken: int,
    ) -> LoadReading:
        """The next reading."""
        bill = self.bill(contract, slot, tasks, broken)
        return LoadReading(
            federation=federation,
            contract=contract.id,
            version=contract.version,
            provider=contract.provider,
            consumer=contract.consumer,
            number=self.number,
            interval=slot.interval,
            broken=broken,
            tasks=tuple(tasks),
            amount_micro=bill.amount_micro,
            rest=bill.rest,
            breach_micro=bill.breach_micro,
            total_micro=self.total_micro + bill.amount_micro,
            breaches_micro=self.breaches_micro + bill.breach_micro,
        )

    def fault(self, reading: LoadReading, contract: Contract, begins: Mapping[TaskKey, int]) -> str:
        """What of a reading doesn't follow from the receipts before it; empty: it is as it has to be.

        Args:
            contract: of its version.
            begins: where tasks began that no receipt names yet; those that aren't in it begin where it says.
        """
        if reading.number != self.number:
            return f"it has number {reading.number}, the next is {self.number}"
        keys = [(task.task, task.negotiation) for task in reading.tasks]
        if keys != sorted(set(keys)):
            return "its tasks aren't in order, or one comes twice"
        for task in reading.tasks:
            key = task.negotiation, task.task
            begin = self._ends.get(key, begins.get(key, task.begin_row))
            if task.begin_row != begin or task.end_row < begin:
                return (
                    f"task {task.task!r} has rows {task.begin_row:,} to {task.end_row:,}: it is paid"
                    f" up to {begin:,}"
                )
        slot = Slot(reading.version, reading.interval)
        if self.number and slot < self._slot:
            return f"interval {slot.interval} of version {slot.version} is before the one that is receipted"
        bill = self.bill(contract, slot, reading.tasks, reading.broken)
        said = reading.amount_micro, reading.rest, reading.breach_micro
        if said != (bill.amount_micro, bill.rest, bill.breach_micro):
            return (
                f"it bills {said[0]:,} micro-units and {said[2]:,} for breaches, rest {said[1]:,}: these rows"
                f" make {bill.amount_micro:,} and {bill.breach_micro:,}, rest {bill.rest:,}"
            )
        totals = reading.total_micro, reading.breaches_micro
        if totals != (self.total_micro + bill.amount_micro, self.breaches_micro + bill.breach_micro):
            return (
                f"its totals are {totals[0]:,} and {totals[1]:,}, before it they were"
                f" {self.total_micro:,} and {self.breaches_micro:,}"
            )
        return ""

    def apply(self, reading: LoadReading, contract: Contract) -> None:
        """A receipt of it is there."""
        slot = Slot(reading.version, reading.interval)
        period = _period(contract, slot)
        self._period_micro = reading.amount_micro + (self._period_micro if period == self._period else 0)
        self._period = period
        self.number = reading.number + 1
        self._slot, self.rest = slot, reading.rest
        self.total_micro, self.breaches_micro = reading.total_micro, reading.breaches_micro
        self._ends.update({(task.negotiation, task.task): task.end_row for task in reading.tasks})

    def forget(self, key: TaskKey) -> None:
        """A task has gone home, and all of it is receipted."""
        self._ends.pop(key, None)

    def resumed(self, reading: LoadReading) -> ReceiptChain:
        """As it was before a reading, as that one says, where those before it are missing.

        Its rounding rest is the one that makes its amount, where there is one.
        """
        made = ReceiptChain(self.state())
        made.number = reading.number
        made.total_micro = reading.total_micro - reading.amount_micro
        made.breaches_micro = reading.breaches_micro - reading.breach_micro
        made._ends = {
            **self._ends,
            **{(each.negotiation, each.task): each.begin_row for each in reading.tasks},
        }
        work = sum(
            (each.end_row - each.begin_row) * each.nano_units_per_row * each.price_micro
            for each in reading.tasks
        )
        made.rest = min(max(reading.amount_micro * NANO + reading.rest - work, 0), NANO - 1)
        return made

    def state(self) -> ChainState:
        return ChainState(
            number=self.number,
            version=self._slot.version,
            interval=self._slot.interval,
            rest=self.rest,
            total_micro=self.total_micro,
            breaches_micro=self.breaches_micro,
            period=(self._period.version, self._period.interval),
            period_micro=self._period_micro,
            ends=tuple((number, task, row) for (number, task), row in sorted(self._ends.items())),
        )


def _period(contract: Contract, slot: Slot) -> Slot:
    return Slot(slot.version, slot.interval * contract.interval_s // contract.settlement_s)
