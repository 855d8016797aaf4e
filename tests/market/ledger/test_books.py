"""One contract between two, step by step: disputes, caps, deaths, snapshots, bounds, what is refused."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import msgspec
import pytest

from medusa.automaton import next_state
from medusa.errors import ContractError, LocalProtocolError, StateError
from medusa.market.ledger.chain import exposure_most_micro
from medusa.market.ledger.messages import ReadingSaid, ReceiptSaid, SettlementSaid
from medusa.market.ledger.reading_states import READING, ReadingEvent, ReadingState
from medusa.market.ledger.receipts import canonical, read_reading, read_receipt, read_settlement
from medusa.market.ledger.records import read_record
from tests.market.ledger.pair import BEGIN_US, SECOND, Pair, terms

NAMES = ("host", "owner")


def test_a_reading_has_the_states_of_its_table():
    """Whatever can follow; anything else is refused."""
    for state, event in itertools.product(ReadingState, ReadingEvent):
        target = READING[state].get(event)
        if target is None:
            with pytest.raises(LocalProtocolError):
                next_state(READING, state, event, of="a reading")
        else:
            assert next_state(READING, state, event, of="a reading") is target
    reached = {ReadingState.NONE, *(state for steps in READING.values() for state in steps.values())}
    assert reached == set(ReadingState)


def test_the_documented_states_are_those_of_the_table():
    text = (Path(__file__).parents[3] / "docs" / "ledger.md").read_text(encoding="utf-8")
    drawn = {tuple(row) for row in re.findall(r"^\| ([A-Z]+) \| (.+) \| ([A-Z]+) \|$", text, re.MULTILINE)}
    steps = {
        (state.value, event.value, target.value)
        for state, events in READING.items()
        for event, target in events.items()
    }
    assert drawn == steps


def test_interval_by_interval_it_is_receipted_and_settled_and_nothing_is_open():
    pair = Pair()
    pair.begin()
    pair.run(205)
    assert pair.host.chain.number == pair.owner.chain.number == 20
    assert [read_settlement(read.settlement).number for read in settled(pair)] == [0, 1]
    assert pair.host.owed_micro == 0
    standing = pair.ledgers["host"].status()[0]
    assert standing.settled_micro == pair.host.chain.total_micro
    assert standing.exposure_micro <= standing.exposure_most_micro
    assert pair.owner.state is ReadingState.RECEIPTED


def settled(pair):
    found = (read_record(data) for data in pair.disks["owner"])
    return [record.settlement for record in found if hasattr(record, "settlement")]


def test_rows_that_come_late_are_waited_for_and_not_disputed():
    pair = Pair()
    pair.begin()
    pair.run(10)
    pair.delivered = 0.9
    pair.run(2)
    assert pair.owner.state is ReadingState.HELD
    pair.delivered = 1.0
    pair.run(2)
    assert pair.owner.state is ReadingState.RECEIPTED
    assert not pair.disputes["owner"]


def test_a_reading_that_waits_is_answered_by_what_came_though_its_task_is_home_with_no_row():
    """Its host has put out rows that died with its last checkpoint: it isn't billing a task of nobody."""
    pair = Pair()
    pair.begin()
    pair.delivered = 0.0
    pair.run(12)
    assert pair.owner.state is ReadingState.HELD
    for book in (pair.owner, pair.host):
        book.ended(pair.now, 0, "render", 0)
    pair.run(12)
    [dispute] = pair.disputes["owner"]
    assert (dispute.code, "has rows up to 0 here" in dispute.text) == ("E_BILLING", True)
    assert pair.paid_micro == 0
    assert not pair.owner.tasks, "it is forgotten once that is settled"
    assert not pair.host.tasks


def test_of_rows_that_do_not_come_the_others_are_paid_and_both_readings_are_kept():
    pair = Pair()
    pair.begin()
    pair.run(5)
    pair.delivered = 0.5
    pair.run(12)
    dispute = pair.disputes["owner"][0]
    assert pair.disputes["host"] == [dispute]
    said, counter = read_reading(dispute.reading), read_reading(dispute.counter)
    assert counter.tasks[0].end_row < said.tasks[0].end_row
    assert pair.host.chain.total_micro == pair.owner.chain.total_micro == counter.amount_micro
    pair.delivered = 1.0
    pair.run(20)
    pair.end()
    pair.run(20)
    assert pair.paid_micro == pair.worth_micro
    assert pair.host.may_work(pair.now)


