"""Box splitting (Aurora*, CIDR'03, 2.3): a router by ranges of the key's hash, parts of the box, a merge.

                    +-- per_src-1 --+
    -- per_src-router               per_src --      per_src: an ordered merge
                    +-- per_src-2 --+

Pure: a graph in, a graph out. The merge takes the id of the box, so whoever reads it reads on. The
router numbers rows, the parts carry the number of the first row that each result was made of, and
the merge puts results into the order in which the whole box would have sent them (docs/splitting.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from medusa.errors import QueryError
from medusa.query.boxes import Aggregate, Box, Graph, Input, KeyRouter, Lookup, OrderedMerge
from medusa.query.boxes.base import SplitPlan
from medusa.query.boxes.splits import PARTS_MAX
from medusa.query.expressions.expression import Named
from medusa.query.graph import check_graph, label_of
from medusa.query.rewrite.key_ranges import even_cuts
from medusa.query.rewrite.table_copies import with_tables
from medusa.query.suggest import did_you_mean

__all__ = [
    "BLOCK_ROWS",
    "SplitBoxes",
    "cuts_of",
    "find_split",
    "functions_of_parts",
    "in_order",
    "merge",
    "routed_box",
    "split",
]

BLOCK_ROWS = 1_024
"""Rows without a key that go the same way."""


@dataclass(frozen=True, slots=True)
class SplitBoxes:
    """The boxes of a box that was split.

    Attributes:
        routers: one for each input of the box.
        parts: in order of their ranges.
        merges: for each port of the box that is read; the last one has the id of the box.
        whole: the box as it was.
    """

    routers: tuple[KeyRouter, ...]
    parts: tuple[Box, ...]
    merges: tuple[Box, ...]
    whole: Box

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(box.id for box in (*self.routers, *self.parts, *self.merges))

    @property
    def boxes(self) -> tuple[Box, ...]:
        """In an order in which inputs come first."""
        return (*self.routers, *self.parts, *self.merges)


def split(
    graph: Graph,
    box: str,
    n: int | None = None,
    *,
    cuts: Sequence[int] | None = None,
    block: int = BLOCK_ROWS,
) -> Graph:
    """Run a box as ``n`` parts, each over a range of its keys.

    Args:
        box: its id.
        n: how many parts, from 2.
        cuts: where ranges of ``hash_partition`` of the keys end, ascending; n - 1 of them. None: even ranges.
        block: of boxes without keys: so many rows go the same way.

    Raises:
        QueryError: no such box; it can't be split so that the answer stays the same, with the reason.
    """
    graph_boxes = {each.id: each for each in graph.boxes}
    found = _box_of(graph_boxes, box, graph.name)
    parts = _count(n, cuts)
    made = _Splitter(graph, found, parts, cuts, block).run()
    after = msgspec.structs.replace(graph, boxes=tuple(with_tables(_with(graph.boxes, found, made))))
    check_graph(after)
    return after


def merge(graph: Graph, box: str) -> Graph:
    """Run a box that was split as one again.

    Raises:
        QueryError: no such box, or it isn't split.
    """
    found = find_split(graph, box)
    gone = {id for id in found.ids if id != box}
    ports = {_port_id(box, port): Input(box, port) for port in found.whole.ports}
    boxes = []
    for each in graph.boxes:
        if each.id == box:
            boxes.append(found.whole)
        elif each.id not in gone:
            boxes.append(_reads(each, {Input(id): arc for id, arc in ports.items() if id in gone}))
    after = msgspec.structs.replace(graph, boxes=tuple(with_tables(in_order(boxes))))
    check_graph(after)
    return after


def find_split(graph: Graph, box: str) -> SplitBoxes:
    """The boxes of a box that was split.

    Raises:
        QueryError: no such box, or it isn't split.
    """
    boxes = {each.id: each for each in graph.boxes}
    last = _box_of(boxes, box, graph.name)
    ids = [arc.box for arc in last.inputs]
    combined = isinstance(last, Aggregate) and last.stage == "combine"
    if not (isinstance(last, OrderedMerge) or combined) or ids != [_part_id(box, i) for i in range(len(ids))]:
        raise QueryError(f"{label_of(last)} isn't split", code="query.split")
    parts = tuple(boxes[id] for id in ids)
    routers = tuple(boxes[arc.box] for arc in parts[0].inputs)
    if not all(isinstance(router, KeyRouter) for router in routers):
        raise QueryError(f"{label_of(last)} isn't split", code="query.split")
    first = parts[0]
    more = [boxes[id] for port in first.ports if (id := _port_id(box, port)) != box and id in boxes]
    hidden = last.hidden if isinstance(last, OrderedMerge) else ()
    inputs = tuple(router.inputs[0] for router in routers)
    return SplitBoxes(
        routers=routers,  # type: ignore[arg-type]
        parts=parts,
        merges=(*more, last),
        whole=msgspec.structs.replace(first.without(hidden), id=box, inputs=inputs),
    )


def functions_of_parts(graph: Graph, box: str, functions: Mapping[str, object]) -> dict[str, object]:
    """Functions that aren't registered, by box, where parts of a box call its own; it keeps it for a merge.

    Args:
        graph: in which it is split.
    """
    if box not in functions:
        return dict(functions)
    parts = find_split(graph, box).parts
    return {**functions, **{part.id: functions[box] for part in parts}}


def cuts_of(graph: Graph, box: str) -> tuple[int, ...]:
    """Where the ranges of a box that was split end, but the last; without a key there are none.

    Raises:
        QueryError: no such box, or it isn't split.
    """
    return find_split(graph, box).routers[0].cuts


def _box_of(boxes: Mapping[str, Box], id: str, query: str) -> Box:
    if id not in boxes:
        raise QueryError(
            f"query {query!r} has no box {str(id)[:80]!r}",
            hint=did_you_mean(str(id), boxes),
            code="query.box",
        )
    return boxes[id]


def _count(n: int | None, cuts: Sequence[int] | None) -> int:
    if n is None and cuts is not None:
        n = len(cuts) + 1
    if type(n) is not int or not 2 <= n <= PARTS_MAX:
        raise QueryError(f"split: n is from 2 to {PARTS_MAX}, got {n!r:.40}", code="query.split")
    return n


def _part_id(box: str, part: int) -> str:
    return f"{box}-{part + 1}"


def _port_id(box: str, port: str) -> str:
    return f"{box}-out-{port}" if port else box


def routed_box(router: str) -> str:
    """The box to whose parts a router of this name sends; empty: no router has such a name."""
    of = _ROUTER.fullmatch(router)
    return of[1] if of else ""


_ROUTER = re.compile("(.+)-router(-left|-right|-[1-9][0-9]*)?")
"""As ``_router_id`` names them."""


def _router_id(box: str, input: int, inputs: int) -> str:
    if inputs == 2:
        return f"{box}-router-{('left', 'right')[input]}"
    return f"{box}-router-{input + 1}" if input else f"{box}-router"


class _Splitter:
    def __init__(self, graph: Graph, box: Box, parts: int, cuts: Sequence[int] | None, block: int) -> None:
        self._graph = graph
        self._box = box
        self._parts = parts
        self._cuts = cuts
        self._block = block
        checked = check_graph(graph)
        self._read = [arc.port for arc, readers in checked.consumers.items() if arc.box == box.id and readers]
        shapes = [checked.shapes[arc] for arc in (*box.inputs, Input(box.id))]
        self._taken = {field.name for shape in shapes for field in shape.schema}
        self._untimed = [arc for arc in box.inputs if not checked.shapes[arc].timed]

    def run(self) -> SplitBoxes:
        box = self._box
        if box.stays_whole:
            self._refuse(box.stays_whole)
        if isinstance(box, Lookup) and self._untimed == [box.inputs[1]]:
            self._refuse("nothing updates its table, so no boundary comes of it")
        if self._untimed:
            self._refuse("its stream has no time, so no boundary tells a merge that all parts have passed it")
        if "dead" in self._read:
            self._refuse("its .dead is read, whose rows have no time by which they could be merged")
        found = box.split(self._name)
        if isinstance(found, str):
            self._refuse(found)
        assert isinstance(found, SplitPlan)
        if self._cuts is not None and not found.keys[0]:
            self._refuse("it has no key, so there are no ranges to cut: its rows go in blocks")
        if isinstance(box, Aggregate) and not box.keys:
            return self._by_partials(box)
        return self._by_merge(found)

    def _refuse(self, why: str) -> None:
        raise QueryError(f"{label_of(self._box)} can't be split: {why}", code="query.split")

    def _name(self, suffix: str) -> str:
        """Of a hidden column: no other column of the box has it."""
        name, number = f"_position{suffix}", 1
        while name in self._taken:
            number += 1
            name = f"_position{number}{suffix}"
        return name

    def _by_partials(self, box: Aggregate) -> SplitBoxes:
        if box.early_us is not None:
            self._refuse("it has no key, and early results don't come from partial ones")
        routers = self._routers([()], (None,))
        part = msgspec.structs.replace(box, stage="partial")
        parts = self._copies(part, routers)
        inputs = tuple(Input(each.id) for each in parts)
        combine = msgspec.structs.replace(box, inputs=inputs, stage="combine")
        return SplitBoxes(routers, parts, (combine,), box)

    def _by_merge(self, made: SplitPlan) -> SplitBoxes:
        routers = self._routers(made.keys, made.numbers or made.positions, last_time=made.last_time)
        parts = self._copies(made.part, routers)
        ports = [port for port in made.part.ports if port and port in self._read]
        merges = tuple(
            OrderedMerge(
                id=_port_id(self._box.id, port),
                inputs=tuple(Input(each.id, port) for each in parts),
                positions=made.positions,
                by=made.by,
                arrival=made.arrival,
                within_us=made.within_us,
                release=made.release,
            )
            for port in (*ports, "")
        )
        return SplitBoxes(routers, parts, merges, self._box)

    def _routers(
        self, keys: Sequence[tuple[Named, ...]], names: Sequence[str | None], *, last_time: bool = False
    ) -> tuple[KeyRouter, ...]:
        cuts = even_cuts(self._parts) if self._cuts is None else tuple(self._cuts)
        box = self._box
        return tuple(
            KeyRouter(
                id=_router_id(box.id, input, len(keys)),
                inputs=(box.inputs[input],),
                parts=self._parts,
                keys=by,
                cuts=cuts if by else (),
                block=None if by else self._block,
                number=number,
                last_time=last_time,
            )
            for input, (by, number) in enumerate(zip(keys, names, strict=True))
        )

    def _copies(self, part: Box, routers: Sequence[KeyRouter]) -> tuple[Box, ...]:
        return tuple(
            msgspec.structs.replace(
                part,
                id=_part_id(self._box.id, number),
                inputs=tuple(Input(router.id, router.ports[number]) for router in routers),
            )
            for number in range(self._parts)
        )


def _with(boxes: Iterable[Box], whole: Box, made: SplitBoxes) -> Iterable[Box]:
    """All boxes, with these in place of one; who read its other ports reads their merges."""
    ports = {Input(whole.id, port): Input(_port_id(whole.id, port)) for port in whole.ports if port}
    for box in boxes:
        if box.id == whole.id:
            yield from made.boxes
        else:
            yield _reads(box, ports)


def _reads(box: Box, instead: Mapping[Input, Input]) -> Box:
    inputs = tuple(instead.get(arc, arc) for arc in box.inputs)
    return box if inputs == box.inputs else msgspec.structs.replace(box, inputs=inputs)


def in_order(boxes: Sequence[Box]) -> list[Box]:
    """Boxes with inputs first, else as they were: readers of another port may stand before the last merge."""
    made: list[Box] = []
    waiting = list(boxes)
    known: set[str] = set()
    while waiting:
        ready = next(box for box in waiting if all(arc.box in known for arc in box.inputs))
        waiting.remove(ready)
        made.append(ready)
        known.add(ready.id)
    return made
