"""``medusa remote``: parts of queries that other nodes keep ready, to be run by name."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from medusa.cli.options.command_options import AS_JSON, FILE, NODE, with_client
from medusa.cli.options.key_options import key_options
from medusa.cli.options.query_file import read_placement, read_query

if TYPE_CHECKING:
    from medusa.runtime.client.federation import Federation

__all__ = ["remote"]


@click.group(
    epilog="\b\nExample:"
    "\n  medusa remote define fast q.json --at at.json --to core --node tcp://127.0.0.1:5555"
    "\n  medusa remote list --node tcp://127.0.0.1:5555"
    "\n  medusa remote revoke fast --node tcp://127.0.0.1:5555"
)
def remote() -> None:
    """Parts of queries that another node keeps ready: define, list, revoke."""


@remote.command(
    epilog="\b\nExample:"
    "\n  medusa remote define fast q.json --at at.json --to core --expires 30d --node tcp://127.0.0.1:5555"
)
@click.argument("name")
@click.argument("query", type=FILE)
@click.option("--at", type=FILE, required=True, help='JSON: {"node": ["box or source", ...]}')
@click.option("--to", required=True, metavar="NODE", help="the node that shall keep its part of the query")
@click.option("--expires", help="it counts for so long from now; left out, until it is revoked")
@NODE
@key_options
@AS_JSON
def define(
    name: str,
    query: Path,
    at: Path,
    to: str,
    expires: str | None,
    address: str,
    as_json: bool,
    **keys: Any,
) -> None:
    """Let another node keep its part of QUERY under NAME.

    From then on a deployment of that part at that node sends the name, not the spec. At a node of another
    participant that is the only way, within what its configuration offers ([offers]).
    """
    from medusa.runtime.client.client import connect

    asked, placement = read_query(query), read_placement(at)
    with connect(address, **keys) as fed:
        fed.define_remote(name, asked, placement, node=to, expires=expires)
    click.echo(json.dumps({"defined": name, "at": to}) if as_json else f"{to} keeps {name}")


@remote.command("list", epilog="\b\nExample:\n  medusa remote list --node tcp://127.0.0.1:5555")
@with_client
@AS_JSON
def listed(fed: Federation, as_json: bool) -> None:
    """What other nodes keep for this one, what it keeps for others, and what it offers."""
    found = fed.remote_definitions()
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, each in found["defined"].items():
        click.echo(f"{name}  kept at {each['node']}  {each['fragment']}{_end(each)}")
    for name, node in found["revoking"].items():
        click.echo(f"{name}  to be forgotten by {node}")
    for name, each in found["kept"].items():
        inputs = ", ".join(each["inputs"])
        click.echo(f"{name}  kept here for {each['for']}  {each['fragment']}  inputs: {inputs}{_end(each)}")
    for name, each in found["stopped"].items():
        click.echo(f"{name}  stopped here; {each['for']} {'knows' if each['told'] else 'is to be told'}")
    for name, each in found["offers"].items():
        boxes = ", ".join(each["boxes"]) or "nothing"
        reads = f"  may read {', '.join(each['streams'])}" if each["streams"] else ""
        more = "".join(
            f"  {key} {each[key]}" for key in each if key not in ("boxes", "streams", "definitions")
        )
        click.echo(f"{boxes}  offered to {name}  at most {each['definitions']:,} definitions{reads}{more}")


def _end(each: dict[str, Any]) -> str:
    if each["expires_us"] is None:
        return ""
    return f"  until {datetime.fromtimestamp(each['expires_us'] // 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


@remote.command(epilog="\b\nExample:\n  medusa remote revoke fast --node tcp://127.0.0.1:5555")
@click.argument("name")
@click.option("--stop", is_flag=True, help="at the node that keeps it: what runs by it ends now, too")
@with_client
@AS_JSON
def revoke(name: str, stop: bool, fed: Federation, as_json: bool) -> None:
    """Nobody shall begin to run NAME any more; what runs goes on until it is undeployed.

    NAME as it was defined at this node, or PARTICIPANT/NAME of one that this node keeps. With --stop what
    runs here by it ends too, and who coordinates its query is told; PARTICIPANT/QUERY stops all parts of a
    query.
    """
    fed.revoke(name, stop=stop)
    done = f"{name} is revoked" + (", and what ran by it here is stopped" if stop else "")
    click.echo(json.dumps({"revoked": name, "stopped": stop}) if as_json else done)
