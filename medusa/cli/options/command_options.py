"""Options of most commands, examples in their help, and the client of those that ask a node."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from medusa.cli.options.key_options import key_options

__all__ = ["AS_JSON", "FILE", "FOLDER", "NODE", "NODE_WHERE_IT_RUNS", "OUT_FILE", "example", "with_client"]


def _addresses(context: click.Context, option: click.Parameter, given: str | None) -> str | list[str] | None:
    """One address, or a list of those with commas between; None: none was given."""
    if given is None:
        return None
    several = re.split(r",(?=tcp://|ipc://)", given)
    return several if len(several) > 1 else given


NODE, NODE_WHERE_IT_RUNS = (
    click.option(
        "--node",
        "address",
        required=required,
        metavar="ADDRESS[,...]",
        callback=_addresses,
        help=f"tcp://HOST:PORT or ipc://PATH{where}; of several nodes the first that answers",
    )
    for required, where in ((True, ""), (False, ", where it runs"))
)
"""The second may be left out."""
AS_JSON = click.option("--json", "as_json", is_flag=True, help="one JSON document, for scripts")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(path_type=Path)
OUT_FILE = click.Path(dir_okay=False, path_type=Path)


def example(*lines: str) -> str:
    """An epilogue that click doesn't wrap."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def with_client(command: Callable[..., None]) -> Callable[..., None]:
    """``--node``, ``--key`` and ``--server-key``; the command gets the client of that node as ``fed``."""

    @functools.wraps(command)
    def run(*, address: str | list[str], key: str | None, server_key: str | None, **given: Any) -> None:
        from medusa.runtime.client.client import connect

        with connect(address, key=key, server_key=server_key) as fed:
            command(fed=fed, **given)

    return NODE(key_options(run))
