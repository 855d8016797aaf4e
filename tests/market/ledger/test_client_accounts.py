"""Clients that pay beforehand: refused where nothing is left, stopped with notice only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.errors import ContractError
from medusa.market.ledger.client_accounts import (
    ClientAccounts,
    ClientNotice,
    ClientPrices,
    ClientStop,
    QueryUse,
)

PRICES = ClientPrices(query_micro=100, message_micro=3, unit_micro=7, grace_s=60)
SECOND = 1_000_000


def accounts(paid: int = 1_000) -> ClientAccounts:
    made = ClientAccounts("host", PRICES)
    if paid:
        made.pay_in("key", 0, paid)
    return made


def test_a_query_is_charged_once_and_messages_and_units_by_their_totals():
    made = accounts()
    made.start("key", "q")
    made.start("key", "q")
    made.used(0, "key", QueryUse(query="q", messages=10, nano_units=10**9 // 2))
    made.used(0, "key", QueryUse(query="q", messages=10, nano_units=10**9))
    made.used(0, "key", QueryUse(query="q", messages=4))
    assert made.balance_micro("key") == 1_000 - 100 - 30 - 7
    assert not any(made.accounts.sums().values())


@pytest.mark.parametrize("paid", [0, 1, 99])
def test_an_account_without_enough_starts_nothing(paid):
    made = accounts(paid)
    with pytest.raises(ContractError) as caught:
        made.start("key", "q")
    assert caught.value.code == "client.empty"
    assert made.balance_micro("key") == paid


def test_a_free_query_still_wants_an_account_with_something_in_it():
    made = ClientAccounts("host", ClientPrices(message_micro=1))
    with pytest.raises(ContractError):
        made.start("key", "q")


def test_what_runs_goes_on_for_the_grace_and_stops_with_notice():
    made = accounts(130)
    made.start("key", "q")
    made.used(5 * SECOND, "key", QueryUse(query="q", messages=10))
    notice = list(made.take())
    assert [type(each) for each in notice] == [ClientNotice]
    assert notice[0].stops_at_us == made.wake_at_us() == 65 * SECOND
    made.used(60 * SECOND, "key", QueryUse(query="q", messages=20))
    made.tick(65 * SECOND - 1)
    assert not list(made.take())
    made.tick(65 * SECOND)
    assert list(made.take()) == [
        ClientStop(client="key", queries=("q",), text="the account of 'key' has been empty for 60 s")
    ]
    made.tick(90 * SECOND)
    assert not list(made.take())
    with pytest.raises(ContractError):
        made.start("key", "other")
    assert made.balance_micro("key") == -30


def test_who_pays_within_the_grace_is_not_stopped():
    made = accounts(130)
    made.start("key", "q")
    made.used(0, "key", QueryUse(query="q", messages=20))
    list(made.take())
    assert made.pay_in("key", 1, 500)
    made.tick(10**9)
    assert not list(made.take())
    assert made.wake_at_us() is None


def test_a_payment_that_comes_again_counts_once():
    made = accounts()
    assert not made.pay_in("key", 0, 1_000)
    with pytest.raises(ContractError):
        made.pay_in("key", 2, 5)
    with pytest.raises(ContractError):
        made.pay_in("key", 1, 0)
    assert made.balance_micro("key") == 1_000


def test_a_query_that_is_not_there_uses_nothing():
    made = accounts()
    with pytest.raises(ContractError) as caught:
        made.used(0, "key", QueryUse(query="q", messages=1))
    assert caught.value.code == "client.query"


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10**10), st.booleans(), st.booleans()), max_size=30)
)
def test_whenever_it_dies_the_totals_cost_what_they_come_to(steps):
    """Against the totals at the end; a death forgets what wasn't kept."""
    made = accounts(10**9)
    made.start("key", "q")
    kept = made.state()
    messages = nano = 0
    for more, work, dies, keeps in steps:
        messages, nano = messages + more, nano + work
        made.used(0, "key", QueryUse(query="q", messages=messages, nano_units=nano))
        kept = made.state() if keeps else kept
        if dies:
            made = ClientAccounts("host", PRICES, kept)
        assert not any(made.accounts.sums().values())
    made.used(0, "key", QueryUse(query="q", messages=messages, nano_units=nano))
    assert made.balance_micro("key") == 10**9 - 100 - 3 * messages - 7 * nano // 10**9
    made.stopped("key", "q")
    made.stopped("key", "q")
    assert not made.state()[0].queries
