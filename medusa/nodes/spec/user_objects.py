"""What the boxes of users' functions, tables and connection points ask of the places where they stand."""

from __future__ import annotations

from collections.abc import Mapping

from medusa.errors import QueryError
from medusa.query.boxes import Graph, Lookup, Table
from medusa.query.codec import refuse_unregistered
from medusa.query.graph import label_of

__all__ = ["check_users"]


def check_users(graph: Graph, homes: Mapping[str, tuple[str, ...]]) -> None:
    """Whether these boxes may stand where they do.

    Raises:
        QueryError: a function that isn't registered, an async one, a connection point, or a table in one
            piece that isn't on one node together with its look-ups in one piece.
    """
    refuse_unregistered(graph, "deploying")
    tables = {box.id: box for box in graph.boxes if isinstance(box, Table)}
    for box in graph.boxes:
        if box.embedded_only is not None:
            what, hint = box.embedded_only
            raise QueryError(f"{label_of(box)} {what}", hint=hint, code="query.later")
        if isinstance(box, Table) and len(homes[box.id]) > 1:
            raise QueryError(
                f"{label_of(box)} is at several nodes: {', '.join(homes[box.id])}",
                hint="a table stands at one",
                code="query.placement",
            )
        if isinstance(box, Lookup) and box.table is None:
            table = tables.get(box.inputs[1].box)
            if table is not None and homes[box.id] != homes[table.id]:
                raise QueryError(
                    f"{label_of(box)} is at {', '.join(homes[box.id])}, its {label_of(table)} at"
                    f" {', '.join(homes[table.id])}",
                    hint="a table and its look-ups stand at one node",
                    code="query.placement",
                )