def test_disputes_beyond_the_tolerated_number_are_said():
    pair = Pair(terms(settlement_s=2_000))
    pair.begin()
    pair.delivered = 0.4
    pair.run(400)
    standing = pair.ledgers["host"].status()[0]
    assert standing.disputes_beyond
    assert any("disputes since the last settlement" in line.text for line in pair.lines["host"])


def test_a_cap_stops_work_and_bills_no_more():
    pair = Pair(terms(cap_micro=25_000_000, settlement_s=100))
    pair.begin()
    pair.run(99)
    assert [stop.code for stop in pair.stops["host"]] == ["contract.cap"]
    assert pair.paid_micro == pair.worth_micro == 25_000_000
    pair.end()
    assert pair.refusal(lambda: pair.begin(1)) == "contract.cap"
    pair.run(30)
    pair.begin(2)
    pair.run(30)
    assert pair.paid_micro > 25_000_000


def test_an_interval_that_nobody_measured_counts_as_broken():
    pair = Pair(terms(availability_ppm=900_000, latency_us=50_000, breach_micro=1_000_000))
    pair.begin()
    for second in range(40):
        if second // 10 != 1:
            slow = 60_000 if second // 10 == 2 else 10_000
            pair.host.measured(pair.now, 0, slow)
            pair.owner.measured(pair.now, 0, slow)
        pair.run(1)
    pair.run(1)
    readings = [read_reading(read_receipt(data).reading) for data in pair.receipts["owner"]]
    assert [reading.breach_micro for reading in readings] == [0, 1_000_000, 1_000_000, 0]
    assert pair.host.chain.breaches_micro == 2_000_000


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at", [5, 10, 11, 15, 100, 101])
def test_a_restart_at_any_time_changes_no_balance(name, at):
    pair = Pair()
    pair.begin()
    pair.run(at)
    before = pair.ledgers[name].accounts.balances()
    pair.restart(name)
    assert pair.ledgers[name].accounts.balances() == before
    pair.run(100)
    pair.end()
    pair.run(200)
    assert pair.paid_micro == pair.worth_micro
    assert pair.host.owed_micro == pair.owner.owed_micro == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at", [5, 10, 11, 101, 205])
def test_a_snapshot_is_the_ledger(name, at):
    """And far shorter than all records."""
    pair = Pair()
    pair.begin()
    pair.begin(1, "other", nano=10**5)
    pair.run(at)
    pair.end(1, "other")
    before = pair.ledgers[name].accounts.balances(), pair.ledgers[name].status()
    records = pair.disks[name]
    pair.disks[name] = pair.ledgers[name].snapshot()
    if at > 100:
        assert sum(map(len, pair.disks[name])) < sum(map(len, records)) / 3
    pair.restart(name)
    after = pair.ledgers[name].accounts.balances(), pair.ledgers[name].status()
    assert after[0] == before[0]
    assert [msgspec.structs.replace(each, exposure_micro=0) for each in after[1]] == [
        msgspec.structs.replace(each, exposure_micro=0) for each in before[1]
    ]
    pair.run(100)
    pair.end()
    pair.run(200)
    assert pair.paid_micro == pair.worth_micro
    assert pair.host.owed_micro == pair.owner.owed_micro == 0


def test_who_dies_for_long_comes_back_and_is_paid_for_what_it_did():
    pair = Pair()
    pair.begin()
    pair.run(15)
    pair.now += 300 * SECOND
    pair.restart("host")
    pair.run(15)
    assert [stop.code for stop in pair.stops["owner"]] == ["contract.silent"]
    pair.end()
    pair.run(20)
    assert pair.paid_micro == pair.worth_micro
    pair.begin(1)
    assert pair.host.may_work(pair.now)


def test_a_new_version_counts_as_of_its_beginning():
    second = terms(version=2, begins_us=BEGIN_US + 55 * SECOND, price_micro=1_200_000, interval_s=5)
    pair = Pair()
    pair.begin()
    pair.run(20)
    for name in NAMES:
        pair.ledgers[name].sign(pair.now, second)
        pair.ledgers[name].sign(pair.now, second)
    pair.run(60)
    found = [read_reading(read_receipt(data).reading) for data in pair.receipts["owner"]]
    assert [(each.version, each.interval) for each in found[4:]] == [
        (1, 4), (1, 5), (2, 0), (2, 1), (2, 2), (2, 3)
    ]  # fmt: skip
    pair.end()
    pair.run(20)
    assert pair.paid_micro == pair.worth_micro


