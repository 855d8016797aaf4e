"""``medusa contract``: what two companies agree on, as files that both sign."""

from __future__ import annotations

import click

from medusa.cli.contracts.draft import draft
from medusa.cli.contracts.offers import accept, propose
from medusa.cli.contracts.revoke import revoke
from medusa.cli.contracts.show import show
from medusa.cli.contracts.statement import statement
from medusa.cli.options.command_options import example

__all__ = ["contract"]


@click.group(
    epilog=example(
        "medusa contract draft --provider acme --consumer bigco --price 0.02 -o terms.toml",
        "medusa contract propose terms.toml --signer bigco.key --participant bigco \\",
        "    --federation netmon -o offer.contract",
        "medusa contract accept offer.contract --signer acme.key --participant acme \\",
        "    --federation netmon --partner-key bigco.pub",
    )
)
def contract() -> None:
    """Contracts between two participants: who runs whose load, for how much.

    One writes the terms and signs them, the other signs the same file: then it counts. How the file gets from
    the one to the other is up to them. docs/contracts.md describes every field.
    """


for _each in (draft, propose, accept, show, revoke, statement):
    contract.add_command(_each)
