"""What a participant keeps of its contracts: of these bytes its desk and register are as before a death."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.errors import StateError
from medusa.market.contract.messages import SignedBytes, Version
from medusa.market.contract.states import NegotiationState
from medusa.market.contract.terms import Contract, ContractId, PartyName

__all__ = [
    "ContractsKept",
    "ExchangeKept",
    "RevocationKept",
    "SignedKept",
    "VersionsKept",
    "contracts_bytes",
    "read_contracts",
]

Time = Annotated[int, Meta(ge=0, le=1 << 62)]


class VersionsKept(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A contract of the register.

    Attributes:
        contracts: its versions, ascending.
        ended_us: (version, from when on it and those below it are revoked).
    """

    partner: PartyName
    contracts: tuple[Contract, ...]
    ended_us: tuple[tuple[Version, Time], ...]


class ExchangeKept(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An exchange of the desk; ``signed``: its document, with the signatures that it has so far."""

    partner: PartyName
    signed: SignedBytes
    ours: bool
    state: NegotiationState
    code: str = ""
    text: str = ""


class RevocationKept(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A revocation that the partner hasn't noted; it is said until ``until_us``."""

    partner: PartyName
    contract: ContractId
    version: Version
    signed: SignedBytes
    until_us: Time


class SignedKept(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A version that counts, or did, with both signatures."""

    partner: PartyName
    signed: SignedBytes


class ContractsKept(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="contracts"):
    """All of one participant."""

    versions: tuple[VersionsKept, ...] = ()
    exchanges: tuple[ExchangeKept, ...] = ()
    revocations: tuple[RevocationKept, ...] = ()
    signed: tuple[SignedKept, ...] = ()


_encoder = msgspec.msgpack.Encoder()
_kept: msgspec.msgpack.Decoder[ContractsKept] = msgpack_decoder(ContractsKept)


def contracts_bytes(kept: ContractsKept) -> bytes:
    """For a file."""
    return _encoder.encode(kept)


def read_contracts(data: bytes) -> ContractsKept:
    """What was kept.

    Raises:
        StateError: it is damaged.
    """
    try:
        return _kept.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StateError(f"no contracts that were kept: {str(error)[:200]}", code="state.contracts") from None
