"""``medusa contract propose`` and ``accept``: two parties sign the same terms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from medusa.cli.contracts.common import (
    PARTICIPANT,
    SIGNER,
    contract_of,
    keys_compared,
    now_us,
    other_party,
    public_key,
)
from medusa.cli.options.command_options import AS_JSON, FILE, OUT_FILE, example
from medusa.errors import ConfigError, ContractError
from medusa.units import duration_text, duration_us

if TYPE_CHECKING:
    from medusa.market.contract.signed import ContentDocument, ContractDocument

__all__ = ["accept", "propose"]

REPLACES = click.option("--replaces", type=FILE, help="the version before, which both have signed")
FEDERATION = click.option("--federation", required=True, help="where it counts")


@click.command(
    epilog=example(
        "medusa contract propose terms.toml --signer bigco.key --participant bigco \\",
        "    --federation netmon -o offer.contract",
    )
)
@click.argument("terms", type=FILE)
@SIGNER
@PARTICIPANT
@FEDERATION
@click.option("--open", "within", default="30d", show_default=True, help="it can be accepted for so long")
@click.option("--output", "-o", type=OUT_FILE, required=True, help="the file to write")
@REPLACES
@AS_JSON
def propose(
    terms: Path,
    signer: Path,
    participant: str,
    federation: str,
    within: str,
    output: Path,
    replaces: Path | None,
    as_json: bool,
) -> None:
    """Sign TERMS and write an offer for the other party.

    TERMS is TOML (about load), or a file of the Open Data Contract Standard (about rows) whose name ends in
    .yaml, .yml or .json.
    """
    from medusa.market.contract.signed import ContractDocument, sign_document
    from medusa.runtime.contracts.content import content_document
    from medusa.runtime.contracts.contract_files import read_text_file, write_signed
    from medusa.runtime.contracts.terms_document import read_terms
    from medusa.runtime.keys.key_files import read_participant_key

    at_us = now_us()
    until_us = at_us + duration_us(within, what="--open", minimum_us=1, error=ConfigError)
    text = read_text_file(terms, 1 << 20)
    document: ContractDocument | ContentDocument
    if terms.suffix.lower() in (".yaml", ".yml", ".json"):
        document = content_document(text, str(terms), federation=federation, until_us=until_us)
    else:
        found = read_terms(text, str(terms))
        document = ContractDocument(federation=federation, until_us=until_us, contract=found)
    _check_offer(document, at_us)
    _check_replaces(document, replaces)
    signed = sign_document(document, read_participant_key(signer), participant)
    write_signed(output, signed)
    other = next(each for each in document.parties if each != participant)
    if as_json:
        told = {"contract": document.id, "version": document.version, "file": str(output), "to": other}
        click.echo(json.dumps(told | {"until_us": until_us}))
        return
    click.echo(f"version {document.version} of contract {document.id} is signed by {participant}: {output}")
    click.echo(f"it counts once {other} has signed it too, within {duration_text(until_us - at_us)}")


@click.command(
    epilog=example(
        "medusa contract accept offer.contract --signer acme.key --participant acme \\",
        "    --federation netmon --partner-key bigco.pub",
    )
)
@click.argument("file", type=FILE)
@SIGNER
@PARTICIPANT
@FEDERATION
@click.option("--partner-key", required=True, metavar="FILE|KEY", help="public key of the other party")
@click.option("--output", "-o", type=OUT_FILE, help="the file to write  [default: FILE itself]")
@REPLACES
@AS_JSON
def accept(
    file: Path,
    signer: Path,
    participant: str,
    federation: str,
    partner_key: str,
    output: Path | None,
    replaces: Path | None,
    as_json: bool,
) -> None:
    """Check the offer in FILE and sign it: from then on it counts.

    Look at it before: medusa contract show FILE. Give the file back to the other party, who needs your
    signature.
    """
    from medusa.market.contract.signed import check_signatures, countersign, is_complete
    from medusa.runtime.contracts.contract_files import read_signed, replace_signed, write_signed
    from medusa.runtime.keys.key_files import read_participant_key, verifier

    at_us = now_us()
    signed, found = read_signed(file)
    document = contract_of(found)
    other = other_party(document, participant)
    key = read_participant_key(signer)
    theirs = public_key(partner_key)
    if theirs == key.key:
        raise ContractError(
            f"--signer and --partner-key are the same key, {key.key}: two parties have two",
            hint=f"--signer is the secret key of {participant!r}, --partner-key the public one of {other!r}",
            code="contract.key",
        )
    keys = keys_compared(
        signed, document, {other: ("--partner-key", theirs), participant: ("--signer", key.key)}
    )
    check_signatures(signed, document, verify=verifier(), keys=keys, federation=federation, needs=(other,))
    if not is_complete(signed, document):
        _check_offer(document, at_us)
        _check_replaces(document, replaces)
        signed = countersign(signed, key, participant)
    if output is not None:
        write_signed(output, signed)
    else:
        replace_signed(file, signed)
    path = output or file
    if as_json:
        click.echo(json.dumps({"contract": document.id, "version": document.version, "file": str(path)}))
        return
    click.echo(f"version {document.version} of contract {document.id} is signed by both: {path}")
    click.echo(f"{participant} signed with {key.key}")
    click.echo(f"give it to {other}, who needs your signature")


def _check_replaces(document: ContractDocument | ContentDocument, replaces: Path | None) -> None:
    """Whether this can take the place of the contract in a file, where one is named."""
    from medusa.market.contract.signed import is_complete
    from medusa.market.contract.standing import check_replaces
    from medusa.runtime.contracts.contract_files import read_signed

    if replaces is None:
        return
    signed, old = read_signed(replaces)
    check_replaces(document, contract_of(old))
    if not is_complete(signed, old):
        raise ContractError(
            f"{replaces} isn't signed by both, so there is nothing to replace",
            hint="leave --replaces out",
            code="contract.unsigned",
        )


def _check_offer(document: ContractDocument | ContentDocument, at_us: int) -> None:
    """Whether this can be accepted now.

    Raises:
        ContractError: what stands in it contradicts itself, it has ended, or nobody waits for an answer any
            more.
    """
    from medusa.market.contract.signed import ContentDocument
    from medusa.market.contract.standing import check_open
    from medusa.runtime.contracts.content import check_content

    if isinstance(document, ContentDocument):
        check_content(document)
    check_open(document, at_us)
