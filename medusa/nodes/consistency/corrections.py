"""How many corrections of an output stream are still to come. Pure.

    shown, and not passed by the stable boundary yet ──> uncorrected rows
    come, and of no use to the fragment itself yet  ──> rows behind
    the furthest source ── the one that holds it up ──> time behind

The first counts results, the others what they are made of. Nothing of it is exact while rows flow: the engine
tells now and then what waits in its boxes, and trains are counted whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from medusa.elements import END_US, START_US, Train
from medusa.engine.operators.source import TIME_MAX_US
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.query.boxes import Graph
from medusa.wire.codec import latest_us

__all__ = ["BoxesAbove", "UncorrectedRows", "behind_us"]

TRAINS_MAX = 1024
"""So many trains are counted one by one; then two beside each other are as one. Too few: the first of two is
counted until the second is corrected too; too many: memory, and time for each."""


class UncorrectedRows:
    """Tentative rows that hold: those of the present fork that the stable boundary hasn't passed."""

    def __init__(self) -> None:
        self._fork = 0
        self._boundary_us: int = START_US
        """Trains below it have been left out."""
        self._trains: list[tuple[int, int]] = []
        """(time of the latest row, rows)."""

    def shown(self, fork: int, train: Train, boundary_us: int) -> None:
        """The fork has put this out; the stable boundary stands there."""
        if train.times is None or not len(train):
            return
        self._drop(fork, boundary_us)
        if (at_us := latest_us(train)) < boundary_us:
            return
        if len(self._trains) >= TRAINS_MAX:
            pairs = zip(self._trains[::2], self._trains[1::2], strict=True)
            self._trains = [(max(a[0], b[0]), a[1] + b[1]) for a, b in pairs]
        self._trains.append((at_us, len(train)))

    def count(self, fork: int, boundary_us: int) -> int:
        """How many there are, where this fork is the present one (0: there is none)."""
        self._drop(fork, boundary_us)
        return sum(rows for _, rows in self._trains)

    def _drop(self, fork: int, boundary_us: int) -> None:
        if fork != self._fork:
            self._fork = fork
            self._trains.clear()
        if boundary_us != self._boundary_us:
            self._boundary_us = boundary_us
            self._trains = [each for each in self._trains if each[0] >= boundary_us]


class BoxesAbove:
    """The boxes of one graph from which a stream comes, by the sink that it leaves by."""

    def __init__(self, graph: Graph) -> None:
        above: dict[str, frozenset[str]] = {}
        for box in graph.boxes:
            above[box.id] = frozenset((box.id,)).union(*(above[arc.box] for arc in box.inputs))
        self._above = above

    def waiting_rows(self, sink: str, figures: Mapping[str, Mapping[str, Any]], come: Iterable[Work]) -> int:
        """Rows that wait in them, or for them.

        Args:
            figures: box -> what the engine last told of it.
            come: what the engine hasn't been given yet.
        """
        above = self._above[sink]
        held = (figure["queue_rows"] for id, figure in figures.items() if id in above and id != sink)
        trains = (work.element for work in come if work.input.source in above)
        come_rows = sum(len(each) for each in trains if isinstance(each, Train))
        return int(sum(held)) + come_rows


def behind_us(above: Set[str], stands_us: Mapping[str, int], inputs: Iterable[FragmentInput]) -> int | None:
    """How far the source that holds a stream up is behind the input that is furthest, counting what forks of
    senders have promised; None: nothing has come by one of them.

    Args:
        above: the sources with time that lead to the stream.
        stands_us: source -> the boundary at which the fragment itself stands.
        inputs: of the fragment.
    """
    slowest_us = min((stands_us[each] for each in above if stands_us[each] < END_US), default=END_US)
    lanes = (each.receiver for each in inputs if each.source in above)
    promised = ((each.boundary_us, each.tentative.boundary_us) for each in lanes)
    furthest_us = max((at_us for pair in promised for at_us in pair if at_us < TIME_MAX_US), default=START_US)
    if slowest_us >= END_US:
        return 0
    return None if slowest_us <= START_US else max(furthest_us - slowest_us, 0)
