"""A round of messages is as long as they take."""

from __future__ import annotations

import pytest

from medusa.runtime.transport.round_size import MESSAGES_MAX, MESSAGES_MIN, ROUND_S, RoundSize


def rounds(each_s, count, size=None):
    """So many rounds that are full, of messages that take so long each."""
    size, now_s = size or RoundSize(), 0.0
    for _ in range(count):
        size.gave(now_s, size.most)
        now_s += size.most * each_s
        size.handled(now_s)
    return size


@pytest.mark.parametrize(
    ("each_s", "most"),
    [
        (1e-6, MESSAGES_MAX),
        (ROUND_S / 20, 20),
        (ROUND_S / 2, MESSAGES_MIN),
        (1.0, MESSAGES_MIN),
        (0.0, MESSAGES_MAX),
    ],
)
def test_it_fits_after_one_round_whatever_a_message_takes(each_s, most):
    assert rounds(each_s, 1).most == pytest.approx(most, abs=1)


def test_it_grows_again_little_by_little():
    size = rounds(1.0, 1)
    found = [rounds(1e-6, 1, size).most for _ in range(5)]
    assert found == [8, 16, 32, 64, 64]


def test_a_round_in_which_nothing_came_says_nothing():
    size = rounds(1.0, 1)
    size.gave(10.0, 0)
    size.handled(11.0)
    size.handled(12.0)
    assert size.most == MESSAGES_MIN


def test_a_clock_that_stands_or_goes_back_makes_no_round_shorter():
    size = RoundSize()
    size.gave(5.0, 3)
    size.handled(4.0)
    assert size.most == MESSAGES_MAX
