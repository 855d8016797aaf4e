"""Bills and chains of receipts, against fractions."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.market.ledger.chain import (
    ReceiptChain,
    exposure_most_micro,
    interval_most_nano,
    worth_micro,
)
from medusa.market.ledger.intervals import Slot
from medusa.market.ledger.receipts import TaskReading
from tests.market.ledger.pair import TERMS, terms


def rows(begin: int, end: int, nano: int = 10**6, price: int = 10**6, task: str = "t", negotiation: int = 0):
    return TaskReading(
        task=task,
        negotiation=negotiation,
        begin_row=begin,
        end_row=end,
        nano_units_per_row=nano,
        price_micro=price,
    )


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 10**8), st.integers(0, 10**6)), max_size=3),
        max_size=20,
    ),
    st.sampled_from([0, 10**6, 10**9]),
)
def test_readings_come_to_what_all_rows_cost_at_once(readings, cap_micro):
    """Up to the cap of each settlement period, in which ten intervals are."""
    contract = terms(cap_micro=cap_micro, settlement_s=100)
    chain, at, work, periods = ReceiptChain(), {}, Fraction(0), {}
    for interval, tasks in enumerate(readings):
        billed = []
        for number, (count, nano, price) in enumerate(tasks):
            begin = at.get(number, 0)
            billed.append(rows(begin, begin + count, nano, price, f"t{number}", number))
            at[number] = begin + count
            work += Fraction(count * nano * price, 10**9)
        reading = chain.draft("fed", contract, Slot(1, interval), billed, 0)
        assert not chain.fault(reading, contract, {})
        chain.apply(reading, contract)
        periods[interval // 10] = periods.get(interval // 10, 0) + reading.amount_micro
        assert ReceiptChain(chain.state()).state() == chain.state()
    if cap_micro:
        assert all(micro <= cap_micro for micro in periods.values())
        assert chain.total_micro <= work
    else:
        assert chain.total_micro + Fraction(chain.rest, 10**9) == work
        assert 0 <= chain.rest < 10**9
    assert chain.total_micro == sum(periods.values())


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"number": 3}, "number"),
        ({"number": 1}, "number"),
        ({"interval": 1}, "interval"),
        ({"tasks": (rows(101, 200),)}, "paid up to"),
        ({"tasks": (rows(99, 200),)}, "paid up to"),
        ({"tasks": (rows(100, 99),)}, "paid up to"),
        ({"tasks": (rows(100, 150), rows(150, 200))}, "comes twice"),
        ({"tasks": (rows(0, 1, task="z"), rows(100, 200))}, "in order"),
        ({"tasks": (rows(100, 201),)}, "these rows"),
        ({"amount_micro": 100_001}, "these rows"),
        ({"rest": 1}, "these rows"),
        ({"breach_micro": 1}, "these rows"),
        ({"total_micro": 200_001}, "totals"),
        ({"breaches_micro": 1}, "totals"),
    ],
)
def test_whatever_does_not_follow_from_the_receipts_before_is_said(changed, says):
    chain = ReceiptChain()
    for number in range(2):
        reading = chain.draft("fed", TERMS, Slot(1, 2 + number), [rows(50 * number, 50 + 50 * number)], 0)
        chain.apply(reading, TERMS)
    right = chain.draft("fed", TERMS, Slot(1, 5), [rows(100, 200)], 0)
    assert not chain.fault(right, TERMS, {})
    assert says in chain.fault(msgspec.structs.replace(right, **changed), TERMS, {})


def test_exposure_is_two_intervals_at_the_highest_load_and_price():
    """One unit a second for 1 EUR: ten seconds are worth 10 EUR."""
    assert interval_most_nano(TERMS) == 10 * 10**9
    assert worth_micro(interval_most_nano(TERMS), TERMS.price_micro) == 10 * 10**6
    assert 20 * 10**6 <= exposure_most_micro(TERMS) <= 20 * 10**6 + 2
