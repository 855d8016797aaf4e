"""The consumer's side of a contract: it compares each reading with what it has itself, and signs that.

A number is signed once, whatever comes: a reading as it is, or a counter-reading of it with the rows that
came. It is durable before it is said, and said again whenever the reading comes again. ``READING`` in
``medusa.market.ledger.reading_states`` is the table of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from medusa.automaton import next_state
from medusa.errors import RemoteProtocolError
from medusa.market.contract.terms import Contract
from medusa.market.ledger.accounts import Accounts
from medusa.market.ledger.book import LedgerBook, LedgerIdentity, LedgerSettings
from medusa.market.ledger.chain import TaskKey, interval_most_nano
from medusa.market.ledger.effects import LedgerEffects
from medusa.market.ledger.intervals import Slot, promise_kept
from medusa.market.ledger.messages import (
    DisputeSaid,
    LedgerMessage,
    ReadingSaid,
    ReceiptSaid,
    SettlementSaid,
)
from medusa.market.ledger.reading_states import READING, ReadingEvent, ReadingState
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
from medusa.market.ledger.records import DisputeKept, LedgerRecord, TaskBegan
from medusa.ports import SKEW_US

__all__ = ["ConsumerBook"]

SILENT_INTERVALS = 3
"""After so many without a reading tasks are taken home. A provider stops by itself after two."""


class _Short(NamedTuple):
    """Why a reading isn't signed as it is.

    Attributes:
        waits: rows may still come.
    """

    code: str
    text: str
    waits: bool


class ConsumerBook(LedgerBook):
    """One contract under which tasks of this party run at another one, which is paid for them."""

    def __init__(
        self,
        identity: LedgerIdentity,
        contract: Contract,
        accounts: Accounts,
        effects: LedgerEffects,
        settings: LedgerSettings,
    ) -> None:
        super().__init__(identity, contract, accounts, effects, settings)
        self.state = ReadingState.NONE
        self._held: tuple[ReadingSaid, LoadReading] | None = None
        self._held_at_us = 0
        self._counter: LoadDispute | None = None
        self._heard: Slot | None = None
        self._enters[DisputeKept] = self._enter_dispute

    def tick(self, now_us: int) -> None:
        if self._held is not None:
            said, reading = self._held
            short = self._short(reading)
            if short is None or not short.waits or now_us >= self._held_at_us + self._patience_us(reading):
                self._answer(said, reading, short)
        slot = self.versions.at(now_us)
        if slot is None and now_us >= self.versions.last_us:
            self._stop("contract.ended", f"contract {self.contract_id} is over")
        elif slot is not None:
            # Since its own start, or a reading: by its own clock, from which the provider's may differ.
            self._heard = slot if self._heard is None else self._heard
            silent = self.versions.ordinal(slot) - self.versions.ordinal(self._heard)
            if silent >= SILENT_INTERVALS:
                self._stop("contract.silent", f"no reading for {silent} intervals")

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has something to do; None: only once something else has come."""
        next_us = self.versions.next_at_us(now_us) if self.tasks else None
        times = [] if next_us is None else [next_us]
        if self._held is not None:
            times.append(self._held_at_us + self._patience_us(self._held[1]))
        return max(min(times), now_us) if times else None

    def receive(self, now_us: int, message: LedgerMessage) -> None:
        """Take what the provider says.

        Raises:
            RemoteProtocolError: it breaks a rule; nothing changed.
        """
        if isinstance(message, ReadingSaid):
            self._receive_reading(now_us, message)
        elif isinstance(message, ReceiptSaid):
            self._receive_receipt(message.receipt)
        elif isinstance(message, SettlementSaid):
            self._receive_settlement(now_us, message.settlement)
        else:
            raise RemoteProtocolError(
                "a dispute comes from the consumer, who we are", peer=self.partner, code="E_ROLE"
            )

    def snapshot(self) -> Iterable[LedgerRecord]:
        """As ``LedgerBook.snapshot``."""
        yield from super().snapshot()
        if self._counter is not None:
            yield DisputeKept(contract=self.contract_id, partner=self.partner, dispute=self._counter)

    # --- readings ----------------------------------------------------------------------------------

    def _receive_reading(self, now_us: int, message: ReadingSaid) -> None:
        reading = read_reading(message.reading)
        self._addressed(reading)
        self._signed_by(self.partner, READING_CONTEXT, message.reading, message.signature, "reading")
        if reading.number < self.chain.number:
            if reading.number == self.chain.number - 1 and self._last_receipt is not None:
                self._say_receipt(self._last_receipt)
            return
        if self._counter is not None:
            self._say_dispute(self._counter)
            return
        if reading.number > self.chain.number:
            raise RemoteProtocolError(
                f"reading {reading.number}, the next is {self.chain.number}",
                peer=self.partner,
                code="E_BILLING",
            )
        self._step(ReadingEvent.SAY)
        wrong = self._wrong(now_us, reading)
        if wrong is not None:
            self._refuse(message, *wrong)
            return
        self._heard = self.versions.at(now_us)
        short = self._short(reading)
        if short is not None and short.waits:
            if self._held is None or self._held[1].number != reading.number:
                self._held_at_us = now_us
            self._held = message, reading
            self._step(ReadingEvent.HOLD)
        else:
            self._answer(message, reading, short)

    def _answer(self, said: ReadingSaid, reading: LoadReading, short: _Short | None) -> None:
        """Sign what is here: all of the reading, or what came of it."""
        self._held = None
        if short is not None:
            self._say_counter(said, reading, short)
            return
        receipt = LoadReceipt(
            reading=said.reading,
            provider_signature=said.signature,
            consumer_signature=self._identity.sign(READING_CONTEXT, said.reading),
        )
        covered = self._covered_ordinals(reading)
        self._step(ReadingEvent.SIGN)
        self._take_receipt(receipt)
        self._say_receipt(receipt)
        self._claim_breaches(said, reading, covered)

    def _say_counter(self, said: ReadingSaid, reading: LoadReading, short: _Short) -> None:
        tasks = []
        for each in reading.tasks:
            if self._disagrees(each) is not None:
                continue
            own = self.tasks[each.negotiation, each.task].counted
            end_row = max(min(each.end_row, own), each.begin_row)
            if end_row > each.begin_row:
                tasks.append(_ending(each, end_row))
        contract = self._contract_of(reading)
        counter = canonical(
            self.chain.draft(
                self._identity.federation,
                contract,
                Slot(reading.version, reading.interval),
                tasks,
                reading.broken,
            )
        )
        dispute = LoadDispute(
            reading=said.reading,
            provider_signature=said.signature,
            code=short.code,
            text=short.text[:256],
            counter=counter,
            consumer_signature=self._identity.sign(READING_CONTEXT, counter),
        )
        record = DisputeKept(contract=self.contract_id, partner=self.partner, dispute=dispute)
        self.keep(record)
        self._count_dispute(dispute.code, f"reading {reading.number} is countered: {short.text}")
        self._step(ReadingEvent.COUNTER)
        self._counter = dispute
        self._say_dispute(dispute)

    def _refuse(self, said: ReadingSaid, code: str, text: str) -> None:
        """Nothing of it counts."""
        self._held = None
        self._step(ReadingEvent.REFUSE)
        dispute = self._refusal(said, code, text)
        self._keep_refusal(dispute, f"a reading is refused: {text}")
        self._say_dispute(dispute)

    def _refusal(self, said: ReadingSaid, code: str, text: str) -> LoadDispute:
        return LoadDispute(
            reading=said.reading,
            provider_signature=said.signature,
            code=code,
            text=text[:256],
            consumer_signature=self._identity.sign(b"", refusal_bytes(said.reading, code)),
        )

    def _receive_receipt(self, receipt: LoadReceipt) -> None:
        reading = self._receipt_reading(receipt)
        if reading.number < self.chain.number:
            return
        if self._counter is None or receipt.reading != self._counter.counter:
            raise RemoteProtocolError(
                f"a receipt of reading {reading.number} that we didn't sign",
                peer=self.partner,
                code="E_BILLING",
            )
        said = ReadingSaid(
            contract=self.contract_id,
            reading=self._counter.reading,
            signature=self._counter.provider_signature,
        )
        covered = self._covered_ordinals(reading)
        self._step(ReadingEvent.SIGN)
        self._take_receipt(receipt)
        self._claim_breaches(said, reading, covered)

    # --- what is wrong with a reading --------------------------------------------------------------

    def _wrong(self, now_us: int, reading: LoadReading) -> tuple[str, str] | None:
        """What isn't by the contract or the agreements, with its code; None: nothing."""
        contract, slot = self.versions.get(reading.version), Slot(reading.version, reading.interval)
        if contract is None or not (self.versions.has(slot) or slot == self.chain.last):
            return "E_NO_CONTRACT", f"interval {slot.interval} of version {slot.version} is no interval of it"
        if self.versions.ends_at_us(slot) > now_us + SKEW_US:
            return "E_BILLING", f"interval {slot.interval} isn't over"
        fault = self.chain.fault(reading, contract, self._begins())
        if fault:
            return "E_BILLING", fault
        covered = self._covered_ordinals(reading)
        if reading.broken > len(covered):
            return "E_BILLING", f"{reading.broken} intervals are broken of {len(covered)}"
        done = 0
        for task in reading.tasks:
            if not contract.least_micro <= task.price_micro <= contract.price_micro:
                return "E_PRICE", (
                    f"task {task.task!r} for {task.price_micro:,}: version {contract.version} allows"
                    f" {contract.least_micro:,} to {contract.price_micro:,}"
                )
            done += (task.end_row - task.begin_row) * task.nano_units_per_row
        most = 2 * interval_most_nano(contract)
        if done > most:
            return "E_OVER_LIMIT", f"{done:,} nano-units, in two intervals there may be {most:,}"
        return None

    def _disagrees(self, each: TaskReading) -> _Short | None:
        """Whether a task isn't ours, or not by these terms. One that is home and receipted to its end is
        forgotten: nothing of it is owed any more."""
        ours = self.tasks.get((each.negotiation, each.task))
        if ours is None:
            text = f"task {each.task!r} of negotiation {each.negotiation} isn't ours, or is paid to its end"
            return _Short("E_TASK_NOT_ALLOWED", text, waits=False)
        agreed = ours.nano_units_per_row, ours.price_micro
        if (each.nano_units_per_row, each.price_micro) != agreed:
            text = (
                f"task {each.task!r} is {each.nano_units_per_row:,} nano-units a row for"
                f" {each.price_micro:,}, agreed is {agreed[0]:,} for {agreed[1]:,}"
            )
            return _Short("E_PRICE", text, waits=False)
        return None

    def _short(self, reading: LoadReading) -> _Short | None:
        """What of it isn't here, or isn't agreed; None: as many rows as the tolerance allows are.

        Rows are compared by their numbers, so what the tolerance gives is given once, and not each interval.
        """
        tolerance = self._contract_of(reading).tolerance_ppm
        found: _Short | None = None
        for each in reading.tasks:
            short = self._disagrees(each)
            task = self.tasks.get((each.negotiation, each.task))
            if short is None and task is not None:
                allowed = task.counted + (each.end_row - each.begin_row) * tolerance // 1_000_000
                if each.end_row > allowed:
                    text = (
                        f"task {each.task!r} has rows up to {task.counted:,} here, it says {each.end_row:,}"
                    )
                    short = _Short("E_BILLING", text, waits=not task.home)
            if short is not None and (found is None or short.waits > found.waits):
                found = short
        return found

    def _is_asked_for(self, key: TaskKey) -> bool:
        """A reading that waits for rows is answered by what came of them, if none did too: its host had the
        task, and says more than it was to."""
        held = () if self._held is None else self._held[1].tasks
        return key in {(each.negotiation, each.task) for each in held}

    def _covered_ordinals(self, reading: LoadReading) -> range:
        last = self.chain.last
        until = self.versions.ordinal(Slot(reading.version, reading.interval))
        return range(self.versions.ordinal(last) + 1 if last is not None else 0, until + 1)

    def _claim_breaches(self, said: ReadingSaid, reading: LoadReading, covered: range) -> None:
        """Say so where more intervals were broken than the provider says. The receipt stands."""
        contract, slot = self._contract_of(reading), Slot(reading.version, reading.interval)
        seen = sum(
            self.versions.ordinal(each) in covered and not promise_kept(contract, *measure)
            for each, measure in self._measured_to(slot)
        )
        if seen <= reading.broken:
            return
        dispute = self._refusal(said, "E_BREACH", f"{seen} intervals were broken, it says {reading.broken}")
        self._keep_refusal(dispute, dispute.text)
        self.breach_claims += 1
        self._say_dispute(dispute)
        why = self._takes_nothing(contract, slot)
        if why:
            self._stop("contract.breaches", why)

    def _takes_nothing(self, contract: Contract, slot: Slot) -> str:
        if self.breach_claims < self._settings.breach_claims_max:
            return ""
        return f"{self.breach_claims} readings since the last settlement deny breaches that were seen here"

    # --- settlements -------------------------------------------------------------------------------

    def _receive_settlement(self, now_us: int, signed: SignedSettlement) -> None:
        settlement = read_settlement(signed.settlement)
        self._addressed(settlement)
        self._signed_by(
            self.partner, SETTLEMENT_CONTEXT, signed.settlement, signed.provider_signature, "settlement"
        )
        if settlement.number < self._settled_number:
            if settlement.number == self._settled_number - 1 and self._last_settlement is not None:
                self._say_settlement(self._last_settlement)
            return
        if settlement.through >= self.chain.number and self._counter is not None:
            self._say_dispute(self._counter)
            return
        if settlement.through == self.chain.number - 2 and self._last_receipt is not None:
            # The provider took a reading back that we have signed: it doesn't know the receipt yet.
            self._say_receipt(self._last_receipt)
            return
        ours = self._settlement()
        if settlement != ours or settlement.through < settlement.first:
            raise RemoteProtocolError(
                f"settlement {settlement.number} of receipts {settlement.first} to {settlement.through} over"
                f" {settlement.due_micro:,} micro-units: here it is {ours.number} of {ours.first} to"
                f" {ours.through} over {ours.due_micro:,}",
                peer=self.partner,
                code="E_BILLING",
            )
        agreed = SignedSettlement(
            settlement=signed.settlement,
            provider_signature=signed.provider_signature,
            consumer_signature=self._identity.sign(SETTLEMENT_CONTEXT, signed.settlement),
        )
        self._heard = self.versions.at(now_us)
        self._take_settlement(agreed)
        self._say_settlement(agreed)

    # --- saying, entering --------------------------------------------------------------------------

    def _say_receipt(self, receipt: LoadReceipt) -> None:
        self._effects.say(self.partner, ReceiptSaid(contract=self.contract_id, receipt=receipt))

    def _say_dispute(self, dispute: LoadDispute) -> None:
        self._effects.say(self.partner, DisputeSaid(contract=self.contract_id, dispute=dispute))

    def _say_settlement(self, signed: SignedSettlement) -> None:
        self._effects.say(self.partner, SettlementSaid(contract=self.contract_id, settlement=signed))

    def _step(self, event: ReadingEvent) -> None:
        self.state = next_state(READING, self.state, event, of=f"reading {self.chain.number}")

    def _enter_receipt(self, receipt: LoadReceipt) -> None:
        super()._enter_receipt(receipt)
        reading = read_reading(receipt.reading)
        self.covered = max(self.covered, Slot(reading.version, reading.interval))
        self.state, self._counter, self._held = ReadingState.RECEIPTED, None, None

    def _enter_dispute(self, record: DisputeKept) -> None:
        if record.dispute.counter and read_reading(record.dispute.counter).number == self.chain.number:
            self._counter, self.state = record.dispute, ReadingState.COUNTERED
        if not record.dispute.counter:
            self._refusals[record.dispute.consumer_signature] = None
        self.breach_claims += record.dispute.code == "E_BREACH"

    def _enter_task(self, record: TaskBegan) -> None:
        if not self.tasks:
            self._heard = None
        super()._enter_task(record)

    def _patience_us(self, reading: LoadReading) -> int:
        return self._contract_of(reading).interval_s * 1_000_000 // 2


def _ending(task: TaskReading, end_row: int) -> TaskReading:
    return TaskReading(
        task=task.task,
        negotiation=task.negotiation,
        begin_row=task.begin_row,
        end_row=end_row,
        nano_units_per_row=task.nano_units_per_row,
        price_micro=task.price_micro,
    )
