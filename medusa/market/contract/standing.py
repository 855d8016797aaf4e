"""Whether a contract counts now, from what was signed alone: who has signed, whose key it was, is it time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from medusa.errors import ContractError
from medusa.market.contract.checks import check_notice, check_successor
from medusa.market.contract.signed import (
    ContentDocument,
    ContractDocument,
    RevocationDocument,
    SignedDocument,
    check_signatures,
)
from medusa.ports import Verify
from medusa.units import duration_text

__all__ = [
    "ContractValidity",
    "PartyOfContract",
    "check_open",
    "check_replaces",
    "check_revokes",
    "standing_of",
]

SECOND_US = 1_000_000


class PartyOfContract(NamedTuple):
    """Of one party.

    Attributes:
        role: ``provider`` or ``consumer``.
        key: that signed; empty: nobody has.
        compared: it is the key that this party is known to have. Else anybody may have signed.
    """

    party: str
    role: str
    key: str
    compared: bool


class ContractValidity(NamedTuple):
    """Of a contract at one time; ``why``: what it lacks, or how long it counts yet."""

    parties: tuple[PartyOfContract, ...]
    counts: bool
    why: str


def standing_of(
    signed: SignedDocument,
    document: ContractDocument | ContentDocument,
    *,
    verify: Verify,
    keys: Mapping[str, str],
    now_us: int,
    revocation: RevocationDocument | None = None,
    later: Collection[ContractDocument | ContentDocument] = (),
) -> ContractValidity:
    """How a contract stands.

    Args:
        keys: party -> key of those that are known; one that isn't is compared with nothing.
        revocation: whose signature was checked, and that it is of this contract (``check_revokes``).
        later: versions that take its place once they begin (``check_replaces``), whose signatures were
            checked.

    Raises:
        ContractError: a signature is wrong, or made by another's key.
    """
    said = zip(document.parties, ("provider", "consumer"), (signed.provider, signed.consumer), strict=True)
    parties = tuple(
        PartyOfContract(party, role, made.key if made is not None else "", made is not None and party in keys)
        for party, role, made in said
    )
    believed = {each.party: each.key for each in parties} | dict(keys)
    check_signatures(signed, document, verify=verify, keys=believed, federation=document.federation, needs=())
    why = _lacks(parties) or _when(document, now_us, revocation, later)
    if why:
        return ContractValidity(parties, False, why)
    ends_us = min((document.ends_us, *(each.begins_us for each in later)))
    if revocation is not None:
        ends_us = min(ends_us, revocation.ends_us)
    return ContractValidity(parties, True, f"for {_length(ends_us - now_us)} more")


def _lacks(parties: tuple[PartyOfContract, ...]) -> str:
    for each in parties:
        if not each.key:
            return f"{each.party} hasn't signed"
    for each in parties:
        if not each.compared:
            return f"nobody has said that the key that signed for {each.party} is theirs"
    return ""


def _when(
    document: ContractDocument | ContentDocument,
    now_us: int,
    revocation: RevocationDocument | None,
    later: Collection[ContractDocument | ContentDocument],
) -> str:
    if now_us < document.begins_us:
        return f"it begins in {_length(document.begins_us - now_us)}"
    begun = [each for each in later if each.begins_us <= now_us]
    if begun:
        newest = max(begun, key=lambda each: each.version)
        if now_us < newest.ends_us:
            return f"version {newest.version} does, since {_length(now_us - newest.begins_us)}"
        ago = _length(now_us - newest.ends_us)
        return f"version {newest.version} took its place, and ended {ago} ago"
    if revocation is not None and now_us >= revocation.ends_us:
        return f"{revocation.by} has revoked it, {_length(now_us - revocation.ends_us)} ago"
    if now_us >= document.ends_us:
        return f"it ended {_length(now_us - document.ends_us)} ago"
    return ""


def check_revokes(
    revocation: RevocationDocument, document: ContractDocument | ContentDocument, notice_s: int
) -> None:
    """Whether a revocation is of this contract, with the notice that was agreed on.

    Raises:
        ContractError: it isn't.
    """
    same = ("federation", "id", "parties")
    wrong = next((each for each in same if getattr(revocation, each) != getattr(document, each)), "")
    if wrong or revocation.version < document.version:
        raise ContractError(
            f"{wrong or 'version'}: the revocation is of another contract than version {document.version} of"
            f" {document.id!r}",
            hint="one of a version is of all versions below it, too",
            code="contract.document",
        )
    check_notice(notice_s, revocation.said_us, revocation.ends_us)


def check_replaces(new: ContractDocument | ContentDocument, old: ContractDocument | ContentDocument) -> None:
    """Whether a document is a later version of another.

    Raises:
        ContractError: it is of another contract, its version isn't higher, or what has to stay has changed.
    """
    for field in ("federation", "id", "parties"):
        was, comes = getattr(old, field), getattr(new, field)
        if was != comes or type(new) is not type(old):
            raise ContractError(
                f"{field}: {comes!r}, and {was!r} in what it is to replace",
                hint="a later version has the same federation, name and parties, and is of the same kind",
                code="contract.version",
            )
    if isinstance(new, ContractDocument) and isinstance(old, ContractDocument):
        check_successor(old.contract, new.contract)
    elif new.version <= old.version:
        raise ContractError(
            f"version: {new.version} of contract {new.id!r}, and {old.version} is signed already",
            hint=f"write version {old.version + 1}: what is signed never changes",
            code="contract.version",
        )


def check_open(document: ContractDocument | ContentDocument, now_us: int) -> None:
    """Whether an offer can be accepted now.

    Raises:
        ContractError: the contract has ended, or its proposal was open until before now.
    """
    if now_us >= document.ends_us:
        raise ContractError(
            f"ends_us: contract {document.id!r} ended {_length(now_us - document.ends_us)} ago",
            hint="agree on a higher version with a later end",
            code="contract.ended",
        )
    if now_us > document.until_us:
        raise ContractError(
            f"until_us: the offer of contract {document.id!r} was open until"
            f" {_length(now_us - document.until_us)} ago",
            hint="ask for a new one",
            code="contract.late",
        )


def _length(us: int) -> str:
    """To the second."""
    return duration_text(us // SECOND_US * SECOND_US)
