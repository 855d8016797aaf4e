"""Double entry: always zero together, each entry once, amounts bounded."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.errors import ContractError
from medusa.market.ledger.accounts import Account, AccountEntry, Accounts, Posting
from medusa.market.money import MONEY_MAX


def entry(
    number: int, micro: int, *, series: str = "a", giver: str = "ann", taker: str = "bob"
) -> AccountEntry:
    return AccountEntry(
        series=series,
        number=number,
        postings=(
            Posting(Account(taker, "c", "EUR"), micro),
            Posting(Account(giver, "c", "EUR"), -micro),
        ),
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(-1_000, 1_000), st.sampled_from("xyz"), st.sampled_from("xyz")
        )
    ),
    st.randoms(use_true_random=False),
)
def test_however_often_entries_come_each_counts_once(moves, chance):
    """Against sums by hand; the sum of all is zero after each."""
    accounts, expected, numbers = Accounts(), Counter(), Counter()
    for series, micro, giver, taker in moves:
        made = entry(numbers[series], micro, series=series, giver=giver, taker=taker)
        numbers[series] += 1
        expected[taker] += micro
        expected[giver] -= micro
        assert accounts.post(made)
        for _ in range(chance.randrange(3)):
            assert not accounts.post(made)
        assert not any(accounts.sums().values())
    found = {account.party: micro for account, micro in accounts.balances().items()}
    assert found == {party: expected[party] for party in found}
    assert set(expected) == set(found)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (
            AccountEntry(series="a", number=1, postings=(Posting(Account("x", "c", "EUR"), 1),)),
            "contract.entry",
        ),
        (
            AccountEntry(
                series="a",
                number=1,
                postings=(Posting(Account("x", "c", "EUR"), 1), Posting(Account("y", "c", "USD"), -1)),
            ),
            "contract.entry",
        ),
        (entry(2, 1), "contract.entry"),
        (entry(0, 2), "contract.entry"),
        (entry(1, MONEY_MAX + 1), "contract.amount"),
        (entry(1, MONEY_MAX), "contract.amount"),
    ],
    ids=["not zero", "not zero in a currency", "a gap", "another", "too much", "a balance too much"],
)
def test_a_wrong_entry_changes_nothing(wrong, code):
    accounts = Accounts()
    accounts.post(entry(0, 5))
    before = accounts.balances()
    with pytest.raises(ContractError) as caught:
        accounts.post(wrong)
    assert caught.value.code == code
    assert accounts.balances() == before
    assert accounts.expected("a") == 1


def test_a_series_that_is_carried_over_goes_on_where_it_was():
    accounts = Accounts()
    accounts.begin_at("a", 7)
    assert not accounts.post(entry(6, 1))
    assert accounts.post(entry(7, 40))
    assert accounts.balance(Account("bob", "c", "EUR")) == 40
    with pytest.raises(ContractError):
        accounts.begin_at("a", 9)
