"""``medusa draw`` and ``medusa dashboard``: a federation as a picture, and as a page that lives."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import click

from medusa.cli.options.command_options import OUT_FILE
from medusa.cli.signals import sigterm_interrupts
from medusa.errors import LinkError, StateError

__all__ = ["dashboard", "draw"]

_NODES = click.option(
    "--node",
    "addresses",
    required=True,
    multiple=True,
    metavar="ADDRESS",
    help="tcp://HOST:PORT or ipc://PATH; as often as there are nodes",
)
DRAW_EXAMPLE = """\b
Example:
  medusa draw --node tcp://127.0.0.1:5555 --node tcp://127.0.0.1:5557 -o federation.svg"""
_KEY = click.option(
    "--key",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="our secret key, for nodes with keys; medusa keygen client makes it",
)
_SERVER_KEYS = click.option(
    "--server-key",
    "server_keys",
    multiple=True,
    metavar="FILE|KEY",
    help="the public key of a node, or its .pub file; for each --node, in their order",
)
DASHBOARD_EXAMPLE = """\b
Example:
  medusa dashboard --node tcp://127.0.0.1:5555 --node tcp://127.0.0.1:5557"""


@click.command(epilog=DRAW_EXAMPLE)
@_NODES
@_KEY
@_SERVER_KEYS
@click.option("--output", "-o", type=OUT_FILE, help="a file; without it: standard output")
def draw(
    addresses: tuple[str, ...], key: str | None, server_keys: tuple[str, ...], output: Path | None
) -> None:
    """Draw a federation as SVG: owners, nodes, fragments, boxes, streams with rates, cut links.

    A node that doesn't answer is drawn as such. Exit code 1: none answers.
    """
    from medusa.apps.dashboard.picture import picture
    from medusa.apps.dashboard.watching import TIMEOUT_S, ask_all, connector

    seen = ask_all(addresses, connector(TIMEOUT_S, key, _by_address(addresses, server_keys)))
    if all(each.why for each in seen):
        raise LinkError(seen[0].why, hint=seen[0].hint or "no node answers", code="link.refused")
    drawn = picture(seen)
    if output is None:
        click.echo(drawn, nl=False)
        return
    try:
        output.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise StateError(
            f"{output} can't be written: {error.strerror or error}", code="state.file"
        ) from error
    click.echo(str(output))


@click.command(epilog=DASHBOARD_EXAMPLE)
@_NODES
@_KEY
@_SERVER_KEYS
@click.option(
    "--listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="port 0: any"
)
@click.option("--token", is_flag=True, help="ask for a token also where only this machine reaches it")
@click.option("--name", "names", multiple=True, metavar="HOST", help="a further host name of this server")
@click.option("--json", "as_json", is_flag=True, help="say as JSON where it is, for scripts")
def dashboard(
    addresses: tuple[str, ...],
    key: str | None,
    server_keys: tuple[str, ...],
    listen: str,
    token: bool,
    names: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show a federation as a web page that is always up to date; Ctrl-C ends it.

    The page draws nodes, queries and streams, says how busy each box is and what it waits for, and shows
    nodes that don't answer and links that are cut. Where other machines reach it, the URL has a token.
    """
    from medusa.apps.dashboard.server import serve
    from medusa.apps.dashboard.watching import TIMEOUT_S, Watcher, connector

    def say(url: str) -> None:
        click.echo(json.dumps({"url": url}) if as_json else f"the dashboard is at {url}")

    watcher = Watcher(addresses, connector(TIMEOUT_S, key, _by_address(addresses, server_keys)))
    with sigterm_interrupts(), contextlib.suppress(KeyboardInterrupt):
        serve(watcher, listen=listen, token=token, names=names, say=say)


def _by_address(addresses: tuple[str, ...], server_keys: tuple[str, ...]) -> dict[str, str]:
    if server_keys and len(server_keys) != len(addresses):
        raise click.UsageError(f"{len(addresses)} times --node, but {len(server_keys)} times --server-key")
    return dict(zip(addresses, server_keys, strict=False))
