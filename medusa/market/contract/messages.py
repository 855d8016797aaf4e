"""What two parties say to each other about a contract. Of whom it comes, the link knows.

    consumer                                   provider          who proposes may be either
       │ ── ContractProposed (one signature) ──> │  REQUESTED
       │ <─ ContractSigned (both) ────────────── │  AGREED
       │ ── ContractVerified ──────────────────> │  VERIFIED
       │ <─ ContractFinalized ────────────────── │  FINALIZED: it counts
       │ ── ContractEnded / ContractEnded ────── │  TERMINATED, with the reason

    consumer                                   provider
       │ <─ ContractProposed (one signature) ─── │  OFFERED
       │ ── ContractSigned (both) ─────────────> │  ACCEPTED
       │ <─ ContractAgreed ───────────────────── │  AGREED, and on as above

A message that comes again has the effect of one.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from medusa.market.contract.signed import SIGNED_BYTES_MAX
from medusa.market.contract.terms import ContractId

__all__ = [
    "ContractAgreed",
    "ContractEnded",
    "ContractFinalized",
    "ContractMessage",
    "ContractProposed",
    "ContractRevoked",
    "ContractRevokedNoted",
    "ContractSigned",
    "ContractVerified",
]

SignedBytes = Annotated[bytes, Meta(max_length=SIGNED_BYTES_MAX)]
Version = Annotated[int, Meta(ge=1, le=1 << 31)]


class _Carries(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """``signed``: a signed document, as ``SignedDocument.to_bytes`` gives it."""

    signed: SignedBytes


class ContractProposed(_Carries, frozen=True, tag="contract_proposed"):
    """These terms, signed by who says so. In answer to a proposal of the other: these instead."""


class ContractSigned(_Carries, frozen=True, tag="contract_signed"):
    """What the other proposed, with both signatures."""


class ContractRevoked(_Carries, frozen=True, tag="contract_revoked"):
    """A contract that counts ends before its time."""


class _About(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """``contract``, ``version``: about which."""

    contract: ContractId
    version: Version


class ContractAgreed(_About, frozen=True, tag="contract_agreed"):
    """The provider has the consumer's signature, and is bound."""


class ContractVerified(_About, frozen=True, tag="contract_verified"):
    """The consumer has both signatures, and has checked them."""


class ContractFinalized(_About, frozen=True, tag="contract_finalized"):
    """The provider knows that. Both count it as signed."""


class ContractRevokedNoted(_About, frozen=True, tag="contract_revoked_noted"):
    """The other knows when it ends.

    Attributes:
        ends_us: then; later than was said where the notice wasn't kept, counted from when the other heard.
    """

    ends_us: Annotated[int, Meta(ge=0, le=1 << 62)] = 0


class ContractEnded(_About, frozen=True, tag="contract_ended"):
    """It came to nothing.

    Attributes:
        code: the reason, stable.
        text: the reason, to a person.
    """

    code: Annotated[str, Meta(max_length=64)]
    text: Annotated[str, Meta(max_length=256)] = ""


ContractMessage: TypeAlias = (
    ContractProposed
    | ContractSigned
    | ContractAgreed
    | ContractVerified
    | ContractFinalized
    | ContractEnded
    | ContractRevoked
    | ContractRevokedNoted
)
