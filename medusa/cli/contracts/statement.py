"""``medusa contract statement``: who owes whom, and why, from receipts that both have signed."""

from __future__ import annotations

import shlex
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from medusa.cli.contracts.common import contract_of, keys_compared, now_us, public_key
from medusa.cli.options.command_options import AS_JSON, FILE, FOLDER, OUT_FILE, example
from medusa.errors import ContractError

if TYPE_CHECKING:
    from medusa.market.contract.signed import ContentDocument, ContractDocument
    from medusa.market.contract.terms import Contract
    from medusa.market.ledger.statement import LoadStatement

__all__ = ["statement"]


@click.command(
    epilog=example(
        "medusa contract statement offer.contract --receipts november.receipts \\",
        "    --provider-key acme.pub --consumer-key bigco.pub --parquet november.parquet",
        "medusa contract statement --example sample",
    )
)
@click.argument("files", nargs=-1, type=FILE)
@click.option("--receipts", multiple=True, type=FILE, help="receipts of it; may be given several times")
@click.option("--provider-key", metavar="FILE|KEY", help="its public key")
@click.option("--consumer-key", metavar="FILE|KEY", help="its public key")
@click.option(
    "--example",
    "sample",
    type=FOLDER,
    help="write a contract with receipts there, to try this on, and nothing else",
)
@click.option("--parquet", type=OUT_FILE, help="write a row for each task and receipt")
@AS_JSON
def statement(
    files: tuple[Path, ...],
    receipts: tuple[Path, ...],
    provider_key: str | None,
    consumer_key: str | None,
    sample: Path | None,
    parquet: Path | None,
    as_json: bool,
) -> None:
    """Who owes whom by a contract, from receipts.

    FILES are the contract, one for each version of it that counted. Nothing counts but what both have signed.
    Receipts that are missing, come twice or contradict each other are named. Both parties get the same from
    the same receipts. Where something is wrong with them the exit code is 1.
    """
    if sample is not None:
        if files or receipts or provider_key or consumer_key or parquet:
            raise click.UsageError("--example stands alone: it writes what the others name")
        _write_example(sample, as_json)
        return
    if provider_key is None or consumer_key is None or not files or not receipts:
        needed = [
            ("FILES, the contract", files),
            ("--receipts", receipts),
            ("--provider-key", provider_key),
            ("--consumer-key", consumer_key),
        ]
        missing = ", ".join(name for name, value in needed if not value)
        raise click.UsageError(f"missing: {missing}. To try it: medusa contract statement --example sample")
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
        [_billed(each) for each in documents],
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
    else:
        _say(made)
        if parquet is not None:
            click.echo(f"{len(made.lines):,} lines are in {parquet}")
    if made.faults:
        sys.exit(1)


def _write_example(folder: Path, as_json: bool) -> None:
    import json

    from medusa.runtime.contracts.example_receipts import write_example

    made = write_example(folder, now_us())
    if as_json:
        told = {
            name: str(value) if isinstance(value, Path) else value for name, value in made._asdict().items()
        }
        click.echo(json.dumps(told))
        return
    click.echo(
        f"a contract, its keys, and {made.documents} receipts and settlements are in {folder}. Who owes whom:"
    )
    words = ["medusa", "contract", "statement", str(made.contract), "--receipts", str(made.receipts)]
    keys = ["--provider-key", str(made.provider_key), "--consumer-key", str(made.consumer_key)]
    click.echo(f"  {shlex.join(words)} \\\n    {shlex.join(keys)}")


def _signed_contract(file: Path, keys: tuple[str, str]) -> ContractDocument | ContentDocument:
    """A contract that both have signed."""
    from medusa.market.contract.signed import check_signatures
    from medusa.runtime.contracts.contract_files import read_signed
    from medusa.runtime.keys.key_files import verifier

    signed, found = read_signed(file)
    document = contract_of(found)
    options = zip(("--provider-key", "--consumer-key"), keys, strict=True)
    known = keys_compared(signed, document, dict(zip(document.parties, options, strict=True)))
    check_signatures(signed, document, verify=verifier(), keys=known, federation=document.federation)
    return document


def _billed(document: ContractDocument | ContentDocument) -> Contract:
    """The terms by which its receipts are read."""
    from medusa.market.contract.signed import ContractDocument
    from medusa.nodes.market.content_terms import billing_contract
    from medusa.runtime.contracts.content import check_content

    if isinstance(document, ContractDocument):
        return document.contract
    return billing_contract(check_content(document))


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
    if made.faults:
        click.echo(f"faults    {len(made.faults)}: what is owed may change once they are cleared up")
    for fault in made.faults:
        where = f"{fault.of} {fault.number}" if fault.number >= 0 else f"a {fault.of}"
        click.echo(f"{fault.kind}: {where}: {fault.text}")
