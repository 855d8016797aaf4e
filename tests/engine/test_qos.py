"""Utility functions and their inference inward, beside brute force."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.qos.delay_utility import NOTHING, Utility, infer, total

Points = list[tuple[int, Fraction]]


@st.composite
def graphs(draw: st.DrawFn) -> Points:
    """Points of a latency graph; utilities are multiples of 1/64, so that floats are exact there."""
    xs = sorted(draw(st.lists(st.integers(0, 1000), min_size=2, max_size=6, unique=True)))
    ys = sorted((draw(st.integers(0, 64)) for _ in xs), reverse=True)
    return [(x, Fraction(y, 64)) for x, y in zip(xs, ys, strict=True)]


def brute(points: Points, x: Fraction) -> Fraction:
    """The value at x by looking at every piece."""
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]


def made(points: Points) -> Utility:
    return Utility((float(x), float(y)) for x, y in points)


ages = st.lists(st.integers(-50, 1200), min_size=1, max_size=8)


@settings(max_examples=100)
@given(graphs(), ages, st.integers(0, 500))
def test_values_shifts_and_falls(points: Points, xs: list[int], shift: int) -> None:
    graph = made(points)
    np.testing.assert_allclose(
        graph.at(np.array(xs)), [float(brute(points, Fraction(x))) for x in xs], atol=1e-12
    )
    shifted = graph.shift(shift)
    for x in xs:
        here, later = brute(points, Fraction(x)), brute(points, Fraction(x + shift))
        assert shifted.of(x) == pytest.approx(float(later), abs=1e-12)
        assert float(shifted.at(x)) == pytest.approx(float(later), abs=1e-12)
        assert float(graph.falls(x, shift)) == pytest.approx(float(here - later), abs=1e-12)
        assert float(graph.falls(x, shift)) >= -1e-12
    assert graph.at(xs[0]) == made(points).at(xs[0])  # nothing changed it


@settings(max_examples=100)
@given(graphs(), st.integers(-50, 1200))
def test_the_slack_is_how_long_nothing_is_lost(points: Points, x: int) -> None:
    slack = made(points).slack(x)
    here = brute(points, Fraction(x))
    if slack == float("inf"):
        assert brute(points, Fraction(10**6)) == here
        return
    assert brute(points, x + Fraction(slack)) == here > brute(points, x + Fraction(slack) + 1)


@settings(max_examples=60)
@given(st.lists(graphs(), min_size=1, max_size=4), ages)
def test_a_sum_is_the_sum(functions: list[Points], xs: list[int]) -> None:
    expected = [float(sum(brute(each, Fraction(x)) for each in functions)) for x in xs]
    np.testing.assert_allclose(
        total([made(each) for each in functions]).at(np.array(xs)), expected, atol=1e-12
    )
    assert total([]) is NOTHING


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    """Boxes in order, each read by later ones; the last are outputs, with a graph or without."""
    count = draw(st.integers(2, 7))
    order = [f"b{n}" for n in range(count)]
    readers: dict[str, list[str]] = {}
    for place, id in enumerate(order):
        later = order[place + 1 :]
        readers[id] = draw(st.lists(st.sampled_from(later), unique=True, max_size=3)) if later else []
    ends = [id for id in order if not readers[id]]
    outputs = {id: draw(graphs()) for id in ends if draw(st.booleans())}
    times = {id: draw(st.integers(0, 200)) for id in order}
    return {"order": order, "readers": readers, "outputs": outputs, "times": times}


def worth(net: dict[str, Any], id: str, age: Fraction) -> Fraction:
    """Follow a row that leaves a box at an age down every way, one by one."""
    if id in net["outputs"]:
        return brute(net["outputs"][id], age)
    found = Fraction(0)
    for reader in net["readers"][id]:
        found += worth(net, reader, age + net["times"][reader])
    return found


@settings(max_examples=100)
@given(networks(), st.integers(0, 1200))
def test_inference_is_following_every_way(net: dict[str, Any], age: int) -> None:
    outputs = {id: made(points) for id, points in net["outputs"].items()}
    leaving = infer(net["order"], net["readers"], outputs, net["times"])
    for id in net["order"]:
        assert float(leaving[id].at(age)) == pytest.approx(float(worth(net, id, Fraction(age))), abs=1e-9)


def test_the_formula_of_the_paper() -> None:
    # Q_i(t) = Q_o(t + T_B): source -> slow (T = 300) -> out.
    out = Utility([(0, 1), (1000, 0)])
    leaving = infer(["s", "slow", "out"], {"s": ["slow"], "slow": ["out"]}, {"out": out}, {"slow": 300.0})
    assert [float(leaving["s"].at(t)) for t in (0, 200, 700, 900)] == pytest.approx([0.7, 0.5, 0.0, 0.0])
    assert float(leaving["slow"].at(0)) == 1.0


def test_a_box_that_reads_a_stream_twice_counts_once() -> None:
    out = Utility([(0, 1), (1000, 0)])
    leaving = infer(["s", "join", "out"], {"s": ["join", "join"], "join": ["out"]}, {"out": out}, {})
    assert float(leaving["s"].at(0)) == 1.0
