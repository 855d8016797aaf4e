"""``medusa contract revoke``: the end of a contract, signed by one party."""

from __future__ import annotations

import json
from pathlib import Path

import click

from medusa.cli.contracts.common import (
    PARTICIPANT,
    SIGNER,
    contract_of,
    keys_compared,
    moment,
    notice_s_of,
    now_us,
    other_party,
)
from medusa.cli.options.command_options import AS_JSON, FILE, OUT_FILE, example
from medusa.errors import ContractError

__all__ = ["revoke"]


@click.command(
    epilog=example(
        "medusa contract revoke offer.contract --signer acme.key --participant acme \\",
        "    --reason 'we move out' -o offer.revoked",
    )
)
@click.argument("file", type=FILE)
@SIGNER
@PARTICIPANT
@click.option("--reason", default="", help="to the other party")
@click.option("--output", "-o", type=OUT_FILE, required=True, help="the file to write")
@AS_JSON
def revoke(file: Path, signer: Path, participant: str, reason: str, output: Path, as_json: bool) -> None:
    """Sign that the contract in FILE ends, once its notice is over. Give the file to the other party.

    All versions of it up to this one end; tasks that run under it go home by then.
    """
    from medusa.market.contract.signed import RevocationDocument, check_signatures, is_complete, sign_document
    from medusa.market.contract.standing import check_revokes
    from medusa.runtime.contracts.contract_files import read_signed, write_signed
    from medusa.runtime.keys.key_files import read_participant_key, verifier

    at_us = now_us()
    signed, found = read_signed(file)
    document = contract_of(found)
    other_party(document, participant)
    if not is_complete(signed, document):
        raise ContractError(
            f"contract {document.id!r} isn't signed by both, so there is nothing to revoke",
            hint="an offer ends by itself",
            code="contract.unsigned",
        )
    key = read_participant_key(signer)
    own = keys_compared(signed, document, {participant: ("--signer", key.key)})
    said = {
        party: made.key
        for party, made in zip(document.parties, (signed.provider, signed.consumer), strict=True)
        if made
    }
    check_signatures(
        signed,
        document,
        verify=verifier(),
        keys=said | own,
        federation=document.federation,
    )
    notice_s = notice_s_of(document)
    ends_us = at_us + notice_s * 1_000_000
    if at_us >= document.ends_us or ends_us >= document.ends_us:
        raise ContractError(
            f"contract {document.id!r} ends by itself at {moment(document.ends_us)}, before its notice is"
            " over",
            hint="there is nothing to revoke",
            code="contract.ended",
        )
    revocation = RevocationDocument(
        federation=document.federation,
        id=document.id,
        version=document.version,
        provider=document.parties[0],
        consumer=document.parties[1],
        by=participant,
        said_us=at_us,
        ends_us=ends_us,
        reason=reason,
    )
    check_revokes(revocation, document, notice_s)
    write_signed(output, sign_document(revocation, key, participant))
    if as_json:
        told = {"revoked": document.id, "version": document.version, "file": str(output), "ends_us": ends_us}
        click.echo(json.dumps(told))
        return
    click.echo(f"contract {document.id} ends at {moment(ends_us)}: {output}")
    click.echo(f"give it to {other_party(document, participant)}")
