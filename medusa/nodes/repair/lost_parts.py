"""What a node that is rebuilt has lost for good: parts of queries that nobody stood by for. Pure."""

from __future__ import annotations

from collections.abc import Callable

from medusa.nodes.catalog.catalog import ENDED, RUNNING, Catalog
from medusa.nodes.catalog.directory import Directory
from medusa.nodes.catalog.entry_bodies import QueryBody, body_from

__all__ = ["lost_parts"]


def lost_parts(
    catalog: Catalog,
    directory: Directory,
    without_state: Callable[[Callable[[str, str], bool]], dict[str, tuple[str, ...]]],
) -> dict[str, tuple[str, ...]]:
    """Fragment, or query where no peer knows which of its fragments -> the streams that were here, as far as
    peers know them.

    Args:
        without_state: of queries with standbys; given what says whether a query runs.
    """
    me = catalog.node

    def runs(query: str, coordinator: str) -> bool:
        return coordinator == me or _state(directory, query, coordinator)[0] in (RUNNING, ENDED)

    found = without_state(runs)
    here = {spec.query for spec in catalog.fragments.values()}
    for entry in directory.standing("query"):
        known = entry.name in catalog.configurations or entry.name in here or entry.writer == me
        state, nodes = _state(directory, entry.name, entry.writer)
        if not known and me in nodes and state in (RUNNING, ENDED):
            found[entry.name] = ()
    return found


def _state(directory: Directory, query: str, coordinator: str) -> tuple[str, tuple[str, ...]]:
    """Of a query, as the node says that coordinates it: its state and its nodes."""
    for entry in directory.holders("query", query):
        if entry.writer == coordinator:
            body = body_from(entry.body, QueryBody)
            return ("", ()) if body is None else (body.state, tuple(body.nodes))
    return "", ()
