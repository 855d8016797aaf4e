"""Who owes whom by receipts alone: the same at both, every fault named, against sums by hand."""

from __future__ import annotations

import datetime
from collections import Counter

import msgspec
import pyarrow.parquet as pq
import pytest

from medusa.market.ledger.receipts import (
    READING_CONTEXT,
    SETTLEMENT_CONTEXT,
    LoadReceipt,
    SignedSettlement,
    canonical,
    read_reading,
    read_receipt,
    read_settlement,
    read_signed_settlement,
)
from medusa.market.ledger.statement import load_statement
from medusa.market.ledger.statement_table import statement_table
from medusa.runtime.keys.key_files import ParticipantKey, verifier
from tests.market.ledger.keys import ToyKey, verify
from tests.market.ledger.pair import Pair, terms


@pytest.fixture
def pair() -> Pair:
    """Two tasks over 25 intervals, of which those past 200 s aren't settled."""
    made = Pair()
    made.begin(0, "render", nano=999_999, price=900_001)
    made.begin(1, "encode", nano=333_333, price=1_000_000)
    made.run(255, rows=700)
    return made


def signed_anew(receipt: bytes, **changed) -> bytes:
    """Both sign another reading: what two do who collude, or one that signs twice."""
    reading = read_reading(read_receipt(receipt).reading)
    data = canonical(msgspec.structs.replace(reading, **changed))
    signatures = [ToyKey(name).sign(READING_CONTEXT + data) for name in ("host", "owner")]
    return canonical(
        LoadReceipt(reading=data, provider_signature=signatures[0], consumer_signature=signatures[1])
    )


def test_both_compute_the_same_and_it_is_what_was_done(pair):
    one, other = pair.statement("host"), pair.statement("owner")
    assert one == other
    assert not one.faults
    work, by_task = 0, Counter()
    for data in pair.receipts["owner"]:
        for task in read_reading(read_receipt(data).reading).tasks:
            nano = (task.end_row - task.begin_row) * task.nano_units_per_row
            work += nano * task.price_micro
            by_task[task.task] += nano * task.price_micro / 10**9
    assert one.amount_micro == work // 10**9
    assert one.amount_micro == sum(one.by_task.values()) == sum(one.by_day.values())
    assert one.settled_micro == one.amount_micro - one.owed_micro > 0
    for task, micro in one.by_task.items():
        assert abs(micro - by_task[task]) <= one.receipts
    assert one.owed_micro == pair.host.owed_micro == pair.owner.owed_micro
    assert one.summary().startswith("owner owes host ")


def test_the_order_of_receipts_is_nothing(pair):
    assert pair.statement(receipts=pair.receipts["host"][::-1]) == pair.statement()


def test_a_double_counts_once_and_is_named(pair):
    receipts = [*pair.receipts["host"], pair.receipts["host"][3]]
    found = pair.statement(receipts=receipts)
    assert [(fault.kind, fault.number) for fault in found.faults] == [("double", 3)]
    assert found.amount_micro == pair.statement().amount_micro


def test_a_gap_is_named_with_what_it_comes_to(pair):
    receipts = list(pair.receipts["host"])
    lost = [read_reading(read_receipt(receipts.pop(at)).reading) for at in (7, 7, 2)]
    found = pair.statement(receipts=receipts)
    assert [(fault.kind, fault.number) for fault in found.faults] == [("gap", 2), ("gap", 7)]
    assert found.missing_micro == sum(reading.amount_micro for reading in lost)
    assert found.amount_micro == pair.statement().amount_micro - found.missing_micro


def test_of_two_with_one_number_the_cheaper_one_counts(pair):
    last = pair.receipts["host"][-1]
    dearer = signed_anew(last, amount_micro=10**9, total_micro=2 * 10**9)
    found = pair.statement(receipts=[*pair.receipts["host"], dearer])
    assert [fault.kind for fault in found.faults] == ["conflict"]
    assert found.amount_micro == pair.statement().amount_micro


def test_what_both_have_signed_counts_though_it_does_not_follow(pair):
    last = pair.receipts["host"][-1]
    reading = read_reading(read_receipt(last).reading)
    more = signed_anew(last, amount_micro=reading.amount_micro + 5, total_micro=reading.total_micro + 5)
    found = pair.statement(receipts=[*pair.receipts["host"][:-1], more])
    assert [(fault.kind, fault.number) for fault in found.faults] == [("chain", reading.number)]
    assert found.amount_micro == pair.statement().amount_micro + 5


def settled_anew(settlement: bytes, **changed) -> bytes:
    """Both sign another settlement."""
    plain = read_settlement(read_signed_settlement(settlement).settlement)
    data = canonical(msgspec.structs.replace(plain, **changed))
    signatures = [ToyKey(name).sign(SETTLEMENT_CONTEXT + data) for name in ("host", "owner")]
    return canonical(
        SignedSettlement(settlement=data, provider_signature=signatures[0], consumer_signature=signatures[1])
    )


@pytest.mark.parametrize("more", [-5, 5])
def test_of_two_settlements_with_one_number_the_one_counts_that_is_as_its_receipts(pair, more):
    right = list(pair.settlements["host"])
    assert len(right) > 1
    due = read_settlement(read_signed_settlement(right[1]).settlement).due_micro
    wrong = settled_anew(right[1], due_micro=due + more)
    found = pair.statement(settlements=[wrong, *right, wrong])
    assert {(fault.kind, fault.number) for fault in found.faults} == {("conflict", 1)}
    assert found.settled_micro == pair.statement().settled_micro
    assert found == pair.statement(settlements=[wrong, *right[::-1], wrong])


