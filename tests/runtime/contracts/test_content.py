"""Contracts about rows: what two sign of a file of the standard, and what is refused by name."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.errors import ContractError
from medusa.nodes.market.content_terms import ROWS_PER_S_MOST, ContentTerms
from medusa.query.odcs.document import OdcsFile
from medusa.query.structs import Field
from medusa.runtime.contracts.content import (
    PRICE_UNITS,
    check_content,
    content_document,
    content_text,
    not_kept,
    read_content,
)
from tests.query.odcs.test_document import checked

TERMS = ContentTerms(
    id="clicks",
    version=2,
    provider="acme",
    consumer="bigco",
    begins_us=1_796_083_200_000_000,
    ends_us=1_827_619_200_000_000,
    notice_s=7 * 86_400,
    streams={"clicks.out": (Field("ts", "timestamp[us, UTC]"), Field("n", "int64"))},
    price_micro=20_000,
    price_unit="row",
    currency="EUR",
    latency_us=500_000,
    availability_ppm=999_000,
)
TEXT = content_text(TERMS, time="ts")


def test_a_file_says_it_all_and_is_of_the_standard():
    plain = checked(TEXT)
    assert plain["price"] == {"priceAmount": 0.02, "priceCurrency": "EUR", "priceUnit": "row"}
    assert {"property": "latency", "value": 500, "unit": "ms"} in plain["slaProperties"]
    assert read_content(TEXT, "x")[1] == TERMS


@given(
    st.builds(
        dataclasses.replace,
        st.just(TERMS),
        version=st.integers(1, 1 << 31),
        begins_us=st.integers(0, 10**15),
        notice_s=st.integers(0, 10**6),
        price_micro=st.none() | st.integers(0, 10**12),
        latency_us=st.integers(0, 10**12),
        availability_ppm=st.integers(1, 10**6),
        price_unit=st.sampled_from(PRICE_UNITS),
        interval_s=st.sampled_from([1, 2, 10, 60]),
        settlement_s=st.sampled_from([60, 3_600, 86_400]),
        breach_micro=st.integers(0, 10**9),
        cap_micro=st.sampled_from([0, 10**17]),
        rows_per_s=st.sampled_from([10, ROWS_PER_S_MOST, None]),
    )
)
@settings(deadline=None, max_examples=60)
def test_terms_read_back(terms):
    if terms.price_micro is None:
        terms = dataclasses.replace(terms, price_unit="", currency="")
    elif terms.price_micro > 10**9:
        terms = dataclasses.replace(terms, cap_micro=0)
    text = content_text(terms)
    checked(text)
    assert read_content(text, "x")[1] == terms
    document = content_document(text, "x", federation="netmon", until_us=1)
    assert check_content(document) == terms


SLIPS = [
    ("interval: 0s", "interval: expected"),
    ("interval: 1500ms", "whole seconds"),
    ("interval: soon", "interval"),
    ("breach: 0.5", "expected an amount"),
    ('breach: "half"', "breach"),
    ('most: "some rows/s"', "expected rows a second"),
    ('most: "0 rows/s"', "expected rows a second"),
    ("cap: [1]", "expected an amount"),
]


@pytest.mark.parametrize(("line", "says"), SLIPS, ids=[line for line, _ in SLIPS])
def test_a_slip_in_what_is_billed_is_told_with_its_line(line, says):
    text = TEXT.replace("    provider: acme\n", f"    provider: acme\n    {line}\n")
    assert text != TEXT
    with pytest.raises(ContractError) as caught:
        read_content(text, "x")
    assert says in caught.value.message
    assert "x line" in caught.value.message


def test_terms_that_nobody_could_bill_are_not_signed():
    text = content_text(dataclasses.replace(TERMS, interval_s=7))
    with pytest.raises(ContractError, match="settlement"):
        content_document(text, "x", federation="netmon", until_us=1)
    text = content_text(dataclasses.replace(TERMS, latency_us=0, availability_ppm=0, breach_micro=1))
    with pytest.raises(ContractError, match="breach"):
        content_document(text, "x", federation="netmon", until_us=1)


def test_what_is_signed_is_the_whole_file_in_one_form():
    same = yaml.safe_dump(yaml.safe_load(TEXT), sort_keys=True, default_flow_style=True)
    one = content_document(TEXT, "x", federation="netmon", until_us=1)
    assert content_document(same, "y", federation="netmon", until_us=1) == one
    other = content_document(TEXT + "description: {purpose: more}\n", "x", federation="netmon", until_us=1)
    assert other != one


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "other"},
        {"version": 3},
        {"provider": "carol"},
        {"consumer": "carol"},
        {"begins_us": 1},
        {"ends_us": TERMS.ends_us + 1},
    ],
)
def test_what_stands_beside_the_file_is_what_stands_in_it(changed):
    document = content_document(TEXT, "x", federation="netmon", until_us=1)
    with pytest.raises(ContractError, match="beside it") as caught:
        check_content(msgspec.structs.replace(document, **changed))
    assert caught.value.hint == "don't sign it"


def test_a_file_has_a_bound():
    with pytest.raises(ContractError) as caught:
        content_document(
            TEXT + f"description: {{purpose: {'x' * 66_000}}}\n", "x", federation="netmon", until_us=1
        )
    assert caught.value.code == "contract.size"


def with_property(more: str) -> str:
    return TEXT.replace("  - name: n\n", f"  - name: n\n    {more}\n")


NOT_KEPT = [
    (TEXT + "servers: [{server: s, type: kafka, host: h}]\n", "servers"),
    (TEXT + "roles: [{role: reader}]\n", "roles"),
    (
        TEXT.replace("property: latency", "property: retention"),
        "slaProperties[1]: can't be kept: 'retention'",
    ),
    (TEXT.replace("property: latency", "property: frequency"), "'frequency' isn't measured"),
    (TEXT.replace("priceUnit: row", "priceUnit: handshake"), "price.priceUnit: can't be kept: 'handshake'"),
    (with_property("unique: true"), "schema[0].properties[1].unique: can't be kept: that no value of 'n'"),
    (with_property("primaryKey: true"), "schema[0].properties[1].primaryKey"),
    (with_property("relationships: [{to: other.id}]"), "schema[0].properties[1].relationships"),
    (with_property("quality: [{metric: nullValues, mustBeLessThan: 5}]"), "mustBe: 0"),
    (with_property("quality: [{metric: nullValues, mustBe: 5}]"), "mustBe: 0"),
    (with_property("quality: [{metric: duplicateValues, mustBe: 0}]"), "'library duplicateValues'"),
    (with_property("quality: [{type: sql, query: 'SELECT 1', mustBe: 0}]"), "'sql'"),
    (with_property("quality: [{type: custom, engine: soda, implementation: x}]"), "'custom soda'"),
    (
        TEXT.replace(
            "  physicalType: stream\n", "  physicalType: stream\n  quality: [{metric: rowCount, mustBe: 3}]\n"
        ),
        "schema[0].quality[0]: can't be kept: quality rule 'library rowCount'",
    ),
]


@pytest.mark.parametrize(("text", "says"), NOT_KEPT)
def test_what_can_not_be_kept_is_refused_by_name(text, says):
    checked(text)
    with pytest.raises(ContractError) as caught:
        read_content(text, "x.yaml")
    assert caught.value.code == "contract.not_kept"
    assert says in caught.value.message
    assert caught.value.message.startswith("x.yaml line ")
    assert caught.value.hint == "take it out of the file that is signed"


def test_all_that_can_not_be_kept_is_found():
    text = TEXT + "servers: [{server: s, type: kafka, host: h}]\nroles: [{role: reader}]\n"
    assert [path for path, _ in not_kept(OdcsFile(text, "x"))] == [("servers",), ("roles",)]


def test_what_promises_nothing_or_is_seen_row_by_row_is_signed_as_it_stands():
    text = with_property(
        "required: true\n    quality: [{type: text, description: fine}, {metric: nullValues, mustBe: 0},"
        " {metric: invalidValues, mustBe: 0, arguments: {validValues: [1, 2]}}]"
    )
    text += "team: {name: we}\ntags: [a]\nsupport: [{channel: mail}]\ndescription: {purpose: p}\n"
    text = text.replace("slaProperties:\n", "slaProperties:\n- {property: endOfLife, value: '2030-01-01'}\n")
    checked(text)
    assert read_content(text, "x")[1] == TERMS
    assert '"team":{"name":"we"}' in content_document(text, "x", federation="netmon", until_us=1).content


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("property: medusa\n", "property: other\n", "customProperties: expected a property 'medusa'"),
        ("provider: acme", "supplier: acme", "there is no such field"),
        ("provider: acme", "provider: 3", "expected a name, got 3"),
        ("consumer: bigco", "consumer: acme", "expected another than the provider, got 'acme'"),
        ("version: 2\n    prov", "version: two\n    prov", "expected a whole number, got 'two'"),
        ("begins: '2026", "begins: '2028", "expected an end after the begin"),
        ("begins: '2026-12-01", "begins: 'someday", "begins: Invalid isoformat string"),
        ("begins: '2026-12-01T00:00:00Z'", "begins: 2026-12-01T00:00:00", "a time with its zone"),
        ("begins: '2026-12-01T00:00:00Z'\n    ", "", "expected a date, such as 2026-12-01, got nothing"),
        ("notice: 7d", "notice: soon", "no duration"),
        ("priceAmount: 0.02", "priceAmount: -0.02", "expected a price of 0 or more, got -0.02 EUR"),
        ("priceAmount: 0.02", "priceAmount: 0.0000001", "6 behind the point"),
        ("priceAmount: 0.02\n  ", "", "expected a number, got None"),
        ("priceCurrency: EUR", "priceCurrency: Euro", "expected a currency such as EUR, got 'Euro'"),
        ("value: 99.9", "value: 101", "a share of time in percent"),
        ("value: 99.9", "value: much", "a share of time in percent"),
        ("value: 99.9", "value: 99.99999", "a share of time in percent"),
        ("unit: percent", "unit: nines", "a share of time in percent"),
        ("unit: ms", "unit: y", "'y' is no unit"),
        ("value: 500\n  unit: ms", "value: soon", "no duration"),
        ("value: 500\n  unit: ms", "value: 0\n  unit: ms", "longer than 0"),
        ("property: latency\n", "property: availability\n", "availability is promised twice"),
    ],
)
def test_terms_that_are_none(old, new, says):
    assert old in TEXT
    with pytest.raises(ContractError) as caught:
        read_content(TEXT.replace(old, new), "x.yaml")
    assert says in caught.value.message


def test_promises_may_be_written_as_others_do():
    text = TEXT.replace("value: 500\n  unit: ms", "value: 1h").replace(
        "value: 99.9\n  unit: percent", "value: 99.9%"
    )
    _, terms = read_content(text, "x")
    assert (terms.latency_us, terms.availability_ppm) == (3_600_000_000, 999_000)
    text = TEXT.replace("value: 500\n  unit: ms", "value: 4\n  unit: days")
    assert read_content(text, "x")[1].latency_us == 4 * 86_400_000_000


VALUES = (None, "", "x", 0, -1, 3.5, True, [], [1], {}, {"a": 1}, [{}], [{"a": []}], "9" * 40)


def places(value, path=()):
    """Every place in a file."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from places(each, (*path, key))


PLACES = [path for path in places(yaml.safe_load(TEXT)) if path]


@given(st.sampled_from(PLACES), st.sampled_from(VALUES))
@settings(deadline=None, max_examples=400)
def test_a_file_with_anything_anywhere_is_read_or_refused_by_an_error_of_ours(path, value):
    plain = yaml.safe_load(TEXT)
    inner = plain
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    refused = None
    try:
        content_document(yaml.safe_dump(plain), "x.yaml", federation="netmon", until_us=1)
    except ContractError as error:
        refused = error.message
    assert refused is None or refused.startswith(("x.yaml", "contract "))
