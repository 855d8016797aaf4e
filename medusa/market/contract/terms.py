"""The terms of one contract between a provider and a consumer of load."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from medusa.market.money import MONEY_MAX

__all__ = ["ANY", "Contract", "PartyName", "PlannedTask", "TaskTerms"]

PartyName = Annotated[str, Meta(pattern=r"\A[a-z0-9_-]{1,64}\Z")]
ContractId = Annotated[str, Meta(pattern=r"\A[a-z0-9_-]{1,64}\Z")]
Money = Annotated[int, Meta(ge=0, le=MONEY_MAX)]
Share = Annotated[int, Meta(ge=0, le=1_000_000)]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Text = Annotated[str, Meta(min_length=1, max_length=256)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=1024)]

ANY = "*"
"""In place of names: whichever."""


class TaskTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks may be moved under a contract. Each of the four has to allow a task; ``("*",)``: all do.

    Attributes:
        streams: names of streams that may come in and go out; ``*`` in one stands for any text.
        boxes: kinds of boxes that may be in it.
        columns: that rows may have.
        definitions: remote definitions by name; ``("*",)``: what isn't defined too.
    """

    streams: Texts = (ANY,)
    boxes: Texts = (ANY,)
    columns: Texts = (ANY,)
    definitions: Texts = (ANY,)


class PlannedTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task of the consumer that goes to the provider at a signal of its, and stays until the next one.

    Attributes:
        task: its name at the consumer.
        price_micro: of a unit, as of the contract.
    """

    task: Text
    price_micro: Money


class Contract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is agreed between two parties, for any number of moves. Both sign it; nobody else sees it.

    Defaults never change: what is signed leaves out fields that have theirs (``signed``).

    Attributes:
        id: unique between the two; a higher ``version`` of it takes the place of a lower one.
        provider: runs tasks, and is paid.
        consumer: owns the tasks, or has taken them itself, and pays.
        begins_us, ends_us: it counts from the one to before the other, since the Unix epoch.
        currency: of all amounts, which are micro-units.
        price_micro: of a unit, at most; ``range_micro``: so much less it may be, so that the price of a
            task is in ``[price - range, price]``. A range of 0 is a fixed price.
        bytes_per_unit: so many bytes over the network count as one unit, which else is a core-second; 0:
            none.
        units_per_s_max_milli: of all tasks that run under it at a time, times 1,000.
        cap_micro: most that may be owed in one ``settlement_s``; 0: no cap.
        interval_s: each is receipted by itself; work for at most two of them may be unpaid for.
        settlement_s: what is owed is settled so often.
        tolerance_ppm: by so much, of a million, two readings may differ without a dispute.
        tasks: that may be moved.
        availability_ppm: of a million seconds the tasks run in so many at least; 0: not promised.
        latency_us: within this what comes in goes out; 0: not promised.
        breach_micro: what the provider pays for each interval in which it kept one of those two not.
        planned: tasks that go and come at a signal of the consumer, by what is agreed here: the provider has
            said yes to each already.
        resale: partners of the provider to whom it may hand a task on; ``("*",)``: any; empty: nobody.
        standby, backup: whether these are sold too.
        notice_s: who revokes it says so this long before.
        shadow: nothing is moved; both only write down what would have been.
    """

    id: ContractId
    version: Annotated[int, Meta(ge=1, le=1 << 31)] = 1
    provider: PartyName
    consumer: PartyName
    begins_us: Count
    ends_us: Count
    currency: Annotated[str, Meta(pattern=r"\A[A-Z]{3}\Z")] = "EUR"
    price_micro: Money
    range_micro: Money = 0
    bytes_per_unit: Count = 0
    units_per_s_max_milli: Count
    cap_micro: Money = 0
    interval_s: Annotated[int, Meta(ge=1, le=3_600)] = 10
    settlement_s: Annotated[int, Meta(ge=1, le=366 * 86_400)] = 86_400
    tolerance_ppm: Share = 0
    tasks: TaskTerms = TaskTerms()
    availability_ppm: Share = 0
    latency_us: Count = 0
    breach_micro: Money = 0
    resale: Texts = ()
    standby: bool = False
    backup: bool = False
    notice_s: Count = 0
    shadow: bool = False
    planned: Annotated[tuple[PlannedTask, ...], Meta(max_length=1_000)] = ()

    def planned_micro(self, task: str) -> int | None:
        """The price of a unit of a task that goes at a signal; None: it isn't one.

        Args:
            task: as the market calls it: the consumer's name is before it.
        """
        owner, _, name = task.partition("/")
        if owner != self.consumer:
            return None
        return next((each.price_micro for each in self.planned if each.task == name), None)

    @property
    def least_micro(self) -> int:
        """The lowest price of a unit."""
        return self.price_micro - self.range_micro

    def may_resell_to(self, party: str) -> bool:
        return ANY in self.resale or party in self.resale
