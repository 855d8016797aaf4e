"""Where the things of a federation stand in its drawing. Pure.

Owners are bands from top to bottom, nodes stand in columns in the order in which rows flow. A stream to the
next column crosses the gap between them; every other goes round in tracks beside the columns and in a lane
below the nodes of its band, so that none runs behind a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from medusa.apps.dashboard.block import NodeBlock
from medusa.apps.dashboard.network import CUT, UP, Link, NetworkView, NodeView, StandbyView, StreamView
from medusa.apps.dashboard.shapes import PADDING, Arrow, Drawn, Point, Rect, TextShape
from medusa.apps.dashboard.words import clipped
from medusa.runtime.client.status.guarded_fragments import GuardedFragment

__all__ = ["placed"]

MARGIN = 14.0
GAP_X, GAP_Y = 66.0, 18.0
TRACK, LANE = 7.0, 8.0
OWNER_HEADER = 30.0
ALONE_COLUMNS = 4
NAME_MAX = 60

Arc = StreamView | Link | StandbyView


def placed(network: NetworkView) -> Drawn:
    """Place everything; the same network always in the same way."""
    return _Placing(network).drawn


class _Placing:
    def __init__(self, network: NetworkView) -> None:
        self.drawn = Drawn()
        self._network = network
        self._column = _columns(network)
        self._blocks = _blocks(network)
        self._arcs: list[Arc] = [*network.streams, *(each for each in network.links if self._is_shown(each))]
        self._arcs += network.standbys
        self._tracks: Counter[int] = Counter()
        self._track: dict[int, tuple[int, int]] = {}
        for place, arc in enumerate(self._arcs):
            self._take_tracks(place, arc)
        self._lefts: list[float] = []
        self._widths: list[float] = []
        self._lanes: dict[int, float] = {}
        right = self._stand_across()
        bottom = self._stand_down()
        named = max((9.0 * min(len(owner), NAME_MAX) for owner in network.owners), default=0.0)
        width = max(right, named + 4 * MARGIN)
        self.drawn.frame(width + MARGIN, bottom)
        for owner, rect in self.drawn.owners.items():
            self.drawn.owners[owner] = Rect(MARGIN, rect.y, width - MARGIN, rect.height)
        self.drawn.connect(Arrow(arc, self._points(place, arc)) for place, arc in enumerate(self._arcs))

    def _is_shown(self, link: Link) -> bool:
        """A cut between two nodes that answer, which no stream shows: a node's death is seen without."""
        states = {node.name: node.state for node in self._network.nodes}
        shown = {frozenset((stream.origin, stream.target)) for stream in self._network.streams}
        alive = states[link.a] == states[link.b] == UP
        return link.state == CUT and alive and frozenset((link.a, link.b)) not in shown

    # --- from left to right -----------------------------------------------------------------------

    def _take_tracks(self, place: int, arc: Arc) -> None:
        """Which tracks beside columns an arc uses that goes round: behind its origin, before its target."""
        origin, target = _ends(arc)
        if self._column[target] != self._column[origin] + 1:
            out, into = self._column[origin] + 1, self._column[target]
            self._track[place] = (self._tracks[out], self._tracks[into] + (out == into))
            self._tracks.update([out, into])

    def _gap(self, place: int) -> float:
        """Width of the gap to the left of a column; the outer ones are only there for tracks."""
        inner = 0 < place <= max(self._column.values(), default=0)
        tracks = self._tracks[place]
        return (GAP_X if inner else 10.0 if tracks else 0.0) + tracks * TRACK

    def _stand_across(self) -> float:
        """Left end and width of each column; all nodes of one are as wide as its widest."""
        x = MARGIN + PADDING
        for column in range(1 + max(self._column.values(), default=-1)):
            x += self._gap(column)
            members = [self._blocks[name].width for name, each in self._column.items() if each == column]
            self._lefts.append(x)
            self._widths.append(max(members, default=0.0))
            x += self._widths[-1]
        return x + self._gap(len(self._lefts)) + PADDING

    # --- from top to bottom -----------------------------------------------------------------------

    def _stand_down(self) -> float:
        y = MARGIN
        owner_of = {node.name: node.owner for node in self._network.nodes}
        for owner in self._network.owners:
            top, starts = y, y + OWNER_HEADER
            ends = dict.fromkeys(range(len(self._lefts)), starts)
            for node in self._in_order([each for each in self._network.nodes if each.owner == owner]):
                column = self._column[node.name]
                block = self._blocks[node.name]
                rect = Rect(self._lefts[column], ends[column], self._widths[column], block.height)
                block.place(self.drawn, rect)
                ends[column] = rect.bottom + GAP_Y
            y = max(ends.values(), default=starts)
            for place in self._track:
                if owner_of[_ends(self._arcs[place])[0]] == owner:
                    self._lanes[place] = y
                    y += LANE
            self.drawn.owners[owner] = Rect(MARGIN, top, 0.0, y - top)
            title = clipped(owner, NAME_MAX) if owner else "not known whose"
            self.drawn.texts["owner", owner] = [TextShape(2 * MARGIN, top + 20, "owner", title)]
            y += GAP_Y
        return y

    def _in_order(self, members: Sequence[NodeView]) -> list[NodeView]:
        """Within a column in the order of those who send to them, which crosses fewer streams."""
        senders: dict[str, list[int]] = {node.name: [] for node in self._network.nodes}
        places = {node.name: place for place, node in enumerate(self._network.nodes)}
        for stream in self._network.streams:
            senders[stream.target].append(places[stream.origin])
        means = {name: sum(each) / len(each) if each else -1.0 for name, each in senders.items()}
        return sorted(members, key=lambda node: (means[node.name], places[node.name]))

    # --- arrows -----------------------------------------------------------------------------------

    def _points(self, place: int, arc: Arc) -> tuple[Point, ...]:
        start, end = self._ends_at(arc)
        if place not in self._track:
            return (start, end)
        origin, target = _ends(arc)
        out, into = self._track[place]
        column = self._column[origin]
        right = self._lefts[column] + self._widths[column] + 8 + out * TRACK
        left = self._lefts[self._column[target]] - 12 - into * TRACK
        y = self._lanes[place]
        return (start, (right, start[1]), (right, y), (left, y), (left, end[1]), end)

    def _ends_at(self, arc: Arc) -> tuple[Point, Point]:
        origin, target = _ends(arc)
        start, end = self._at_node(origin, right=True), self._at_node(target, right=False)
        if isinstance(arc, StreamView):
            start = self.drawn.outs.get((origin, arc.origin_fragment, arc.name), start)
            end = self.drawn.ins.get((target, arc.target_fragment, arc.name, origin), end)
        elif isinstance(arc, StandbyView):
            if (origin, arc.fragment) in self.drawn.fragments:
                start = _at(self.drawn.fragments[origin, arc.fragment][1], right=True)
            end = _at(self.drawn.standbys[target, arc.fragment][1], right=False)
        return start, end

    def _at_node(self, name: str, *, right: bool) -> Point:
        return _at(self.drawn.nodes[name][1], right=right)


