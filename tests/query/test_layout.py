"""Where the boxes of a drawing stand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.query.render.layout import layered

Sizes = list[tuple[float, float]]
Arcs = list[tuple[int, int]]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Sizes, Arcs]:
    sizes = draw(st.lists(st.tuples(st.integers(10, 200), st.integers(10, 80)), min_size=1, max_size=14))
    pairs = st.tuples(st.integers(0, len(sizes) - 1), st.integers(0, len(sizes) - 1))
    arcs = draw(st.lists(pairs, max_size=20))
    return [(w, h) for w, h in sizes], [(min(arc), max(arc)) for arc in arcs if arc[0] != arc[1]]


@settings(max_examples=100)
@given(shapes())
def test_layout_keeps_layers_gaps_and_bounds(
    drawing: tuple[Sizes, Arcs],
) -> None:
    sizes, arcs = drawing
    made = layered(sizes, arcs, gap_x=60, gap_y=20)
    for (width, height), node in zip(sizes, made.nodes, strict=False):
        assert node.width >= width
        assert node.height == height
        assert node.x >= -0.001
        assert node.x + node.width <= made.width + 0.001
        assert node.y >= -0.001
        assert node.y + node.height <= made.height + 0.001
    for (origin, target), way in zip(arcs, made.ways, strict=True):
        assert (way[0], way[-1]) == (origin, target)
        assert all(made.nodes[bend].bend for bend in way[1:-1])
        layers = [made.nodes[place].layer for place in way]
        assert layers == list(range(layers[0], layers[0] + len(way)))
        for one, following in pairwise(way):
            left, right = made.nodes[one], made.nodes[following]
            assert left.x + left.width + 59.999 <= right.x
    boxes = made.nodes[: len(sizes)]
    for one in boxes:
        for other in boxes:
            if one is not other and one.layer == other.layer:
                assert one.y + one.height + 19.999 <= other.y or other.y + other.height + 19.999 <= one.y


def test_layout_untangles() -> None:
    """Two chains that cross as defined don't cross as drawn."""
    made = layered([(10, 10)] * 4, [(0, 3), (1, 2)])
    a, b, c, d = made.nodes
    assert (a.y < b.y) == (d.y < c.y)
    assert a.middle == pytest.approx(d.middle)
    assert b.middle == pytest.approx(c.middle)


def test_layout_of_very_many_long_arcs_ends() -> None:
    count = 400
    chain = [(index, index + 1) for index in range(count - 1)]
    made = layered([(10, 10)] * count, chain + [(index, count - 1) for index in range(count - 2)])
    assert len(made.nodes) == count
    assert all(len(way) == 2 for way in made.ways)
    assert [node.layer for node in made.nodes] == list(range(count))


def test_layout_of_nothing() -> None:
    made = layered([], [])
    assert (made.width, made.height, made.nodes) == (0.0, 0.0, [])
