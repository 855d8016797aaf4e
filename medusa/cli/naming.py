"""``medusa define``, ``medusa queries``, ``medusa find``: streams and queries by name, at any node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from medusa.cli.options.command_options import AS_JSON, FILE, NODE, with_client
from medusa.cli.options.key_options import key_options
from medusa.errors import LinkError, QueryError
from medusa.runtime.client.status.guarded_fragments import guarded_fragments
from medusa.runtime.client.status.overview import whole
from medusa.wire.status_and_metrics import NodeStatus

if TYPE_CHECKING:
    from medusa.runtime.client.federation import Federation

__all__ = ["define", "find", "queries"]

NOT_SHOWN = (
    "no query is shown to this client: the node's configuration would have to say status = true, or "
    "deploy = [...] with their names, in its [clients.NAME]"
)


@click.command(
    epilog="\b\nExample:\n  medusa define cars -c ts='timestamp[us, UTC]' -c v=int64 --node tcp://127.0.0.1:5555"
    "\n  medusa define --list --node tcp://127.0.0.1:5555",
)
@click.argument("name", required=False)
@click.argument("file", required=False, type=FILE)
@click.option("--column", "-c", "columns", multiple=True, metavar="NAME=TYPE", help="instead of FILE")
@click.option("--time", help="the column that holds the time; left out, rows have no time")
@click.option("--unit", help="s, ms, us or ns, of an integer time")
@click.option("--slack", help="how late rows may be: 2s")
@click.option("--remove", is_flag=True, help="forget the definition, and the rows that are kept")
@click.option("--list", "listed", is_flag=True, help="what is defined")
@NODE
@key_options
@AS_JSON
def define(
    name: str | None,
    file: Path | None,
    columns: tuple[str, ...],
    time: str | None,
    unit: str | None,
    slack: str | None,
    remove: bool,
    listed: bool,
    address: str,
    as_json: bool,
    **keys: Any,
) -> None:
    """Define a stream by NAME: what is published under it can be read under it.

    FILE is JSON: {"column": "type", ...}. Defined again as it is, nothing happens; changed, it is a new
    version, which is refused while somebody reads the old one.
    """
    from medusa.runtime.client.client import connect

    if listed == (name is not None):
        raise click.UsageError("a NAME to define, or --list")
    with connect(address, **keys) as fed:
        if name is None:
            found = fed.definitions()
            click.echo(json.dumps(found) if as_json else "\n".join(map(_definition, found)))
            return
        if remove:
            fed.undefine(name)
            click.echo(json.dumps({"undefined": name}) if as_json else f"{name} is not defined any more")
            return
        version = fed.define(name, _schema(file, columns), time=time, unit=unit, slack=slack)
    shown = {"defined": name, "version": version}
    click.echo(json.dumps(shown) if as_json else f"{name} is defined, version {version}")


def _schema(file: Path | None, columns: tuple[str, ...]) -> dict[str, str]:
    if (file is None) == (not columns):
        raise click.UsageError("columns of the stream: a FILE, or --column NAME=TYPE for each")
    if file is None:
        pairs = [each.partition("=") for each in columns]
        return {name: type for name, _, type in pairs}
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        raise QueryError(f"{file} is no JSON: {error}", code="query.schema") from None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        text = f"{file} doesn't say columns"
        raise QueryError(text, hint='{"ts": "timestamp[us, UTC]", "v": "int64"}', code="query.schema")
    return found


def _definition(of: dict[str, Any]) -> str:
    columns = ", ".join(f"{name} {type}" for name, type in of["columns"])
    return f"{of['name']}  version {of['version']}  at {of['node']}  {columns}"


@click.command(epilog="\b\nExample:\n  medusa queries --node tcp://127.0.0.1:5555")
@with_client
@AS_JSON
def queries(fed: Federation, as_json: bool) -> None:
    """List the queries of the participant: state, the node of each fragment, and how many rows those of the
    node that is asked have lost. Then what its nodes run for other participants; --json lists the own ones
    only."""
    found, guests = fed.queries(), fed.guests()
    if as_json:
        click.echo(json.dumps(found))
        return
    status = _status(fed)
    shown, lost = _with_away(status), _lost(status)
    for line in _doubts(status):
        click.echo(line, err=True)
    if not found and not guests:
        click.echo("no query is deployed" if status is not None else NOT_SHOWN, err=True)
    for each in found:
        for line in _of_query(each, shown, lost, status):
            click.echo(line)
    for each in guests:
        click.echo(f"{each['name']}  here for {each['participant']}")
        click.echo(f"  {each['fragment']}  at {shown(each['node'])}")


def _of_query(
    query: Mapping[str, Any],
    shown: Callable[[str], str],
    lost: Mapping[str, str],
    status: NodeStatus | None,
) -> Iterator[str]:
    """A query and its fragments.

    Args:
        shown: names of nodes as they are shown.
        lost: what is said of fragments that have lost rows.
        status: of the node that is asked, which may know who stands by; None: it doesn't show it.
    """
    yield f"{query['name']}  {query['state']}  coordinated by {shown(query['node'])}"
    if status is not None and (undecided := status.undecided.get(query["name"])) is not None:
        yield f"  {undecided.why}"
    for stream in query["reads"]:
        yield f"  reads {stream}"
    told = () if status is None else guarded_fragments([status])
    guarded = {each.fragment: each.replicas for each in told if each.query == query["name"]}
    for fragment, nodes in query["fragments"].items():
        standby, at = "", nodes
        if (of := guarded.get(fragment)) is not None:
            others = ", ".join(map(shown, of.secondaries))
            standby = f"; standby: {others or 'nobody'}"
            at = [of.owner]  # While a lost owner is away the catalog has its word too.
        yield f"  {fragment}  at {', '.join(map(shown, at))}{standby}{lost.get(fragment, '')}"
    for fragment, node, participant, _ in query["abroad"]:
        yield f"  {fragment}  at {shown(node)} of {participant}"
    for fragment, node in query["stopped"].items():
        yield f"  {fragment}  STOPPED by the owner of {node}"


def _lost(status: NodeStatus | None) -> dict[str, str]:
    """Of fragments of the node that have lost rows, how many those are."""
    from medusa.cli.screens.status_screen import lost_rows_text

    fragments = () if status is None else status.fragments
    return {
        each.fragment: f"; rows lost: {lost_rows_text(each)}"
        for each in fragments
        if each.lost_rows or each.lost_unknown
    }


def _doubts(status: NodeStatus | None) -> list[str]:
    """What the node can't know of queries, after its disk lost something."""
    if status is None:
        return []
    from medusa.cli.screens.status_screen import lost_part_text, stateless_text

    doubt, lines = status.in_doubt, []
    lines += [f"node {status.node} says: {stateless_text(*each)}" for each in status.without_state.items()]
    if doubt.lost_catalog:
        what = "has lost its newest catalog: queries that it coordinated may be missing here"
        lines.append(f"node {status.node} {what}. {doubt.see}")
    for name, each in (doubt.fragments or {}).items():
        lines.append(f"{name} of query {each.query} is in doubt at node {status.node}: {each.why}")
    lost = f"node {status.node} has lost with its disk"
    return lines + [f"{lost} {lost_part_text(doubt, part)}" for part in doubt.lost_parts or {}]


