"""Whether sources that may be silent stand where somebody can move them on.

The box that waits asks, and the source takes the answer as its boundary. Both are in one fragment, so
that one log has the decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from medusa.errors import QueryError
from medusa.query.boxes import Graph, Source
from medusa.query.graph import UNTIMED_PORTS, label_of

__all__ = ["check_idle"]


def check_idle(graph: Graph, homes: Mapping[str, Sequence[str]]) -> None:
    """Refuse ``idle=`` where a box at another node would have to ask.

    Args:
        homes: box -> the nodes where it stands.

    Raises:
        QueryError: names the source and the box that waits for it.
    """
    way: dict[str, dict[str, set[str]]] = {}
    """Box -> the idle sources above it -> the nodes on the way."""
    for box in graph.boxes:
        above: dict[str, set[str]] = {}
        for arc in box.inputs:
            for source, nodes in way[arc.box].items() if arc.port not in UNTIMED_PORTS else ():
                above.setdefault(source, set()).update(nodes, homes[box.id])
        if isinstance(box, Source) and box.idle_us is not None:
            above[box.id] = set(homes[box.id])
        way[box.id] = above
        apart = [(source, nodes) for source, nodes in above.items() if len(nodes) > 1]
        if apart and (len(box.inputs) > 1 or isinstance(box, Source)):
            source, nodes = apart[0]
            what = "is at several nodes" if isinstance(box, Source) else f"{label_of(box)} waits for it"
            raise QueryError(
                f"source {source!r} has idle=, and {what}, over {', '.join(sorted(nodes))}: a silent source "
                "is asked within one node",
                hint=f"name all from {source!r} to what waits for it at one node, or publish boundaries",
                code="query.later",
            )
