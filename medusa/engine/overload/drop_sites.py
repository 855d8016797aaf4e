"""Where rows may be left out under overload: right behind sources, and where a stream parts.

Dropping early saves most. So a place is best as far up as it can be without touching outputs that
shall keep their rows (Tatbul et al., VLDB 2003, section 4): behind a source, and on each arc of a
stream that several boxes read, behind each port of a route, and behind a connection point, which keeps
all its rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from medusa._native import crc32c
from medusa.query.boxes import Aggregate, Box, ConnectionPoint, Input, Route, Sink, Source
from medusa.query.graph import CheckedGraph
from medusa.query.qos import Points

__all__ = [
    "Arc",
    "DropSite",
    "arcs_of",
    "cut_off",
    "find_places",
    "place_on",
    "ruled_places",
    "sources_above",
    "unbounded",
]

Arc = tuple[Input, str, int]
"""A stream, a box that reads it, and which of its inputs that is."""

LONG = 4
"""Of sliding windows at the edges of what is dropped rows are missing: so many lengths of one are dropped at
a time, so that not too many are at an edge."""

LCM_MAX = 16
"""Where windows of several lengths share a place, what is dropped at a time is at most so long, in lengths of
the longest."""


@dataclass(frozen=True)
class WindowsBelow:
    """Windows below a place.

    Attributes:
        id: of the box.
        slid_us: by how much two windows in a row overlap.
        above: boxes of windows that stand between it and the place, the nearest on each way.
    """

    id: str
    slid_us: int
    above: tuple[str, ...] = ()


@dataclass(frozen=True)
class DropSite:
    """A place for a drop.

    Attributes:
        box: where it is counted: the source that it stands behind, or the box that it stands before.
        stream: what comes to it.
        reader: the box behind it, and which input of that; None: all who read the stream.
        sinks: the outputs that miss what is dropped here, in the order of the query.
        window_us: rows go by whole stretches of time of this length, aligned to the epoch; None: row by row.
        windows: those below it, inputs first.
        value: the number of a column and the importance by its value: the least important rows go first.
    """

    box: str
    stream: Input
    reader: tuple[str, int] | None
    sinks: tuple[str, ...]
    window_us: int | None = None
    windows: tuple[WindowsBelow, ...] = ()
    value: tuple[int, Points] | None = None

    @property
    def how(self) -> str:
        """``windows``, ``value`` or ``random``."""
        return "windows" if self.window_us is not None else "value" if self.value is not None else "random"

    @property
    def key(self) -> str:
        """Where it stands and how it drops, as text: what a log and a checkpoint call it.

        Logs and checkpoints of earlier versions hold it: a changed form forgets what they say.
        """
        reader = ">" if self.reader is None else f"{self.reader[0]}>{self.reader[1]}"
        windows = [f"Windows(id={w.id!r}, slid_us={w.slid_us}, above={w.above!r})" for w in self.windows]
        listed = f"({windows[0]},)" if len(windows) == 1 else f"({', '.join(windows)})"
        what = crc32c(f"({self.value!r}, {self.window_us!r}, {listed})".encode())
        return f"{self.stream.box}.{self.stream.port}>{reader}>{self.how}>{what:08x}"

    def arcs(self, checked: CheckedGraph) -> list[Arc]:
        """The arcs that a drop here stands on."""
        if self.reader is not None:
            return [(self.stream, *self.reader)]
        return [(self.stream, *reader) for reader in checked.consumers.get(self.stream, ())]


def find_places(checked: CheckedGraph) -> list[DropSite]:
    """All places of a query, sources first, each where a drop leaves every output right or thinned out.

    None leads to an output without quality of service, or to a box that would give other rows than
    it gives with all its input (a sort, a running aggregate, an outer join ...).
    """
    boxes = checked.boxes
    found = []
    for box in checked.graph.boxes:
        for port in box.ports:
            stream = Input(box.id, port)
            readers = checked.consumers.get(stream, ())
            if isinstance(box, Source) and port == "":
                found.append(_place(checked, boxes, box.id, stream, None))
            parts = len(readers) > 1 or (isinstance(box, Route | ConnectionPoint) and bool(readers))
            # A box that reads a stream twice takes it whole: a self join of thinned rows is another thing.
            if parts and len({id for id, _ in readers}) == len(readers):
                found += [_place(checked, boxes, reader[0], stream, reader) for reader in readers]
    return [place for place in found if place is not None]


def ruled_places(checked: CheckedGraph) -> list[DropSite]:
    """Those right behind the sources of a fragment that have a rule (``Source.shed``): windows and outputs
    below may stand in other fragments."""
    found = []
    for box in checked.graph.boxes:
        if not isinstance(box, Source) or box.shed is None:
            continue
        stream, value = Input(box.id), box.shed.value
        below = _below(checked, [id for id, _ in checked.consumers.get(stream, ())])
        names = [field.name for field in box.schema]
        found.append(
            DropSite(
                box.id,
                stream,
                None,
                tuple(id for id, each in checked.boxes.items() if id in below and isinstance(each, Sink)),
                window_us=box.shed.window_us or None,
                value=None if value is None else (names.index(value[0]), value[1]),
            )
        )
    return found


def place_on(checked: CheckedGraph, arcs: Sequence[Arc]) -> DropSite | None:
    """What a drop on all these arcs of one stream could be; None: some output would be wrong, or keep to no
    rows left out."""
    stream = arcs[0][0]
    return _place_on(checked, checked.boxes, DropSite(stream.box, stream, None, ()), list(arcs))


def arcs_of(checked: CheckedGraph) -> Iterator[Arc]:
    """All arcs, in the order of the boxes that they come from."""
    for stream, readers in checked.consumers.items():
        for id, input in readers:
            yield stream, id, input


def sources_above(checked: CheckedGraph, place: DropSite) -> tuple[str, ...]:
    """The sources whose rows come by a place, in the order of the query."""
    found: set[str] = set()
    stack = [place.stream.box]
    while stack:
        id = stack.pop()
        if id not in found:
            found.add(id)
            stack += [arc.box for arc in checked.boxes[id].inputs]
    return tuple(id for id, box in checked.boxes.items() if id in found and isinstance(box, Source))


def cut_off(checked: CheckedGraph, places: Sequence[DropSite], id: str) -> list[DropSite]:
    """Places where all rows on their way to a box can be dropped, those that few outputs miss first.

    Returns:
        None of them where some rows would still come to it.
    """
    cut: list[DropSite] = []
    for place in sorted(places, key=lambda each: len(each.sinks)):
        arcs = place.arcs(checked)
        if id in _below(checked, [reader for _, reader, _ in arcs]):
            cut.append(place)
            if not _paths(checked, id, without=[arc for each in cut for arc in each.arcs(checked)]):
                return cut
    return []


def unbounded(checked: CheckedGraph) -> list[Box]:
    """The boxes that keep state, and from which not all rows can be kept away by dropping them."""
    places = find_places(checked)
    return [box for box in checked.graph.boxes if box.keeps_state and not cut_off(checked, places, box.id)]


def _place(
    checked: CheckedGraph,
    boxes: dict[str, Box],
    box: str,
    stream: Input,
    reader: tuple[str, int] | None,
) -> DropSite | None:
    made = DropSite(box, stream, reader, ())
    return _place_on(checked, boxes, made, made.arcs(checked))


def _place_on(
    checked: CheckedGraph, boxes: dict[str, Box], made: DropSite, arcs: list[Arc]
) -> DropSite | None:
    stream = made.stream
    below = _below(checked, [id for _, id, _ in arcs])
    sinks = tuple(id for id in boxes if id in below and isinstance(boxes[id], Sink))
    if not sinks or not all(_has_qos(boxes[id]) for id in sinks):
        return None
    windows: list[Aggregate] = []
    for id in (id for id in boxes if id in below):
        each = boxes[id]
        if isinstance(each, Aggregate) and _paths(checked, id, without=arcs):
            return None  # Every row of its windows must come by here.
        if not each.when_thinned:
            return None
        if isinstance(each, Aggregate):
            windows.append(each)
    if windows:
        if any(boxes[id].when_thinned == "pairs" for id in below):
            return None
        found = tuple(
            WindowsBelow(each.id, each.size_us - each.advance_us, _nearest(checked, each, below))
            for each in windows
        )
        return replace(made, sinks=sinks, window_us=_stretch_us(windows), windows=found)
    return replace(made, sinks=sinks, value=_value(checked, boxes, stream, below, sinks))


def _stretch_us(windows: Sequence[Aggregate]) -> int:
    """How much is dropped at a time: windows that touch it are absent, so few should do so in part."""
    least_us = math.lcm(*(each.advance_us for each in windows))
    longest_us = max(each.size_us for each in windows)
    if least_us > LCM_MAX * longest_us:
        return LONG * longest_us
    if all(each.advance_us == each.size_us for each in windows):
        return least_us
    return -(-LONG * longest_us // least_us) * least_us


def _nearest(checked: CheckedGraph, window: Aggregate, below: set[str]) -> tuple[str, ...]:
    """The first box of windows on each way up that is below the place."""
    found: set[str] = set()
    stack = [arc.box for arc in window.inputs]
    while stack:
        id = stack.pop()
        if id in below and id not in found:
            if isinstance(checked.boxes[id], Aggregate):
                found.add(id)
            else:
                stack += [arc.box for arc in checked.boxes[id].inputs]
    return tuple(id for id in checked.boxes if id in found)


def _has_qos(box: Box) -> bool:
    return isinstance(box, Sink) and box.qos is not None


def _readers(checked: CheckedGraph, box: Box) -> list[str]:
    """Who reads any stream of a box."""
    return [id for stream, id, _ in arcs_of(checked) if stream.box == box.id]


def _below(checked: CheckedGraph, ids: list[str]) -> set[str]:
    """These boxes and all that what they give leads to."""
    found: set[str] = set()
    stack = list(ids)
    while stack:
        id = stack.pop()
        if id not in found:
            found.add(id)
            stack += _readers(checked, checked.boxes[id])
    return found


def _paths(checked: CheckedGraph, id: str, *, without: list[Arc]) -> bool:
    """Whether rows of some source reach a box though none pass these arcs."""
    stack, seen = [id], set()
    while stack:
        box = checked.boxes[stack.pop()]
        if isinstance(box, Source):
            return True
        for input, stream in enumerate(box.inputs):
            if (stream, box.id, input) not in without and stream.box not in seen:
                seen.add(stream.box)
                stack.append(stream.box)
    return False


def _value(
    checked: CheckedGraph, boxes: dict[str, Box], stream: Input, below: set[str], sinks: tuple[str, ...]
) -> tuple[int, Points] | None:
    """The column of a stream that tells how important its rows are to the only output that they reach."""
    sink = boxes[sinks[0]]
    if len(sinks) > 1 or not isinstance(sink, Sink) or sink.qos is None or sink.qos.value is None:
        return None
    column, points = sink.qos.value
    name = _traced(boxes, sink.inputs[0], column, stream, below)
    if name is None:
        return None
    place = [field.name for field in checked.schemas[stream]].index(name)
    return place, points


def _traced(boxes: dict[str, Box], at: Input, name: str, stream: Input, below: set[str]) -> str | None:
    """What a column of a stream is called further up; None: it is computed, or comes another way."""
    while at != stream:
        box = boxes[at.box]
        if box.id not in below or len(box.inputs) != 1:
            return None
        source = box.column_from(name)
        if source is None:
            return None
        name = source
        at = box.inputs[0]
    return name
