"""``Recent`` against the sum that it is said to be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.qos.rates import Recent


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=40), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_each_look_before_counts_seven_eighths_of_what_it_did(growth: list[int], begin: int) -> None:
    recent, count = Recent(begin), begin
    for grown in growth:
        count += grown
        assert recent.look(count) == grown
    want = sum(grown * 0.875**age for age, grown in enumerate(reversed(growth)))
    assert recent.grown == pytest.approx(want)
    assert recent.last == count


def test_a_count_that_begins_anew_has_not_shrunk() -> None:
    recent = Recent()
    recent.look(8)
    assert (recent.look(2), recent.grown) == (0, 7.0)
    assert (recent.look(3), recent.last) == (1, 3)