def _at(rect: Rect, *, right: bool) -> Point:
    return (rect.right if right else rect.x), rect.y + 15


def _blocks(network: NetworkView) -> dict[str, NodeBlock]:
    guarded: dict[str, dict[str, GuardedFragment]] = {node.name: {} for node in network.nodes}
    standbys: dict[str, list[StandbyView]] = {node.name: [] for node in network.nodes}
    for one in network.guarded:
        guarded[one.replicas.owner][one.fragment] = one
    for each in network.standbys:
        standbys[each.node].append(each)
    return {node.name: NodeBlock(node, guarded[node.name], standbys[node.name]) for node in network.nodes}


def _ends(arc: Arc) -> tuple[str, str]:
    match arc:
        case StreamView():
            return arc.origin, arc.target
        case StandbyView():
            return arc.owner, arc.node
        case _:
            return arc.a, arc.b


def _columns(network: NetworkView) -> dict[str, int]:
    """Node -> its column: behind all that send to it, streams that close a cycle left out."""
    after: dict[str, list[str]] = {node.name: [] for node in network.nodes}
    for stream in network.streams:
        if stream.target != stream.origin and stream.target not in after[stream.origin]:
            after[stream.origin].append(stream.target)
    order, kept = _without_cycles(after)
    column = dict.fromkeys(after, 0)
    for name in order:
        for target in kept[name]:
            column[target] = max(column[target], column[name] + 1)
    linked = {name for name, targets in after.items() if targets} | {
        target for targets in after.values() for target in targets
    }
    _spread(network, column, linked)
    return column


def _without_cycles(after: dict[str, list[str]]) -> tuple[list[str], dict[str, list[str]]]:
    """The names so that whoever sends stands before its receivers, and who sends to whom in that order."""
    targets = {target for each in after.values() for target in each}
    kept: dict[str, list[str]] = {name: [] for name in after}
    done: dict[str, bool] = {}
    order: list[str] = []
    for start in sorted(after, key=lambda name: (name in targets, name)):
        if start in done:
            continue
        done[start] = False
        ways = [(start, iter(sorted(after[start])))]
        while ways:
            name, left = ways[-1]
            target = next(left, None)
            if target is None:
                done[name] = True
                order.append(name)
                ways.pop()
            elif target not in done:
                kept[name].append(target)
                done[target] = False
                ways.append((target, iter(sorted(after[target]))))
            elif done[target]:  # else it lies on the way here: this stream closes a cycle
                kept[name].append(target)
    return order[::-1], kept


def _spread(network: NetworkView, column: dict[str, int], linked: set[str]) -> None:
    """Let nodes without streams fill the columns evenly instead of standing in one."""
    alone = [node for node in network.nodes if node.name not in linked]
    wide = max(max(column.values(), default=0) + 1, min(ALONE_COLUMNS, len(alone)))
    for owner in network.owners:
        used = Counter(
            column[node.name] for node in network.nodes if node.owner == owner and node.name in linked
        )
        for node in alone:
            if node.owner == owner:
                column[node.name] = min(range(wide), key=lambda each: (used[each], each))
                used[column[node.name]] += 1
