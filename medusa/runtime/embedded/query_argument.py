"""A query as callers give it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa.errors import QueryError
from medusa.query.boxes import Graph
from medusa.query.graph import check_graph
from medusa.query.published_stream import refuse_published

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["graph_of"]


def graph_of(q: Query) -> Graph:
    """What a query is, checked: it can run.

    Raises:
        QueryError: it isn't a query, doesn't hold, lacks a source or a sink, or reads a stream of nodes.
    """
    graph = getattr(q, "graph", None)
    if not isinstance(graph, Graph):
        raise QueryError(f"expected a md.Query, got {type(q).__name__}", code="query.argument")
    check_graph(graph, require_sinks=True)
    refuse_published(graph, "this program")
    return graph
