"""What may be left out under overload at the inputs of each fragment of a query. Pure.

    cars ── moving ──┬── alarms (qos)          at = edge: cars, moving    core: counts, alarms, report
                     └── counts ── report (qos)

    edge   behind cars          whole windows, for alarms and report
    core   behind moving        the same: what comes to it leads to both

The outputs, and the windows between, may stand at other nodes than the rows that are left out: so it is found
in the whole query, by the rules of ``engine/overload/drop_sites``. Left out is only what leaves each window
below whole or absent, without a look at what other nodes do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from medusa.engine.overload.drop_sites import Arc, DropSite, place_on
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Aggregate, Box, Graph, Input, Sink, Source
from medusa.query.boxes.shedding_rule import SheddingRule, ThinnedOutput
from medusa.query.graph import CheckedGraph, check_graph

__all__ = ["with_shedding"]


def with_shedding(plan: PlacementPlan, graph: Graph) -> PlacementPlan:
    """The plan with a rule at each source behind which rows may be left out, and at no other.

    Args:
        graph: the query, as it was cut.
    """
    if not any(isinstance(box, Sink) and box.qos is not None for box in graph.boxes):
        return _without(plan)
    found = _Rules(plan, check_graph(graph))
    return replace(plan, fragments=tuple(found.ruled(fragment) for fragment in plan.fragments))


def _without(plan: PlacementPlan) -> PlacementPlan:
    """No source keeps a rule that a client made up."""
    return replace(plan, fragments=tuple(_with_rules(fragment, {}) for fragment in plan.fragments))


def _with_rules(fragment: FragmentSpec, rules: Mapping[str, SheddingRule]) -> FragmentSpec:
    boxes = fragment.graph.boxes
    if not rules and not any(isinstance(box, Source) and box.shed is not None for box in boxes):
        return fragment
    made = tuple(
        msgspec.structs.replace(box, shed=rules.get(box.id)) if isinstance(box, Source) else box
        for box in boxes
    )
    graph = msgspec.structs.replace(fragment.graph, boxes=made)
    return msgspec.structs.replace(fragment, graph=graph)


class _Rules:
    """Finds them.

    Args:
        checked: the whole query.
    """

    def __init__(self, plan: PlacementPlan, checked: CheckedGraph) -> None:
        self._checked = checked
        self._names = {
            ".".join(part for part in (checked.graph.name, stream.box, stream.port) if part): stream
            for stream in checked.consumers
        }
        self._homes: dict[str, list[FragmentSpec]] = {}
        for fragment in plan.fragments:
            for box in fragment.graph.boxes:
                if self._stands_in(box):
                    self._homes.setdefault(box.id, []).append(fragment)
        self._hops: dict[str, dict[str, int]] = {}

    def _stands_in(self, box: Box) -> bool:
        """Whether a box of a fragment is one of the query, and no source that only brings what comes from
        it."""
        whole = self._checked.boxes.get(box.id)
        if isinstance(box, Source):
            return isinstance(whole, Source) and whole.judged == box.judged
        return whole is not None

    def ruled(self, fragment: FragmentSpec) -> FragmentSpec:
        """A fragment with the rules of its sources."""
        if fragment.delay_us or fragment.reads_again or fragment.keeps_nothing:
            # Its forks, or who succeeds it, would leave out other rows than it did.
            return _with_rules(fragment, {})
        rules = {box.id: self._rule(fragment, box) for box in fragment.graph.boxes if isinstance(box, Source)}
        return _with_rules(fragment, {id: rule for id, rule in rules.items() if rule is not None})

    def _rule(self, fragment: FragmentSpec, source: Source) -> SheddingRule | None:
        arcs = self._arcs(fragment, source)
        place = place_on(self._checked, arcs) if arcs else None
        if place is None or (place.window_us is not None and not self._leaves_windows_whole(place)):
            return None
        value = None if place.value is None else (source.schema[place.value[0]].name, place.value[1])
        return SheddingRule(
            outputs=tuple(self._output(fragment, sink) for sink in place.sinks),
            window_us=place.window_us or 0,
            value=value,
        )

    def _arcs(self, fragment: FragmentSpec, source: Source) -> list[Arc]:
        """The arcs of the whole query that rows go on from this source; none: it is no stream of it alone."""
        whole = self._checked.boxes.get(source.id)
        if isinstance(whole, Source) and (source.id in fragment.entries or whole.of is not None):
            stream = Input(source.id)
            readers = self._checked.consumers.get(stream, ())
        else:
            feed = next((each for each in fragment.feeds if each.source == source.id), None)
            known = None if feed is None else self._names.get(feed.stream)
            if known is None:
                return []  # parts of a window, or what nobody named
            stream, own = known, {box.id for box in fragment.graph.boxes}
            readers = tuple(each for each in self._checked.consumers.get(stream, ()) if each[0] in own)
        # Of several copies each would leave out other windows than the next.
        if len(self._homes.get(stream.box, ())) != 1:
            return []
        return [(stream, *reader) for reader in readers]

    def _leaves_windows_whole(self, place: DropSite) -> bool:
        """Whether no window below lacks a part of its rows: nobody there would know."""
        windows = [self._checked.boxes[each.id] for each in place.windows]
        return all(
            isinstance(box, Aggregate)
            and box.size_us == box.advance_us
            and place.window_us is not None
            and place.window_us % box.size_us == 0
            for box in windows
        )

    def _output(self, fragment: FragmentSpec, sink: str) -> ThinnedOutput:
        box = self._checked.boxes[sink]
        assert isinstance(box, Sink), "places lead to sinks"
        assert box.qos is not None, "no rows of others are left out"
        return ThinnedOutput(sink, box.qos, self._hops_to(sink).get(fragment.name, 1))

    def _hops_to(self, sink: str) -> dict[str, int]:
        """Fragment -> the most fragments on a way from it to an output, both included."""
        if sink not in self._hops:
            hops: dict[str, int] = {}
            boxes: dict[str, int] = {sink: 0}
            for box in reversed(self._checked.graph.boxes):
                if box.id not in boxes:
                    continue
                here = [each.name for each in self._homes.get(box.id, ())]
                for name in here:
                    hops[name] = max(hops.get(name, 0), boxes[box.id] + 1)
                for arc in box.inputs:
                    beside = any(each.name in here for each in self._homes.get(arc.box, ()))
                    further = boxes[box.id] + (0 if beside else 1)
                    boxes[arc.box] = max(boxes.get(arc.box, 0), further)
            self._hops[sink] = hops
        return self._hops[sink]
