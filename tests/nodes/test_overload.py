"""When a load counts as too much, and when not any more."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.nodes.config.settings_load import LoadRules
from medusa.nodes.load.overload import Overload

RULES = LoadRules(high=0.9, low=0.7, high_for_us=1_000_000, low_for_us=3_000_000)
S = 1_000_000


def test_above_the_high_mark_for_its_time_and_below_the_low_one_for_its():
    overload = Overload(RULES)
    assert not overload.note(0, 0.95)
    assert not overload.note(S - 1, 0.95)
    assert overload.note(S, 0.95)
    assert overload.since_us == S
    assert not overload.note(2 * S, 0.8), "between the marks nothing changes"
    assert not overload.note(3 * S, 0.6)
    assert not overload.note(4 * S, 0.71), "the time below the mark begins anew"
    assert not overload.note(5 * S, 0.6)
    assert not overload.note(8 * S - 1, 0.6)
    assert overload.note(8 * S, 0.6)
    assert overload.since_us is None


def test_at_a_mark_is_not_beyond_it_and_the_unknown_is_nothing():
    overload = Overload(RULES)
    for at in range(10):
        assert not overload.note(at * S, 0.9)
    overload.note(10 * S, 0.91)
    assert not overload.note(11 * S, None)
    assert not overload.note(12 * S, 0.91), "its time begins anew"
    assert overload.note(13 * S, 0.91)
    for at in range(14, 30):
        assert not overload.note(at * S, 0.7)


@given(st.lists(st.tuples(st.integers(1, 2 * S), st.sampled_from([0.0, 0.69, 0.8, 0.91, 5.0])), max_size=60))
@settings(max_examples=100, deadline=None)
def test_a_verdict_stands_as_long_as_its_mark_says(steps):
    """Whatever comes, two changes are at least the time of the second one's mark apart."""
    overload, now, changes = Overload(RULES), 0, []
    for span, load in steps:
        now += span
        if overload.note(now, load):
            changes.append((now, overload.since_us is not None))
    for (before, _), (at, over) in pairwise(changes):
        assert at - before >= (RULES.high_for_us if over else RULES.low_for_us)
    assert [over for _, over in changes] == [place % 2 == 0 for place in range(len(changes))]
