"""``medusa contract statement``: who owes whom, from files of receipts."""

from __future__ import annotations

import json
import shlex

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


def stated(folder, text: str, *more, code=0) -> dict:
    (folder / "r").write_text(text)
    command = ("contract", "statement", "a.contract", "--receipts", "r", *KEYS, "--json", *more)
    return json.loads(run(*command, code=code))


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
    found = stated(folder, receipt_lines([receipts[0], receipts[0], forged, receipts[3]]), code=1)
    assert [each["kind"] for each in found["faults"]] == ["double", "gap", "signature"]
    assert (found["receipts"], found["amount_micro"]) == (2, 4_000_000)
    said = run("contract", "statement", "a.contract", "--receipts", "r", *KEYS, code=1)
    assert "faults    3: what is owed may change once they are cleared up\n" in said
    assert "gap: receipt 1: receipts 1 to 2 are missing, over 4.00 EUR" in said
    for kind in ("double: receipt 0", "signature: receipt 2"):
        assert f"\n{kind}: " in said
    parquet = run(
        *("contract", "statement", "a.contract", "--receipts", "r", *KEYS, "--parquet", "r.parquet"), code=1
    )
    assert "2 lines are in r.parquet" in parquet


def test_a_receipt_that_comes_twice_is_a_fault_too(folder):
    (receipt,) = receipts_of(FREE_OF_RANGE, 1)
    assert stated(folder, receipt_lines([receipt]))["faults"] == []
    found = stated(folder, receipt_lines([receipt, receipt]), code=1)
    assert [each["kind"] for each in found["faults"]] == ["double"]


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


def test_keys_that_are_exchanged_are_told(folder):
    (folder / "r").write_text("")
    exchanged = ("--provider-key", key_of("bigco").key, "--consumer-key", key_of("acme").key)
    said = run("contract", "statement", "a.contract", "--receipts", "r", *exchanged, code=1)
    signed, given = key_of("acme").key, key_of("bigco").key
    assert f"contract 'c1' is signed for 'acme' by {signed}, --provider-key is {given}" in said
    assert "hint: with that one 'bigco' has signed: --provider-key is the key of 'acme'" in said


def test_an_example_is_a_contract_with_receipts_that_both_signed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = run("contract", "statement", "--example", "a sample")
    command = shlex.split(said.partition("Who owes whom:")[2].replace("\\\n", " "))
    assert command[0] == "medusa"
    found = json.loads(run(*command[1:], "--json"))
    assert found["faults"] == []
    assert (found["receipts"], len(found["by_day"]), len(found["by_task"])) == (52, 3, 2)
    # By hand: 1,440 units an hour for 0.02, and 540 for 0.018; one broken promise; two days are settled.
    per_hour_micro, breach_micro = 1_440 * 20_000 + 540 * 18_000, 500_000
    assert found["amount_micro"] == 52 * per_hour_micro - breach_micro
    assert found["settled_micro"] == 48 * per_hour_micro - breach_micro
    assert found["owed_micro"] == 4 * per_hour_micro
    assert f"{found['receipts'] + 2} receipts and settlements are in a sample" in said
    shown = json.loads(run("contract", "show", command[3], *command[-4:], "--json"))
    assert shown["counts"]
    lines = (tmp_path / "a sample" / "clicks.receipts").read_text().splitlines(keepends=True)
    (tmp_path / "a sample" / "clicks.receipts").write_text("".join(lines[:5] + lines[6:]))
    gap = json.loads(run(*command[1:], "--json", code=1))
    assert [(each["kind"], each["number"]) for each in gap["faults"]] == [("gap", 4)]
    assert gap["missing_micro"] == per_hour_micro


def test_an_example_writes_nothing_over_and_stands_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = json.loads(run("contract", "statement", "--example", "s", "--json"))
    assert told == {
        "contract": "s/clicks.contract",
        "receipts": "s/clicks.receipts",
        "provider_key": "s/acme.pub",
        "consumer_key": "s/bigco.pub",
        "documents": 54,
    }
    before = {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()}
    assert "is there already, and nothing is written over it" in run(
        "contract", "statement", "--example", "s", code=1
    )
    assert {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()} == before
    said = run("contract", "statement", "s/clicks.contract", "--example", "t", code=2)
    assert "--example stands alone" in said
    assert not (tmp_path / "t").exists()


def test_what_a_statement_needs_is_named(folder):
    said = run("contract", "statement", "a.contract", "--provider-key", key_of("acme").key, code=2)
    assert "missing: --receipts, --consumer-key. To try it: medusa contract statement --example" in said
