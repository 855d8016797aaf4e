"""The provider's side of a contract: it meters, reads each interval, and stops where it isn't receipted.

    interval n ends ──> reading n, signed and kept ──> said until it is answered ──> receipt n
    interval n + 1 runs meanwhile; n + 2 only if all that was done up to the end of n is receipted

Work is let run (``may_work``) in interval m where everything that was delivered up to the end of m - 2 is
receipted, so that what isn't is of two intervals at most: m - 1 and m. That follows from records alone, so a
death changes nothing of it. Where it isn't receipted tasks rest at once; after half an interval they go home.

A consumer may take its tasks home and say that it never had some of the rows. What that comes to is
remembered to the end of the settlement period, and with what isn't receipted it is never more than two
intervals are worth at most. Once one of them is lost no task is taken any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from medusa.errors import RemoteProtocolError
from medusa.market.contract.terms import Contract
from medusa.market.ledger.accounts import Accounts
from medusa.market.ledger.book import LedgerBook, LedgerIdentity, LedgerSettings, MeteredTask
from medusa.market.ledger.chain import TaskKey, exposure_most_micro, interval_most_nano
from medusa.market.ledger.effects import LedgerEffects
from medusa.market.ledger.intervals import Slot, promise_kept
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
    LoadReceipt,
    SignedSettlement,
    TaskReading,
    canonical,
    read_reading,
    read_settlement,
    refusal_bytes,
)
from medusa.market.ledger.records import (
    ContractCounts,
    ContractEnds,
    DisputeKept,
    LedgerRecord,
    ReadingKept,
    ReadingTakenBack,
    SettlementKept,
    TaskBegan,
    TaskWent,
)
from medusa.market.money import MONEY_MAX, money_text
from medusa.market.work import NANO

__all__ = ["ProviderBook"]

CLAIMS_MAX = 8
"""Readings that were receipted for less than they said, and are remembered: later ones say more."""

LAST_TRIES = 3
"""So often a contract that is over is read again for rows that weren't receipted."""


