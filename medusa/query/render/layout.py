"""Where the boxes of a drawing stand: layers from left to right, few crossings, no overlap.

The method is Sugiyama's: long arcs get a bend in every layer they cross, the order within a layer
follows the mean of the neighbours, and heights are the least squares that keep the order.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["Layout", "LayoutNode", "layered"]

SWEEPS = 12
BENDS_MAX = 20_000
"""In a drawing that would need more, long arcs go straight and may pass behind boxes."""


@dataclass(slots=True)
class LayoutNode:
    """A box to place, or a bend of a long arc (``bend``)."""

    width: float
    height: float
    bend: bool = False
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(slots=True)
class Layout:
    """Placed nodes (the boxes first, in their order), the way of each arc, and the size of all."""

    nodes: list[LayoutNode]
    ways: list[list[int]]
    width: float
    height: float


def layered(
    sizes: Sequence[tuple[float, float]],
    arcs: Sequence[tuple[int, int]],
    *,
    gap_x: float = 60.0,
    gap_y: float = 22.0,
) -> Layout:
    """Place boxes.

    Args:
        sizes: (width, height) of each box.
        arcs: (from, to) by position in ``sizes``; every arc leads to a later box.
        gap_x, gap_y: least distances.

    Returns:
        boxes of one layer share x and the width of the widest; no two overlap; the top left
        corner is at 0, 0. ``ways[i]`` are the nodes that arc i passes, both ends included.
    """
    nodes = [LayoutNode(width, height) for width, height in sizes]
    for origin, target in sorted(arcs, key=lambda arc: arc[1]):
        nodes[target].layer = max(nodes[target].layer, nodes[origin].layer + 1)
    bends = sum(nodes[target].layer - nodes[origin].layer - 1 for origin, target in arcs)
    ways = [_way(nodes, origin, target, straight=bends > BENDS_MAX) for origin, target in arcs]
    layers: list[list[int]] = [[] for _ in range(1 + max((node.layer for node in nodes), default=-1))]
    for index, node in enumerate(nodes):
        layers[node.layer].append(index)
    layers = _ordered(nodes, layers)
    width = _columns(nodes, layers, gap_x)
    height = _rows(nodes, layers, gap_y)
    return Layout(nodes, ways, width, height)


def _way(nodes: list[LayoutNode], origin: int, target: int, *, straight: bool) -> list[int]:
    between = range(nodes[origin].layer + 1, nodes[target].layer)
    if straight and between:
        return [origin, target]
    way = [origin]
    for layer in between:
        nodes.append(LayoutNode(0.0, 6.0, bend=True, layer=layer))
        way.append(len(nodes) - 1)
    way.append(target)
    for one, next_one in pairwise(way):
        nodes[one].after.append(next_one)
        nodes[next_one].before.append(one)
    return way


def _ordered(nodes: list[LayoutNode], layers: list[list[int]]) -> list[list[int]]:
    """The order within each layer with the fewest crossings met in some sweeps to and fro."""
    best, fewest = layers, _crossings(nodes, layers)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        forward = sweep % 2 == 0
        layers = [list(layer) for layer in layers]
        for layer in layers[1:] if forward else layers[-2::-1]:
            places = {index: place for line in layers for place, index in enumerate(line)}
            means = {
                index: _mean([places[other] for other in _sides(nodes[index], forward)], places[index])
                for index in layer
            }
            layer.sort(key=means.__getitem__)
        crossings = _crossings(nodes, layers)
        if crossings < fewest:
            best, fewest = layers, crossings
    return best


def _sides(node: LayoutNode, forward: bool) -> list[int]:
    return node.before if forward else node.after


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _crossings(nodes: list[LayoutNode], layers: list[list[int]]) -> int:
    count = 0
    for left, right in pairwise(layers):
        places = {index: place for place, index in enumerate(right)}
        seen: list[int] = []
        for index in left:
            ends = sorted(places[other] for other in nodes[index].after)
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


def _columns(nodes: list[LayoutNode], layers: list[list[int]], gap: float) -> float:
    x = 0.0
    for layer in layers:
        width = max(nodes[index].width for index in layer)
        for index in layer:
            nodes[index].x, nodes[index].width = x, width
        x += width + gap
    return max(0.0, x - gap)


def _rows(nodes: list[LayoutNode], layers: list[list[int]], gap: float) -> float:
    for layer in layers:
        _settle(nodes, layer, [0.0] * len(layer), gap)
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            wishes = []
            for index in layer:
                node = nodes[index]
                neighbours = [nodes[other].middle for other in (*node.before, *node.after)]
                wishes.append(_mean(neighbours, node.middle) - node.height / 2)
            _settle(nodes, layer, wishes, gap)
    top = min((node.y for node in nodes), default=0.0)
    for node in nodes:
        node.y -= top
    return max((node.y + node.height for node in nodes), default=0.0)


def _settle(nodes: list[LayoutNode], layer: list[int], wishes: list[float], gap: float) -> None:
    """Heights nearest to the wishes (least squares) that keep order and gap: pool adjacent violators."""
    offsets, offset = [], 0.0
    for index in layer:
        offsets.append(offset)
        offset += nodes[index].height + (gap / 2 if nodes[index].bend else gap)
    blocks: list[tuple[float, int]] = []
    for wish, start in zip(wishes, offsets, strict=True):
        total, count = wish - start, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before, held = blocks.pop()
            total, count = total + before, count + held
        blocks.append((total, count))
    place = 0
    for total, count in blocks:
        for _ in range(count):
            nodes[layer[place]].y = total / count + offsets[place]
            place += 1
