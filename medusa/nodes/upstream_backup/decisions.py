"""What a fragment decides by more than its rows: then it can't make the same output again from the same rows.

Of the others the input is one order of rows for each source, whoever sends it, and the boxes look at times
alone to put those together. So whoever begins again at a mark gives rows the numbers that they had.
"""

from __future__ import annotations

from medusa.query.boxes import Graph, Source
from medusa.query.graph import label_of

__all__ = ["decision_in"]


def decision_in(graph: Graph) -> tuple[str, str] | None:
    """The box whose rows come, or are put together, in an order that can't be made again, and why; None:
    there is none.

    Args:
        graph: of a fragment.
    """
    several = {box.id for box in graph.boxes if len(box.inputs) > 1}
    for box in graph.boxes:
        if isinstance(box, Source) and not box.judged:
            return label_of(box), "is published into, and the order in which rows arrive can't be made again"
        if isinstance(box, Source) and box.of is not None:
            return label_of(box), f"reads {box.of!r} of another query, which keeps no rows for our windows"
        if box.determinism == "arbitrary":
            return label_of(box), "takes rows of several streams as they arrive; sunion puts them in order"
        if any(arc.port == "dead" and arc.box in several for arc in box.inputs):
            return label_of(box), "reads failed rows of a box with several inputs, as they arrive"
    return None
