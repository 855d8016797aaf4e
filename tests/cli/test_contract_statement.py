"""``medusa contract statement``: who owes whom, from files of receipts."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from medusa.market.contract.signed import ContractDocument, countersign, sign_document
from medusa.market.contract.terms import Contract
from medusa.market.ledger.chain import ReceiptChain
from medusa.market.ledger.intervals import Slot
from medusa.market.ledger.receipts import (
    READING_CONTEXT,
    SETTLEMENT_CONTEXT,
    LoadReceipt,
    LoadSettlement,
    SignedSettlement,
    TaskReading,
    canonical,
)
from medusa.market.work import NANO
from medusa.runtime.contracts.contract_files import write_signed
from medusa.runtime.contracts.receipt_files import receipt_lines
from tests.cli.test_contract import run
from tests.market.contract.parties import DAY_US, FEDERATION, NOW_US, key_of, terms

KEYS = ("--provider-key", key_of("acme").key, "--consumer-key", key_of("bigco").key)
FREE_OF_RANGE = terms(range_micro=0)


def receipts_of(contract: Contract, count: int, signed_by=("acme", "bigco")) -> list[LoadReceipt]:
    """Each for 100 rows of one unit: 2.00 EUR."""
    chain, made = ReceiptChain(), []
    for number in range(count):
        task = TaskReading(
            task="clicks/filter",
            negotiation=1,
            begin_row=100 * number,
            end_row=100 * (number + 1),
            nano_units_per_row=NANO,
            price_micro=20_000,
        )
        reading = chain.draft(FEDERATION, contract, Slot(1, number), [task], 0)
        data = canonical(reading)
        signatures = [key_of(party).sign(READING_CONTEXT + data) for party in signed_by]
        made.append(
            LoadReceipt(reading=data, provider_signature=signatures[0], consumer_signature=signatures[1])
        )
        chain.apply(reading, contract)
    return made


def settlement(through: int) -> SignedSettlement:
    document = LoadSettlement(
        federation=FEDERATION,
        contract="c1",
        provider="acme",
        consumer="bigco",
        currency="EUR",
        number=0,
        first=0,
        through=through,
        total_micro=2_000_000 * (through + 1),
        breaches_micro=0,
        due_micro=2_000_000 * (through + 1),
    )
    data = canonical(document)
    provider, consumer = (key_of(each).sign(SETTLEMENT_CONTEXT + data) for each in ("acme", "bigco"))
    return SignedSettlement(settlement=data, provider_signature=provider, consumer_signature=consumer)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = ContractDocument(federation=FEDERATION, until_us=NOW_US + DAY_US, contract=FREE_OF_RANGE)
    offer = sign_document(document, key_of("bigco"), "bigco")
    write_signed(tmp_path / "one", offer)
    write_signed(tmp_path / "a.contract", countersign(offer, key_of("acme"), "acme"))
    return tmp_path


def stated(folder, text: str, *more) -> dict:
    (folder / "r").write_text(text)
    return json.loads(run("contract", "statement", "a.contract", "--receipts", "r", *KEYS, "--json", *more))


def test_who_owes_whom_is_what_both_have_signed(folder):
    receipts = receipts_of(FREE_OF_RANGE, 5)
    text = "# november\n\n" + receipt_lines([*receipts, settlement(1)])
    found = stated(folder, text)
    assert (found["receipts"], found["amount_micro"], found["owed_micro"]) == (5, 10_000_000, 6_000_000)
    assert found["faults"] == []
    assert found["by_task"] == {"clicks/filter": 10_000_000}
    said = run("contract", "statement", "a.contract", "--receipts", "r", *KEYS, "--parquet", "r.parquet")
    assert said.startswith("bigco owes acme 6.00 EUR by contract c1: 5 receipts over 10.00 EUR")
    assert '10.00 EUR  "clicks/filter"' in said
    table = pq.read_table("r.parquet")
    assert sum(table["amount_micro"].to_pylist()) == 10_000_000
    assert f"{table.num_rows} lines are in r.parquet" in said


def test_receipts_may_lie_in_several_files_in_any_order(folder):
    receipts = receipts_of(FREE_OF_RANGE, 6)
    (folder / "late").write_text(receipt_lines(reversed(receipts[3:])))
    found = stated(folder, receipt_lines(receipts[:3]), "--receipts", "late")
    assert (found["receipts"], found["amount_micro"], found["faults"]) == (6, 12_000_000, [])


def test_what_is_wrong_with_receipts_is_named(folder):
    receipts = receipts_of(FREE_OF_RANGE, 4)
    forged = receipts_of(FREE_OF_RANGE, 4, signed_by=("acme", "acme"))[2]
    found = stated(folder, receipt_lines([receipts[0], receipts[0], forged, receipts[3]]))
    assert [each["kind"] for each in found["faults"]] == ["double", "gap", "signature"]
    assert (found["receipts"], found["amount_micro"]) == (2, 4_000_000)
    said = run("contract", "statement", "a.contract", "--receipts", "r", *KEYS)
    assert "gap: receipt 1: receipts 1 to 2 are missing, over 4.00 EUR" in said


@pytest.mark.parametrize("line", ["hello", "receipt", "receipt *", "invoice aGVsbG8=", "receipt aGVs bG8="])
def test_a_line_that_is_none_is_told(folder, line):
    (folder / "r").write_text(f"# first\n{line}\n")
    said = run("contract", "statement", "a.contract", "--receipts", "r", *KEYS, code=1)
    assert "r line 2: expected `receipt` or `settlement`" in said


def test_a_statement_needs_a_contract_that_both_signed(folder):
    (folder / "r").write_text("")
    other = ("--provider-key", key_of("carol").key, "--consumer-key", key_of("bigco").key)
    assert "is signed for 'acme' by" in run(
        "contract", "statement", "a.contract", "--receipts", "r", *other, code=1
    )
    assert "'acme' hasn't signed" in run("contract", "statement", "one", "--receipts", "r", *KEYS, code=1)
    document = ContractDocument(federation=FEDERATION, until_us=NOW_US, contract=terms(id="c2"))
    signed = countersign(sign_document(document, key_of("bigco"), "bigco"), key_of("acme"), "acme")
    write_signed(folder / "b.contract", signed)
    said = run("contract", "statement", "a.contract", "b.contract", "--receipts", "r", *KEYS, code=1)
    assert "is another contract than 'c1'" in said
