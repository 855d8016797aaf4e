"""The inside of a node in the drawing: its fragments below each other, boxes and ports in them, and what it
stands by for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from medusa.apps.dashboard.network import (
    UNASKED,
    UP,
    NodeView,
    StandbyView,
    input_rate,
    output_rate,
    unstable,
)
from medusa.apps.dashboard.shapes import PADDING, SIZES, Drawn, Rect, TextShape, width_of
from medusa.apps.dashboard.words import (
    ago,
    clipped,
    count,
    lag,
    of_guarded,
    per_second,
    percent,
    secondary,
    unstable_for,
)
from medusa.query.render.layout import Layout, layered
from medusa.runtime.client.status.guarded_fragments import GuardedFragment
from medusa.wire.status_and_metrics import ConsistencyStatus, FragmentStatus, InputStatus, OutputStatus

__all__ = ["NodeBlock"]

HEADER = 42.0
FRAGMENT_HEADER = 38.0
GUARDED = 14.0
"""More, where somebody stands by."""
PORT = 15.0
BETWEEN = 12.0
NODE_WIDTH_MIN = 176.0
NAME_MAX, BOX_NAME_MAX = 34, 22
MIDDLE = 18.0
"""Least room between what stands at the left and at the right of a line of ports."""


class NodeBlock:
    """A node: how large it must be, and, once its place is known, everything in it.

    Args:
        guarded: fragments that it has and others stand by for, by name.
        standbys: for what it stands by.

    Attributes:
        width, height: at least and exactly.
    """

    def __init__(
        self,
        node: NodeView,
        guarded: Mapping[str, GuardedFragment] | None = None,
        standbys: Sequence[StandbyView] = (),
    ) -> None:
        self._node = node
        self._title = clipped(node.name, NAME_MAX)
        self._state = clipped(node_state(node), 60)
        known = guarded or {}
        self._parts: list[_FragmentBlock | _StandbyBlock] = [
            _FragmentBlock(node, fragment, known.get(fragment.fragment)) for fragment in node.fragments
        ]
        self._parts += [_StandbyBlock(each) for each in standbys]
        header = width_of([("node", self._title), ("state", self._state)])
        inner = max((part.width for part in self._parts), default=0.0)
        self.width = max(NODE_WIDTH_MIN, header + 2 * PADDING, inner + 2 * PADDING)
        self.height = HEADER + sum(part.height + BETWEEN for part in self._parts)

    def place(self, drawn: Drawn, rect: Rect) -> None:
        """Put all of it where ``rect`` is, which is as high as this says and at least as wide."""
        name = self._node.name
        drawn.nodes[name] = (self._node, rect)
        drawn.texts["node", name] = [
            TextShape(rect.x + PADDING, rect.y + 19, "node", self._title),
            TextShape(rect.x + PADDING, rect.y + 34, "state", self._state),
        ]
        y = rect.y + HEADER
        for part in self._parts:
            part.place(drawn, Rect(rect.x + PADDING, y, rect.width - 2 * PADDING, part.height))
            y += part.height + BETWEEN


@dataclass(frozen=True, slots=True)
class _PortLine:
    stream: str
    text: str
    origin: str = ""
    unstable: ConsistencyStatus | None = None


class _FragmentBlock:
    def __init__(self, node: NodeView, fragment: FragmentStatus, guarded: GuardedFragment | None) -> None:
        self._node = node
        self._fragment = fragment
        self._title = clipped(fragment.fragment, NAME_MAX + 8)
        self._figures = clipped(fragment_figures(fragment), 60)
        self._guarded = [] if guarded is None else [clipped(line, 60) for line in of_guarded(guarded)]
        self._header = FRAGMENT_HEADER + GUARDED * len(self._guarded)
        self._ins = _in_lines(node, fragment)
        self._outs = _out_lines(node, fragment)
        self._boxes = list(fragment.boxes)
        self._layout = _layout(fragment)
        left = width_of([("port", line.text) for line in self._ins])
        right = width_of([("port", line.text) for line in self._outs])
        self._ports = PORT * max(len(self._ins), len(self._outs))
        figures = [("figures", text) for text in (self._figures, *self._guarded)]
        titles = width_of([("fragment", self._title), *figures])
        self.width = 2 * PADDING + max(titles, left + MIDDLE + right, self._layout.width)
        boxes = self._layout.height + 12.0 if self._boxes else 0.0
        self.height = self._header + self._ports + boxes + 6.0

    def place(self, drawn: Drawn, rect: Rect) -> None:
        node, name = self._node.name, self._fragment.fragment
        drawn.fragments[node, name] = (self._fragment, rect)
        texts = drawn.texts["fragment", node, name] = [
            TextShape(rect.x + PADDING, rect.y + 16, "fragment", self._title),
            TextShape(rect.x + PADDING, rect.y + 30, "figures", self._figures),
        ]
        for place, text in enumerate(self._guarded):
            texts.append(TextShape(rect.x + PADDING, rect.y + 44 + place * GUARDED, "figures", text))
        top = rect.y + self._header
        for place, line in enumerate(self._ins):
            y = top + place * PORT + 10
            texts.append(TextShape(rect.x + PADDING, y, "port", line.text))
            drawn.ins[node, name, line.stream, line.origin] = (rect.x, y - 3)
        for place, line in enumerate(self._outs):
            y = top + place * PORT + 10
            texts.append(TextShape(rect.right - PADDING, y, "port", line.text, end=True))
            drawn.outs[node, name, line.stream] = (rect.right, y - 3)
            if line.unstable is not None:
                width = width_of([("port", line.text)])
                place_of = Rect(rect.right - PADDING - width, y - SIZES["port"], width + 4, PORT - 1)
                drawn.unstable[node, name, line.stream] = (line.unstable, place_of)
        self._place_boxes(drawn, rect.x + (rect.width - self._layout.width) / 2, top + self._ports + 6.0)

    def _place_boxes(self, drawn: Drawn, left: float, top: float) -> None:
        node, name = self._node.name, self._fragment.fragment
        stands = self._layout.nodes
        for each, at in zip(self._boxes, stands, strict=False):
            rect = Rect(left + at.x, top + at.y, at.width, at.height)
            box = self._fragment.boxes[each]
            drawn.boxes[node, name, each] = (box, rect)
            y = rect.y + 4.0
            lines = []
            for role, text in _box_lines(self._fragment, each):
                y += SIZES[role] + 3
                lines.append(TextShape(rect.x + 7, y, role, text))
            drawn.texts["box", node, name, each] = lines
        for way in self._layout.ways:
            points = [(left + stands[way[0]].x + stands[way[0]].width, top + stands[way[0]].middle)]
            for bend in way[1:-1]:
                points.append((left + stands[bend].x, top + stands[bend].middle))
                points.append((left + stands[bend].x + stands[bend].width, top + stands[bend].middle))
            points.append((left + stands[way[-1]].x, top + stands[way[-1]].middle))
            drawn.arcs.append(((node, name), self._boxes[way[0]], self._boxes[way[-1]], points))


class _StandbyBlock:
    """What a node stands by for: no boxes, since it shows nothing."""

    def __init__(self, standby: StandbyView) -> None:
        self._standby = standby
        self._title = clipped(standby.fragment, NAME_MAX + 8)
        told = secondary(standby.state, standby.since_us, standby.behind_bytes)
        self._figures = clipped(f"stands by for {standby.owner}: {told}", 60)
        titles = width_of([("fragment", self._title), ("figures", self._figures)])
        self.width = 2 * PADDING + titles
        self.height = FRAGMENT_HEADER

    def place(self, drawn: Drawn, rect: Rect) -> None:
        key = self._standby.node, self._standby.fragment
        drawn.standbys[key] = (self._standby, rect)
        drawn.texts["standby", *key] = [
            TextShape(rect.x + PADDING, rect.y + 16, "fragment", self._title),
            TextShape(rect.x + PADDING, rect.y + 30, "figures", self._figures),
        ]


def node_state(node: NodeView) -> str:
    """A line on a node: how it is, in words."""
    if node.state == UNASKED:
        return "not asked: named by others"
    if node.status is None:
        return f"unreachable: {node.why}"
    if node.state != UP:
        return f"unreachable, last seen {ago(node.age_s)} ago"
    status = node.status
    text = f"up  {per_second(status.rows_in_per_s)} in  {per_second(status.rows_out_per_s)} out"
    return f"{text}  disk: {status.disk_error}" if status.disk_error else text


def fragment_figures(fragment: FragmentStatus) -> str:
    """A line on a fragment: its state, rates, lag, and what went wrong."""
    text = f"{fragment.state or '?'}  {per_second(fragment.rows_in_per_s)} in"
    text += f"  {per_second(fragment.rows_out_per_s)} out  lag {lag(fragment.lag_us)}"
    if fragment.lost_unknown:
        text += f"  lost at least {count(fragment.lost_rows)}" if fragment.lost_rows else "  lost: unknown"
    elif fragment.lost_rows:
        text += f"  lost {count(fragment.lost_rows)}"
    return f"{text}  {fragment.failed}" if fragment.failed else text


def _in_lines(node: NodeView, fragment: FragmentStatus) -> list[_PortLine]:
    """One for each stream of a node, one for all programs that publish into a source."""
    known = node.status.peers if node.status is not None else {}
    senders: dict[tuple[str, str], list[InputStatus]] = {}
    for input in fragment.inputs:
        of_node = input.origin in known or input.origin == node.name
        senders.setdefault((input.stream, input.origin if of_node else ""), []).append(input)
    lines = []
    for (stream, origin), inputs in senders.items():
        came = origin or f"{len(inputs)} program{'s' * (len(inputs) != 1)}"
        rate = input_rate(fragment, inputs)
        text = f"{clipped(stream, NAME_MAX)} from {clipped(came, 16)}"
        lines.append(_PortLine(stream, text if rate is None else f"{text} {per_second(rate)}", origin))
    return lines


def _out_lines(node: NodeView, fragment: FragmentStatus) -> list[_PortLine]:
    """One for each stream; of a node that doesn't answer nobody knows how they are."""
    lines = []
    for output in fragment.outputs:
        of = unstable(output) if node.state == UP else None
        text = _out_text(fragment, output)
        text = text if of is None else f"{text}, {unstable_for(of)}"
        lines.append(_PortLine(output.stream, text, unstable=of))
    return lines


