"""How far back in time the state of a fragment reaches: which rows it still needs. Pure.

A row is needed until the last result has left that it has a part in. Boxes that take row by row need none;
windows of time say when that is (``BoxData.last_result``); a sunion holds a row until its own time is
promised. Of such boxes behind each other the times add up. Of others nobody can say, and a fragment with such
a box isn't recovered by upstream backup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from medusa.elements import START_US
from medusa.query.boxes import Aggregate, Box, Graph, Source, SUnion
from medusa.query.graph import label_of

__all__ = ["Reach", "has_both", "refusal_of"]

Step = tuple[int, int, int]
"""As ``BoxData.last_result``."""

WAYS_MAX = 16
"""Different ways from one source to the sinks."""

SAME: Step = (0, 0, 0)


class Reach:
    """Of one fragment; ``refusal_of`` has nothing against it."""

    def __init__(self, graph: Graph) -> None:
        self._ways = _ways(graph)

    @property
    def windows(self) -> bool:
        """There are windows, or sunions, on the way of some rows."""
        return any(self._ways.values())

    def over(self, newest: Mapping[str, int], boundaries: Mapping[str, int]) -> bool:
        """Whether all has left that rows up to these times have a part in.

        Args:
            newest: source -> the largest time of a row, in us.
            boundaries: sink -> what is promised of its rows.
        """
        return all(
            _last(newest[source], steps) < boundaries.get(sink, START_US)
            for source, ways in self._ways.items()
            if source in newest
            for sink, steps in ways
        )


def has_both(graph: Graph) -> bool:
    """Whether some rows come out of windows and others don't."""
    return any(_ways(graph).values()) and any(
        not steps for ways in _all_ways(graph).values() for _, steps in ways
    )


def refusal_of(graph: Graph) -> tuple[str, str] | None:
    """The box for which upstream backup can't be, and why; None: it can be."""
    for box in graph.boxes:
        if (why := _against(box)) is not None:
            return label_of(box), why
    for source, ways in _ways(graph).items():
        if len(ways) > WAYS_MAX:
            return source, f"its rows reach the outputs by more than {WAYS_MAX} ways through windows"
    return None


def _against(box: Box) -> str | None:
    if isinstance(box, Source):
        for name in ("partition", "idle_us", "ahead_us") if not box.judged else ():
            if getattr(box, name) is not None:
                return f"has {name.removesuffix('_us')}=, and which rows were late can't be found again"
        return None
    if _row_by_row(box) or _is_window(box) or isinstance(box, SUnion):
        return None
    if isinstance(box, Aggregate):
        return "gives partial or early results, which can't be found again"
    return "has a state that reaches back to rows of any age, or nobody can say how far"


def _row_by_row(box: Box) -> bool:
    return not box.keeps_state and box.last_result == SAME


def _is_window(box: Box) -> bool:
    return isinstance(box, Aggregate) and box.stage == "whole" and box.last_result is not None


def _ways(graph: Graph) -> dict[str, set[tuple[str, tuple[Step, ...]]]]:
    """Of each source the sinks behind windows, and the windows on the way."""
    found = _all_ways(graph)
    return {id: {(sink, steps) for sink, steps in ways if steps} for id, ways in found.items()}


def _all_ways(graph: Graph) -> dict[str, set[tuple[str, tuple[Step, ...]]]]:
    """Of each source the sinks, and the windows on the way to them."""
    readers: dict[str, dict[str, Box]] = {box.id: {} for box in graph.boxes}
    for box in graph.boxes:
        for arc in box.inputs:
            readers[arc.box][box.id] = box
    known: dict[str, set[tuple[str, tuple[Step, ...]]]] = {}

    def below(id: str) -> set[tuple[str, tuple[Step, ...]]]:
        if id in known:
            return known[id]
        found: set[tuple[str, tuple[Step, ...]]] = set() if readers[id] else {(id, ())}
        for reader in readers[id].values():
            own = () if _row_by_row(reader) else (reader.last_result or SAME,)
            found.update((sink, own + steps) for sink, steps in below(reader.id))
        known[id] = set(sorted(found)[: WAYS_MAX + 1])
        return known[id]

    return {box.id: below(box.id) for box in graph.boxes if isinstance(box, Source)}


def _last(time_us: int, steps: Sequence[Step]) -> int:
    for advance, size, later in steps:
        time_us = time_us // advance * advance + (size - 1) if advance else time_us + later
    return time_us
