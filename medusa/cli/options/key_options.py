"""The options of every command that calls a node or a gateway: with which keys it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["key_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

_KEY = click.option(
    "--key",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="our secret key, for a node or gateway with keys; medusa keygen client makes it",
)
_SERVER_KEY = click.option("--server-key", metavar="FILE|KEY", help="its public key, or its .pub file")


def key_options(command: Command) -> Command:
    """``--key`` and ``--server-key``; only a file for the first, since command lines are seen by all."""
    made: Command = _KEY(_SERVER_KEY(command))
    return made