class ProviderBook(LedgerBook):
    """One contract under which this party runs tasks of another one, and is paid."""

    def __init__(
        self,
        identity: LedgerIdentity,
        contract: Contract,
        accounts: Accounts,
        effects: LedgerEffects,
        settings: LedgerSettings,
    ) -> None:
        super().__init__(identity, contract, accounts, effects, settings)
        self._said: ReadingKept | None = None
        self._proposed: SignedSettlement | None = None
        self._said_at_us = self._last_tries = 0
        self._taken_back = False
        self._rests_since_us: int | None = None
        self._stopped_at: Slot | None = None
        self._claims: list[tuple[Slot, dict[TaskKey, int]]] = []
        self._enters[ReadingKept] = self._enter_reading
        self._enters[DisputeKept] = self._enter_dispute
        self._enters[ReadingTakenBack] = self._enter_taken_back
        self._enters[SettlementKept] = self._enter_proposed

    # --- work --------------------------------------------------------------------------------------

    def may_work(self, now_us: int) -> bool:
        """Whether tasks may run now: the contract counts, and what was done before is receipted."""
        slot = self.versions.at(now_us)
        return (
            slot is not None
            and not self.stopped
            and self.versions.ordinal(slot) <= self.versions.ordinal(self.covered) + 2
            and self._lost_so_far_micro(slot) + self.exposure_micro() < self._loss_most_micro(slot)
        )

    def room_nano(self, now_us: int) -> int:
        """Work that may still be done before the next receipt, in nano-units: two intervals of the most that
        the contract allows, less what is done already, and no more than its cap pays for."""
        slot = self.versions.at(now_us)
        contract = self.versions.get(slot.version) if slot else None
        if slot is None or contract is None or not self.may_work(now_us):
            return 0
        done = sum(rows * self.tasks[key].nano_units_per_row for key, rows in self.unreceipted_rows().items())
        room = 2 * interval_most_nano(contract) - done
        if contract.price_micro:
            lost = self._lost_so_far_micro(slot) + self.exposure_micro()
            room = min(room, (self._loss_most_micro(slot) - lost) * NANO // contract.price_micro)
        if contract.cap_micro and contract.price_micro:
            left = self.chain.left_micro(contract, slot) - self.exposure_micro()
            room = min(room, left * NANO // contract.price_micro)
        return max(room, 0)

    def counted(self, now_us: int, negotiation: int, task: str, end_row: int) -> None:
        """Rows of a task before this one were delivered."""
        super().counted(now_us, negotiation, task, end_row)
        slot = self.versions.at(now_us)
        contract = self.versions.get(slot.version) if slot else None
        if slot is not None and contract is not None and contract.cap_micro:
            left = self.chain.left_micro(contract, slot)
            if self.exposure_micro() >= left:
                self._stop(
                    "contract.cap",
                    f"{money_text(contract.cap_micro, contract.currency)} are owed in this settlement period:"
                    " that is the cap",
                )

    # --- time and messages -------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        self._advance(now_us)
        if now_us >= self._said_at_us + self._repeat_us():
            self._say(now_us)
        self._stop_where_it_must(now_us)

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has something to do; None: only once something else has come."""
        slot, last = self.versions.at(now_us), self.chain.last
        next_us = self.versions.next_at_us(now_us) if self.tasks else None
        times = [] if next_us is None else [next_us]
        if self._said is not None or self._proposed is not None:
            times.append(self._said_at_us + self._repeat_us())
        elif last is not None and self.chain.number > self._settled_next:
            times.append(self.versions.payment_period_ends_us(last))
        over = slot is None and now_us >= self.versions.last_us
        if over and last is not None and self.unreceipted_rows() and self._last_tries < LAST_TRIES:
            times.append(self._said_at_us + self._interval_us(last))
        if self._taken_back and self.versions.last_ended(now_us) is not None:
            times.append(now_us)
        if self._rests_since_us is not None and not self.stopped:
            times.append(self._rests_since_us + self._patience_us())
        return max(min(times), now_us) if times else None

    def receive(self, now_us: int, message: LedgerMessage) -> None:
        """Take what the consumer says.

        Raises:
            RemoteProtocolError: it breaks a rule; nothing changed.
        """
        if isinstance(message, ReceiptSaid):
            self._receive_receipt(message.receipt)
        elif isinstance(message, DisputeSaid):
            self._receive_dispute(message)
        elif isinstance(message, SettlementSaid):
            self._receive_settlement(message.settlement)
        else:
            raise RemoteProtocolError(
                "a reading comes from the provider, who we are", peer=self.partner, code="E_ROLE"
            )
        self._advance(now_us)

    def snapshot(self) -> Iterable[LedgerRecord]:
        """As ``LedgerBook.snapshot``. What is owed by rows that are disputed is read anew after it."""
        yield from super().snapshot()
        if self._said is not None:
            yield self._said
        if self._taken_back:
            yield ReadingTakenBack(contract=self.contract_id, partner=self.partner)
        if self._proposed is not None:
            yield SettlementKept(contract=self.contract_id, partner=self.partner, settlement=self._proposed)

    # --- readings ----------------------------------------------------------------------------------

    def _advance(self, now_us: int) -> None:
        """Propose the settlement that is due, else make the reading that is due, if none is open."""
        slot, last = self.versions.last_ended(now_us), self.chain.last
        if self._said is not None or self._proposed is not None or slot is None:
            return
        if last is not None and (self._taken_back or now_us >= self.versions.last_us):
            slot = max(slot, last)
        new = slot > self.covered and (last is None or slot > last)
        reads = self._taken_back or (bool(self.tasks) and (new or self._again(now_us, slot)))
        running = self.versions.at(now_us)
        following = slot if reads else running
        unsettled = self.chain.number > self._settled_next
        if last is not None and unsettled and not self._same_period(last, following):
            self._propose(now_us)
        elif reads:
            self._read(now_us, slot)

    def _same_period(self, last: Slot, other: Slot | None) -> bool:
        return other is not None and self.versions.payment_period(last) == self.versions.payment_period(other)

    def _again(self, now_us: int, slot: Slot) -> bool:
        """Whether a contract that is over is read again: rows may have come late."""
        if now_us < self.versions.last_us or self._last_tries >= LAST_TRIES or not self.unreceipted_rows():
            return False
        return now_us >= self._said_at_us + self._interval_us(slot)

    def _read(self, now_us: int, slot: Slot) -> None:
        contract = self.versions.get(slot.version)
        assert contract is not None
        self._last_tries += slot == self.chain.last
        reading = self.chain.draft(
            self._identity.federation, contract, slot, self._rows(contract), self._broken(contract, slot)
        )
        data = canonical(reading)
        kept = ReadingKept(
            contract=self.contract_id,
            partner=self.partner,
            reading=data,
            signature=self._identity.sign(READING_CONTEXT, data),
        )
        self.keep(kept)
        self._enter_reading(kept)
        self._say(now_us)

    def _rows(self, contract: Contract) -> list[TaskReading]:
        """What was delivered and isn't receipted; of more than the contract allows the rest waits."""
        most, found = 2 * interval_most_nano(contract), []
        for (negotiation, name), task in sorted(self.tasks.items(), key=lambda each: each[0][::-1]):
            begin = self._end_row((negotiation, name), task)
            rows = max(task.counted - begin, 0)
            if task.nano_units_per_row:
                rows = min(rows, most // task.nano_units_per_row)
            if not rows:
                continue
            most -= rows * task.nano_units_per_row
            found.append(
                TaskReading(
                    task=name,
                    negotiation=negotiation,
                    begin_row=begin,
                    end_row=begin + rows,
                    nano_units_per_row=task.nano_units_per_row,
                    price_micro=task.price_micro,
                )
            )
        return found

    def _broken(self, contract: Contract, slot: Slot) -> int:
        """In how many of the intervals that a reading covers the promise wasn't kept. One that nobody
        measured, as the process was gone, counts as one of them."""
        if not contract.availability_ppm and not contract.latency_us:
            return 0
        last = self.chain.last
        first = self.versions.ordinal(self.covered) + 1
        if last is not None:
            first = max(first, self.versions.ordinal(last) + 1)
        until = self.versions.ordinal(slot)
        if self._stopped_at is not None and self.stopped:
            until = min(until, self.versions.ordinal(self._stopped_at))
        kept = sum(
            first <= self.versions.ordinal(each) <= until and promise_kept(contract, *measure)
            for each, measure in self._measured_to(slot)
        )
        return max(until - first + 1, 0) - kept

    def _say(self, now_us: int) -> None:
        message: LedgerMessage
        if self._said is not None:
            message = ReadingSaid(
                contract=self.contract_id, reading=self._said.reading, signature=self._said.signature
            )
        elif self._proposed is not None:
            message = SettlementSaid(contract=self.contract_id, settlement=self._proposed)
        else:
            return
        self._said_at_us = now_us
        self._effects.say(self.partner, message)

    def _receive_receipt(self, receipt: LoadReceipt) -> None:
        reading = self._receipt_reading(receipt)
        if reading.number < self.chain.number:
            return
        fault = self.chain.fault(reading, self._contract_of(reading), self._begins())
        if fault:
            raise RemoteProtocolError(f"a receipt: {fault}", peer=self.partner, code="E_BILLING")
        self._take_receipt(receipt)

    def _receive_dispute(self, message: DisputeSaid) -> None:
        dispute, ours = message.dispute, self._identity.party
        reading = read_reading(dispute.reading)
        self._addressed(reading)
        self._signed_by(
            ours, READING_CONTEXT, dispute.reading, dispute.provider_signature, "disputed reading"
        )
        if not dispute.counter:
            self._take_refusal(reading, dispute)
            return
        if reading.number < self.chain.number:
            if reading.number == self.chain.number - 1 and self._last_receipt is not None:
                self._effects.say(
                    self.partner, ReceiptSaid(contract=self.contract_id, receipt=self._last_receipt)
                )
            return
        counter = read_reading(dispute.counter)
        self._signed_by(
            self.partner, READING_CONTEXT, dispute.counter, dispute.consumer_signature, "counter-reading"
        )
        fault = _beyond(counter, reading) or self.chain.fault(
            counter, self._contract_of(counter), self._begins()
        )
        if fault:
            raise RemoteProtocolError(f"a counter-reading: {fault}", peer=self.partner, code="E_BILLING")
        receipt = LoadReceipt(
            reading=dispute.counter,
            provider_signature=self._identity.sign(READING_CONTEXT, dispute.counter),
            consumer_signature=dispute.consumer_signature,
        )
        self.keep(DisputeKept(contract=self.contract_id, partner=self.partner, dispute=dispute))
        self._count_dispute(dispute.code, f"reading {reading.number} is receipted for less: {dispute.text}")
        self._take_receipt(receipt)
        self._effects.say(self.partner, ReceiptSaid(contract=self.contract_id, receipt=receipt))

    def _take_refusal(self, reading: LoadReading, dispute: LoadDispute) -> None:
        """Nothing of the newest reading counts; or of the last receipt a breach is missing."""
        refusal = refusal_bytes(dispute.reading, dispute.code)
        self._signed_by(self.partner, b"", refusal, dispute.consumer_signature, "refusal")
        late = reading.number < self.chain.number
        if reading.number >= self.chain.number - 1 and late == (dispute.code == "E_BREACH"):
            self._keep_refusal(dispute, f"reading {reading.number} is disputed: {dispute.text}")

    # --- stopping ----------------------------------------------------------------------------------

    def _stop_where_it_must(self, now_us: int) -> None:
        slot = self.versions.at(now_us)
        self._stopped_at = self._stopped_at if self.stopped else slot
        if slot is None:
            # Nobody rests where no version counts: it is over, or the next one begins anew.
            self._rests_since_us = None
            if now_us >= self.versions.last_us:
                self._stop("contract.ended", f"contract {self.contract_id} is over")
        elif self.may_work(now_us) or not self._runs:
            self._rests_since_us = None
        elif self._rests_since_us is None:
            self._rests_since_us = now_us
        elif now_us >= self._rests_since_us + self._patience_us():
            contract = self.versions.newest
            self._stop(
                "contract.unreceipted",
                f"work worth {money_text(self.exposure_micro(), contract.currency)} is not receipted, of"
                f" {money_text(exposure_most_micro(contract), contract.currency)} that two intervals may be"
                " worth",
            )

    @property
    def _runs(self) -> bool:
        """Whether a task does: a contract without tasks rests for nothing, and wakes nobody."""
        return any(not task.home for task in self.tasks.values())

    def _takes_nothing(self, contract: Contract, slot: Slot) -> str:
        lost_micro = self._lost_so_far_micro(slot)
        if 2 * lost_micro < self._loss_most_micro(slot):
            return ""
        lost = money_text(lost_micro, contract.currency)
        return f"work worth {lost} was done that {self.partner} says it never had"

    def _forgets_at_us(self, slot: Slot) -> int | None:
        return self.versions.payment_period_ends_us(slot) if self._settings.forgives else None

    def _lost_micro(self, key: TaskKey, task: MeteredTask, end_row: int) -> int:
        rows = task.counted - max(end_row, self._end_row(key, task))
        return min(max(rows, 0) * task.nano_units_per_row * task.price_micro // NANO, MONEY_MAX)

    def _lost_so_far_micro(self, slot: Slot) -> int:
        """What was written off and isn't forgotten yet."""
        if self._settings.forgives and self.versions.payment_period(slot) != self.written_off_in:
            return 0
        return self.written_off_micro

    def _loss_most_micro(self, slot: Slot) -> int:
        contract = self.versions.get(slot.version)
        assert contract is not None
        return max(exposure_most_micro(contract), 1)

    # --- settlements -------------------------------------------------------------------------------

    def _propose(self, now_us: int) -> None:
        data = canonical(self._settlement())
        signed = SignedSettlement(
            settlement=data, provider_signature=self._identity.sign(SETTLEMENT_CONTEXT, data)
        )
        self.keep(SettlementKept(contract=self.contract_id, partner=self.partner, settlement=signed))
        self._proposed = signed
        self._say(now_us)

    def _receive_settlement(self, signed: SignedSettlement) -> None:
        settlement = read_settlement(signed.settlement)
        self._addressed(settlement)
        if settlement.number < self._settled_number:
            return
        # Whichever we signed of this number: a receipt of a reading that we took back may have come since.
        if settlement.number > self._settled_number or not self._is_settled(signed):
            raise RemoteProtocolError(
                f"settlement {settlement.number} isn't one that both have signed, the next is"
                f" {self._settled_number}",
                peer=self.partner,
                code="E_IDENTITY",
            )
        self._proposed = None
        self._take_settlement(signed)

    # --- entering what is kept ---------------------------------------------------------------------

    def _enter_reading(self, record: ReadingKept) -> None:
        self._said, self._taken_back = record, False
        for each in read_reading(record.reading).tasks:
            task = self.tasks.get((each.negotiation, each.task))
            if task is not None:
                task.count(each.end_row)

    def _enter_receipt(self, receipt: LoadReceipt) -> None:
        reading = read_reading(receipt.reading)
        said = read_reading(self._said.reading) if self._said is not None else reading
        self._said = self._proposed = None
        self._taken_back = False
        contract = self._contract_of(said)
        claim = {
            (each.negotiation, each.task): each.end_row
            - (each.end_row - each.begin_row) * contract.tolerance_ppm // 1_000_000
            for each in said.tasks
        }
        self._claims = [*self._claims[-CLAIMS_MAX:], (Slot(said.version, said.interval), claim)]
        # Before tasks that are paid are forgotten, and their rows with them.
        ends = {(each.negotiation, each.task): each.end_row for each in reading.tasks}
        self._cover(ends)
        super()._enter_receipt(receipt)

    def _cover(self, ends: dict[TaskKey, int]) -> None:
        """Move on to the newest interval of which all is receipted.

        Args:
            ends: of the receipt that comes in.
        """
        for index in reversed(range(len(self._claims))):
            slot, claim = self._claims[index]
            if all(row <= max(ends.get(key, 0), self._paid_to(key)) for key, row in claim.items()):
                self.covered = max(self.covered, slot)
                del self._claims[: index + 1]
                return

    def _paid_to(self, key: TaskKey) -> int:
        task = self.tasks.get(key)
        if task is None:
            return 1 << 62
        paid = self._end_row(key, task)
        return 1 << 62 if task.home and paid >= task.counted else paid

    def _enter_dispute(self, record: DisputeKept) -> None:
        if not record.dispute.counter:
            self._refusals[record.dispute.consumer_signature] = None

    def _enter_proposed(self, record: SettlementKept) -> None:
        if record.settlement.consumer_signature:
            self._proposed = None
            self._enter_settlement(record.settlement)
        else:
            self._proposed = record.settlement

    def _enter_went(self, record: TaskWent) -> None:
        super()._enter_went(record)
        period = Slot(record.version, record.period)
        if self._settings.forgives and period != self.written_off_in:
            self.written_off_micro = 0
        self.written_off_in = period
        self.written_off_micro = min(self.written_off_micro + record.written_off_micro, MONEY_MAX)
        self._last_tries = 0
        self._cover({})

    def _enter_version(self, record: ContractCounts) -> None:
        super()._enter_version(record)
        self.written_off_micro = 0
        self._take_back()

    def _enter_end(self, record: ContractEnds) -> None:
        super()._enter_end(record)
        self._take_back()

    def _take_back(self) -> None:
        """A reading of an interval that isn't there any more is made anew. If it is receipted nevertheless,
        it counts; so one is made in any case: the answer to it says so."""
        if self._said is not None:
            reading = read_reading(self._said.reading)
            if not self.versions.has(Slot(reading.version, reading.interval)):
                self._said, self._taken_back = None, True

    def _enter_taken_back(self, record: ReadingTakenBack) -> None:
        self._taken_back = True

    def _enter_task(self, record: TaskBegan) -> None:
        if not self.tasks:
            self._claims = []
            self._last_tries = 0
        super()._enter_task(record)

    def _repeat_us(self) -> int:
        return self.versions.newest.interval_s * 1_000_000 // self._settings.repeats

    def _patience_us(self) -> int:
        return self.versions.newest.interval_s * 1_000_000 // 2

    def _interval_us(self, slot: Slot) -> int:
        contract = self.versions.get(slot.version)
        assert contract is not None
        return contract.interval_s * 1_000_000


def _beyond(counter: LoadReading, reading: LoadReading) -> str:
    """Where a counter-reading isn't the reading with fewer rows; empty: it is."""
    for name in ("number", "version", "interval", "broken"):
        if getattr(counter, name) != getattr(reading, name):
            return f"its {name} is {getattr(counter, name)}, it was {getattr(reading, name)}"
    said = {(task.negotiation, task.task): task for task in reading.tasks}
    for task in counter.tasks:
        ours = said.get((task.negotiation, task.task))
        if ours is None or task.end_row > ours.end_row or task.begin_row != ours.begin_row:
            return f"task {task.task!r} has rows that weren't said"
        if (task.nano_units_per_row, task.price_micro) != (ours.nano_units_per_row, ours.price_micro):
            return f"task {task.task!r} has another price"
    return ""
