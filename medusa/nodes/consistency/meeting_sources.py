"""Which sources lead to a sink, and which meet on the way. Pure."""

from __future__ import annotations

from medusa.query.boxes import Graph, Sink, Source

__all__ = ["MeetingSources"]


class MeetingSources:
    """Of one graph.

    Attributes:
        above: sink -> the sources that lead to it.
        together: source -> those that share a box with it, itself among them.
    """

    def __init__(self, graph: Graph) -> None:
        above: dict[str, frozenset[str]] = {}
        self.together: dict[str, frozenset[str]] = {}
        for box in graph.boxes:
            own = frozenset((box.id,)) if isinstance(box, Source) else frozenset[str]()
            above[box.id] = mine = own.union(*(above[arc.box] for arc in box.inputs))
            for source in sorted(mine):
                self.together[source] = self.together.get(source, mine) | mine
        self.above = {box.id: above[box.id] for box in graph.boxes if isinstance(box, Sink)}
