"""What of a trader has to outlive a restart: what is away, what is a guest, and what may still arrive."""

from __future__ import annotations

from typing import Literal

import msgspec

from medusa.market.contract.terms import Contract
from medusa.market.work import TradedTask

__all__ = ["KeptDeal", "KeptTrades", "Part"]

Part = Literal["moving", "away", "room", "guest"]


class KeptDeal(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One task that was agreed on.

    Attributes:
        part: ``moving``: our driver hands it over; ``away``: it is at the partner; ``room``: it may arrive
            here; ``guest``: it is here.
        contract: by which, as it was then.
        negotiation: the consumer's number.
        nano: nano-units of a row, as agreed.
        back: the code, where it is to go back.
    """

    part: Part
    partner: str
    task: TradedTask
    contract: Contract
    negotiation: int
    price_micro: int
    nano: int
    since_us: int
    back: str = ""


class KeptTrades(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """All of it. Negotiations in which nothing was agreed are over with a restart.

    Attributes:
        number: the highest that was used for a negotiation of ours.
    """

    number: int = -1
    deals: tuple[KeptDeal, ...] = ()