def test_a_version_whose_range_has_not_the_price_of_a_task_is_refused():
    pair = Pair()
    pair.begin()
    dearer = terms(version=2, begins_us=BEGIN_US + 50 * SECOND, price_micro=2_000_000)
    assert pair.refusal(lambda: pair.ledgers["host"].sign(pair.now, dearer)) == "contract.price"
    assert pair.host.versions.newest == pair.contract
    pair.end()
    pair.ledgers["host"].sign(pair.now, dearer)


def test_a_revoked_contract_stops_and_is_settled():
    pair = Pair()
    pair.begin()
    pair.run(20)
    for name in NAMES:
        pair.ledgers[name].end(pair.contract.id, "owner" if name == "host" else "host", pair.now + 5 * SECOND)
    pair.run(20)
    assert [stop.code for stop in pair.stops["host"]] == ["contract.ended"]
    assert [stop.code for stop in pair.stops["owner"]] == ["contract.ended"]
    pair.end()
    pair.run(20)
    assert pair.worth_micro == pair.paid_micro == 25_000_000
    assert pair.host.owed_micro == 0


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_version_that_is_signed_after_a_revocation_is_billed(snapshot):
    pair = Pair()
    pair.begin()
    pair.run(20)
    for name, other in zip(NAMES, reversed(NAMES), strict=True):
        pair.ledgers[name].end(pair.contract.id, other, pair.now + 5 * SECOND)
        pair.ledgers[name].sign(pair.now, terms(version=2, begins_us=BEGIN_US + 60 * SECOND))
    pair.settle()
    for name in NAMES:
        if snapshot:
            pair.disks[name] = pair.ledgers[name].snapshot()
        pair.restart(name)
    assert not pair.host.versions.at(BEGIN_US + 40 * SECOND)
    pair.end()
    pair.run(50)
    assert pair.paid_micro == pair.worth_micro > 0
    before = pair.paid_micro
    pair.begin(1)
    pair.run(30)
    pair.end(1)
    pair.run(20)
    assert pair.paid_micro == pair.worth_micro > before


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_reading_that_a_late_revocation_took_away_is_made_anew(snapshot):
    """Its receipt was lost on the way: what both have signed counts, so the host has to hear of it."""
    pair = Pair()
    pair.begin()
    pair.run(19)
    pair.says["owner"] = lambda message: []
    pair.run(3)
    assert pair.owner.chain.number == pair.host.chain.number + 1
    for name, partner in zip(NAMES, reversed(NAMES), strict=True):
        pair.ledgers[name].end(pair.contract.id, partner, BEGIN_US + 10 * SECOND)
    pair.settle()
    if snapshot:
        pair.disks["host"] = pair.ledgers["host"].snapshot()
        pair.restart("host")
    pair.says.clear()
    pair.run(30)
    pair.end()
    pair.run(60)
    assert pair.paid_micro == pair.worth_micro
    assert pair.host.owed_micro == pair.owner.owed_micro == 0
    assert pair.statement("host").amount_micro == pair.statement("owner").amount_micro


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda pair: pair.host.began(pair.now, 1, "t", 0, 1, 1_000_001), "contract.price"),
        (lambda pair: pair.host.began(pair.now, 1, "t", 0, 1, 799_999), "contract.price"),
        (lambda pair: pair.host.began(BEGIN_US - 1, 1, "t", 0, 1, 10**6), "contract.ended"),
        (lambda pair: pair.host.began(pair.contract.ends_us, 1, "t", 0, 1, 10**6), "contract.ended"),
        (lambda pair: pair.host.counted(pair.now, 9, "t", 5), "contract.task"),
        (lambda pair: pair.host.counted(pair.now, 0, "render", 1 << 63), "contract.number"),
        (lambda pair: pair.host.counted(pair.now, 0, "render", -1), "contract.number"),
        (lambda pair: pair.host.ended(pair.now, 0, "render", -1), "contract.number"),
        (lambda pair: pair.host.began(pair.now, 1, "", 0, 1, 10**6), "contract.number"),
        (lambda pair: pair.host.began(pair.now, 1, "t" * 257, 0, 1, 10**6), "contract.number"),
        (lambda pair: pair.host.began(pair.now, -1, "t", 0, 1, 10**6), "contract.number"),
        (lambda pair: pair.host.began(pair.now, 1, "t", 0, 1 << 63, 10**6), "contract.number"),
        (lambda pair: pair.owner.counted(pair.now, 9, "t", 5), "contract.task"),
        (lambda pair: pair.ledgers["host"].sign(pair.now, terms(provider="third")), "contract.party"),
        (lambda pair: pair.ledgers["host"].sign(pair.now, terms(price_micro=5)), "contract.price"),
        (lambda pair: pair.ledgers["host"].end("light", "owner", 0), "contract.unknown"),
    ],
)
def test_what_is_refused_changes_nothing(call, code):
    pair = Pair()
    pair.begin()
    pair.run(12)
    kept, before = list(pair.disks["host"]), pair.ledgers["host"].status()
    assert pair.refusal(lambda: call(pair)) == code
    pair.settle()
    assert pair.disks["host"] == kept
    assert pair.ledgers["host"].status() == before


