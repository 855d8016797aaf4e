"""``medusa explain``: what a query does, and what its boxes wait for where it runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import UnsetType

from medusa.cli.options.command_options import FILE, NODE_WHERE_IT_RUNS
from medusa.cli.options.key_options import key_options
from medusa.cli.options.query_file import read_query
from medusa.cli.screens.terminal_text import plain
from medusa.cli.status import all_option
from medusa.decoders import converter
from medusa.errors import LinkError
from medusa.query.suggest import did_you_mean
from medusa.runtime.client.status.bounded_streams import STABLE, unstable_text
from medusa.units import duration_text
from medusa.wire.status_and_metrics import ConsistencyStatus, status_of

__all__ = ["explain"]

_CONSISTENCY = converter(ConsistencyStatus)

EXAMPLES = """\b
Example:
  medusa explain netmon.json
  medusa explain netmon.json --svg > netmon.svg
  medusa explain netmon --node tcp://127.0.0.1:5557 --all
  medusa explain heavy --node tcp://127.0.0.1:5557
  medusa explain market/ --node tcp://127.0.0.1:5557 --dry-run"""

MARKET = "market/"


@click.command(epilog=EXAMPLES)
@click.argument("query", metavar="QUERY|BOX|market/[TASK|PARTNER]")
@NODE_WHERE_IT_RUNS
@key_options
@all_option
@click.option("--svg", "form", flag_value="svg", help="draw it, as SVG; of a file")
@click.option("--mermaid", "form", flag_value="mermaid", help="draw it, as Mermaid text; of a file")
@click.option("--json", "as_json", is_flag=True, help="one JSON document, for scripts; with --node")
@click.option("--dry-run", is_flag=True, help="of market/: what would be offered now, and why nothing else")
@click.pass_context
def explain(
    context: click.Context,
    /,
    query: str,
    address: str | list[str] | None,
    all_nodes: bool,
    form: str | None,
    as_json: bool,
    dry_run: bool,
    **keys: Any,
) -> None:
    """Say what a query does box by box, what the boxes of a running one wait for, or why load moved.

    QUERY is a file that q.to_json() wrote. With --node it is the name of a query that runs there, or of a box
    or source of one: of each box it says what it needs, which input holds it back since when, and why that
    one doesn't move: who has promised nothing more, is silent, has no credit, or which disk is waited for. Of
    an output with a delay it says how its stream is, which input is missing, and how much is to be corrected.

    market/ is about load that a node trades with other participants: what runs where, what was decided, and
    why nothing else moves; market/NAME of a task, a fragment or a partner.
    """
    if query.startswith(MARKET) and address is not None:
        _of_market(query.removeprefix(MARKET), address, all_nodes, as_json, dry_run, **keys)
        return
    if dry_run:
        raise click.UsageError("--dry-run goes with market/ and --node")
    if address is None:
        if all_nodes or as_json or any(keys.values()):
            raise click.UsageError("--all, --json and keys go with --node")
        if query.startswith(MARKET):
            raise click.UsageError(f"{MARKET} is what runs at a node: add --node")
        _of_file(FILE.convert(query, context.command.params[0], context), form)
        return
    if form is not None:
        raise click.UsageError(f"--{form} draws a file; medusa draw draws what runs on nodes")
    from medusa.runtime.client.client import connect

    with connect(address, **keys) as fed:
        boxes = fed.explain(all=all_nodes)
        hidden = [] if all_nodes else _hidden(boxes, fed.placed(), query)
    found = _chosen(boxes, query, hidden)
    if as_json:
        click.echo(json.dumps({"boxes": found}))
        return
    for line in _lines(found):
        click.echo(plain(line))
    if hidden:
        click.echo(plain(f"hint: more of it is at {', '.join(hidden)}: --all shows that too"), err=True)


