"""Sources of a query that read streams of other queries, in its fragments. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from medusa.errors import QueryError
from medusa.nodes.spec.fragment_spec import Feed, FragmentSpec
from medusa.query.boxes import Graph
from medusa.query.published_stream import reads_of

__all__ = ["feeds_of", "with_feeds"]


def feeds_of(
    graph: Graph, homes: Mapping[str, tuple[str, ...]], reads: Mapping[str, Feed] | None
) -> dict[str, Feed]:
    """Where sources read streams of other queries.

    Args:
        homes: box -> the nodes where it stands.
        reads: the feeds, by source; None: the plan isn't carried out, so that anything will do.

    Raises:
        QueryError: a source at several nodes, or one that nobody says where to read.
    """
    found: dict[str, Feed] = {}
    for id, source in reads_of(graph).items():
        if len(homes[id]) > 1:
            raise QueryError(
                f"source {id!r} reads stream {source.of!r} and is named at {len(homes[id])} nodes "
                f"({', '.join(homes[id])}): each of them would bring all its rows",
                hint=f"name {id!r} at one node",
                code="query.placement.split",
            )
        if reads is not None and id not in reads:
            raise QueryError(
                f"source {id!r}: nobody said where stream {source.of!r} is",
                hint="only fed.deploy can use a query with of=",
                code="query.of",
            )
        found[id] = Feed(source=id, node="?", stream=f"?.{id}") if reads is None else reads[id]
    return found


def with_feeds(fragment: FragmentSpec, feeds: Mapping[str, Feed]) -> FragmentSpec:
    """With the feeds of its sources that read streams of other queries."""
    own = tuple(feeds[box.id] for box in fragment.graph.boxes if box.id in feeds)
    return msgspec.structs.replace(fragment, feeds=(*fragment.feeds, *own)) if own else fragment
