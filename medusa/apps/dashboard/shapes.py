"""What a drawing of a federation is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from medusa.apps.dashboard.network import Link, NodeView, StandbyView, StreamView
from medusa.apps.dashboard.words import columns
from medusa.wire.status_and_metrics import BoxStatus, ConsistencyStatus, FragmentStatus

__all__ = ["PADDING", "SIZES", "Arrow", "Drawn", "FragmentKey", "Point", "Rect", "TextShape", "width_of"]

Point = tuple[float, float]
FragmentKey = tuple[str, str]
"""Node and fragment; the fragment is empty for a stream at a node whose fragments aren't known."""

CHARACTER = 0.62
"""Width of a monospaced character in ems, with some room."""
SIZES = {
    "owner": 13,
    "node": 13,
    "state": 10,
    "fragment": 11,
    "figures": 10,
    "port": 10,
    "box": 11,
    "kind": 9,
}
PADDING = 10.0


@dataclass(frozen=True, slots=True)
class Rect:
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> Point:
        return self.x + self.width / 2, self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class TextShape:
    """A line of text, from its left end or (``end``) to its right end."""

    x: float
    y: float
    role: str
    text: str
    end: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """The way of a stream or a link, or from an owner to who stands by for it: two points for a curve over a
    gap, more for lines with corners."""

    what: StreamView | Link | StandbyView
    points: tuple[Point, ...]


@dataclass(slots=True)
class Drawn:
    """Everything with its place.

    Attributes:
        standbys: by the node that stands by, and fragment.
        boxes: by node, fragment and box.
        arcs: within fragments: of which, from box, to box, and the points on the way.
        texts: in no other thing's place: by what they belong to, ``("node", "edge-1")``.
        ins: where a stream enters: by node, fragment, its name and the node that it comes from.
        outs: where a stream leaves: by node, fragment and its name.
        unstable: of those the ones with ``delay`` that aren't stable, and the line of text that says so.
    """

    width: float = 0.0
    height: float = 0.0
    owners: dict[str, Rect] = field(default_factory=dict)
    nodes: dict[str, tuple[NodeView, Rect]] = field(default_factory=dict)
    fragments: dict[FragmentKey, tuple[FragmentStatus, Rect]] = field(default_factory=dict)
    standbys: dict[FragmentKey, tuple[StandbyView, Rect]] = field(default_factory=dict)
    boxes: dict[tuple[str, str, str], tuple[BoxStatus, Rect]] = field(default_factory=dict)
    arcs: list[tuple[FragmentKey, str, str, list[Point]]] = field(default_factory=list)
    texts: dict[tuple[str, ...], list[TextShape]] = field(default_factory=dict)
    ins: dict[tuple[str, str, str, str], Point] = field(default_factory=dict)
    outs: dict[tuple[str, str, str], Point] = field(default_factory=dict)
    unstable: dict[tuple[str, str, str], tuple[ConsistencyStatus, Rect]] = field(default_factory=dict)
    arrows: list[Arrow] = field(default_factory=list)

    def frame(self, width: float, height: float) -> None:
        """It is so large."""
        self.width, self.height = width, height

    def connect(self, arrows: Iterable[Arrow]) -> None:
        """Everything has its place: these go from one to another."""
        self.arrows = list(arrows)


def width_of(lines: Sequence[tuple[str, str]]) -> float:
    """Of the widest of some lines: (role, text)."""
    return max((columns(text) * SIZES[role] * CHARACTER for role, text in lines), default=0.0)
