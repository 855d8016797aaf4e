"""``medusa contract statement``: who owes whom, and why, from receipts that both have signed."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from medusa.cli.contracts.common import contract_of, public_key
from medusa.cli.options.command_options import AS_JSON, FILE, OUT_FILE, example
from medusa.errors import ContractError

if TYPE_CHECKING:
    from medusa.market.contract.signed import ContractDocument
    from medusa.market.ledger.statement import LoadStatement

__all__ = ["statement"]


@click.command(
    epilog=example(
        "medusa contract statement offer.contract --receipts november.receipts \\",
        "    --provider-key acme.pub --consumer-key bigco.pub --parquet november.parquet",
    )
)
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option(
    "--receipts", multiple=True, required=True, type=FILE, help="receipts of it; may be given several times"
)
@click.option("--provider-key", required=True, metavar="FILE|KEY", help="its public key")
@click.option("--consumer-key", required=True, metavar="FILE|KEY", help="its public key")
@click.option("--parquet", type=OUT_FILE, help="write a row for each task and receipt")
@AS_JSON
def statement(
    files: tuple[Path, ...],
    receipts: tuple[Path, ...],
    provider_key: str,
    consumer_key: str,
    parquet: Path | None,
    as_json: bool,
) -> None:
    """Who owes whom by a contract, from receipts.

    FILES are the contract, one for each version of it that counted. Nothing counts but what both have signed.
    Receipts that are missing, come twice or contradict each other are named. Both parties get the same from
    the same receipts.
    """
    from medusa.market.ledger.statement import load_statement
    from medusa.runtime.contracts.receipt_files import read_receipts
    from medusa.runtime.keys.key_files import verifier

    keys = (public_key(provider_key), public_key(consumer_key))
    documents = sorted((_signed_contract(file, keys) for file in files), key=lambda each: each.version)
    first, found = documents[0], read_receipts(receipts)
    for document in documents[1:]:
        if any(getattr(document, each) != getattr(first, each) for each in ("federation", "id", "parties")):
            raise ContractError(
                f"{document.id!r} of federation {document.federation!r} is another contract than"
                f" {first.id!r} of {first.federation!r}",
                hint="a statement is of all versions of one contract",
                code="contract.document",
            )
    made = load_statement(
        found.receipts,
        [each.contract for each in documents],
        federation=first.federation,
        keys=dict(zip(first.parties, keys, strict=True)),
        verify=verifier(),
        settlements=found.settlements,
    )
    if parquet is not None:
        _write_table(parquet, made)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(made).decode())
        return
    _say(made)
    if parquet is not None:
        click.echo(f"{len(made.lines):,} lines are in {parquet}")


def _signed_contract(file: Path, keys: tuple[str, str]) -> ContractDocument:
    """A contract about load that both have signed."""
    from medusa.market.contract.signed import ContractDocument, check_signatures
    from medusa.runtime.contracts.contract_files import read_signed
    from medusa.runtime.keys.key_files import verifier

    signed, found = read_signed(file)
    document = contract_of(found)
    if not isinstance(document, ContractDocument):
        raise ContractError(f"{file} is a contract about rows: it has no receipts", code="contract.document")
    known = dict(zip(document.parties, keys, strict=True))
    check_signatures(signed, document, verify=verifier(), keys=known, federation=document.federation)
    return document


def _write_table(path: Path, made: LoadStatement) -> None:
    import pyarrow.parquet as pq

    from medusa.market.ledger.statement_table import statement_table

    try:
        pq.write_table(statement_table([made]), path)
    except OSError as error:
        raise ContractError(f"{path} can't be written: {error}", code="contract.file") from None


def _say(made: LoadStatement) -> None:
    from medusa.market.money import money_text
    from medusa.runtime.contracts.terms_fields import toml_text

    def money(micro: int) -> str:
        return money_text(micro, made.currency).rjust(16)

    click.echo(made.summary())
    if made.receipts:
        click.echo(
            f"receipts  {made.first_number:,} to {made.last_number:,}, {made.receipts:,} of them count"
        )
    click.echo(f"done      {money(made.amount_micro + made.breaches_micro)}")
    if made.breaches_micro:
        click.echo(f"breaches  {money(-made.breaches_micro)}")
    click.echo(f"settled   {money(-made.settled_micro)}")
    click.echo(f"open      {money(made.owed_micro)}")
    for day, micro in made.by_day.items():
        click.echo(f"  {date(1970, 1, 1) + timedelta(days=day)}  {money(micro)}")
    for task, micro in made.by_task.items():
        click.echo(f"  {money(micro)}  {toml_text(task)}")
    for fault in made.faults:
        where = f"{fault.of} {fault.number}" if fault.number >= 0 else f"a {fault.of}"
        click.echo(f"{fault.kind}: {where}: {fault.text}")
