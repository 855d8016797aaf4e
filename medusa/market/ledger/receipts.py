"""What two parties sign about work that was done: readings, receipts, disputes, settlements.

Each is msgpack of its fields in order, as short as can be; any other form of the same is refused. What is
signed is a context, then those bytes: a signature of one kind is none of another.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.errors import RemoteProtocolError
from medusa.market.contract.terms import ContractId, Money, PartyName
from medusa.market.money import MONEY_MAX
from medusa.market.work import TaskName

__all__ = [
    "READING_BYTES_MAX",
    "READING_CONTEXT",
    "REFUSAL_CONTEXT",
    "SETTLEMENT_CONTEXT",
    "LoadDispute",
    "LoadReading",
    "LoadReceipt",
    "LoadSettlement",
    "SignedSettlement",
    "TaskReading",
    "canonical",
    "read_reading",
    "read_receipt",
    "read_settlement",
    "read_signed_settlement",
    "refusal_bytes",
]

READING_BYTES_MAX = 65_536
"""No reading is longer: so many tasks may run under a contract as fit in one."""

READING_CONTEXT = b"medusa load reading 1\0"
REFUSAL_CONTEXT = b"medusa load refusal 1\0"
SETTLEMENT_CONTEXT = b"medusa load settlement 1\0"

Number = Annotated[int, Meta(ge=0, le=1 << 62)]
Signature = Annotated[bytes, Meta(min_length=64, max_length=64)]
MaybeSignature = Annotated[bytes, Meta(max_length=64)]
ReadingBytes = Annotated[bytes, Meta(max_length=READING_BYTES_MAX)]
Signed = Annotated[int, Meta(ge=-MONEY_MAX, le=MONEY_MAX)]


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
    """What the provider says was done since the receipt before, up to the end of an interval.

    Attributes:
        number: of this contract's readings, whatever the version: 0, 1, 2 without a gap.
        version: of the contract, in which the interval is.
        interval: the last one that it covers, counted from ``begins_us`` of that version. One reading
            covers one interval, or more where the receipt before came late.
        broken: of those intervals, in how many the provider didn't keep what it promises.
        tasks: that had rows, by (task, negotiation), ascending.
        amount_micro: of all together, rounded down; ``rest``: what is left over, to the next one.
        breach_micro: what the provider owes for ``broken``.
        total_micro, breaches_micro: sums of these two over this contract so far, with this one.
    """

    federation: Annotated[str, Meta(max_length=64)]
    contract: ContractId
    version: Number
    provider: PartyName
    consumer: PartyName
    number: Number
    interval: Number
    broken: Number = 0
    tasks: Annotated[tuple[TaskReading, ...], Meta(max_length=1_000)]
    amount_micro: Money
    rest: Number = 0
    breach_micro: Money = 0
    total_micro: Money
    breaches_micro: Money = 0


class LoadReceipt(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="load_receipt"):
    """A reading that both have signed.

    Attributes:
        reading: canonical bytes, as both signed them.
        provider_signature, consumer_signature: Ed25519.
    """

    reading: ReadingBytes
    provider_signature: Signature
    consumer_signature: Signature


class LoadDispute(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="load_dispute"):
    """What the consumer answers to a reading that isn't what it knows. Both keep it.

    Attributes:
        reading, provider_signature: what the provider said.
        code, text: what is wrong: stable, and to a person.
        counter: the same reading with the rows that the consumer has; once the provider signs that too it
            is the receipt. Empty: nothing of it counts, it is refused.
        consumer_signature: of the counter, else of the refusal (``refusal_bytes``).
    """

    reading: ReadingBytes
    provider_signature: Signature
    code: Annotated[str, Meta(max_length=64)]
    text: Annotated[str, Meta(max_length=256)] = ""
    counter: ReadingBytes = b""
    consumer_signature: Signature


class LoadSettlement(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="load_settlement"):
    """What is owed at the end of a period. Nothing of it is open once both have signed.

    Attributes:
        number: of this contract's settlements: 0, 1, 2 without a gap.
        first, through: numbers of the receipts that it nets, both included.
        total_micro, breaches_micro: as the last of them says.
        due_micro: what the consumer pays to the provider for these; below 0 the provider pays.
    """

    federation: Annotated[str, Meta(max_length=64)]
    contract: ContractId
    provider: PartyName
    consumer: PartyName
    currency: Annotated[str, Meta(pattern=r"\A[A-Z]{3}\Z")]
    number: Number
    first: Number
    through: Number
    total_micro: Money
    breaches_micro: Money
    due_micro: Signed


class SignedSettlement(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="load_settlement_signed"
):
    """A settlement, as the provider proposes it, or as both have signed it.

    Attributes:
        settlement: canonical bytes.
        consumer_signature: empty: not yet.
    """

    settlement: Annotated[bytes, Meta(max_length=2_048)]
    provider_signature: Signature
    consumer_signature: MaybeSignature = b""


T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_readings: msgspec.msgpack.Decoder[LoadReading] = msgpack_decoder(LoadReading)
_receipts: msgspec.msgpack.Decoder[LoadReceipt] = msgpack_decoder(LoadReceipt)
_settlements: msgspec.msgpack.Decoder[LoadSettlement] = msgpack_decoder(LoadSettlement)
_signed_settlements: msgspec.msgpack.Decoder[SignedSettlement] = msgpack_decoder(SignedSettlement)


def canonical(document: msgspec.Struct) -> bytes:
    """The bytes of a document."""
    return _encoder.encode(document)


def _read(decoder: msgspec.msgpack.Decoder[T], data: bytes, what: str) -> T:
    try:
        found: Any = decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"no {what}: {str(error)[:200]}", code="E_MESSAGE") from None
    if _encoder.encode(found) != data:
        raise RemoteProtocolError(f"a {what} that is not in canonical form", code="E_MESSAGE")
    return found  # type: ignore[no-any-return]


def read_reading(data: bytes) -> LoadReading:
    """What the bytes of a reading say; nothing about whether it is true.

    Raises:
        RemoteProtocolError: malformed, or not in the one form that counts (``E_MESSAGE``).
    """
    return _read(_readings, data, "reading")


def read_receipt(data: bytes) -> LoadReceipt:
    """As ``read_reading``, of a receipt."""
    return _read(_receipts, data, "receipt")


def read_settlement(data: bytes) -> LoadSettlement:
    """As ``read_reading``, of a settlement."""
    return _read(_settlements, data, "settlement")


def read_signed_settlement(data: bytes) -> SignedSettlement:
    """As ``read_reading``, of a settlement with its signatures."""
    return _read(_signed_settlements, data, "settlement")


def refusal_bytes(reading: bytes, code: str) -> bytes:
    """What the consumer signs where it refuses a reading: which one, and why."""
    return REFUSAL_CONTEXT + blake2b(reading, digest_size=32).digest() + code.encode()
