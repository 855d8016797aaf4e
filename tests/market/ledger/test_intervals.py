"""Intervals of versions, against counting them second by second."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.errors import ContractError
from medusa.market.ledger.intervals import ContractIntervals, Slot, promise_kept
from tests.market.ledger.pair import BEGIN_US, SECOND, TERMS, terms


def later(number: int, begins_s: int, **changed):
    return terms(version=number, begins_us=BEGIN_US + begins_s * SECOND, **changed)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 13)), min_size=1, max_size=4),
    st.integers(5, 150),
)
def test_each_second_is_in_the_interval_that_counting_gives(versions, ends_s):
    """``ordinal`` numbers them all without a gap."""
    made, at = [], 0
    for number, (after_s, interval_s) in enumerate(versions, 1):
        ends_us = BEGIN_US + ends_s * SECOND
        made.append(later(number, at, interval_s=interval_s, ends_us=max(ends_us, BEGIN_US + at * SECOND)))
        at += after_s
    found = ContractIntervals(made[0])
    for contract in made[1:]:
        assert found.add(contract)
        assert not found.add(contract)
    expected, ordinal = {}, -1
    for second in range(at + 200):
        now = BEGIN_US + second * SECOND
        counts = [each for each in made if each.begins_us <= now]
        newest = counts[-1]
        if now >= newest.ends_us:
            expected[second] = None
            continue
        begun = (now - newest.begins_us) // SECOND
        if begun % newest.interval_s == 0:
            ordinal += 1
        expected[second] = Slot(newest.version, begun // newest.interval_s), ordinal
    for second, slot in expected.items():
        now = BEGIN_US + second * SECOND
        assert found.at(now) == (slot and slot[0])
        if slot is not None:
            assert found.ordinal(slot[0]) == slot[1]
            assert found.has(slot[0])
            ends = next(
                (each for each in range(second, max(expected) + 1) if expected[each] != slot), second + 1
            )
            assert found.ends_at_us(slot[0]) == BEGIN_US + ends * SECOND
        before = [
            expected[each] for each in range(second) if expected[each] is not None and expected[each] != slot
        ]
        assert found.last_ended(now) == (before[-1][0] if before else None)


def test_a_revocation_ends_it_and_is_never_taken_back():
    found = ContractIntervals(TERMS)
    found.end(1, BEGIN_US + 25 * SECOND)
    found.end(1, BEGIN_US + 90 * SECOND)
    assert found.at(BEGIN_US + 24 * SECOND) == Slot(1, 2)
    assert found.at(BEGIN_US + 25 * SECOND) is None
    assert found.ends_at_us(Slot(1, 2)) == BEGIN_US + 25 * SECOND
    assert not found.has(Slot(1, 3))


def test_a_version_that_is_signed_after_a_revocation_counts():
    found = ContractIntervals(TERMS)
    found.end(1, BEGIN_US + 25 * SECOND)
    assert found.add(later(2, 50))
    assert found.at(BEGIN_US + 49 * SECOND) is None
    assert found.at(BEGIN_US + 50 * SECOND) == Slot(2, 0)
    assert found.ordinal(Slot(2, 0)) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        terms(price_micro=1),
        later(1, 5),
        later(2, 0),
        later(2, 5, currency="USD"),
        later(2, 5, consumer="third"),
        later(2, 5, id="other"),
    ],
)
def test_a_version_that_does_not_follow_is_refused_and_changes_nothing(wrong):
    found = ContractIntervals(TERMS)
    with pytest.raises(ContractError) as caught:
        found.add(wrong)
    assert caught.value.code == "contract.version"
    assert found.all == (TERMS,)


def test_a_version_before_the_newest_is_refused():
    found = ContractIntervals(TERMS)
    found.add(later(3, 50))
    with pytest.raises(ContractError):
        found.add(later(2, 20))


@pytest.mark.parametrize(
    ("missed_us", "latency_us", "kept"),
    [(0, 0, True), (SECOND, 500, True), (SECOND + 1, 0, False), (0, 501, False)],
)
def test_a_promise_is_kept_up_to_its_figures(missed_us, latency_us, kept):
    """90 % of ten seconds leave one."""
    promised = terms(availability_ppm=900_000, latency_us=500)
    assert promise_kept(promised, missed_us, latency_us) is kept
    assert promise_kept(TERMS, missed_us, latency_us)
    assert promise_kept(msgspec.structs.replace(promised, latency_us=0), 0, latency_us)
