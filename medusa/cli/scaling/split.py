"""``medusa split``, ``merge`` and ``scale``: boxes of deployed queries run as parts, and as one again; in how
many they should."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from medusa.cli.options.command_options import AS_JSON, with_client
from medusa.errors import LinkError

if TYPE_CHECKING:
    from medusa.runtime.client.federation import Federation

__all__ = ["merge", "scale", "split"]

_TIMEOUT = click.option(
    "--timeout", default="60s", show_default=True, help="attempts to move a part begin anew so long"
)


@click.command(
    epilog="\b\nExample:\n  medusa split netmon/per_src -n 3 --at a --at b --at c --node tcp://127.0.0.1:5555",
)
@click.argument("box")
@click.option("-n", "parts", required=True, type=click.IntRange(min=2), help="how many parts")
@click.option("--at", multiple=True, metavar="NODE", help="where a part goes: the first, the second, ...")
@click.option(
    "--ranges",
    default="even",
    show_default=True,
    metavar="even|weight|CUT,...",
    help="of the key's hash: as long as each other; such that parts share what the box holds; where they end",
)
@_TIMEOUT
@with_client
@AS_JSON
def split(
    box: str,
    parts: int,
    at: tuple[str, ...],
    ranges: str,
    timeout: str,
    fed: Federation,
    as_json: bool,
) -> None:
    """Run a box (QUERY/BOX) of a deployed query as parts, each over a range of its keys.

    The query runs on meanwhile, and gives the same rows. Without --at the parts stay where the box is; medusa
    move moves them later. Nodes that stand by for the box stand by for each part once that is seeded; until
    then nobody does.
    """
    _warn(fed, box)
    numbers = ranges.split(",")
    cuts = [int(each) for each in numbers] if all(each.strip().isdecimal() for each in numbers) else ranges
    found = fed.split(box, parts, at=list(at) or None, timeout=timeout, ranges=cuts)
    if as_json:
        click.echo(json.dumps({"split": box, **found}))
        return
    shares = found["shares"] or [None] * len(found["parts"])
    for (name, node), share in zip(found["parts"].items(), shares, strict=True):
        click.echo(f"{name} is at {node}" + ("" if share is None else f", {share:.1%} of what the box held"))
    click.echo(f"router and merge are at {found['node']}; {found['pause_us'] / 1000:.1f} ms pause")


@click.command(epilog="\b\nExample:\n  medusa merge netmon/per_src --node tcp://127.0.0.1:5555")
@click.argument("box")
@_TIMEOUT
@with_client
@AS_JSON
def merge(box: str, timeout: str, fed: Federation, as_json: bool) -> None:
    """Run a box (QUERY/BOX) that was split as one again, at the node that has its router."""
    _warn(fed, box)
    found = fed.merge(box, timeout=timeout)
    if as_json:
        click.echo(json.dumps({"merged": box, **found}))
        return
    where = f"in fragment {found['fragment']} at {found['node']}"
    click.echo(f"{box} is {where}; {found['pause_us'] / 1000:.1f} ms pause")


@click.command(epilog="\b\nExample:\n  medusa scale netmon --node tcp://127.0.0.1:5555")
@click.argument("query")
@with_client
@AS_JSON
def scale(query: str, fed: Federation, as_json: bool) -> None:
    """Say in how many parts each box of a deployed query should run by what it does now, and why.

    It changes nothing: medusa split and medusa merge do that, and the node that coordinates the query where
    its configuration has [scale]. Whether it does, and what it did last, the last line says. The box with
    most to do comes first.
    """
    found = fed.scale_plan(query)
    if as_json:
        click.echo(json.dumps({"query": query, "boxes": found}))
        return
    for each in found:
        now, wanted = each["parts"], each["wanted"]
        change = f"{now}" if wanted == now else f"{now}, better {wanted}"
        click.echo(f"{each['box']}  parts: {change}  ({each['why']})")
    if found:
        click.echo(f"by itself: {found[0]['scaling']}")


def _warn(fed: Federation, box: str) -> None:
    """Say before anything changes who won't stand by for a while, as far as nodes answer."""
    query, _, id = box.rpartition("/")
    try:
        boxes = fed.explain(query.rpartition("/")[2], all=True)
    except LinkError:
        return  # The order itself says what is wrong.
    others = {node: None for each in boxes if each["box"] == id for node in each.get("standby", {})}
    if others:
        text = f"{', '.join(others)} stand by for {box}; nobody does until what is made of it is seeded"
        click.echo(text, err=True)
