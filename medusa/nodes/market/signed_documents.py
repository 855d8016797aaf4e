"""Receipts and settlements among the records of a ledger: they alone say who owes whom, and why."""

from __future__ import annotations

from collections.abc import Iterator

from medusa.market.ledger.receipts import LoadReceipt, SignedSettlement, canonical
from medusa.market.ledger.records import BookState, ReceiptKept, SettlementKept, read_record
from medusa.wire.outbox import AddReceipt

__all__ = ["signed_by_both"]


def signed_by_both(record: bytes) -> Iterator[AddReceipt]:
    """What a record has that both parties signed, for the file of the contract."""
    found = read_record(record)
    documents: tuple[LoadReceipt | SignedSettlement | None, ...] = ()
    match found:
        case ReceiptKept():
            documents = (found.receipt,)
        case SettlementKept():
            documents = (found.settlement,)
        case BookState():
            documents = found.last_receipt, found.last_settlement
    for document in documents:
        if document is None or (isinstance(document, SignedSettlement) and not document.consumer_signature):
            continue
        kind = "receipt" if isinstance(document, LoadReceipt) else "settlement"
        yield AddReceipt(partner=found.partner, contract=found.contract, kind=kind, data=canonical(document))
