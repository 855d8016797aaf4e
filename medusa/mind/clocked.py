"""What a fragment is told by the clock of its node: a decision, since its rows don't say it.

    publisher ── rows ──> arrived at 12:00:03 ──> fed ──> logged with the train ──> judged by ``ahead=``

A row is compared with the time at which its node received it. That is stamped into the header of the
train, noted with it when it is fed, and taken from the log when it is fed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from medusa.elements import Train
from medusa.mind.inputs import Work
from medusa.mind.wall import Wall
from medusa.query.boxes import Graph, Source
from medusa.query.graph import interleaves

__all__ = ["Arrivals", "decides"]


def decides(graph: Graph) -> bool:
    """Whether what comes out depends on more than the rows: their interleaving, or a clock."""
    return interleaves(graph) or any(isinstance(box, Source) and _stamped(box) for box in graph.boxes)


def _stamped(source: Source) -> bool:
    return source.ahead_us is not None and source.arrival is None and not source.judged


class Arrivals:
    """Says of rows when they arrived, where their source asks for it.

    Args:
        sources: of the fragment.
        wall: the time of the node.
    """

    def __init__(self, sources: Mapping[str, Source], wall: Wall) -> None:
        self._sources = {id for id, source in sources.items() if _stamped(source)}
        self._wall = wall

    def came(self, now_us: int, works: Iterable[Work]) -> None:
        """Stamp what has just come."""
        for work in works:
            if work.input.source in self._sources and isinstance(work.element, Train):
                work.element = msgspec.structs.replace(work.element, arrival_us=self._wall.at(now_us))
