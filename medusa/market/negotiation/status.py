"""How a trader stands, as plain values: for status, ``explain`` and a dry run."""

from __future__ import annotations

import msgspec

from medusa.market.negotiation.decisions import TradeDecision

__all__ = [
    "ContractStanding",
    "OpenNegotiation",
    "PlannedMove",
    "TaskStanding",
    "TraderStatus",
    "WhyNot",
]


class TaskStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is away, or a guest.

    Attributes:
        recalled: the code, where it is on its way home.
        virtual: it is only as if it were: its contract is a shadow.
        spent_micro: of a virtual one, what it would have cost its consumer so far.
    """

    name: str
    owner: str
    partner: str
    contract: str
    negotiation: int
    price_micro: int
    nano_units_per_row: int
    since_us: int
    recalled: str = ""
    virtual: bool = False
    spent_micro: int = 0


class OpenNegotiation(msgspec.Struct, frozen=True, kw_only=True):
    """One that isn't over. ``state`` is a value of ``NegotiationState``."""

    number: int
    partner: str
    contract: str
    state: str
    tasks: tuple[str, ...]
    price_micro: int
    deadline_us: int


class ContractStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One contract.

    Attributes:
        role: ours.
        in_force: it has begun, and hasn't ended.
        reachable: the partner is.
        rests_until_us: nothing is asked before; 0: it doesn't rest.
        ask_micro: what would be offered next, or is said to be taken.
        room_milli: units a second times 1,000 that the provider has said to have; None: it said nothing.
        units_per_s: that run by it now.
        virtual_micro: of a shadow, what would have been paid under it so far, by deals that stand and
            those that are over.
    """

    id: str
    version: int
    partner: str
    role: str
    in_force: bool
    reachable: bool
    shadow: bool
    rests_until_us: int
    ask_micro: int
    room_milli: int | None
    units_per_s: float
    virtual_micro: int = 0


class TraderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        running: names of tasks that run here.
        open: negotiations that aren't over, in which this is the consumer; ``serving``: the provider.
        why_still: why nothing moves now, in a sentence.
        decisions: the last ones, oldest first.
    """

    name: str
    running: tuple[str, ...]
    away: tuple[TaskStanding, ...]
    guests: tuple[TaskStanding, ...]
    contracts: tuple[ContractStanding, ...]
    open: tuple[OpenNegotiation, ...]
    serving: tuple[OpenNegotiation, ...]
    overloaded: bool
    why_still: str
    decisions: tuple[TradeDecision, ...]


class PlannedMove(msgspec.Struct, frozen=True, kw_only=True):
    """What would be offered now, by a dry run."""

    partner: str
    contract: str
    tasks: tuple[str, ...]
    price_micro: int
    saved_micro_per_s: float


class WhyNot(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task isn't offered under a contract. ``code`` is a value of ``TradeReason``."""

    task: str
    partner: str
    contract: str
    code: str
    text: str
