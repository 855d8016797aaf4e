"""What a party keeps of its ledger, as bytes: all of them in order make the same ledger again."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.errors import StateError
from medusa.market.contract.terms import Contract, ContractId, PartyName
from medusa.market.ledger.chain import ChainState
from medusa.market.ledger.receipts import LoadDispute, LoadReceipt, ReadingBytes, Signature, SignedSettlement

__all__ = [
    "BookState",
    "ContractCounts",
    "ContractEnds",
    "DisputeKept",
    "LedgerRecord",
    "ReadingKept",
    "ReadingTakenBack",
    "ReceiptKept",
    "SettlementKept",
    "TaskBegan",
    "TaskWent",
    "encode_record",
    "read_record",
]

Number = Annotated[int, Meta(ge=0, le=1 << 62)]


class _Record(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What all have: of which contract, with whom."""

    contract: ContractId
    partner: PartyName


class ContractCounts(_Record, frozen=True, tag="contract_counts"):
    """A version that both have signed."""

    terms: Contract


class ContractEnds(_Record, frozen=True, tag="contract_ends"):
    """It was revoked, as of then.

    Attributes:
        version: with all below it; 0: the newest of when it was said.
    """

    ends_us: Number
    version: Annotated[int, Meta(ge=0, le=1 << 31)] = 0


class TaskBegan(_Record, frozen=True, tag="task_began"):
    """A task runs at the provider from here on.

    Attributes:
        version, interval: in which it began.
    """

    negotiation: Number
    task: str
    begin_row: Number
    nano_units_per_row: Number
    price_micro: Number
    version: Number
    interval: Number


class TaskWent(_Record, frozen=True, tag="task_went"):
    """It is home again; rows from ``end_row`` on aren't the provider's.

    Attributes:
        version, period: the payment period in which it went.
        written_off_micro: what rows are worth that the provider has put out and the consumer never had.
    """

    negotiation: Number
    task: str
    end_row: Number
    version: Number = 0
    period: Number = 0
    written_off_micro: Number = 0


class ReadingKept(_Record, frozen=True, tag="reading_kept"):
    """The provider has signed this reading."""

    reading: ReadingBytes
    signature: Signature


class ReadingTakenBack(_Record, frozen=True, tag="reading_taken_back"):
    """Of a snapshot: the provider has signed a reading of an interval that isn't there any more."""


class ReceiptKept(_Record, frozen=True, tag="receipt_kept"):
    """Both have signed it."""

    receipt: LoadReceipt


class DisputeKept(_Record, frozen=True, tag="dispute_kept"):
    """What was disputed, with both readings."""

    dispute: LoadDispute


class SettlementKept(_Record, frozen=True, tag="settlement_kept"):
    """Proposed, or signed by both."""

    settlement: SignedSettlement


class BookState(_Record, frozen=True, tag="book_state"):
    """The figures of a contract, in place of all receipts and settlements before.

    Attributes:
        covered: (version, interval + 1): up to there all work is receipted.
        settled_number, settled_next: of the next settlement, and the first receipt that it nets.
        settled_micro, settled_breaches_micro: totals that are settled.
        disputes: since the last settlement.
        written_off: version, payment period, and what was written off in it.
        last_receipt, last_settlement: said again to who lacks them.
    """

    chain: ChainState
    covered: tuple[Number, Number]
    settled_number: Number = 0
    settled_next: Number = 0
    settled_micro: Number = 0
    settled_breaches_micro: Number = 0
    disputes: Number = 0
    written_off: tuple[Number, Number, Number] = (0, 0, 0)
    breach_claims: Number = 0
    last_receipt: LoadReceipt | None = None
    last_settlement: SignedSettlement | None = None


LedgerRecord: TypeAlias = (
    ContractCounts
    | ContractEnds
    | TaskBegan
    | TaskWent
    | ReadingKept
    | ReadingTakenBack
    | ReceiptKept
    | DisputeKept
    | SettlementKept
    | BookState
)

_encoder = msgspec.msgpack.Encoder()
_records: msgspec.msgpack.Decoder[LedgerRecord] = msgpack_decoder(LedgerRecord)


def encode_record(record: LedgerRecord) -> bytes:
    """The bytes of a record."""
    return _encoder.encode(record)


def read_record(data: bytes) -> LedgerRecord:
    """A record that was kept.

    Raises:
        StateError: it is none.
    """
    try:
        return _records.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StateError(f"no record of a ledger: {str(error)[:200]}", code="state.ledger") from None
