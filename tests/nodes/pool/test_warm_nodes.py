"""How many nodes are kept up that have nothing, against the definition read word by word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.nodes.pool.warm_nodes import AdaptiveWarm, SteadyWarm

START_US, WITHIN_US = 30, 200

looks = st.lists(st.tuples(st.integers(1, 25), st.integers(0, 6)), min_size=1, max_size=60)


@given(looks)
def test_as_many_are_kept_as_were_wanted_more_within_one_start(steps: list[tuple[int, int]]) -> None:
    warm = AdaptiveWarm(1, 5, start_us=START_US, within_us=WITHIN_US)
    seen: list[tuple[int, int]] = []
    now = 0
    for after, used in steps:
        now += after
        seen.append((now, used))
        rises = []
        for at, then in seen:
            if at < now - WITHIN_US:
                continue
            # In force at any moment of [at - START_US, at]: said then, or last before it began.
            before = [count for when, count in seen if when <= at - START_US][-1:]
            rises.append(then - min([*before, *(c for when, c in seen if at - START_US < when <= at)]))
        assert warm.look(now, used).count == min(max(*rises, 0, 1), 5)


def test_how_long_a_start_takes_is_what_was_seen() -> None:
    """Used nodes rise by one every 100: within a start of 30 that is one more, within one of 350 three."""
    warm = AdaptiveWarm(0, 9, start_us=30, within_us=10_000)
    counts = [warm.look(at, at // 100).count for at in range(0, 1000, 10)]
    assert max(counts) == 1
    warm.started(1000, 350)
    assert max(warm.look(at, at // 100).count for at in range(1000, 2000, 10)) == 4


def test_what_is_long_ago_is_forgotten() -> None:
    warm = AdaptiveWarm(0, 9, start_us=30, within_us=200)
    assert [warm.look(at, used).count for at, used in ((0, 0), (10, 4), (210, 4), (211, 4))] == [0, 4, 4, 0]


@pytest.mark.parametrize("used", [0, 7])
def test_a_steady_number_is_kept_whatever_is_used(used: int) -> None:
    assert SteadyWarm(2).look(0, used).count == 2
