"""Every contradiction is found, named by its field, and nothing else is."""

from __future__ import annotations

import pytest

from medusa.errors import ContractError
from medusa.market.contract.checks import (
    check_counter,
    check_not_ended,
    check_notice,
    check_successor,
    check_terms,
    contradictions,
)
from medusa.market.contract.terms import TaskTerms
from medusa.market.money import MONEY_MAX
from tests.market.contract.parties import DAY_US, NOW_US, PLAIN, SECOND_US, terms

WRONG = [
    ("price_micro", {"price_micro": -1, "range_micro": 0}, "0 or more, got -0.000001 EUR"),
    ("range_micro", {"range_micro": 20_001}, "at most the price of 0.02 EUR, got 0.020001 EUR"),
    ("range_micro", {"range_micro": -1}, "got -1"),
    ("consumer", {"consumer": "acme"}, "got 'acme' for both"),
    ("consumer", {"consumer": "Big Co"}, "a-z, 0-9, _ and -, got 'Big Co'"),
    ("currency", {"currency": "Euro"}, "three capital letters, such as EUR, got 'Euro'"),
    ("id", {"id": "x" * 65}, "1 to 64 characters"),
    ("version", {"version": 0}, "got 0"),
    ("resale", {"resale": ("bigco",)}, "'bigco', which is the consumer itself"),
    ("resale", {"resale": ("carol", "acme")}, "'acme', which is the provider"),
    ("resale", {"resale": ("*", "carol")}, "got both"),
    ("resale", {"resale": ("carol", "dave", "carol")}, "got 'carol' twice"),
    ("ends_us", {"ends_us": NOW_US}, "an end after the begin"),
    ("ends_us", {"ends_us": NOW_US - 1}, "an end after the begin"),
    ("ends_us", {"ends_us": 1 << 60}, "before the year 10000"),
    ("interval_s", {"ends_us": NOW_US + 9 * SECOND_US}, "got 10s of 9s"),
    ("interval_s", {"interval_s": 0}, "got 0"),
    ("settlement_s", {"settlement_s": 95}, "whole intervals of 10s, got 95s"),
    ("settlement_s", {"price_micro": MONEY_MAX, "range_micro": 0}, "got more in one settlement"),
    ("notice_s", {"notice_s": 31 * 86_400}, "got 31d of 30d"),
    ("units_per_s_max_milli", {"units_per_s_max_milli": 0}, "got none"),
    ("cap_micro", {"cap_micro": 639_999}, "at least 0.64 EUR"),
    ("breach_micro", {"breach_micro": 1}, "nothing can be breached"),
    ("tolerance_ppm", {"tolerance_ppm": 1_000_000}, "every reading would pass"),
    ("availability_ppm", {"availability_ppm": 1_000_001}, "got 1000001"),
    ("tasks.streams", {"tasks": TaskTerms(streams=())}, "got none"),
    ("tasks.boxes", {"tasks": TaskTerms(boxes=("filter", "*"))}, "got both"),
    ("tasks.columns", {"tasks": TaskTerms(columns=("a", "a"))}, "got 'a' twice"),
    ("tasks.definitions", {"tasks": TaskTerms(definitions=())}, "got none"),
]


@pytest.mark.parametrize(("field", "changed", "says"), WRONG)
def test_a_contradiction_is_refused_by_field(field, changed, says):
    with pytest.raises(ContractError) as caught:
        check_terms(terms(**changed))
    assert caught.value.message.startswith(f"{field}: ")
    assert says in caught.value.message
    assert caught.value.hint
    assert caught.value.code == "contract.terms"


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"range_micro": 20_000},
        {"range_micro": 0},
        {"price_micro": 0, "range_micro": 0},
        {"ends_us": NOW_US + 10 * SECOND_US},
        {"notice_s": 30 * 86_400},
        {"cap_micro": 640_000},
        {"breach_micro": 1, "latency_us": 1},
        {"breach_micro": 1, "availability_ppm": 1},
        {"tolerance_ppm": 999_999},
        {"resale": ("*",)},
        {"resale": ("carol", "dave")},
        {"settlement_s": 10},
    ],
)
def test_what_stands_at_the_edge_is_allowed(changed):
    assert list(contradictions(terms(**changed))) == []


def test_all_of_several_contradictions_are_found():
    found = [
        each.field for each in contradictions(terms(consumer="acme", resale=("acme",), tolerance_ppm=10**6))
    ]
    assert found == ["consumer", "resale", "resale", "tolerance_ppm"]


def test_a_contract_that_has_ended():
    check_not_ended(PLAIN, PLAIN.ends_us - 1)
    with pytest.raises(ContractError, match="ended 1d ago") as caught:
        check_not_ended(PLAIN, PLAIN.ends_us + DAY_US)
    assert caught.value.code == "contract.ended"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"version": 1}, "write version 2"),
        ({"version": 2, "provider": "carol"}, "provider: 'carol' in version 2"),
        ({"version": 2, "consumer": "carol"}, "consumer: 'carol' in version 2"),
        ({"version": 2, "currency": "USD"}, "currency: 'USD' in version 2"),
        ({"version": 2, "price_micro": 30_000}, "let it begin later"),
        ({"version": 2, "begins_us": NOW_US - 1}, "let it begin later"),
    ],
)
def test_what_can_not_take_the_place_of_a_contract(changed, says):
    with pytest.raises(ContractError) as caught:
        check_successor(PLAIN, terms(**changed))
    assert says in str(caught.value)


def test_what_can():
    later = terms(version=7, price_micro=1, range_micro=0, begins_us=NOW_US + 1, ends_us=NOW_US + 60 * DAY_US)
    check_successor(PLAIN, later)


def test_what_nobody_has_accepted_is_answered_with_terms_of_the_same_begin():
    check_counter(PLAIN, terms(version=2, price_micro=30_000))
    with pytest.raises(ContractError, match="write version 2"):
        check_counter(PLAIN, terms(price_micro=30_000))


def test_a_notice_is_kept():
    check_notice(60, NOW_US, NOW_US + 60 * SECOND_US)
    with pytest.raises(ContractError, match="a notice of 1 min at least, got 59s"):
        check_notice(60, NOW_US, NOW_US + 59 * SECOND_US)
