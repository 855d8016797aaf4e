"""A host with keys and a signed contract says what it likes to the owner whose load it has taken.

Rows 3, 4, 8 and 16 of the table in docs/threats.md. Bob's node takes a fragment of alice's in earnest and is
killed; then his key speaks by hand. She pays for rows that she has, once; the fragment comes home, and what
comes out is as if nothing had moved.
"""

from __future__ import annotations

import threading
import time

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.market.ledger.effects import LedgerEffects
from medusa.market.ledger.intervals import Slot
from medusa.market.ledger.ledger import PartyLedger
from medusa.market.ledger.messages import DisputeSaid, ReadingSaid, ReceiptSaid
from medusa.market.ledger.receipts import (
    READING_CONTEXT,
    LoadReceipt,
    TaskReading,
    canonical,
    read_reading,
)
from medusa.nodes.market.market_words import encode_word, read_booked
from medusa.runtime.keys.key_files import verifier
from medusa.wire.messages.market import Booked
from tests.nodes.abroad.lending import counting, rows
from tests.system.nodes import DEADLINE_S, Nursery, eventually, until
from tests.system.partners import FEDERATION, NodeByHand, Partners, terms

pytestmark = pytest.mark.system

AT = {"e": ["rows", "first", "last", "out"], "m": ["kind"]}
TASK = "alice/q/kind"
PIECE, EVERY_S = 6, 0.02
TRIES = 5


class Alice(Partners):
    """Her nodes and bob's; rows flow, and what counts them is lent."""

    def __init__(self, folder, contract, nursery):
        super().__init__(folder, contract, nursery)
        self.start("e", "m", "h")
        self.published = 0
        self._over, self._ends = threading.Event(), False
        self._client = self.connect("e")
        for node in ("m", "h"):
            until(lambda node=node: self._client.status()["peers"][node] == "up", what=f"{node} is there")
        self._client.deploy(counting(), at=AT, standby={"m": ["e"]}, checkpoint_every="1s")
        self._flow = threading.Thread(target=self._publish, daemon=True)
        self._flow.start()

    def _publish(self):
        with self.connect("e") as client:
            while not self._over.wait(EVERY_S):
                client.publish("q.rows", rows(self.published, PIECE))
                self.published += PIECE
            client.finish("q.rows")
            try:
                client.flush("60s")
            except md.LinkError:
                if not self._ends:  # Else its nodes are about to be killed.
                    raise

    @property
    def market(self):
        with self.connect("m") as client:
            return client.status()["market"]

    @property
    def contract_status(self):
        [found] = self.market["contracts"]
        return found

    def lent(self):
        """It runs at bob's, and some of its rows are receipted."""

        def paid() -> None:
            """On a busy machine her other node may take it over: who trades has it again then."""
            decided = self._client.status()["queries"]["q"]["configuration"]["fragments"]["q/kind"]
            if decided["owner"] == "e":
                self._client.move("q/kind", to="m")
            assert self.contract_status["owed_micro"] > 0, decided
            assert self.market["away"], "it is at bob's"

        eventually(paid, every_s=0.2, deadline_s=4 * DEADLINE_S)
        return self

    def check_rows(self):
        """Each came once, as one program counts them."""
        self._over.set()
        self._flow.join()
        with self._client.subscribe("q.out", from_="oldest") as trains:
            got = pa.Table.from_batches([train.batch for train in trains])
        want = md.collect(counting(), rows=rows(0, self.published))["out"]
        assert want.num_rows > 100
        assert got.to_pylist() == want.to_pylist()

    def close(self):
        self._ends = True
        self._over.set()
        self._client.close()
        super().close()


@pytest.fixture(scope="module")
def nursery():
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def alice(tmp_path, nursery):
    made = Alice(tmp_path, terms(), nursery)
    yield made
    for node in ("m", "e"):
        print(f"--- the log of {node} ends with\n{made.log(node)[-3000:]}")
    made.close()


def book_of(alice):
    """What bob has on disk of the contract."""
    keys = {owner: alice.signer(owner).key for owner in ("alice", "bob")}
    ledger = PartyLedger.restored(
        alice.catalog("h").market.ledger,
        "bob",
        FEDERATION,
        signer=alice.signer("bob"),
        verify=verifier(),
        keys=keys,
        effects=LedgerEffects(),
    )
    return ledger.book("sold", "alice")