def _status(fed: Federation) -> NodeStatus | None:
    """What the node shows this client of itself; None: not all that it has."""
    try:
        return whole(fed.status())
    except LinkError as error:
        if error.code != "E_ROLE":
            raise
        return None


def _with_away(status: NodeStatus | None) -> Callable[[str], str]:
    """Names of nodes as they are shown: of those that aren't there, since when."""

    def shown(node: str) -> str:
        why = "" if status is None else status.why_away(node)
        return f"{node} (away, {why})" if why else node

    return shown


@click.command(epilog="\b\nExample:\n  medusa find alice/counts.out --node tcp://127.0.0.1:5555")
@click.argument("name")
@with_client
@AS_JSON
def find(name: str, fed: Federation, as_json: bool) -> None:
    """Say where NAME is: a stream, source, query, fragment, node or definition, or a box (QUERY/BOX).

    Any node of the participant knows. What another participant publishes is called PARTICIPANT/NAME, and is
    looked up in the catalog between participants.
    """
    found = fed.find(name)
    if as_json:
        click.echo(json.dumps(found))
        return
    shown = _with_away(_status(fed))
    where = f" {found['address']}" if found["address"] else ""
    whose = f" of {found['participant']}" if found["kind"] == "box" and "participant" in found else ""
    state = f", {found['state']}" if found["kind"] == "query" else ""
    epoch = f"epoch {found['epoch']}{state}"
    click.echo(f"{found['kind']} {name} is at {shown(found['node'])}{whose}{where}, {epoch}")
    for stream in found.get("reads", ()):
        click.echo(f"  reads {stream}")
    for column, type in found.get("columns", ()):
        click.echo(f"  {column}  {type}")
    for part, node in found.get("parts", {}).items():
        click.echo(f"  {part}  at {shown(node)}")