def test_a_settlement_over_another_amount_than_its_receipts_counts_and_is_named(pair):
    right = list(pair.settlements["host"])
    due = read_settlement(read_signed_settlement(right[1]).settlement).due_micro
    found = pair.statement(settlements=[right[0], settled_anew(right[1], due_micro=due + 7), *right[2:]])
    assert [(fault.kind, fault.number) for fault in found.faults] == [("settlement", 1)]
    assert found.settled_micro == pair.statement().settled_micro + 7
    unknown = pair.statement(
        receipts=pair.receipts["host"][:1], settlements=[settled_anew(right[1], due_micro=due + 7)]
    )
    assert not unknown.faults


def test_a_fault_of_a_settlement_is_not_laid_to_a_receipt(pair):
    """Found by a newcomer: a settlement without its second signature was called ``receipt 0``."""
    half = msgspec.structs.replace(
        read_signed_settlement(pair.settlements["host"][0]), consumer_signature=bytes(64)
    )
    for data in (canonical(half), b"no settlement"):
        [fault] = pair.statement(settlements=[data]).faults
        assert fault.of == "settlement"
    [fault] = pair.statement(receipts=[b"no receipt"], settlements=[]).faults
    assert fault.of == "receipt"


def test_receipts_that_two_settlements_net_are_named(pair):
    first = pair.settlements["host"][0]
    again = settled_anew(first, number=1)
    found = pair.statement(settlements=[first, again])
    assert [(fault.kind, fault.number) for fault in found.faults] == [("settlement", 1)]
    assert "that settlement 0 nets" in found.faults[0].text


@pytest.mark.parametrize("field", ["reading", "provider_signature", "consumer_signature"])
def test_no_byte_of_a_receipt_can_be_changed(pair, field):
    """Each byte of it in turn: what is left counts nothing, and is named."""
    receipt = read_receipt(pair.receipts["host"][4])
    whole = getattr(receipt, field)
    for at in range(len(whole)):
        wounded = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        data = canonical(msgspec.structs.replace(receipt, **{field: wounded}))
        found = pair.statement(receipts=[data])
        assert found.receipts == 0
        assert found.faults[0].kind in ("signature", "message", "audience")


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"federation": "another"}, "audience"),
        ({"keys": {"host": "toy:third", "owner": "toy:owner"}}, "signature"),
        ({"keys": {"host": "toy:host"}}, "signature"),
    ],
)
def test_receipts_of_others_count_nothing(pair, changed, kind):
    found = pair.statement(**changed, settlements=[])
    assert found.receipts == found.amount_micro == 0
    assert {fault.kind for fault in found.faults} == {kind}


def test_receipts_of_another_contract_count_nothing(pair):
    other = Pair(terms(id="light"))
    other.begin()
    other.run(60)
    found = pair.statement(receipts=[*pair.receipts["host"], *other.receipts["host"]])
    assert found.amount_micro == pair.statement().amount_micro
    assert {fault.kind for fault in found.faults} == {"audience"}


def test_garbage_is_named_and_harms_nothing(pair):
    found = pair.statement(receipts=[*pair.receipts["host"], b"", b"\xc1" * 50, b"\x93\x01\x02\x03"])
    assert [fault.kind for fault in found.faults] == ["message"] * 3
    assert found.amount_micro == pair.statement().amount_micro


def test_credits_for_breaches_stand_by_day():
    pair = Pair(terms(availability_ppm=900_000, breach_micro=3_000_000, settlement_s=10_000))
    pair.begin()
    pair.run(100)
    found = pair.statement()
    assert found.breaches_micro == found.receipts * 3_000_000
    assert (
        found.amount_micro == sum(found.by_day.values()) == sum(found.by_task.values()) - found.breaches_micro
    )
    assert found.owed_micro == pair.paid_micro


def test_parquet_gives_back_what_the_statement_says(pair, tmp_path):
    statement = pair.statement()
    pq.write_table(statement_table([statement, statement]), tmp_path / "statement.parquet")
    table = pq.read_table(tmp_path / "statement.parquet")
    assert table.num_rows == 2 * len(statement.lines)
    assert sum(table["amount_micro"].to_pylist()) == 2 * statement.amount_micro
    assert set(table["day"].to_pylist()) == {datetime.date(2023, 11, 14)}
    assert statement_table([]).num_rows == 0


def test_it_works_with_the_keys_of_participants():
    """Ed25519, as nodes have it."""
    pytest.importorskip("cryptography")
    pair = Pair()
    pair.begin()
    pair.run(30)
    keys = {name: ParticipantKey.new() for name in ("host", "owner")}
    receipt = read_receipt(pair.receipts["host"][0])
    signed = canonical(
        LoadReceipt(
            reading=receipt.reading,
            provider_signature=keys["host"].sign(READING_CONTEXT + receipt.reading),
            consumer_signature=keys["owner"].sign(READING_CONTEXT + receipt.reading),
        )
    )
    public = {name: key.key for name, key in keys.items()}
    found = load_statement([signed], [pair.contract], federation="fed", keys=public, verify=verifier())
    assert found.receipts == 1
    assert not found.faults
    toys = load_statement(
        [pair.receipts["host"][0]], [pair.contract], federation="fed", keys=pair.keys, verify=verify
    )
    assert found.amount_micro == toys.amount_micro > 0
