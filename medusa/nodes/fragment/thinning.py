"""What is left out above the outputs of a fragment under overload: counted, and told to whoever reads them.

Each place is told apart by its name, ``query/box.source``: rows of it that come to a reader on two ways count
once. Counts only grow, and aren't in order with the rows.

Between participants only a sum is told, by the name of the stream: no partner speaks for our places, or
learns their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Sink, Source
from medusa.query.graph import CheckedGraph
from medusa.wire import limits

__all__ = ["Thinning"]


class Thinning:
    """Of one fragment.

    Args:
        inputs, outputs: shared with its owner.
        places: as a checkpoint has it.
        is_foreign: whether a node is of another participant than the fragment.

    Attributes:
        places: source -> place -> rows left out there, over restarts: behind that source, here and in
            fragments whose place this one took.
    """

    def __init__(
        self,
        spec: FragmentSpec,
        checked: CheckedGraph,
        inputs: Mapping[tuple[str, str], FragmentInput],
        outputs: Mapping[str, FragmentOutput],
        places: Mapping[str, Mapping[str, int]],
        *,
        is_foreign: Callable[[str], bool] = lambda node: False,
    ) -> None:
        self._name = spec.name
        self._is_foreign = is_foreign
        self._inputs, self._outputs = inputs, outputs
        self._above = _sources_above(checked)
        self._sources = frozenset(box.id for box in checked.graph.boxes if isinstance(box, Source))
        self.places = {source: dict(known) for source, known in places.items()}

    def sheds(self, source: str, rows: int) -> None:
        """So many more were left out behind a source."""
        known, place = self.places.setdefault(source, {}), f"{self._name}.{source}"
        known[place] = min(known.get(place, 0) + rows, limits.SEQ_MAX)

    def inherits(self, old: Thinning) -> None:
        """This fragment takes the place of that one, or of a part of it."""
        for source, places in old.places.items():
            if source in self._sources:
                own = self.places.setdefault(source, {})
                own.update({place: max(rows, own.get(place, 0)) for place, rows in places.items()})

    @property
    def shed_rows(self) -> dict[str, int]:
        """Source -> rows left out behind it."""
        return {source: sum(places.values()) for source, places in self.places.items()}

    def above(self, sink: str) -> dict[str, int]:
        """Place -> rows that were left out there, of all on the ways to an output; in order of their
        names."""
        sources = self._above.get(
            sink.partition(".")[0], frozenset()
        )  # a guest's has its sink's before a point
        found: dict[str, int] = {}
        for source, places in self.places.items():
            found.update(places if source in sources else {})
        for (source, _), input in self._inputs.items():
            if source in sources:
                told = input.receiver.thinned
                if told and self._is_foreign(input.peer):
                    told = _together(input.stream, told)
                for place, rows in told.items():
                    found[place] = max(found.get(place, 0), rows)
        return {place: found[place] for place in sorted(found)}

    def tell(self) -> None:
        """Readers hear with their next frame what has changed."""
        if self.places or any(input.receiver.thinned for input in self._inputs.values()):
            for sink, output in self._outputs.items():
                above = self.above(sink)
                output.sender.thins(_together(output.stream, above) if output.is_foreign else above)


def _together(stream: str, places: Mapping[str, int]) -> dict[str, int]:
    rows = min(sum(places.values()), limits.SEQ_MAX)
    return {stream: rows} if rows else {}


def _sources_above(checked: CheckedGraph) -> dict[str, frozenset[str]]:
    """Sink -> the sources that lead to it."""
    above: dict[str, frozenset[str]] = {}
    for box in checked.graph.boxes:  # inputs before those that read them
        own = {box.id} if isinstance(box, Source) else set[str]()
        above[box.id] = frozenset(own.union(*(above[arc.box] for arc in box.inputs)))
    return {box.id: above[box.id] for box in checked.graph.boxes if isinstance(box, Sink)}
