"""What keeps a node from being let go: all that it has, does, or is counted on for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import UNSET

from medusa.nodes.catalog.catalog import REMOVING
from medusa.wire.status_and_metrics import NodeStatus

__all__ = ["holding"]


def holding(node: str, statuses: Iterable[NodeStatus], placed: Mapping[str, Iterable[str]]) -> str:
    """What holds a node, in words; empty: nothing.

    Args:
        statuses: of all nodes that answered, its own among them if it did.
        placed: fragment -> nodes that have it, as the catalog knows.
    """
    found = [f"fragment {name} is there" for name, nodes in placed.items() if node in nodes]
    for status in statuses:
        found += _of_its_own(status) if status.node == node else _of_others(node, status)
    return next(iter(found), "")


def _of_its_own(status: NodeStatus) -> Iterator[str]:
    for each in status.fragments:
        yield f"fragment {each.fragment} is there"
    for name in (*status.moves.going, *status.moves.coming):
        yield f"fragment {name} is being moved"
    for split in status.splits:
        yield f"box {split.box} is being split or merged there"
    for query in (*status.queries, *status.undecided):
        yield f"it has a say in query {query}"
    for name in status.without_state:
        yield f"it waits for the state of fragment {name}"
    if status.in_doubt.fragments is not UNSET or status.in_doubt.kept_groups is not UNSET:
        yield "it can't know what it had: docs/repair.md"
    for name in status.backups.held:
        yield f"it holds the state of fragment {name}"


def _of_others(node: str, status: NodeStatus) -> Iterator[str]:
    for name in status.moves.going:
        if status.moves.going[name].to == node:
            yield f"fragment {name} is on its way there"
    for query, of in status.queries.items():
        if of.state == REMOVING and node in of.nodes:
            yield f"query {query} is being removed, which waits for its word"
        if of.configuration is UNSET:
            continue
        if node in of.configuration.voters:
            yield f"it votes in query {query}"
        for name, fragment in of.configuration.fragments.items():
            if node == fragment.owner or node in fragment.secondaries:
                yield f"it is counted on for fragment {name}"