class Host:
    """Bob's key, and his books as they were on his disk when he was killed."""

    def __init__(self, alice):
        self.alice = alice
        book = book_of(alice)
        self.chain, self.contract = book.chain, alice.contract
        [self.key] = book.tasks
        self.task = book.tasks[self.key]
        self.node = NodeByHand(alice, "h", "m", "e").let_in()

    @property
    def interval(self):
        """The last one that is over."""
        since_us = time.time_ns() // 1_000 - self.contract.begins_us
        return since_us // (self.contract.interval_s * 1_000_000) - 1

    def of(self, count, **changes):
        """So many rows of the task, from the first that isn't paid on."""
        number, name = self.key
        begin = self.chain.end_row(self.key, self.task.begin_row)
        made = TaskReading(
            task=name,
            negotiation=number,
            begin_row=begin,
            end_row=begin + count,
            nano_units_per_row=self.task.nano_units_per_row,
            price_micro=self.task.price_micro,
        )
        return msgspec.structs.replace(made, **changes)

    def reading(self, *tasks, interval=None):
        slot = Slot(1, self.interval if interval is None else interval)
        return self.chain.draft(FEDERATION, self.contract, slot, tasks, 0)

    def say(self, reading, *, signer="bob", contract="sold"):
        data = canonical(reading)
        signature = self.alice.signer(signer).sign(READING_CONTEXT + data)
        word = ReadingSaid(contract=contract, reading=data, signature=signature)
        self.node.say(Booked(request=self.node.number()), encode_word(word))

    def heard(self, kind, wanted=lambda word: True):
        def is_it(_, payload):
            word = read_booked("m", payload)
            return isinstance(word, kind) and wanted(word)

        return read_booked("m", self.node.answer(Booked, is_it, what=kind.__name__)[1])

    def receipted(self, reading):
        """What she signs of it: that reading, or the last one that she had signed before."""
        self.say(reading)
        receipt = self.heard(ReceiptSaid).receipt
        found = read_reading(receipt.reading)
        if found.number == self.chain.number:
            self.chain.apply(found, self.contract)
        return found

    def catches_up(self):
        """What was signed last may not have been on his disk."""
        while self.receipted(reading := self.reading()) != reading:
            pass

    def disputed(self, reading):
        """Her answer to a reading that isn't right: the code, and what she would sign."""
        self.say(reading)
        data = canonical(reading)
        dispute = self.heard(DisputeSaid, lambda word: word.dispute.reading == data).dispute
        return dispute.code, dispute

    def signs(self, dispute):
        """Bob takes the counter-reading: the receipt is what she has said."""
        receipt = LoadReceipt(
            reading=dispute.counter,
            provider_signature=self.alice.signer("bob").sign(READING_CONTEXT + dispute.counter),
            consumer_signature=dispute.consumer_signature,
        )
        word = ReceiptSaid(contract="sold", receipt=receipt)
        self.node.say(Booked(request=self.node.number()), encode_word(word))
        self.chain.apply(read_reading(dispute.counter), self.contract)

    def close(self):
        self.node.close()


@pytest.fixture
def host(alice):
    """Alone with her: the real one is gone."""
    for _ in range(TRIES):
        alice.lent()
        alice.kill("h")
        if len(book_of(alice).tasks) == 1:
            break
        alice.start("h")  # On a busy machine he was missed for a moment, and it went home.
    made = Host(alice)
    made.catches_up()
    yield made
    made.close()


def owed(alice):
    found = alice.contract_status
    return found["owed_micro"] + found["settled_micro"]


def refusals(alice, code):
    return alice.refused("m").get(code, 0)


