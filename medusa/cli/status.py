"""``medusa status``: what nodes run, and how they do."""

from __future__ import annotations

import json
from typing import Any

import click

from medusa.cli.options.command_options import NODE
from medusa.cli.options.key_options import key_options

__all__ = ["all_option", "status"]

EXAMPLE = """\b
Example:
  medusa status --node tcp://127.0.0.1:5555
  medusa status --node tcp://127.0.0.1:5555 --all --json"""

all_option = click.option(
    "--all", "all_nodes", is_flag=True, help="of every node of its participant that answers"
)


@click.command(epilog=EXAMPLE)
@NODE
@key_options
@all_option
@click.option("--json", "as_json", is_flag=True, help="one JSON document, for scripts")
def status(address: str | list[str], all_nodes: bool, as_json: bool, **keys: Any) -> None:
    """What a node runs, how much it has to do, what waits in it, what it lost or counted.

    Without --json: load, fragments, links, who reads which stream, what was refused, why a disk fails. With
    it: all that the node says, of several nodes as {"nodes": [...]}. docs/nodes.md says what each field is.
    """
    from medusa.runtime.client.client import connect

    with connect(address, **keys) as fed:
        found = fed.statuses(all=all_nodes)
    if as_json:
        click.echo(json.dumps({"nodes": found} if all_nodes else found[0], default=str))
        return
    from rich.console import Console

    from medusa.cli.screens.status_screen import screen

    terminal = Console(highlight=False)
    # Into a file or a pipe nothing is cut off.
    console = terminal if terminal.is_terminal else Console(highlight=False, width=200)
    console.print(screen(found))
