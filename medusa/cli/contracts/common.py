"""What the commands about contracts share: options, keys, parties."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from medusa.cli.options.command_options import OUT_FILE
from medusa.errors import ContractError

if TYPE_CHECKING:
    from medusa.market.contract.signed import (
        ContentDocument,
        ContractDocument,
        ContractPaper,
        SignedDocument,
    )

__all__ = [
    "PARTICIPANT",
    "SIGNER",
    "contract_of",
    "keys_compared",
    "moment",
    "notice_s_of",
    "now_us",
    "other_party",
    "public_key",
]

SIGNER = click.option(
    "--signer", type=OUT_FILE, required=True, help="your secret key; medusa keygen makes it"
)
PARTICIPANT = click.option("--participant", required=True, help="what you are called in the contract")


def contract_of(document: ContractPaper) -> ContractDocument | ContentDocument:
    from medusa.market.contract.signed import RevocationDocument

    if isinstance(document, RevocationDocument):
        raise ContractError(
            f"this is the revocation of contract {document.id!r}, expected the contract",
            code="contract.document",
        )
    return document


def notice_s_of(document: ContractDocument | ContentDocument) -> int:
    """How long before its end a revocation is said."""
    from medusa.market.contract.signed import ContractDocument
    from medusa.runtime.contracts.content import check_content

    if isinstance(document, ContractDocument):
        return document.contract.notice_s
    return check_content(document).notice_s


def other_party(document: ContractPaper, participant: str) -> str:
    """The party that isn't ``participant``.

    Raises:
        ContractError: ``participant`` is neither.
    """
    provider, consumer = document.parties
    if participant not in (provider, consumer):
        raise ContractError(
            f"--participant is {participant!r}: contract {document.id!r} is between {provider!r} and"
            f" {consumer!r}",
            code="contract.party",
        )
    return consumer if participant == provider else provider


def public_key(given: str) -> str:
    """The public key of a participant: as text, or in a file."""
    from medusa.runtime.keys.key_files import read_public
    from medusa.wire.statement import is_signing_key

    return given if is_signing_key(given) else read_public(given, "participant")


def keys_compared(
    signed: SignedDocument, document: ContractPaper, given: Mapping[str, tuple[str, str]]
) -> dict[str, str]:
    """Keys by party, each that with which it signed, where it has.

    Args:
        given: party -> the option that says its key, and the key.

    Raises:
        ContractError: another key signed for a party; names the option.
    """
    made = dict(zip(document.parties, (signed.provider, signed.consumer), strict=True))
    for party, (option, key) in given.items():
        signature = made.get(party)
        if signature is None or signature.key == key:
            continue
        owner = next((each for each, other in made.items() if other is not None and other.key == key), None)
        if owner is not None:
            hint = f"with that one {owner!r} has signed: {option} is the key of {party!r}"
        else:
            hint = (
                f"ask {party!r}, not over the same way, which key is theirs; if that one, another has signed"
            )
        raise ContractError(
            f"contract {document.id!r} is signed for {party!r} by {signature.key}, {option} is {key}",
            hint=hint,
            code="contract.key",
        )
    return {party: key for party, (_, key) in given.items()}


def moment(us: int) -> str:
    from medusa.runtime.contracts.terms_fields import time_text

    return time_text(us // 1_000_000 * 1_000_000)


def now_us() -> int:
    return time.time_ns() // 1_000