def test_no_more_tasks_than_a_reading_has_room_for():
    pair = Pair()
    names = [f"{number:03}" + "x" * 250 for number in range(1_000)]
    refused = 0
    for number, name in enumerate(names):
        code = pair.refusal(lambda number=number, name=name: pair.begin(number, name, nano=2**40))
        refused += code == "contract.tasks"
    assert 0 < refused < 900
    for number, name in pair.host.tasks:
        for book in (pair.host, pair.owner):
            book.counted(pair.now, number, name, 2**50)
    pair.run(30)
    assert pair.host.chain.number > 0


def test_a_message_of_no_contract_or_of_the_other_role_is_refused():
    pair = Pair()
    pair.begin()
    said = []
    pair.says["host"] = lambda message: said.append(message) or [message]
    pair.run(120)
    reading = next(each for each in said if isinstance(each, ReadingSaid))
    settlement = next(each for each in said if isinstance(each, SettlementSaid))
    before = pair.ledgers["host"].status(), pair.ledgers["owner"].status()
    assert pair.hear("host", "owner", reading) == "E_ROLE"
    assert pair.hear("owner", "third", reading) == "E_NO_CONTRACT"
    other = msgspec.structs.replace(reading, contract="light")
    assert pair.hear("owner", "host", other) == "E_NO_CONTRACT"
    assert pair.hear("host", "owner", settlement) == ""
    wounded = msgspec.structs.replace(reading, reading=reading.reading + b"\0")
    assert pair.hear("owner", "host", wounded) == "E_MESSAGE"
    receipt = msgspec.structs.replace(read_receipt(pair.receipts["host"][0]), consumer_signature=bytes(64))
    assert pair.hear("host", "owner", ReceiptSaid(contract="power", receipt=receipt)) == "E_IDENTITY"
    assert (pair.ledgers["host"].status(), pair.ledgers["owner"].status()) == before


def test_a_record_that_is_none_is_named():
    with pytest.raises(StateError):
        read_record(b"\x93\x01")


def test_records_without_those_before_them_are_refused():
    pair = Pair()
    pair.begin()
    pair.disks["host"] = pair.disks["host"][1:]
    with pytest.raises(StateError):
        pair.restart("host")


def test_a_shadow_is_owed_by_nobody():
    """It is written down in accounts of its own."""
    pair = Pair(terms(shadow=True))
    pair.begin()
    pair.run(155)
    kinds = {account.kind for account in pair.ledgers["host"].accounts.balances()}
    assert kinds == {"shadow owed", "shadow settled"}
    assert "owner would owe host" in pair.statement().summary()


def test_who_signs_no_settlement_is_worked_for_no_more():
    pair = Pair()
    pair.says["owner"] = lambda message: [] if isinstance(message, SettlementSaid) else [message]
    pair.begin()
    pair.run(300)
    assert pair.host.chain.number == 10
    assert pair.worth_micro - pair.paid_micro <= exposure_most_micro(pair.contract)
    assert [stop.code for stop in pair.stops["host"]] == ["contract.unreceipted"]


