"""What two parties of a contract say to each other about what is owed. Each may come again, late or never."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from medusa.market.contract.terms import ContractId
from medusa.market.ledger.receipts import (
    LoadDispute,
    LoadReceipt,
    ReadingBytes,
    Signature,
    SignedSettlement,
)

__all__ = ["DisputeSaid", "LedgerMessage", "ReadingSaid", "ReceiptSaid", "SettlementSaid"]


class ReadingSaid(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="reading_said"):
    """The provider's reading. It is said again until it is answered: it is the heartbeat of a contract."""

    contract: ContractId
    reading: ReadingBytes
    signature: Signature


class ReceiptSaid(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="receipt_said"):
    """Both have signed: the consumer a reading, or the provider a counter-reading."""

    contract: ContractId
    receipt: LoadReceipt


class DisputeSaid(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="dispute_said"):
    """The consumer doesn't sign the reading as it is."""

    contract: ContractId
    dispute: LoadDispute


class SettlementSaid(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="settlement_said"):
    """The provider proposes a settlement; the consumer answers with its signature added."""

    contract: ContractId
    settlement: SignedSettlement


LedgerMessage: TypeAlias = ReadingSaid | ReceiptSaid | DisputeSaid | SettlementSaid