def _out_text(fragment: FragmentStatus, output: OutputStatus) -> str:
    text = f"{clipped(output.stream, NAME_MAX)} {per_second(output_rate(fragment, output))}"
    # Each query that reads a sink has a stream of its own.
    queries = sum(each.of == output.sink != each.sink for each in fragment.outputs)
    readers = len(output.receivers) + len(output.named) + queries
    if readers == 1 and output.receivers and not output.receivers[0].plain:
        return f"{text} to {clipped(output.receivers[0].to, 16)}"
    return f"{text} to {readers} reader{'s' * (readers != 1)}"


def _layout(fragment: FragmentStatus) -> Layout:
    """Boxes from left to right; arcs that close a cycle, which no valid query has, are left out."""
    places = {box: place for place, box in enumerate(fragment.boxes)}
    arcs = [
        (places[origin], places[target])
        for origin, _, target in fragment.arcs
        if origin in places and target in places and places[origin] < places[target]
    ]
    sizes = []
    for box in fragment.boxes:
        lines = _box_lines(fragment, box)
        height = sum(SIZES[role] + 3 for role, _ in lines) + 10.0
        sizes.append((max(62.0, width_of(lines) + 14.0), height))
    return layered(sizes, arcs, gap_x=26.0, gap_y=10.0)


def _box_lines(fragment: FragmentStatus, name: str) -> list[tuple[str, str]]:
    box = fragment.boxes[name]
    figures = f"{per_second(box.rows_in_per_s)} load {percent(box.load)}"
    lines = [
        ("kind", clipped(box.kind, BOX_NAME_MAX)),
        ("box", clipped(name, BOX_NAME_MAX)),
        ("kind", figures),
    ]
    if box.queue_rows:
        lines.append(("kind", f"{count(box.queue_rows)} rows wait"))
    return lines