def _of_market(
    about: str, address: str | list[str], all_nodes: bool, as_json: bool, dry_run: bool, **keys: Any
) -> None:
    """Print what nodes say of load that they trade.

    Raises:
        LinkError: none of them trades, or none knows what is asked about.
    """
    from medusa.cli.screens.market_rows import explained_lines, planned_lines
    from medusa.runtime.client.client import connect

    with connect(address, **keys) as fed:
        statuses = [status_of(said) for said in fed.statuses(all=all_nodes) if "rows_in" in said]
    trading = [(each, each.market) for each in statuses if not isinstance(each.market, UnsetType)]
    if not trading:
        hint = "its configuration would have to have [market]: docs/market.md"
        raise LinkError("no node that answers trades load", hint=hint, code="E_NO_CONTRACT")
    found = {
        status.node: [
            line
            for line in (planned_lines(market) if dry_run else explained_lines(status, about))
            if about in line
        ]
        for status, market in trading
    }
    if as_json:
        click.echo(json.dumps({"nodes": found}))
        return
    if about and not any(found.values()):
        hint = f"{MARKET} alone says all that is known"
        raise LinkError(f"nothing is known there of {about!r:.100}", hint=hint, code="E_QUERY")
    for node, lines in found.items():
        click.echo(f"{node}:")
        for line in lines:
            click.echo(plain(f"  {line}"))


def _of_file(path: Path, form: str | None) -> None:
    asked = read_query(path)
    if form == "svg":
        click.echo(asked.diagram()._repr_svg_())
    elif form == "mermaid":
        click.echo(asked.diagram().mermaid)
    else:
        click.echo(asked.explain())


def _hidden(boxes: Sequence[dict[str, Any]], placed: Iterable[dict[str, Any]], name: str) -> list[str]:
    """The nodes at which there is more of a query, or of boxes of this name."""
    shown = {each["fragment"] for each in boxes}
    more = (each for each in placed if each["name"] not in shown)
    return sorted({each["node"] for each in more if name in (each["query"], *each["boxes"])})


def _chosen(boxes: Sequence[dict[str, Any]], name: str, hidden: Sequence[str]) -> list[dict[str, Any]]:
    """Those of the query of this name; where there is none, the boxes of this name.

    Args:
        hidden: nodes that weren't asked and have it.

    Raises:
        LinkError: neither is there.
    """
    for key in ("query", "box"):
        if found := [each for each in boxes if each[key] == name]:
            return found
    known = dict.fromkeys([*(each["query"] for each in boxes), *(each["box"] for each in boxes)])
    hint = f"it is at {', '.join(hidden)}: --all shows it" if hidden else did_you_mean(name, known)
    raise LinkError(f"no query or box there is called {name!r:.100}", hint=hint, code="E_QUERY")


def _lines(boxes: Sequence[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    part = None
    for each in boxes:
        if part != (each["fragment"], each["node"]):
            part = (each["fragment"], each["node"])
            silent = "" if each["kind"] else f": {each['waits_for'].removeprefix('its node, which ')}"
            lines.append(f"{each['fragment']} at {each['node']}{_standby(each)}{silent}{_undecided(each)}")
        if each["kind"]:  # Else its node is away.
            lines.append(f"  {each['kind']} {each['box']}: {each['waits_for']}{_since(each['since_us'])}")
            lines += [f"    {_stream(stream)}" for stream in each.get("streams", ())]
    scaled = {each["query"]: each["scaling"] for each in boxes if "scaling" in each}
    return [*lines, *(f"{query} is scaled {said}" for query, said in scaled.items())]


def _stream(said: dict[str, Any]) -> str:
    """How a stream is that leaves by a box, and what is missing where it isn't stable."""
    of = _CONSISTENCY(said)
    since = "" if of.for_us is None else f" for {duration_text(of.for_us // 1_000_000 * 1_000_000)}"
    told = "" if of.state == STABLE else f": {unstable_text(of)}"
    return f"stream {said['stream']} is {of.state}{since}{told}"


def _standby(box: dict[str, Any]) -> str:
    """Who stands by for the fragment of a box; empty: nobody ever did."""
    if (others := box.get("standby")) is None:
        return ""
    named = [f"{node} ({state})" if state != "following" else node for node, state in others.items()]
    return f"; standby: {', '.join(named) or 'nobody'}"


def _undecided(box: dict[str, Any]) -> str:
    """The voters that keep the next configuration of its query undecided; empty: none do."""
    voters = box.get("undecided")
    return f"; its next configuration waits for votes of {voters}" if voters else ""


def _since(since_us: int | None) -> str:
    if since_us is None or since_us < 1_000_000:
        return ""
    return f"; unmoved for {duration_text(since_us // 1_000_000 * 1_000_000)}"
