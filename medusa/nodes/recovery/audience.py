"""Who is told the configuration of a query beside those that it names: who has a part, or is next to one."""

from __future__ import annotations

from collections.abc import Iterable

from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.spec.fragment_spec import FragmentSpec

__all__ = ["audience"]


def audience(catalog: Catalog, query: str, followed: Iterable[FragmentSpec] = ()) -> tuple[str, ...]:
    """The nodes that this node knows to have a part of a query, or to read or feed one of its own parts.

    Args:
        followed: what this node follows, and may have in a moment: whoever is next to it switches then.
    """
    deployment = catalog.deployment(query)
    found = dict.fromkeys(() if deployment is None else deployment.nodes)
    if query in catalog.owners:
        found[catalog.owners[query]] = None
    for spec in (*catalog.fragments.values(), *followed):
        if spec.query == query:
            found |= dict.fromkeys(feed.node for feed in spec.feeds)
            found |= dict.fromkeys(reader for readers in spec.readers.values() for reader in readers)
            for stream in spec.streams.values():  # One that is on its way to another node reads there soon.
                found |= dict.fromkeys(catalog.expected.get(stream, ()))
    return tuple(found)
