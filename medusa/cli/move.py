"""``medusa move`` and ``medusa grant``: fragments that run go to other nodes."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from medusa.cli.options.command_options import AS_JSON, with_client
from medusa.errors import LinkError

if TYPE_CHECKING:
    from medusa.runtime.client.federation import Federation

__all__ = ["grant", "move"]

LOOK_EVERY_S = 0.5


@click.command(
    epilog="\b\nExample:\n  medusa move netmon/alerts --to b --node tcp://127.0.0.1:5555",
)
@click.argument("fragment")
@click.option("--to", required=True, metavar="NODE", help="the node that shall have it")
@click.option("--timeout", default="60s", show_default=True, help="attempts that break begin anew so long")
@with_client
@AS_JSON
def move(fragment: str, to: str, timeout: str, fed: Federation, as_json: bool) -> None:
    """Move a fragment (query/first-box) to another node while it runs.

    Nothing is lost and nothing comes twice; who reads and who publishes goes on there. Any node of the
    participant takes the order. What others stand by for goes to one of these (docs/standby.md).
    """
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(fed, fragment, over), daemon=True)
    if not as_json:
        teller.start()
    try:
        found = fed.move(fragment, to=to, timeout=timeout)
    finally:
        over.set()
    if as_json:
        click.echo(json.dumps({"moved": fragment, **found}))
        return
    again = "" if found["attempts"] < 2 else f", {found['attempts']} attempts"
    click.echo(
        f"{fragment} is at {found['node']}: {found['bytes']:,} bytes sent, "
        f"{found['pause_us'] / 1000:.1f} ms pause{again}"
    )


def _tell(fed: Federation, fragment: str, over: threading.Event) -> None:
    """Say how far it is, where the node that we are connected to has it: what was said already only once."""
    said: object = None
    short = "/".join(fragment.split("/")[-2:])  # Without the participant.
    while not over.wait(LOOK_EVERY_S):
        try:
            found = fed.status()["moves"]["going"].get(short)
        except (LinkError, KeyError):
            return
        if found is None:
            continue
        # While it waits for somebody, attempts begin and end again and again.
        now = found.get("silent") or (found["state"], found["bytes"])
        if now != said:
            said = now
            click.echo(progress(fragment, found), err=True)


def progress(fragment: str, found: Mapping[str, Any]) -> str:
    """One line about a fragment on its way."""
    waits = f"; {found['waits_for']}" if found.get("waits_for") else ""
    return f"{fragment} to {found['to']}: {found['state']}, {found['bytes']:,} bytes{waits}"


@click.command(
    epilog="\b\nExample:\n  medusa grant netmon/alerts --to a --node tcp://127.0.0.1:5555",
)
@click.argument("fragment")
@click.option("--to", required=True, metavar="NODE", help="the node that handed it over and waits")
@with_client
@AS_JSON
def grant(fragment: str, to: str, fed: Federation, as_json: bool) -> None:
    """A fragment was handed over to a node that is lost for good: let the one that had it go on.

    If that node comes back after all, and had taken the fragment, both run it.
    """
    fed.grant(fragment, to=to)
    click.echo(json.dumps({"granted": fragment, "to": to}) if as_json else f"{fragment} goes on at {to}")
