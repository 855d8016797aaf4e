"""``medusa contract show``: what a file says, who has signed it, and whether it counts now."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from medusa.cli.contracts.common import contract_of, keys_compared, moment, notice_s_of, now_us, public_key
from medusa.cli.options.command_options import AS_JSON, FILE, example
from medusa.errors import ContractError, MedusaError

if TYPE_CHECKING:
    from medusa.market.contract.signed import (
        ContentDocument,
        ContractDocument,
        RevocationDocument,
        SignedDocument,
    )

__all__ = ["show"]


@click.command(
    epilog=example(
        "medusa contract show offer.contract",
        "medusa contract show offer.contract --provider-key acme.pub --consumer-key bigco.pub --json",
    )
)
@click.argument("file", type=FILE)
@click.option("--provider-key", metavar="FILE|KEY", help="its public key, which you have from itself")
@click.option("--consumer-key", metavar="FILE|KEY", help="its public key, which you have from itself")
@click.option("--revoked", type=FILE, help="a revocation of it, if there is one")
@click.option(
    "--newer",
    multiple=True,
    type=FILE,
    help="a later version of it, if there is one; those that lie beside FILE are found",
)
@AS_JSON
def show(
    file: Path,
    provider_key: str | None,
    consumer_key: str | None,
    revoked: Path | None,
    newer: tuple[Path, ...],
    as_json: bool,
) -> None:
    """What FILE says, who has signed it, and whether it counts now.

    A signature says only that a key made it: whose key that is, is compared with --provider-key and
    --consumer-key. A wrong signature ends with exit code 1. A version counts no more once a later one begins
    that both have signed: it is looked for beside FILE, in files whose names end alike.
    """
    from medusa.market.contract.signed import RevocationDocument
    from medusa.market.contract.standing import standing_of
    from medusa.runtime.contracts.contract_files import read_signed
    from medusa.runtime.contracts.terms_fields import toml_text
    from medusa.runtime.keys.key_files import verifier

    signed, document = read_signed(file)
    options = ("--provider-key", provider_key), ("--consumer-key", consumer_key)
    given = {
        party: (option, public_key(key))
        for party, (option, key) in zip(document.parties, options, strict=True)
        if key is not None
    }
    keys = keys_compared(signed, document, given)
    if isinstance(document, RevocationDocument):
        _show_revocation(signed, document, keys, as_json)
        return
    revocation = _revocation_of(revoked, document, keys) if revoked is not None else None
    at_us = now_us()
    found = standing_of(
        signed,
        document,
        verify=verifier(),
        keys=keys,
        now_us=at_us,
        revocation=revocation,
        later=_later(file, document, keys, newer),
    )
    text = _text_of(document)
    if as_json:
        told = {
            "contract": document.id,
            "version": document.version,
            "federation": document.federation,
            "begins_us": document.begins_us,
            "ends_us": document.ends_us,
            "open_until_us": document.until_us,
            "signed": {
                each.role: {"party": each.party, "key": each.key or None, "compared": each.compared}
                for each in found.parties
            },
            "counts": found.counts,
            "why": found.why,
            "revoked": None if revocation is None else _about(revocation),
            "terms": text,
        }
        click.echo(json.dumps(told))
        return
    click.echo(text)
    click.echo(f"federation  {document.federation}")
    for each in found.parties:
        compared = "" if each.compared else "  (whose key that is was not compared)"
        click.echo(
            f"{each.role}    {each.party}: "
            + (f"signed by {each.key}{compared}" if each.key else "not signed")
        )
    if not all(each.key for each in found.parties):
        click.echo(f"offer       open until {moment(document.until_us)}")
    if revocation is not None:
        said = f": {toml_text(revocation.reason)}" if revocation.reason else ""
        click.echo(f"revoked     by {revocation.by}, from {moment(revocation.ends_us)} on{said}")
    click.echo(f"counts now  {'yes' if found.counts else 'no'}: {found.why}")


def _later(
    file: Path, document: ContractDocument | ContentDocument, keys: dict[str, str], newer: tuple[Path, ...]
) -> list[ContractDocument | ContentDocument]:
    """Later versions that both have signed: those that are named, and what lies beside it.

    Raises:
        ContractError: one that is named is none.
    """
    found = [_later_version(each, document, keys) for each in newer]
    beside = sorted(file.parent.glob(f"*{file.suffix}")) if file.suffix and len(keys) == 2 else []
    for each in beside:
        if each.is_file() and each not in (file, *newer):
            with contextlib.suppress(MedusaError):
                found.append(_later_version(each, document, keys))
    return found


def _later_version(
    path: Path, document: ContractDocument | ContentDocument, keys: dict[str, str]
) -> ContractDocument | ContentDocument:
    from medusa.market.contract.signed import check_signatures
    from medusa.market.contract.standing import check_replaces
    from medusa.runtime.contracts.contract_files import read_signed
    from medusa.runtime.keys.key_files import verifier

    signed, found = read_signed(path)
    newer = contract_of(found)
    check_replaces(newer, document)
    check_signatures(signed, newer, verify=verifier(), keys=keys, federation=document.federation)
    return newer


def _about(revocation: RevocationDocument) -> dict[str, str | int]:
    return {"by": revocation.by, "ends_us": revocation.ends_us, "reason": revocation.reason}


def _text_of(document: ContractDocument | ContentDocument) -> str:
    """The terms as they were written down: TOML, or YAML."""
    from medusa.market.contract.signed import ContractDocument
    from medusa.query.odcs.document import yaml_of
    from medusa.runtime.contracts.content import check_content
    from medusa.runtime.contracts.terms_document import terms_text

    if isinstance(document, ContractDocument):
        return terms_text(document.contract)
    check_content(document)
    return yaml_of(json.loads(document.content))


def _show_revocation(
    signed: SignedDocument, document: RevocationDocument, keys: dict[str, str], as_json: bool
) -> None:
    from medusa.runtime.contracts.terms_fields import toml_text

    made = signed.provider if document.by == document.provider else signed.consumer
    key = made.key if made is not None else ""
    compared = document.by in keys
    _check_revocation(signed, document, keys or {document.by: key})
    if as_json:
        told = {"revoked": document.id, "version": document.version, "federation": document.federation}
        told |= {"by": document.by, "key": key, "compared": compared}
        click.echo(json.dumps(told | {"ends_us": document.ends_us, "reason": document.reason}))
        return
    click.echo(f"{document.by} revokes contract {document.id}, all versions up to {document.version}")
    click.echo(f"from        {moment(document.ends_us)} on")
    click.echo(f"reason      {toml_text(document.reason) if document.reason else 'none said'}")
    click.echo(f"signed by   {key}" + ("" if compared else "  (whose key that is was not compared)"))


def _check_revocation(signed: SignedDocument, document: RevocationDocument, keys: dict[str, str]) -> None:
    from medusa.market.contract.signed import check_signatures
    from medusa.runtime.keys.key_files import verifier

    check_signatures(signed, document, verify=verifier(), keys=keys, federation=document.federation)


def _revocation_of(
    file: Path, document: ContractDocument | ContentDocument, keys: dict[str, str]
) -> RevocationDocument:
    from medusa.market.contract.signed import RevocationDocument
    from medusa.market.contract.standing import check_revokes
    from medusa.runtime.contracts.contract_files import read_signed

    signed, found = read_signed(file)
    if not isinstance(found, RevocationDocument):
        raise ContractError(
            f"{file} is no revocation", hint="medusa contract revoke", code="contract.document"
        )
    _check_revocation(signed, found, keys)
    check_revokes(found, document, notice_s_of(document))
    return found
