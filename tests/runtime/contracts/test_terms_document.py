"""Contracts as TOML: they read back as they were, and every slip is told with its line and its field."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.errors import ContractError
from medusa.market.contract.terms import Contract, PlannedTask, TaskTerms
from medusa.runtime.contracts.terms_document import read_terms, terms_text
from medusa.runtime.contracts.terms_fields import FIELDS, time_text, time_us
from tests.blocks import blocks

TEXT = """\
contract = "clicks"
version = 3
provider = "acme"
consumer = "bigco"
begins = 2026-12-01
ends = 2027-12-01T00:00:00+01:00
notice = "30d"
shadow = true

[price]
currency = "USD"
amount = "0.02"
range = "0.004"
bytes_per_unit = "100 MB"
cap = "5000.00"

[load]
most = "4.5 units/s"

[billing]
interval = "30s"
settlement = "1h"
tolerance = "0.1 %"

[promise]
availability = "99.9 %"
latency = "500ms"
breach = "0.50"

[tasks]
streams = ["clicks", "views"]
boxes = [
  "filter",
  "aggregate",
]
columns = ["ts"]
definitions = ["fast"]
resale = ["carol"]
planned = ["clicks/filter for 0.018", "views/count for 0.02"]

[sold]
standby = true
backup = true
"""

CONTRACT = Contract(
    id="clicks",
    version=3,
    provider="acme",
    consumer="bigco",
    begins_us=1_796_083_200_000_000,
    ends_us=1_827_615_600_000_000,
    currency="USD",
    price_micro=20_000,
    range_micro=4_000,
    bytes_per_unit=100_000_000,
    units_per_s_max_milli=4_500,
    cap_micro=5_000_000_000,
    interval_s=30,
    settlement_s=3_600,
    tolerance_ppm=1_000,
    tasks=TaskTerms(
        streams=("clicks", "views"), boxes=("filter", "aggregate"), columns=("ts",), definitions=("fast",)
    ),
    availability_ppm=999_000,
    latency_us=500_000,
    breach_micro=500_000,
    resale=("carol",),
    planned=(
        PlannedTask(task="clicks/filter", price_micro=18_000),
        PlannedTask(task="views/count", price_micro=20_000),
    ),
    standby=True,
    backup=True,
    notice_s=30 * 86_400,
    shadow=True,
)


def test_every_field_is_read():
    assert read_terms(TEXT, "x.toml") == CONTRACT
    assert {field.path[-1] for field in FIELDS} == set(re.findall(r"^(\w+) =", TEXT, re.MULTILINE))


def test_every_term_is_a_field():
    terms = {
        *(set(Contract.__struct_fields__) - {"tasks"}),
        *(f"tasks.{n}" for n in TaskTerms.__struct_fields__),
    }
    assert {field.attribute for field in FIELDS} == terms


def refused(text: str) -> ContractError:
    with pytest.raises(ContractError) as caught:
        read_terms(text, "x.toml")
    return caught.value


SLIPS = [
    # what is replaced, by what, the line and field, what is said
    ('contract = "clicks"\n', "", "contract", "missing"),
    ('amount = "0.02"\n', "", "line 10: price.amount", "missing"),
    ('[load]\nmost = "4.5 units/s"\n', "", "load.most", "missing"),
    ('"clicks"\nversion', '"Clicks!"\nversion', "line 1: contract", "a-z, 0-9, _ and -, got 'Clicks!'"),
    ("version = 3", "version = 0", "line 2: version", "got 0"),
    ("version = 3", 'version = "3"', "line 2: version", "a whole number, got '3'"),
    ("version = 3", "version = true", "line 2: version", "a whole number, got True"),
    ('provider = "acme"', "provider = 7", "line 3: provider", "text, got 7"),
    ('consumer = "bigco"', 'consumer = "acme"', "line 4: consumer", "got 'acme' for both"),
    ("begins = 2026-12-01", 'begins = "2026-12-01"', "line 5: begins", "without quotes"),
    ("begins = 2026-12-01", "begins = 2026-12-01T00:00:00", "line 5: begins", "a time with its zone"),
    ("begins = 2026-12-01", "begins = 1960-01-01", "line 5: begins", "after 1970"),
    ("begins = 2026-12-01", "begins = 00:00:00", "line 5: begins", "a date or time"),
    ("ends = 2027-12-01T00:00:00+01:00", "ends = 2026-12-01", "line 6: ends", "after the begin"),
    ('notice = "30d"', 'notice = "400d"', "line 7: notice", "got 400d of 364d"),
    ('notice = "30d"', 'notice = "1500ms"', "line 7: notice", "whole seconds"),
    ('notice = "30d"', "notice = 30", "line 7: notice", "with its unit, got 30"),
    ('notice = "30d"', 'notice = "30m"', "line 7: notice", "is no duration"),
    ("shadow = true", 'shadow = "yes"', "line 8: shadow", "true or false, got 'yes'"),
    ('"USD"', '"dollars"', "line 11: price.currency", "three capital letters"),
    ('"0.02"', "0.02", "line 12: price.amount", "as text: a float has no exact one, got 0.02"),
    ('"0.02"', '"0,02"', "line 12: price.amount", "6 behind the point"),
    ('"0.02"', '"-0.02"', "line 12: price.amount", "0 or more, got -0.02 USD"),
    ('"0.004"', '"0.021"', "line 13: price.range", "at most the price of 0.02 USD, got 0.021 USD"),
    ('"100 MB"', '"100 Mbit"', "line 14: price.bytes_per_unit", "no number of bytes"),
    ('"100 MB"', "100", "line 14: price.bytes_per_unit", "as text, got 100"),
    ('"5000.00"', '"2.15"', "line 15: price.cap", "at least 2.16 USD"),
    ('"4.5 units/s"', '"4.5"', "line 18: load.most", "units a second"),
    ('"4.5 units/s"', '"0 units/s"', "line 18: load.most", "got none"),
    ('"30s"', '"7s"', "line 22: billing.settlement", "whole intervals of 7s, got 3600s"),
    ('"0.1 %"', '"100 %"', "line 23: billing.tolerance", "every reading would pass"),
    ('"0.1 %"', "0.1", "line 23: billing.tolerance", "a share of 0 % to 100 %"),
    ('"99.9 %"', '"100.1 %"', "line 26: promise.availability", "a share of 0 % to 100 %"),
    ('"500ms"', '"soon"', "line 27: promise.latency", "no duration"),
    (
        'availability = "99.9 %"\nlatency = "500ms"\n',
        "",
        "line 26: promise.breach",
        "nothing can be breached",
    ),
    ('["clicks", "views"]', '"clicks"', "line 31: tasks.streams", "a list of names, got 'clicks'"),
    ('["clicks", "views"]', "[]", "line 31: tasks.streams", "no task would be allowed"),
    ('  "aggregate",', '  "filter",', "line 32: tasks.boxes", "got 'filter' twice"),
    ('["ts"]', '["ts", "*"]', "line 36: tasks.columns", "got both"),
    ('["carol"]', '["bigco"]', "line 38: tasks.resale", "the consumer itself"),
    ("standby", "stand_by", "line 42: sold.stand_by", "no such field"),
    ("[sold]", "[bought]", "line 41: bought", "no such field"),
    ('[load]\nmost = "4.5 units/s"', 'most = "4.5 units/s"', "line 17: price.most", "no such field"),
    ("[price]", "[[price]]", "line 10: price", "expected a table"),
    ('"0.02"', '"0.02', "line 12", ""),
]


@pytest.mark.parametrize(("old", "new", "place", "says"), SLIPS)
def test_a_slip_is_told_with_its_line_and_field(old, new, place, says):
    assert old in TEXT
    error = refused(TEXT.replace(old, new, 1))
    assert error.message.startswith(f"x.toml {place}") or error.message.startswith(f"x.toml: {place}:")
    assert says in error.message
    assert error.hint


def test_the_hint_says_where_a_field_belongs_or_what_it_may_be():
    assert refused(TEXT.replace("standby", "stand_by")).hint == "did you mean 'standby'?"
    assert refused(TEXT.replace("[load]\n", "")).hint == "it belongs below [load]"
    assert refused(TEXT.replace('"30s"', "30")).hint == 'write interval = "10s"'
    assert refused(TEXT.replace('"30d"', '"30m"')).hint == 'minutes are "min", months are not supported'


def test_a_document_has_a_bound():
    assert refused("# " + "x" * 70_000).code == "contract.size"


def test_a_default_that_contradicts_another_field_is_told_at_that_one():
    short = TEXT.replace('interval = "30s"\n', "").replace(
        "2027-12-01T00:00:00+01:00", "2026-12-01T00:00:05Z"
    )
    error = refused(short.replace('notice = "30d"\n', ""))
    assert error.message.startswith(
        "x.toml line 6: ends: expected an interval within the contract, got 10s of 5s"
    )


names = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=3, unique=True).map(tuple)
names = names.filter(lambda each: "*" not in each or len(each) == 1)
seconds = st.integers(0, 400 * 86_400)


@st.composite
def contracts(draw):
    price = draw(st.integers(0, 10**9))
    interval = draw(st.integers(1, 3_600))
    begins = draw(st.integers(0, 10**16))
    period = draw(st.integers(interval * 10**6, 10**15))
    load = draw(st.integers(1, 10**6))
    least = price * load * interval // 1_000
    return Contract(
        id=draw(st.from_regex(r"\A[a-z0-9_-]{1,64}\Z")),
        version=draw(st.integers(1, 1 << 31)),
        provider="acme",
        consumer="bigco",
        begins_us=begins,
        ends_us=begins + period,
        currency=draw(st.sampled_from(["EUR", "USD"])),
        price_micro=price,
        range_micro=draw(st.integers(0, price)),
        bytes_per_unit=draw(st.integers(0, 10**12)),
        units_per_s_max_milli=load,
        cap_micro=draw(st.sampled_from([0, least + 1])),
        interval_s=interval,
        settlement_s=interval * draw(st.integers(1, 20)),
        tolerance_ppm=draw(st.integers(0, 999_999)),
        tasks=TaskTerms(streams=draw(names), boxes=draw(names), columns=draw(names), definitions=draw(names)),
        availability_ppm=draw(st.integers(1, 10**6)),
        latency_us=draw(st.integers(0, 10**9)),
        breach_micro=draw(st.integers(0, 10**9)),
        resale=draw(st.sampled_from([(), ("*",), ("carol", "dave")])),
        standby=draw(st.booleans()),
        backup=draw(st.booleans()),
        notice_s=draw(st.integers(0, period // 10**6)),
        shadow=draw(st.booleans()),
    )


@given(contracts())
@settings(deadline=None)
def test_what_is_written_reads_back(contract):
    assert read_terms(terms_text(contract), "x.toml") == contract


def test_a_year_is_written_as_a_person_would():
    shown = terms_text(read_terms(TEXT, "x.toml"))
    assert read_terms(shown, "y.toml") == CONTRACT
    for line in (
        "begins = 2026-12-01T00:00:00Z",
        'notice = "30d"',
        'amount = "0.02"',
        'bytes_per_unit = "100 MB"',
        'most = "4.5 units/s"',
        'tolerance = "0.1 %"',
        'latency = "500ms"',
        'streams = ["clicks", "views"]',
    ):
        assert f"\n{line}" in shown


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31)))
def test_times_are_those_of_the_calendar(moment):
    exact = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    assert time_us(moment.replace(tzinfo=UTC)) == exact
    text = time_text(exact)
    assert datetime.fromisoformat(text) == moment.replace(tzinfo=UTC)
    east = timezone(timedelta(hours=1))
    assert time_us(moment.replace(tzinfo=UTC).astimezone(UTC)) == exact
    if moment.year < 9999:
        assert time_us(moment.replace(tzinfo=UTC).astimezone(east)) == exact


def test_what_a_terminal_would_obey_is_written_out():
    hostile = "\x1b[2J\x07\x9b\u202e\U000e0041"
    shown = terms_text(msgspec.structs.replace(CONTRACT, tasks=TaskTerms(streams=(hostile,))))
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert read_terms(shown, "x").tasks.streams == (hostile,)


def test_a_date_is_its_midnight():
    assert time_us(date(1970, 1, 2)) == 86_400_000_000


PAGE = Path(__file__).resolve().parents[3] / "docs" / "contracts.md"


def test_the_examples_of_the_page_are_contracts():
    texts = [block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if block.language == "toml"]
    assert texts
    for text in texts:
        read_terms(text, "docs/contracts.md")


def test_the_page_describes_every_field():
    text = PAGE.read_text(encoding="utf-8")
    for field in FIELDS:
        assert f"| `{'.'.join(field.path)}` |" in text


OTHERS = ("", "\x00", '"', "[", "= 1\n", "-", "9" * 30)


@given(st.integers(0, len(TEXT) - 1), st.integers(0, 12), st.sampled_from(OTHERS))
@settings(deadline=None, max_examples=300)
def test_a_text_with_something_else_in_it_is_read_or_refused_with_its_place(at, length, put):
    changed = TEXT[:at] + put + TEXT[at + length :]
    refused = None
    try:
        read_terms(changed, "x.toml")
    except ContractError as error:
        refused = error
    assert refused is None or (refused.message.startswith("x.toml") and refused.hint)
