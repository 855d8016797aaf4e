"""Readings and receipts: what was done in one interval under one contract, signed by both."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from medusa.market.contract.terms import ContractId, Money, PartyName
from medusa.market.work import TaskName

__all__ = ["LoadReading", "LoadReceipt", "TaskReading"]

Number = Annotated[int, Meta(ge=0, le=1 << 62)]
Signature = Annotated[bytes, Meta(min_length=64, max_length=64)]


class TaskReading(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one task had in an interval.

    Attributes:
        negotiation: by which it was handed over.
        begin_row, end_row: rows that were delivered, from the one to before the other: numbers, which both
            know.
        nano_units_per_row, price_micro: as agreed.
    """

    task: TaskName
    negotiation: Number
    begin_row: Number
    end_row: Number
    nano_units_per_row: Number
    price_micro: Money


class LoadReading(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="load_reading"):
    """What the provider says was done in one interval. Of each contract they are numbered without a gap.

    Attributes:
        interval: its number, from 0 on, counted from ``Contract.begins_us``.
        tasks: by name, ascending.
        amount_micro: of all together, rounded down; ``rest``: what is left over, to the next one.
        total_micro: of this contract so far, with this one.
    """

    federation: Annotated[str, Meta(max_length=64)]
    contract: ContractId
    version: Number
    provider: PartyName
    consumer: PartyName
    interval: Number
    tasks: Annotated[tuple[TaskReading, ...], Meta(max_length=1_000)]
    amount_micro: Money
    rest: Number = 0
    total_micro: Money


class LoadReceipt(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="load_receipt"):
    """A reading that both have signed.

    Attributes:
        reading: canonical bytes, as both signed them.
        provider_signature, consumer_signature: Ed25519.
    """

    reading: Annotated[bytes, Meta(max_length=65_536)]
    provider_signature: Signature
    consumer_signature: Signature
