"""The register of contracts, beside one that looks at every version each time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.errors import ContractError
from medusa.market.contract.register import ContractRegister
from tests.market.contract.parties import DAY_US, NOW_US, PLAIN, terms


def register(*contracts, own="acme") -> ContractRegister:
    made = ContractRegister(own)
    for each in contracts:
        made.add(each)
    return made


def test_a_contract_counts_from_its_begin_to_before_its_end():
    held = register(PLAIN)
    for at_us, found in ((-1, ()), (0, (PLAIN,)), (30 * DAY_US - 1, (PLAIN,)), (30 * DAY_US, ())):
        assert held.in_force(NOW_US + at_us) == found
    assert held.partners(NOW_US) == ("bigco",)
    assert held.partners(NOW_US - 1) == ()


def test_a_higher_version_takes_over_when_it_begins_and_never_gives_back():
    later = terms(version=2, begins_us=NOW_US + DAY_US, ends_us=NOW_US + 2 * DAY_US)
    held = register(PLAIN, later)
    assert held.get("bigco", "c1", NOW_US) == PLAIN
    assert held.get("bigco", "c1", NOW_US + DAY_US) == later
    assert held.newest("bigco", "c1") == later
    with pytest.raises(ContractError, match="has ended") as caught:
        held.get("bigco", "c1", NOW_US + 3 * DAY_US)
    assert caught.value.code == "contract.ended"


def test_what_is_added_twice_is_there_once():
    held = register(PLAIN)
    assert not held.add(PLAIN)
    later = terms(version=2, begins_us=NOW_US + 1)
    assert held.add(later)
    assert not held.add(PLAIN)
    assert not held.add(later)


@pytest.mark.parametrize(
    ("contract", "code"),
    [
        (terms(price_micro=30_000), "contract.version"),
        (terms(version=2, provider="bigco", consumer="acme"), "contract.version"),
        (terms(version=2, price_micro=30_000), "contract.version"),
        (terms(provider="carol"), "contract.party"),
        (terms(id="c2", range_micro=20_001), "contract.terms"),
    ],
)
def test_what_can_not_be_added_changes_nothing(contract, code):
    held = register(PLAIN)
    with pytest.raises(ContractError) as caught:
        held.add(contract)
    assert caught.value.code == code
    assert held.in_force(NOW_US) == (PLAIN,)
    assert held.newest("bigco", "c2") is None


def test_contracts_are_found_by_partner_and_shadow():
    shadow = terms(id="c2", consumer="carol", shadow=True)
    buys = terms(id="a0", provider="bigco", consumer="acme")
    held = register(PLAIN, shadow, buys)
    assert held.in_force(NOW_US) == (buys, PLAIN, shadow)
    assert held.in_force(NOW_US, "bigco") == (buys, PLAIN)
    assert held.in_force(NOW_US, shadow=True) == (shadow,)
    assert held.in_force(NOW_US, shadow=False) == (buys, PLAIN)
    assert held.in_force(NOW_US, "bigco", shadow=True) == ()


def test_ids_are_of_two_parties():
    other = terms(consumer="carol")
    held = register(PLAIN, other)
    assert held.get("bigco", "c1", NOW_US) == PLAIN
    assert held.get("carol", "c1", NOW_US) == other


def test_a_revocation_ends_all_versions_up_to_its_own():
    held = register(PLAIN, terms(version=2, begins_us=NOW_US + 1))
    assert held.revoke("bigco", "c1", 2, NOW_US + DAY_US)
    assert not held.revoke("bigco", "c1", 2, NOW_US + DAY_US)
    assert not held.revoke("bigco", "c1", 2, NOW_US + 2 * DAY_US)
    assert held.in_force(NOW_US + DAY_US - 1) != ()
    assert held.in_force(NOW_US + DAY_US) == ()
    assert held.ends_us("bigco", "c1", 1) == NOW_US + DAY_US
    again = terms(version=3, begins_us=NOW_US + DAY_US)
    held.add(again)
    assert held.in_force(NOW_US + DAY_US) == (again,)
    with pytest.raises(ContractError, match="no version 9"):
        held.revoke("bigco", "c1", 9, NOW_US)


def test_what_the_other_does_not_know_of_is_withdrawn_alone():
    held = register(PLAIN, terms(version=2, begins_us=NOW_US + 1))
    held.withdraw("bigco", "c1", 2)
    held.withdraw("bigco", "c9", 1)
    assert held.in_force(NOW_US) == (PLAIN,)
    held.withdraw("bigco", "c1", 1)
    assert held.newest("bigco", "c1") is None
    assert held.add(PLAIN)


def test_when_it_changes_and_what_is_over():
    held = register(PLAIN, terms(id="c2", begins_us=NOW_US + DAY_US))
    assert held.changes_at_us(NOW_US - 1) == NOW_US
    assert held.changes_at_us(NOW_US) == NOW_US + DAY_US
    assert held.changes_at_us(NOW_US + DAY_US) == PLAIN.ends_us
    assert held.changes_at_us(PLAIN.ends_us) is None
    assert held.forget(PLAIN.ends_us) == 0
    assert held.forget(PLAIN.ends_us + 1) == 2
    assert held.newest("bigco", "c1") is None


spans = st.tuples(st.integers(0, 9), st.integers(1, 9))
ascending = st.lists(spans, min_size=1, max_size=5, unique_by=lambda each: each[0]).map(sorted)


@given(
    ascending,
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20)), max_size=3),
    st.integers(0, 20),
)
def test_what_counts_is_what_brute_force_finds(versions, revocations, at):
    """A version counts that has begun, is the highest that has, hasn't ended and wasn't revoked."""
    day = lambda number: NOW_US + number * DAY_US  # noqa: E731
    contracts = [
        terms(version=number, begins_us=day(begin), ends_us=day(begin + length))
        for number, (begin, length) in enumerate(versions, 1)
    ]
    held = register(*contracts)
    revoked = [(version, ends) for version, ends in revocations if version <= len(contracts)]
    for version, ends in revoked:
        held.revoke("bigco", "c1", version, day(ends))
    begun = [each for each in contracts if each.begins_us <= day(at)]
    found = begun[-1:] if begun else []
    for each in begun[-1:]:
        if day(at) >= each.ends_us or any(v >= each.version and day(at) >= day(e) for v, e in revoked):
            found = []
    assert held.in_force(day(at)) == tuple(found)