def test_who_bills_what_was_not_done_is_paid_for_what_was(alice, host):
    """Over-billed, billed twice, of no interval, of one to come, at another price, for another task, signed
    by another: no money for any of it."""
    before, paid = owed(alice), host.chain.end_row(host.key, host.task.begin_row)
    most = 2 * 10**9 * host.contract.units_per_s_max_milli // 1_000 // host.task.nano_units_per_row
    right = host.reading()
    wrong = {
        "an interval that is to come": (host.reading(interval=host.interval + 1_000), "E_BILLING"),
        "no interval of it": (host.reading(interval=1 << 40), "E_NO_CONTRACT"),
        "sums": (msgspec.structs.replace(right, total_micro=right.total_micro + 1), "E_BILLING"),
        "an amount": (
            msgspec.structs.replace(right, amount_micro=7, total_micro=right.total_micro + 7),
            "E_BILLING",
        ),
        "rows again": (host.reading(host.of(0, begin_row=paid - 1, end_row=paid)), "E_BILLING"),
        "rows later on": (host.reading(host.of(0, begin_row=paid + 1, end_row=paid + 2)), "E_BILLING"),
        "beyond the price": (
            host.reading(host.of(1, price_micro=host.contract.price_micro + 1)),
            "E_PRICE",
        ),
        "beyond the limit": (host.reading(host.of(most + 1)), "E_OVER_LIMIT"),
    }
    for what, (reading, code) in wrong.items():
        found, dispute = host.disputed(reading)
        assert found == code, f"{what}: {dispute}"
        assert dispute.counter == b"", what
    assert owed(alice) == before
    for signer, contract, changes, code in (
        ("carol", "sold", {}, "E_IDENTITY"),
        ("alice", "sold", {}, "E_IDENTITY"),
        ("bob", "sold", {"federation": "other"}, "E_AUDIENCE"),
        ("bob", "else", {}, "E_NO_CONTRACT"),
        ("bob", "sold", {"number": right.number + 1}, "E_BILLING"),
    ):
        times = refusals(alice, code)
        host.say(msgspec.structs.replace(right, **changes), signer=signer, contract=contract)
        until(lambda code=code, times=times: refusals(alice, code) > times, what=code)
    assert owed(alice) == before
    # What isn't agreed is countered: nothing of it counts.
    least = host.contract.price_micro - host.contract.range_micro
    dearer = host.contract.price_micro if host.task.price_micro == least else least
    for what, task, code in (
        ("another price", host.of(1, price_micro=dearer), "E_PRICE"),
        ("another rate", host.of(1, nano_units_per_row=host.task.nano_units_per_row + 1), "E_PRICE"),
        ("another's task", host.of(1, task="alice/q/other"), "E_TASK_NOT_ALLOWED"),
    ):
        found, dispute = host.disputed(host.reading(task))
        assert found == code, what
        assert read_reading(dispute.counter).tasks == (), what
        host.signs(dispute)
        host.catches_up()
    assert owed(alice) == before
    # More rows than came: she counters with those that she has, once no more can come.
    until(lambda: alice.market["away"] == [], what="it is home", every_s=0.2)
    found, dispute = host.disputed(host.reading(host.of(most // 2)))
    assert found == "E_BILLING"
    host.signs(dispute)
    host.catches_up()
    until(
        lambda: [each.end_row is None for each in alice.catalog("m").market.marks] == [False], what="its end"
    )
    [mark] = alice.catalog("m").market.marks
    due = (mark.end_row - mark.begin_row) * host.task.nano_units_per_row * host.task.price_micro // 10**9
    until(lambda: owed(alice) == due, what=lambda: f"{due} is owed, and {owed(alice)}")
    # Again: it is paid to its end.
    found, dispute = host.disputed(host.reading(host.of(10)))
    assert found in ("E_BILLING", "E_TASK_NOT_ALLOWED")
    assert owed(alice) == due
    alice.check_rows()


def test_a_reading_that_comes_again_is_paid_once_also_after_a_restart(alice, host):
    until(lambda: alice.market["away"] == [], what="it is home", every_s=0.2)
    reading = host.reading()
    assert host.receipted(reading) == reading
    before, number = owed(alice), alice.contract_status["receipts"]
    for _ in range(3):
        assert host.receipted(reading) == reading, "the same receipt"
    alice.kill("m")
    alice.start("m")
    host.node.let_in()
    assert host.receipted(reading) == reading
    assert (owed(alice), alice.contract_status["receipts"]) == (before, number)
    alice.check_rows()