def test_who_ticks_when_it_is_to_wake_does_as_who_ticks_each_second():
    often, seldom = Pair(), Pair()
    for pair in (often, seldom):
        pair.by_wakes = pair is seldom
        pair.begin()
        pair.run(95)
        pair.end()
        pair.run(300)
        pair.begin(1)
        pair.delivered = 0.5
        pair.run(80)
        pair.end(1, end_row=0)
        pair.run(2_000)
    assert seldom.ticks * 2 < often.ticks
    assert seldom.ledgers["host"].status() == often.ledgers["host"].status()
    assert seldom.ledgers["owner"].status() == often.ledgers["owner"].status()
    assert [stop.code for stop in seldom.stops["host"]] == [stop.code for stop in often.stops["host"]]
    assert seldom.host.owed_micro == 0


def test_free_contracts_are_read_alike():
    pair = Pair(terms(price_micro=0, range_micro=0))
    pair.begin(price=0)
    pair.run(100)
    assert pair.host.chain.number >= 9
    assert pair.paid_micro == 0
    assert exposure_most_micro(pair.contract) == 2


def test_at_rest_a_contract_with_a_task_costs_few_bytes():
    """Below 200 bytes a second for each, signatures and records included."""
    pair, said = Pair(), []
    for name in NAMES:
        pair.says[name] = lambda message: said.append(len(canonical(message))) or [message]
    pair.begin()
    pair.run(1_000, rows=1)
    kept = sum(len(data) for name in NAMES for data in pair.disks[name])
    assert sum(said) / 1_000 < 100
    assert kept / 1_000 < 150


def test_a_contract_without_tasks_says_nothing():
    pair, said = Pair(), []
    for name in NAMES:
        pair.says[name] = lambda message: said.append(message) or [message]
    pair.run(300)
    assert not said
    with pytest.raises(ContractError):
        pair.ledgers["host"].book("light", "owner")


def test_a_contract_that_is_old_and_has_no_tasks_wakes_nobody() -> None:
    """Its provider rested since the second interval, for work that nobody did, and wanted to be woken at
    once, for ever."""
    pair = Pair()
    late_us = BEGIN_US + 500 * SECOND
    for ledger in pair.ledgers.values():
        for now_us in (late_us, late_us + 10 * SECOND):
            ledger.tick(now_us)
            assert ledger.wake_at_us(now_us) is None


def test_who_rested_when_the_contract_was_revoked_wakes_nobody_once_all_is_paid() -> None:
    """It wanted to be woken at once, for ever, and its node spun (seed 154 of ``trading``)."""
    pair = Pair()
    pair.begin()
    pair.says["owner"] = lambda message: []
    pair.run(21)
    assert not pair.host.may_work(pair.now)
    assert not pair.stops["host"]
    pair.says.clear()
    for name, partner in zip(NAMES, reversed(NAMES), strict=True):
        pair.ledgers[name].end(pair.contract.id, partner, pair.now)
    pair.run(1)
    assert [stop.code for stop in pair.stops["host"]] == ["contract.ended"]
    pair.end()
    pair.run(40)
    assert pair.paid_micro == pair.worth_micro > 0
    assert [pair.ledgers[name].wake_at_us(pair.now) for name in NAMES] == [None, None]


@pytest.mark.parametrize("by_wakes", [False, True])
def test_between_two_versions_nobody_is_woken_before_the_next_one_begins(by_wakes: bool) -> None:
    """Rows of which no receipt was there had the provider woken at once, for ever; and with all receipted
    nobody was woken when the next version began."""
    pair = Pair(terms(ends_us=BEGIN_US + 40 * SECOND))
    pair.by_wakes = by_wakes
    later = terms(version=2, begins_us=BEGIN_US + 90 * SECOND, ends_us=BEGIN_US + 200 * SECOND)
    for ledger in pair.ledgers.values():
        ledger.sign(pair.now, later)
    pair.begin()
    pair.run(35)
    pair.delivered = 0.5
    pair.run(25)
    assert pair.host.unreceipted_rows()
    wakes = [pair.ledgers[name].wake_at_us(pair.now) for name in NAMES]
    assert wakes == [later.begins_us, later.begins_us]
    pair.delivered = 1.0
    pair.run(100)
    pair.end()
    pair.run(60)
    assert pair.paid_micro == pair.worth_micro > 0
