"""Smoothed rates against the weighted mean that they are said to be."""

from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.qos.rates import Smoothed, ratio
from medusa.errors import LocalProtocolError

H = 5_000_000
SPANS = st.lists(st.integers(1, 60_000_000), min_size=1, max_size=20)


def weighted_mean(half_life_us: int, spans: list[int], rates: list[float]) -> float:
    """The definition: each moment weighs half of one that is a half-life later."""
    now = sum(spans)
    whole = weighed = 0.0
    begin = 0
    for span, rate in zip(spans, rates, strict=True):
        end = begin + span
        weight = 2.0 ** (-(now - end) / half_life_us) - 2.0 ** (-(now - begin) / half_life_us)
        whole += weight
        weighed += weight * rate
        begin = end
    return weighed / whole


@given(SPANS, st.integers(0, 100), st.integers(1, 10**9))
@settings(max_examples=100, deadline=None)
def test_a_constant_rate_is_told_exactly_whatever_the_moments(spans, per_us, half_life_us):
    smoothed, now = Smoothed(half_life_us), 7
    smoothed.note(now, [0, 5])
    for span in spans:
        now += span
        smoothed.note(now, [per_us * (now - 7), 5])
        assert smoothed.rates == [per_us * 1e6, 0.0]


@given(st.data(), SPANS)
@settings(max_examples=100, deadline=None)
def test_it_is_the_mean_by_the_definition_at_irregular_moments(data, spans):
    growth = data.draw(st.lists(st.integers(0, 10**12), min_size=len(spans), max_size=len(spans)))
    smoothed, now, count = Smoothed(H), 0, 0
    smoothed.note(now, [count])
    for place, (span, grown) in enumerate(zip(spans, growth, strict=True), start=1):
        now, count = now + span, count + grown
        smoothed.note(now, [count])
        rates = [grown * 1e6 / span for span, grown in zip(spans[:place], growth[:place], strict=True)]
        want = weighted_mean(H, spans[:place], rates)
        assert smoothed.rates is not None
        assert isfinite(smoothed.rates[0])
        assert smoothed.rates[0] == pytest.approx(want, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("cuts", [1, 3, 50])
def test_a_step_is_half_followed_after_a_half_life(cuts):
    smoothed = Smoothed(H)
    smoothed.note(0, [0.0])
    smoothed.note(200 * H, [0.0])  # A long rest: what was before it weighs nothing.
    for cut in range(1, cuts + 1):
        smoothed.note(200 * H + cut * H // cuts, [100.0 * (cut * H // cuts) / 1e6])
    assert smoothed.rates == [pytest.approx(50.0, rel=1e-12)]
    smoothed.note(202 * H, [100.0 * 2 * H / 1e6])
    assert smoothed.rates == [pytest.approx(75.0, rel=1e-12)]


def test_time_that_stands_or_runs_back_is_no_time_and_loses_no_count():
    smoothed = Smoothed(H)
    smoothed.note(10, [0])
    assert smoothed.rates is None
    smoothed.note(10, [100])
    smoothed.note(9, [200])
    assert smoothed.rates is None
    smoothed.note(1_000_010, [300])
    assert smoothed.rates == [300]


def test_a_count_that_begins_anew_is_no_negative_rate():
    smoothed = Smoothed(H)
    smoothed.note(0, [1000])
    smoothed.note(1_000_000, [5])
    assert smoothed.rates == [5]


def test_a_rest_of_years_leaves_no_nan_and_ratios_of_nothing_are_unknown():
    smoothed = Smoothed(100_000)
    smoothed.note(0, [0, 0])
    smoothed.note(1_000_000, [10**9, 10**9])
    smoothed.note(1 << 60, [10**9, 10**9])
    assert smoothed.rates == [0, 0]
    assert ratio(*smoothed.rates) is None
    assert ratio(1, 2) == 0.5
    with pytest.raises(LocalProtocolError):
        Smoothed(0)
