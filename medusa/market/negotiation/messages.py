"""What participants say to each other about load that is to be moved under a contract.

    consumer                                    provider
       │ ── LoadRequest (tasks, price) ────────────> │  REQUESTED
       │ <─ LoadOffer (some of them, a price) ────── │  OFFERED, if it will do none for the price asked
       │ ── LoadAccepted ──────────────────────────> │  ACCEPTED, or LoadRequest again, for less
       │ <─ LoadAgreed (which: room is kept) ─────── │  AGREED, to some at least of what was asked
       │    the tasks are moved                      │
       │ ── LoadMoved (which got there) ───────────> │  VERIFIED
       │ <─ LoadRuns ─────────────────────────────── │  FINALIZED: from here on it is read and paid for
       │ ── LoadEnded / LoadEnded ────────────────── │  TERMINATED, by either one, with the reason

Each names its negotiation: the consumer's number, which it never uses twice. A message that comes again
has the effect of one.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from medusa.market.contract.terms import ContractId, Money
from medusa.market.work import TaskName, TradedTask

__all__ = [
    "LoadAccepted",
    "LoadAgreed",
    "LoadEnded",
    "LoadMessage",
    "LoadMoved",
    "LoadOffer",
    "LoadRequest",
    "LoadRuns",
    "PriceSaid",
]

Number = Annotated[int, Meta(ge=0, le=1 << 62)]
Reason = Annotated[str, Meta(max_length=256)]
Tasks = Annotated[tuple[TradedTask, ...], Meta(min_length=1, max_length=1_000)]
TaskNames = Annotated[tuple[TaskName, ...], Meta(max_length=1_000)]


class _Said(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What all have.

    Attributes:
        contract: under which, and ``version``: which of it.
        negotiation: the consumer's number of it.
    """

    contract: ContractId
    version: Number
    negotiation: Number


class LoadRequest(_Said, frozen=True, tag="load_request"):
    """The consumer would have these run.

    Attributes:
        tasks: as measured where they run now.
        price_micro: it would pay for a unit.
        within_us: after so long it asks somebody else: an agreement that comes later is void.
    """

    tasks: Tasks
    price_micro: Money
    within_us: Number


class LoadOffer(_Said, frozen=True, tag="load_offer"):
    """The provider would run these of them, for this; ``tasks`` in the order asked. Void after
    ``within_us``."""

    tasks: TaskNames
    price_micro: Money
    within_us: Number


class LoadAccepted(_Said, frozen=True, tag="load_accepted"):
    """The consumer takes the offer of this price."""

    tasks: TaskNames
    price_micro: Money


class LoadAgreed(_Said, frozen=True, tag="load_agreed"):
    """The provider keeps room for these, for ``within_us``.

    Attributes:
        nano_units_per_row: of each task, in their order: what a row will be billed as.
    """

    tasks: TaskNames
    nano_units_per_row: Annotated[tuple[Number, ...], Meta(max_length=1_000)]
    price_micro: Money
    within_us: Number


class LoadMoved(_Said, frozen=True, tag="load_moved"):
    """The consumer has handed these over, and verified the agreement. Those that it doesn't name stay."""

    tasks: TaskNames


class LoadRuns(_Said, frozen=True, tag="load_runs"):
    """The provider runs these: they are read from here on."""

    tasks: TaskNames


class LoadEnded(_Said, frozen=True, tag="load_ended"):
    """It came to nothing, or these tasks are to go back.

    Attributes:
        code: the reason, stable (``reasons``).
        tasks: of those that run; empty: all, or it was only negotiated.
        text: the reason, to a person.
    """

    code: Annotated[str, Meta(max_length=64)]
    tasks: TaskNames = ()
    text: Reason = ""


class PriceSaid(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="price_said"):
    """The heartbeat of a contract: what the provider would take now, and for how much load.

    Attributes:
        price_micro: within the range of the contract.
        units_per_s_milli: the largest task for which it has room; 0: none.
    """

    contract: ContractId
    version: Number
    price_micro: Money
    units_per_s_milli: Number


LoadMessage: TypeAlias = (
    LoadRequest | LoadOffer | LoadAccepted | LoadAgreed | LoadMoved | LoadRuns | LoadEnded | PriceSaid
)
