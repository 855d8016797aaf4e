"""``medusa repair``: what a stopped node's disk has lost, and what an operator decides about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from medusa.cli.options.command_options import FILE
from medusa.cli.screens.terminal_text import plain
from medusa.units import duration_text

if TYPE_CHECKING:
    from medusa.runtime.repair.operator_repair import FolderFound, FragmentFound

__all__ = ["repair"]

EXAMPLE = """\b
Example:
  medusa repair edge-1.toml
  medusa repair edge-1.toml --take-up traffic/in --delete traffic/old --accept"""

STATES = {
    "checkpoint": "a whole checkpoint is here",
    "lost": "it had checkpoints, and none is whole",
    "none": "no checkpoint of it was ever here",
}
DECISIONS = {
    "adopt": "runs here from the next start",
    "forget": "goes at the next start",
    "": "undecided",
}


Command = TypeVar("Command", bound=Callable[..., Any])


def _names(flag: str, what: str) -> Callable[[Command], Command]:
    return click.option(flag, multiple=True, metavar="FRAGMENT", help=what)


@click.command(epilog=EXAMPLE)
@click.argument("config", type=FILE)
@_names("--take-up", "it runs here again, from its newest whole checkpoint and decision log")
@_names("--begin-anew", "it runs here again from nothing, its state being lost; what is left is set aside")
@_names("--set-aside", "it isn't here; its files are copied into HASH-N.aside in the data folder")
@_names("--delete", "it isn't here; its files go at the next start")
@click.option("--accept", is_flag=True, help="the lost catalog named nothing else: deploy here again")
@click.option("--json", "as_json", is_flag=True, help="one JSON document, for scripts")
def repair(
    config: Path,
    take_up: tuple[str, ...],
    begin_anew: tuple[str, ...],
    set_aside: tuple[str, ...],
    delete: tuple[str, ...],
    accept: bool,
    as_json: bool,
) -> None:
    """Show what the node of CONFIG can't know after its disk lost something, or decide it.

    The node must be stopped. Without options nothing is changed. Decisions of one call are all taken or all
    refused; they are on disk when the command ends, and the node acts on them at its next start.
    docs/repair.md goes through a lost catalog step by step.
    """
    from medusa.nodes.repair.operator_decisions import OperatorDecisions
    from medusa.runtime.node.configuration import import_functions, load_settings
    from medusa.runtime.repair.operator_repair import look
    from medusa.runtime.repair.operator_repair import repair as decide

    settings = load_settings(config)
    import_functions(settings)
    decisions = OperatorDecisions(take_up=take_up, begin_anew=begin_anew, delete=delete, accept=accept)
    found = decide(settings, decisions, set_aside=set_aside) if decisions or set_aside else look(settings)
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    for line in lines(found):
        click.echo(plain(line))


def lines(found: FolderFound) -> Iterator[str]:
    """The text of the command."""
    yield f"node {found.node}, folder {found.folder}"
    if found.lost_catalog:
        used = f"number {found.catalog} is used" if found.catalog else "no older one is whole either"
        then = "accepted as it is" if found.accepted else "what it named beyond this is unknown"
        yield f"catalog: number {found.lost_catalog} is lost, {used}; {then}"
    else:
        yield f"catalog: number {found.catalog}, whole" if found.catalog else "catalog: none yet"
    yield f"runs: {', '.join(found.running) or 'nothing'}"
    for each in found.fragments:
        yield from _fragment(each)
    for owner, why in found.unreadable.items():
        yield f"groups {owner}-*: nobody can tell what they are of: {why}"
    for path in found.aside:
        yield f"set aside: {path}"
    for text in found.said:
        yield f"found: {text}"
    undecided = [each for each in found.fragments if each.named and not each.decision]
    if undecided:
        yield f"undecided: {len(undecided)}; the node asks its peers at its next start, or decide here"
    elif found.lost_catalog and not found.accepted:
        yield "undecided: the catalog; --accept has it count as it is"
    else:
        yield "nothing is undecided"


def _fragment(each: FragmentFound) -> Iterator[str]:
    yield f"fragment {each.name}: {DECISIONS[each.decision] if each.named else 'goes unless it is taken up'}"
    yield f"  why: {each.why}"
    epoch = f"epoch {each.epoch}" if each.epoch else "no epoch in which it was surely here"
    yield f"  query {each.query}, deployed by node {each.coordinator}, {epoch}"
    yield f"  {STATES[each.state]}; {each.groups} groups, {each.decisions} logged decisions behind it"
    if each.checkpoint:
        age = duration_text(round(each.age_s) * 1_000_000)
        yield f"  checkpoint {each.checkpoint}, {age} old"
    for source, sender, next_seq in each.inputs:
        yield f"    has {next_seq:,} rows of {source} from {sender}"
    for sink, first, end in each.outputs:
        yield f"    keeps rows {first:,} to {end:,} of {sink}"
