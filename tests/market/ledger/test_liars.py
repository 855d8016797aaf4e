"""What a party gains that lies: never more than two intervals are worth."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest

from medusa.market.ledger.book import LedgerSettings
from medusa.market.ledger.chain import exposure_most_micro
from medusa.market.ledger.messages import (
    DisputeSaid,
    LedgerMessage,
    ReadingSaid,
    ReceiptSaid,
    SettlementSaid,
)
from medusa.market.ledger.receipts import (
    READING_CONTEXT,
    SETTLEMENT_CONTEXT,
    LoadDispute,
    LoadReading,
    SignedSettlement,
    TaskReading,
    canonical,
    read_reading,
    read_settlement,
)
from tests.market.ledger.keys import ToyKey
from tests.market.ledger.pair import SECOND, Pair, terms

LONG = 600
"""Sixty intervals."""
STRICT = LedgerSettings(forgives=False)


def forged(change: Callable[[LoadReading], LoadReading]) -> Callable[[LedgerMessage], list[LedgerMessage]]:
    """The host says other readings than its ledger makes, and signs them."""

    def lie(message: LedgerMessage) -> list[LedgerMessage]:
        if not isinstance(message, ReadingSaid):
            return [message]
        data = canonical(change(read_reading(message.reading)))
        signature = ToyKey("host").sign(READING_CONTEXT + data)
        return [ReadingSaid(contract=message.contract, reading=data, signature=signature)]

    return lie


def billed(reading: LoadReading, tasks: list, **changed) -> LoadReading:
    """With these tasks, and amounts that fit them."""
    nano = sum((task.end_row - task.begin_row) * task.nano_units_per_row * task.price_micro for task in tasks)
    before = reading.total_micro - reading.amount_micro
    amount, rest = divmod(nano, 10**9)
    return msgspec.structs.replace(
        reading,
        tasks=tuple(tasks),
        amount_micro=amount,
        rest=rest,
        total_micro=before + amount,
        **changed,
    )


def altered(**changed) -> Callable[[LoadReading], LoadReading]:
    return lambda reading: billed(
        reading, [msgspec.structs.replace(task, **changed) for task in reading.tasks]
    )


def test_an_honest_pair_is_paid_to_the_last_row():
    pair = Pair()
    pair.begin()
    pair.run(LONG)
    pair.end()
    pair.run(120)
    assert pair.paid_micro == pair.worth_micro == 600 * 10**6
    assert not pair.refused
    assert not any(pair.disputes.values())


# --- providers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tolerance_ppm", "inflated", "gain_micro"),
    [(0, 1.5, 0), (20_000, 1.01, 2 * 10**7 * 20_000 // 10**6)],
    ids=["exact", "two percent are tolerated"],
)
def test_rows_that_were_not_delivered_are_not_paid(tolerance_ppm, inflated, gain_micro):
    """The tolerance is given once, as rows are compared by their numbers, and not for each interval."""
    pair = Pair(terms(tolerance_ppm=tolerance_ppm))
    pair.begin()
    pair.inflated = inflated
    pair.run(LONG)
    had_micro = pair.rows[0, "render"] * 1_000
    assert had_micro - 10 < pair.paid_micro <= had_micro + gain_micro
    assert [stop.code for stop in pair.stops["host"]] == ["contract.unreceipted"]


def test_rows_are_not_paid_twice():
    """A reading of rows that are receipted, under the next number."""
    pair, first = Pair(), []

    def again(reading: LoadReading) -> LoadReading:
        first.append(reading)
        return billed(reading, list(first[0].tasks))

    pair.begin()
    pair.says["host"] = forged(again)
    pair.run(LONG)
    assert len(first) > 5
    assert pair.owner.chain.total_micro == first[0].amount_micro
    assert {dispute.code for dispute in pair.disputes["owner"]} == {"E_BILLING"}


def test_a_reading_said_again_under_any_number_of_receipts_is_paid_once():
    pair, said = Pair(), []
    pair.begin()
    pair.says["host"] = lambda message: [*said, said.append(message) or message, message]
    pair.run(LONG)
    assert pair.owner.chain.total_micro == pair.paid_micro
    assert pair.worth_micro - pair.paid_micro <= exposure_most_micro(pair.contract)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (altered(price_micro=1_000_001), "E_PRICE"),
        (altered(price_micro=900_000), "E_PRICE"),
        (altered(nano_units_per_row=10**6 - 1), "E_PRICE"),
        (altered(task="other"), "E_TASK_NOT_ALLOWED"),
        (altered(negotiation=7), "E_TASK_NOT_ALLOWED"),
        (altered(end_row=10**6), "E_OVER_LIMIT"),
        (
            lambda reading: msgspec.structs.replace(reading, amount_micro=reading.amount_micro + 1),
            "E_BILLING",
        ),
        (lambda reading: msgspec.structs.replace(reading, total_micro=reading.total_micro + 1), "E_BILLING"),
        (lambda reading: msgspec.structs.replace(reading, rest=reading.rest + 1), "E_BILLING"),
        (lambda reading: msgspec.structs.replace(reading, interval=reading.interval + 100), "E_BILLING"),
        (lambda reading: msgspec.structs.replace(reading, interval=10**6), "E_NO_CONTRACT"),
        (lambda reading: msgspec.structs.replace(reading, version=2), "E_NO_CONTRACT"),
        (lambda reading: msgspec.structs.replace(reading, broken=9), "E_BILLING"),
    ],
)
def test_a_bill_that_is_not_by_the_agreements_is_disputed_and_not_paid(change, code):
    pair = Pair()
    pair.begin()
    pair.says["host"] = forged(change)
    pair.run(LONG)
    assert pair.owner.chain.total_micro == 0
    assert {dispute.code for dispute in pair.disputes["owner"]} == {code}
    assert [stop.code for stop in pair.stops["host"]] == ["contract.unreceipted"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"federation": "another"}, "E_AUDIENCE"),
        ({"contract": "light"}, "E_AUDIENCE"),
        ({"provider": "third"}, "E_AUDIENCE"),
        ({"consumer": "third"}, "E_AUDIENCE"),
        ({"number": 5}, "E_BILLING"),
    ],
)
def test_a_reading_for_another_contract_is_refused_and_changes_nothing(change, code):
    pair = Pair()
    pair.begin()
    pair.says["host"] = forged(lambda reading: msgspec.structs.replace(reading, **change))
    pair.run(LONG)
    assert set(pair.refused) == {code}
    assert pair.owner.chain.total_micro == 0
    assert not pair.disputes["owner"]


def test_a_reading_that_another_signed_is_refused():
    pair = Pair()
    pair.begin()

    def lie(message):
        if isinstance(message, ReadingSaid):
            signature = ToyKey("third").sign(READING_CONTEXT + message.reading)
            return [msgspec.structs.replace(message, signature=signature)]
        return [message]

    pair.says["host"] = lie
    pair.run(LONG)
    assert set(pair.refused) == {"E_IDENTITY"}
    assert pair.owner.chain.number == 0


def test_a_settlement_over_more_than_is_owed_is_refused():
    pair = Pair()
    pair.begin()

    def lie(message):
        if not isinstance(message, SettlementSaid):
            return [message]
        settlement = read_settlement(message.settlement.settlement)
        data = canonical(msgspec.structs.replace(settlement, due_micro=settlement.due_micro + 1))
        signed = SignedSettlement(
            settlement=data, provider_signature=ToyKey("host").sign(SETTLEMENT_CONTEXT + data)
        )
        return [SettlementSaid(contract=message.contract, settlement=signed)]

    pair.says["host"] = lie
    pair.run(LONG)
    assert set(pair.refused) == {"E_BILLING"}
    assert not pair.settlements["owner"]
    assert pair.worth_micro <= pair.paid_micro + exposure_most_micro(pair.contract)


@pytest.mark.parametrize("inflated", [1.0, 1.001])
def test_a_provider_that_denies_breaches_saves_two_of_them(inflated):
    """It says that all was kept; the owner saw each interval broken, says so, and takes its tasks home. That
    it bills a few rows too many, so that its readings are countered, changes nothing."""
    pair = Pair(terms(availability_ppm=900_000, breach_micro=3_000_000, settlement_s=10_000))
    pair.begin()
    pair.inflated = inflated
    for _ in range(LONG):
        pair.host.measured(pair.now, 0, 0)
        pair.owner.measured(pair.now, SECOND // 2, 0)
        pair.run(1)
        if pair.stops["owner"]:
            pair.end()
    assert [stop.code for stop in pair.stops["owner"]] == ["contract.breaches"]
    assert len(pair.disputes["owner"]) == len(pair.disputes["host"])
    first = pair.stops["owner"][0]
    assert first.tasks == ((0, "render"),)
    denied = [dispute for dispute in pair.disputes["owner"] if dispute.code == "E_BREACH"]
    assert pair.refusal(lambda: pair.owner.began(pair.now, 1, "next", 0, 1, 10**6)) == "contract.trust"
    assert 2 <= len(denied) <= 3


@pytest.mark.parametrize("more_rows", [1, 500, 10**6])
@pytest.mark.parametrize("true_first", [True, False])
def test_two_readings_of_one_number_are_paid_once_and_for_rows_that_came(more_rows, true_first):
    """The second one bills more rows, or more than the contract allows. The owner signs a number once."""
    pair, signed = Pair(), []

    def twice(message: LedgerMessage) -> list[LedgerMessage]:
        if not isinstance(message, ReadingSaid):
            return [message]
        tasks = read_reading(message.reading).tasks
        more = forged(lambda reading: billed(reading, [longer(task, more_rows) for task in tasks]))(message)
        return [message, *more] if true_first else [*more, message]

    pair.begin()
    pair.says["host"] = twice
    pair.says["owner"] = lambda message: signed.append(message) or [message]
    pair.run(LONG)
    numbers = [read_reading(each.receipt.reading).number for each in signed if isinstance(each, ReceiptSaid)]
    readings = {each.receipt.reading for each in signed if isinstance(each, ReceiptSaid)}
    assert len(readings) == len(set(numbers)) > 10
    pair.end()
    pair.run(120)
    assert pair.owner.chain.total_micro == pair.paid_micro == pair.worth_micro


def longer(task: TaskReading, rows: int) -> TaskReading:
    return msgspec.structs.replace(task, end_row=task.end_row + rows)


def test_a_second_reading_of_an_interval_that_is_receipted_bills_no_row_again():
    """Under the next number, as if the interval had been another one."""
    pair, said = Pair(), []

    def same_interval(reading: LoadReading) -> LoadReading:
        said.append(reading)
        return msgspec.structs.replace(reading, interval=said[0].interval)

    pair.begin()
    pair.run(15)
    pair.says["host"] = forged(same_interval)
    pair.run(LONG)
    assert len(said) > 3
    assert pair.owner.chain.total_micro <= pair.worth_micro
    statement = pair.statement("owner")
    rows = sorted((line.begin_row, line.end_row) for line in statement.lines)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(rows))


def test_a_settlement_that_is_said_again_pays_nothing_again():
    pair, said = Pair(), []

    def again(message: LedgerMessage) -> list[LedgerMessage]:
        if isinstance(message, SettlementSaid):
            said.append(message)
        return [message, *said]

    pair.begin()
    pair.says["host"] = again
    pair.run(LONG)
    assert len(said) > 3
    assert not pair.refused
    assert pair.owner.settled_due_micro == pair.host.settled_due_micro <= pair.worth_micro
    assert pair.statement("owner").settled_micro == pair.owner.settled_due_micro
    assert not pair.statement("owner").faults


# --- consumers ----------------------------------------------------------------------------------------


def test_who_signs_no_settlement_gains_two_intervals():
    """It acknowledges all rows; receipts say what it owes without a settlement."""
    pair = Pair()
    pair.begin()
    pair.says["owner"] = lambda message: [] if isinstance(message, SettlementSaid) else [message]
    pair.run(LONG)
    assert pair.worth_micro - pair.paid_micro <= exposure_most_micro(pair.contract)
    assert pair.host.owed_micro == pair.paid_micro == pair.statement().owed_micro > 0
    assert [stop.code for stop in pair.stops["host"]] == ["contract.unreceipted"]


@pytest.mark.parametrize(("delivered", "claimed"), [(1.0, 2.0), (0.5, 2.0), (0.1, 20.0)])
def test_who_acknowledges_rows_that_it_never_got_pays_for_those_that_were_put_out(delivered, claimed):
    """No party gains: the host bills what it counts, and the owner pays for what it says that it has."""
    pair = Pair()
    pair.begin()
    pair.delivered, pair.understated = delivered, claimed
    pair.run(LONG)
    assert pair.paid_micro <= pair.worth_micro
    assert pair.worth_micro - pair.paid_micro <= exposure_most_micro(pair.contract)
    assert not any(pair.disputes.values())
    assert not pair.stops["host"]


def test_a_counter_reading_with_rows_that_were_not_said_is_refused():
    pair = Pair()
    pair.begin()
    pair.delivered = 0.5

    def lie(message: LedgerMessage) -> list[LedgerMessage]:
        dispute = getattr(message, "dispute", None)
        if dispute is None or not dispute.counter:
            return [message]
        counter, said = read_reading(dispute.counter), read_reading(dispute.reading)
        data = canonical(billed(counter, [longer(task, 1_000) for task in said.tasks]))
        signed = ToyKey("owner").sign(READING_CONTEXT + data)
        changed = msgspec.structs.replace(dispute, counter=data, consumer_signature=signed)
        return [msgspec.structs.replace(message, dispute=changed)]

    pair.says["owner"] = lie
    pair.run(LONG)
    assert set(pair.refused) == {"E_BILLING"}
    assert pair.paid_micro == 0
    assert 0 < pair.worth_micro <= exposure_most_micro(pair.contract)


def test_who_answers_with_an_old_receipt_gains_two_intervals():
    pair, first = Pair(), []

    def old(message: LedgerMessage) -> list[LedgerMessage]:
        if not isinstance(message, ReceiptSaid):
            return [message]
        first.append(message)
        return [first[0]]

    pair.begin()
    pair.says["owner"] = old
    pair.run(LONG)
    assert len(first) > 1
    assert pair.host.chain.number == 1
    assert pair.paid_micro == read_reading(first[0].receipt.reading).amount_micro
    assert pair.worth_micro - pair.paid_micro <= exposure_most_micro(pair.contract)
    assert [stop.code for stop in pair.stops["host"]] == ["contract.unreceipted"]


def test_who_signs_a_receipt_and_a_counter_reading_of_one_number_gains_two_intervals():
    """The cheaper one is said first, so it counts at the host; both are in its statement."""
    pair = Pair()

    def both(message: LedgerMessage) -> list[LedgerMessage]:
        if not isinstance(message, ReceiptSaid):
            return [message]
        receipt = message.receipt
        reading = read_reading(receipt.reading)
        counter = canonical(billed(reading, []))
        dispute = LoadDispute(
            reading=receipt.reading,
            provider_signature=receipt.provider_signature,
            code="E_BILLING",
            text="nothing came",
            counter=counter,
            consumer_signature=ToyKey("owner").sign(READING_CONTEXT + counter),
        )
        return [DisputeSaid(contract=message.contract, dispute=dispute), message]

    pair.begin()
    pair.says["owner"] = both
    pair.run(LONG)
    assert pair.worth_micro - pair.paid_micro <= exposure_most_micro(pair.contract)
    assert pair.stops["host"]
    receipts = [*pair.receipts["host"], *pair.receipts["owner"]]
    assert any(fault.kind == "conflict" for fault in pair.statement(receipts=receipts).faults)


def test_who_never_acknowledges_gains_two_intervals():
    pair = Pair()
    pair.begin()
    pair.says["owner"] = lambda message: []
    pair.run(LONG)
    assert pair.paid_micro == 0
    assert 0 < pair.worth_micro <= exposure_most_micro(pair.contract)
    assert [stop.code for stop in pair.stops["host"]] == ["contract.unreceipted"]
    assert pair.refusal(lambda: pair.host.began(pair.now, 1, "next", 0, 1, 10**6)) == "contract.unreceipted"


def test_who_acknowledges_at_first_and_then_no_more_gains_two_intervals():
    pair = Pair()
    pair.begin()
    pair.run(200)
    pair.says["owner"] = lambda message: [] if isinstance(message, ReceiptSaid) else [message]
    pair.run(LONG)
    assert pair.worth_micro - pair.paid_micro <= exposure_most_micro(pair.contract)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.99])
def test_who_understates_gains_two_intervals(share):
    pair = Pair()
    pair.begin()
    pair.run(100)
    pair.understated = share
    pair.run(LONG)
    assert pair.worth_micro - pair.paid_micro <= exposure_most_micro(pair.contract)
    assert pair.stops["host"]


def test_who_hands_over_again_and_again_and_says_that_it_had_nothing_gains_two_intervals():
    """A task goes home as of the row that its owner names; what is lost by that is remembered."""
    pair = Pair(settings=STRICT)
    pair.says["owner"] = lambda message: []
    refused = ""
    for negotiation in range(40):
        refused = pair.refusal(lambda negotiation=negotiation: pair.begin(negotiation))
        if refused:
            break
        pair.run(35)
        pair.end(negotiation, end_row=0)
        pair.says["owner"] = lambda message: [message]
        pair.run(35)
        pair.says["owner"] = lambda message: []
    assert refused == "contract.trust"
    assert pair.worth_micro - pair.paid_micro <= exposure_most_micro(pair.contract)
    assert pair.host.written_off_micro >= exposure_most_micro(pair.contract) // 2


def test_what_was_lost_is_forgotten_with_the_settlement_period():
    pair = Pair()
    pair.says["owner"] = lambda message: []
    pair.begin()
    pair.run(35)
    pair.end(end_row=0)
    assert pair.host.written_off_micro == 20 * 10**6
    assert pair.refusal(lambda: pair.begin(1)) == "contract.trust"
    pair.owner.ended(pair.now, 1, "render", 0)
    pair.disks["host"] = pair.ledgers["host"].snapshot()
    pair.restart("host")
    assert pair.host.written_off_micro == 20 * 10**6
    pair.run(70)
    pair.begin(2)
    assert pair.host.may_work(pair.now)


def test_who_claims_breaches_that_were_not_gains_nothing():
    pair = Pair(terms(availability_ppm=900_000, breach_micro=3_000_000))
    pair.begin()
    for _ in range(50):
        pair.host.measured(pair.now, 0, 0)
        pair.owner.measured(pair.now, 10**9, 0)
        pair.run(1)
    assert pair.host.chain.breaches_micro == 0


def test_counter_readings_with_more_rows_or_other_figures_are_refused():
    """A consumer that signs a counter-reading which bills less than its rows make."""
    pair = Pair()
    pair.begin()
    pair.delivered = 0.5

    def lie(message):
        dispute = getattr(message, "dispute", None)
        if dispute is None or not dispute.counter:
            return [message]
        counter = read_reading(dispute.counter)
        data = canonical(
            msgspec.structs.replace(
                counter, amount_micro=0, total_micro=counter.total_micro - counter.amount_micro
            )
        )
        signed = ToyKey("owner").sign(READING_CONTEXT + data)
        changed = msgspec.structs.replace(dispute, counter=data, consumer_signature=signed)
        return [msgspec.structs.replace(message, dispute=changed)]

    pair.says["owner"] = lie
    pair.run(LONG)
    assert "E_BILLING" in pair.refused
    assert pair.worth_micro - pair.paid_micro <= exposure_most_micro(pair.contract)


def test_nobody_fills_the_disk_of_the_other_one_with_refusals():
    pair = Pair()
    pair.begin()
    pair.run(9)
    said = []
    pair.says["host"] = lambda message: said.append(message) or []
    pair.run(3)
    reading = read_reading(said[0].reading)
    before = {name: len(pair.disks[name]) for name in pair.disks}
    for more in range(1, 100):
        data = canonical(msgspec.structs.replace(reading, total_micro=reading.total_micro + more))
        signature = ToyKey("host").sign(READING_CONTEXT + data)
        pair.hear("owner", "host", ReadingSaid(contract="power", reading=data, signature=signature))
        pair.settle()
    assert {name: len(pair.disks[name]) - before[name] for name in pair.disks} == {"host": 16, "owner": 16}
    assert len(pair.disputes["owner"]) == 16
