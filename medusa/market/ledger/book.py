"""What either party of a contract holds of it: versions, tasks, receipts, settlements, as figures.

``ProviderBook`` and ``ConsumerBook`` add what each of the two does. Everything that is changed is a record,
kept before anything is said of it; ``restore`` enters a record again, in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from medusa.errors import ContractError, RemoteProtocolError
from medusa.market.contract.terms import Contract
from medusa.market.ledger.accounts import Account, AccountEntry, Accounts, Posting
from medusa.market.ledger.chain import ReceiptChain, TaskKey
from medusa.market.ledger.effects import KeepRecord, LedgerEffects, StopWork
from medusa.market.ledger.intervals import ContractIntervals, Slot
from medusa.market.ledger.receipts import (
    READING_BYTES_MAX,
    READING_CONTEXT,
    SETTLEMENT_CONTEXT,
    LoadDispute,
    LoadReading,
    LoadReceipt,
    LoadSettlement,
    SignedSettlement,
    read_reading,
    read_settlement,
)
from medusa.market.ledger.records import (
    BookState,
    ContractCounts,
    ContractEnds,
    DisputeKept,
    LedgerRecord,
    ReceiptKept,
    SettlementKept,
    TaskBegan,
    TaskWent,
    encode_record,
)
from medusa.market.money import money_text
from medusa.ports import Buffer, Signer, Verify
from medusa.units import duration_text

__all__ = ["LedgerBook", "MeteredTask", "LedgerIdentity", "LedgerSettings"]

MEASURES_MAX = 64
"""Intervals of which measures are held until they are read."""

REFUSALS_MAX = 16
"""Refusals that are kept between two receipts, so that nobody fills another's disk with them."""

NUMBER_MAX = 1 << 62
TASK_CHARS_MAX = 256
TASK_BYTES = 48
"""Of a task in a reading, beside its name: numbers at their longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """How patient a party is.

    Attributes:
        repeats: what isn't answered is said so often in an interval.
        disputes_max: more than so many between two settlements are reported.
        breach_claims_max: after so many readings, between two settlements, that deny a breach which the
            consumer saw, it takes its tasks home.
        forgives: what work was worth of which the consumer said that it never came is forgotten by the
            provider with the settlement period; else with the next version of the contract.
    """

    repeats: int = 5
    disputes_max: int = 10
    breach_claims_max: int = 2
    forgives: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerIdentity:
    """Who keeps a ledger, and whom it believes.

    Attributes:
        keys: party -> its public key.
    """

    federation: str
    party: str
    signer: Signer
    verify: Verify
    keys: Mapping[str, str]

    def sign(self, context: bytes, data: Buffer) -> bytes:
        return self.signer.sign(context + data)

    def has_signed(self, party: str, context: bytes, data: Buffer, signature: bytes) -> bool:
        key = self.keys.get(party)
        return key is not None and self.verify(key, context + data, signature)


class MeteredTask:
    """A task that runs, or ran, at the provider.

    Attributes:
        counted: rows that were delivered, as this party knows: those before this number.
        home: it runs there no more; ``counted`` is final.
    """

    __slots__ = ("begin_row", "counted", "home", "nano_units_per_row", "price_micro")

    def __init__(self, begin_row: int, nano_units_per_row: int, price_micro: int) -> None:
        self.begin_row, self.counted, self.home = begin_row, begin_row, False
        self.nano_units_per_row, self.price_micro = nano_units_per_row, price_micro

    def count(self, end_row: int) -> None:
        """Rows before this one were delivered; a lower number than the last is an old one."""
        if not self.home:
            self.counted = max(self.counted, end_row)

    def go_home(self, end_row: int) -> None:
        self.counted, self.home = max(end_row, self.begin_row), True


class LedgerBook:
    """One contract, as one of its parties knows it."""

    def __init__(
        self,
        identity: LedgerIdentity,
        contract: Contract,
        accounts: Accounts,
        effects: LedgerEffects,
        settings: LedgerSettings,
    ) -> None:
        self.versions = ContractIntervals(contract)
        self.contract_id = contract.id
        self.partner = contract.consumer if identity.party == contract.provider else contract.provider
        self.chain = ReceiptChain()
        self.tasks: dict[TaskKey, MeteredTask] = {}
        self.stopped = ""
        self.disputes = 0
        self.breach_claims = 0
        self._refusals: dict[bytes, None] = {}
        self.written_off_micro, self.written_off_in = 0, Slot(0, 0)
        self.covered = Slot(contract.version, -1)
        self._settled_number, self._settled_next = 0, 0
        self._settled_micro, self._settled_breaches_micro = 0, 0
        self._last_receipt: LoadReceipt | None = None
        self._last_settlement: SignedSettlement | None = None
        self._measures: dict[Slot, tuple[int, int]] = {}
        self._identity, self._accounts = identity, accounts
        self._effects, self._settings = effects, settings
        self._entries = f"{contract.id}/{contract.provider}/{contract.consumer}"
        self._enters: dict[type, Callable[..., None]] = {
            ContractCounts: self._enter_version,
            ContractEnds: self._enter_end,
            TaskBegan: self._enter_task,
            TaskWent: self._enter_went,
            ReceiptKept: lambda record: self._enter_receipt(record.receipt),
            SettlementKept: lambda record: self._enter_settlement(record.settlement),
            BookState: self._enter_state,
        }

    # --- what the driver says ----------------------------------------------------------------------

    def add_version(self, now_us: int, contract: Contract) -> None:
        """A newer version counts as of its beginning.

        Raises:
            ContractError: see ``ContractIntervals.add``; or a task's price isn't in its range.
        """
        for (_, name), task in self.tasks.items():
            if not task.home and not contract.least_micro <= task.price_micro <= contract.price_micro:
                raise ContractError(
                    f"task {name!r} runs for {task.price_micro:,} micro-units, version {contract.version} of"
                    f" contract {contract.id!r} allows {contract.least_micro:,} to {contract.price_micro:,}",
                    hint="take it home first",
                    code="contract.price",
                )
        record = ContractCounts(contract=self.contract_id, partner=self.partner, terms=contract)
        if self.versions.get(contract.version) == contract:
            return
        self._enter_version(record)
        self.keep(record)

    def end(self, ends_us: int) -> None:
        """It is revoked as of then."""
        record = ContractEnds(
            contract=self.contract_id,
            partner=self.partner,
            ends_us=ends_us,
            version=self.versions.newest.version,
        )
        self._enter_end(record)
        self.keep(record)

    def began(
        self,
        now_us: int,
        negotiation: int,
        task: str,
        begin_row: int,
        nano_units_per_row: int,
        price_micro: int,
    ) -> None:
        """A task runs at the provider from this row on. Said again it changes nothing.

        Raises:
            ContractError: no version counts now, the price isn't in its range, what was done isn't
                receipted and so work is stopped, or more tasks than fit in a reading.
        """
        key = negotiation, task
        slot = self.versions.at(now_us)
        contract = self.versions.get(slot.version) if slot else None
        if key in self.tasks:
            return
        _check(negotiation=negotiation, begin_row=begin_row, nano_units_per_row=nano_units_per_row)
        if not 1 <= len(task) <= TASK_CHARS_MAX:
            raise ContractError(
                f"a task's name of {len(task):,} characters: it has 1 to {TASK_CHARS_MAX}",
                code="contract.number",
            )
        if slot is None or contract is None:
            raise ContractError(f"contract {self.contract_id!r} doesn't count now", code="contract.ended")
        if not contract.least_micro <= price_micro <= contract.price_micro:
            raise ContractError(
                f"task {task!r} for {price_micro:,} micro-units: contract {self.contract_id!r} allows"
                f" {contract.least_micro:,} to {contract.price_micro:,}",
                code="contract.price",
            )
        if self.stopped:
            raise ContractError(
                f"contract {self.contract_id!r} takes no task: {self.stopped}",
                hint="all that was done has to be receipted first",
                code=self.stopped,
            )
        why = self._takes_nothing(contract, slot)
        if why:
            forgets_us = self._forgets_at_us(slot)
            hint = "sign a new version, if you trust each other again"
            if forgets_us is not None:
                hint = (
                    f"it is forgotten in {duration_text(forgets_us - now_us)}, when this settlement period"
                    f" ends; before that {hint}"
                )
            raise ContractError(
                f"contract {self.contract_id!r} takes no task: {why}", hint=hint, code="contract.trust"
            )
        if not self.chain.left_micro(contract, slot):
            cap = money_text(contract.cap_micro, contract.currency)
            raise ContractError(
                f"contract {self.contract_id!r}: its cap of {cap} is reached in this settlement period",
                code="contract.cap",
            )
        names = [name for _, name in self.tasks] + [task]
        nbytes = sum(len(name.encode()) + TASK_BYTES for name in names) + 1_024
        if nbytes > READING_BYTES_MAX or len(names) > 1_000:
            raise ContractError(
                f"{len(names):,} tasks under contract {self.contract_id!r}: their reading would have up to"
                f" {nbytes:,} bytes",
                hint=f"at most 1,000 tasks and {READING_BYTES_MAX:,} bytes: make another contract",
                code="contract.tasks",
            )
        record = TaskBegan(
            contract=self.contract_id,
            partner=self.partner,
            negotiation=negotiation,
            task=task,
            begin_row=begin_row,
            nano_units_per_row=nano_units_per_row,
            price_micro=price_micro,
            version=slot.version,
            interval=slot.interval,
        )
        self.keep(record)
        self._enter_task(record)

    def ended(self, now_us: int, negotiation: int, task: str, end_row: int) -> None:
        """A task is home; rows from ``end_row`` on aren't the provider's. Unknown, or said again: nothing."""
        found = self.tasks.get((negotiation, task))
        if found is None or found.home:
            return
        _check(end_row=end_row)
        slot = self.versions.at(now_us)
        period = self.written_off_in if slot is None else self.versions.payment_period(slot)
        record = TaskWent(
            contract=self.contract_id,
            partner=self.partner,
            negotiation=negotiation,
            task=task,
            end_row=end_row,
            version=period.version,
            period=period.interval,
            written_off_micro=self._lost_micro((negotiation, task), found, end_row),
        )
        self.keep(record)
        self._enter_went(record)

    def counted(self, now_us: int, negotiation: int, task: str, end_row: int) -> None:
        """Rows of a task before this one: at the provider it has put them out, at the consumer they are here,
        durably.

        Raises:
            ContractError: there is no such task, it is home and receipted, or that is no number of a row.
        """
        found = self.tasks.get((negotiation, task))
        if found is None:
            raise ContractError(
                f"task {task!r} of negotiation {negotiation} runs under no contract", code="contract.task"
            )
        _check(end_row=end_row)
        found.count(end_row)

    def measured(self, now_us: int, missed_us: int, latency_us: int) -> None:
        """Of the interval that runs.

        Args:
            missed_us: of it, so long tasks should have run and didn't.
            latency_us: the longest that a row was under way: at the provider inside of it, at the consumer
                less what the network takes.
        """
        slot = self.versions.at(now_us)
        if slot is not None:
            missed, latency = self._measures.pop(slot, (0, 0))
            self._measures[slot] = missed + missed_us, max(latency, latency_us)
            while len(self._measures) > MEASURES_MAX:
                del self._measures[next(iter(self._measures))]

    # --- what follows ------------------------------------------------------------------------------

    @property
    def owed_micro(self) -> int:
        """What the consumer owes to the provider by receipts that aren't settled; below 0 the reverse."""
        return self.chain.total_micro - self.chain.breaches_micro - self.settled_due_micro

    @property
    def settled_due_micro(self) -> int:
        """What is settled so far."""
        return self._settled_micro - self._settled_breaches_micro

    def unreceipted_rows(self) -> dict[TaskKey, int]:
        """Rows that this party counts and no receipt has."""
        found = {key: task.counted - self._end_row(key, task) for key, task in self.tasks.items()}
        return {key: rows for key, rows in found.items() if rows > 0}

    def exposure_micro(self) -> int:
        """What those are worth, rounded down."""
        worth = 0
        for key, rows in self.unreceipted_rows().items():
            task = self.tasks[key]
            worth += rows * task.nano_units_per_row * task.price_micro
        return worth // 1_000_000_000

    def keep(self, record: LedgerRecord) -> None:
        """Have a record made durable, before anything that follows is done."""
        self._effects.append(KeepRecord(data=encode_record(record)))

    def restore(self, record: LedgerRecord) -> None:
        """Enter what was kept."""
        self._enters[type(record)](record)

    def snapshot(self) -> Iterable[LedgerRecord]:
        """Records that make the same book, in place of all before."""
        about = {"contract": self.contract_id, "partner": self.partner}
        for contract in self.versions.all:
            yield ContractCounts(**about, terms=contract)
        for version, ends_us in self.versions.ended_us:
            yield ContractEnds(**about, ends_us=ends_us, version=version)
        yield BookState(
            **about,
            chain=self.chain.state(),
            covered=(self.covered.version, self.covered.interval + 1),
            settled_number=self._settled_number,
            settled_next=self._settled_next,
            settled_micro=self._settled_micro,
            settled_breaches_micro=self._settled_breaches_micro,
            disputes=self.disputes,
            written_off=(*self.written_off_in, self.written_off_micro),
            breach_claims=self.breach_claims,
            last_receipt=self._last_receipt,
            last_settlement=self._last_settlement,
        )
        for (negotiation, name), task in self.tasks.items():
            yield TaskBegan(
                **about,
                negotiation=negotiation,
                task=name,
                begin_row=task.begin_row,
                nano_units_per_row=task.nano_units_per_row,
                price_micro=task.price_micro,
                version=self.covered.version,
                interval=self.covered.interval + 1,
            )
            if task.home:
                yield TaskWent(
                    contract=self.contract_id,
                    partner=self.partner,
                    negotiation=negotiation,
                    task=name,
                    end_row=task.counted,
                    version=self.written_off_in.version,
                    period=self.written_off_in.interval,
                )

    # --- for the two sides -------------------------------------------------------------------------

    def _stop(self, code: str, text: str) -> None:
        """Have all tasks stop that run, once."""
        running = tuple(sorted(key for key, task in self.tasks.items() if not task.home))
        if self.stopped or not running:
            return
        self.stopped = code
        self._effects.append(
            StopWork(contract=self.contract_id, partner=self.partner, tasks=running, code=code, text=text)
        )

    def _end_row(self, key: TaskKey, task: MeteredTask) -> int:
        return self.chain.end_row(key, task.begin_row)

    def _takes_nothing(self, contract: Contract, slot: Slot) -> str:
        """Why this party has lost too much to the other one to go on; empty: it goes on."""
        return ""

    def _forgets_at_us(self, slot: Slot) -> int | None:
        """When that is forgotten by itself; None: only a new version ends it."""
        return None

    def _lost_micro(self, key: TaskKey, task: MeteredTask, end_row: int) -> int:
        """What this party loses where the rows of a task from this one on count nothing."""
        return 0

    def _measured_to(self, slot: Slot) -> list[tuple[Slot, tuple[int, int]]]:
        """What was measured up to this interval; it is gone from here."""
        found = [each for each in self._measures.items() if each[0] <= slot and self.versions.has(each[0])]
        self._measures = {each: measure for each, measure in self._measures.items() if each > slot}
        return found

    def _begins(self) -> dict[TaskKey, int]:
        return {key: task.begin_row for key, task in self.tasks.items()}

    def _contract_of(self, reading: LoadReading) -> Contract:
        """Its version.

        Raises:
            RemoteProtocolError: we never signed that (``E_NO_CONTRACT``).
        """
        contract = self.versions.get(reading.version)
        if contract is None:
            raise RemoteProtocolError(
                f"a reading of version {reading.version} of contract {self.contract_id!r}: it is none of"
                " ours",
                peer=self.partner,
                code="E_NO_CONTRACT",
            )
        return contract

    def _addressed(self, document: LoadReading | LoadSettlement) -> None:
        """Check that it is about this contract, between these two, in this federation.

        Raises:
            RemoteProtocolError: it isn't (``E_AUDIENCE``).
        """
        ours = self.versions.newest
        said = document.federation, document.contract, document.provider, document.consumer
        if said != (self._identity.federation, ours.id, ours.provider, ours.consumer):
            raise RemoteProtocolError(
                f"it is about contract {said[1]!r} of {said[2]!r} and {said[3]!r} in federation {said[0]!r},"
                f" this is {ours.id!r} of {ours.provider!r} and {ours.consumer!r} in"
                f" {self._identity.federation!r}",
                peer=self.partner,
                code="E_AUDIENCE",
            )

    def _signed_by(self, party: str, context: bytes, data: bytes, signature: bytes, what: str) -> None:
        """Check a signature.

        Raises:
            RemoteProtocolError: it isn't theirs (``E_IDENTITY``).
        """
        if not self._identity.has_signed(party, context, data, signature):
            raise RemoteProtocolError(
                f"the signature of the {what} is not that of {party!r}", peer=self.partner, code="E_IDENTITY"
            )

    def _receipt_reading(self, receipt: LoadReceipt) -> LoadReading:
        """What a receipt says, checked for whom it is about and both signatures."""
        reading = read_reading(receipt.reading)
        self._addressed(reading)
        for party, signature in (
            (reading.provider, receipt.provider_signature),
            (reading.consumer, receipt.consumer_signature),
        ):
            self._signed_by(party, READING_CONTEXT, receipt.reading, signature, "receipt")
        return reading

    def _take_receipt(self, receipt: LoadReceipt) -> None:
        self.keep(ReceiptKept(contract=self.contract_id, partner=self.partner, receipt=receipt))
        self._enter_receipt(receipt)

    def _settlement(self) -> LoadSettlement:
        """The one that nets all receipts so far that none has netted."""
        ours = self.versions.newest
        return LoadSettlement(
            federation=self._identity.federation,
            contract=ours.id,
            provider=ours.provider,
            consumer=ours.consumer,
            currency=ours.currency,
            number=self._settled_number,
            first=self._settled_next,
            through=self.chain.number - 1,
            total_micro=self.chain.total_micro,
            breaches_micro=self.chain.breaches_micro,
            due_micro=self.owed_micro,
        )

    def _take_settlement(self, signed: SignedSettlement) -> None:
        self.keep(SettlementKept(contract=self.contract_id, partner=self.partner, settlement=signed))
        self._enter_settlement(signed)
        settlement = read_settlement(signed.settlement)
        self._effects.report(
            "info",
            f"contract {self.contract_id} is settled: {money_text(settlement.due_micro, settlement.currency)}"
            f" from {settlement.consumer} to {settlement.provider}",
            contract=self.contract_id,
            partner=self.partner,
            due_micro=settlement.due_micro,
        )

    def _is_settled(self, signed: SignedSettlement) -> bool:
        """Whether both signatures are there and right."""
        ours, data = self.versions.newest, signed.settlement
        return all(
            self._identity.has_signed(party, SETTLEMENT_CONTEXT, data, signature)
            for party, signature in (
                (ours.provider, signed.provider_signature),
                (ours.consumer, signed.consumer_signature),
            )
        )

    def _keep_refusal(self, dispute: LoadDispute, text: str) -> bool:
        """Keep a dispute without a counter-reading, and say so. False: it is known, or there are too many."""
        if dispute.consumer_signature in self._refusals or len(self._refusals) >= REFUSALS_MAX:
            return False
        self._refusals[dispute.consumer_signature] = None
        self.keep(DisputeKept(contract=self.contract_id, partner=self.partner, dispute=dispute))
        self._count_dispute(dispute.code, text)
        return True

    def _count_dispute(self, code: str, text: str) -> None:
        self.disputes += 1
        beyond = self.disputes > self._settings.disputes_max
        self._effects.report(
            "warning",
            f"contract {self.contract_id} with {self.partner}: {text}"
            + (f"; {self.disputes} disputes since the last settlement" if beyond else ""),
            contract=self.contract_id,
            partner=self.partner,
            code=code,
            disputes=self.disputes,
        )

    # --- entering what is kept ---------------------------------------------------------------------

    def _enter_version(self, record: ContractCounts) -> None:
        self.versions.add(record.terms)

    def _enter_end(self, record: ContractEnds) -> None:
        self.versions.end(record.version or self.versions.newest.version, record.ends_us)

    def _enter_task(self, record: TaskBegan) -> None:
        if not self.tasks:
            self.covered = Slot(record.version, record.interval - 1)
        self.tasks[record.negotiation, record.task] = MeteredTask(
            record.begin_row, record.nano_units_per_row, record.price_micro
        )

    def _enter_went(self, record: TaskWent) -> None:
        key = record.negotiation, record.task
        self.tasks[key].go_home(record.end_row)
        self._drop_paid()

    def _enter_receipt(self, receipt: LoadReceipt) -> None:
        reading = read_reading(receipt.reading)
        self.chain.apply(reading, self._contract_of(reading))
        self._last_receipt = receipt
        self._refusals = {}
        due = reading.amount_micro - reading.breach_micro
        self._post("receipt", reading.number, ((due, "owed"),), f"interval {reading.interval}")
        self._drop_paid()

    def _enter_settlement(self, signed: SignedSettlement) -> None:
        settlement = read_settlement(signed.settlement)
        self._last_settlement = signed
        self._settled_number, self._settled_next = settlement.number + 1, settlement.through + 1
        self._settled_micro = settlement.total_micro
        self._settled_breaches_micro = settlement.breaches_micro
        self.disputes = self.breach_claims = 0
        due = settlement.due_micro
        self._post("settlement", settlement.number, ((-due, "owed"), (due, "settled")), "settled")

    def _enter_state(self, record: BookState) -> None:
        self.chain = ReceiptChain(record.chain)
        self.covered = Slot(record.covered[0], record.covered[1] - 1)
        self._settled_number, self._settled_next = record.settled_number, record.settled_next
        self._settled_micro = record.settled_micro
        self._settled_breaches_micro = record.settled_breaches_micro
        self.disputes = record.disputes
        self.written_off_in = Slot(*record.written_off[:2])
        self.written_off_micro = record.written_off[2]
        self.breach_claims, self._last_receipt = record.breach_claims, record.last_receipt
        self._last_settlement = record.last_settlement
        for kind, after, due, account in (
            ("receipt", self.chain.number, self.chain.total_micro - self.chain.breaches_micro, "owed"),
            ("settlement", self._settled_number, self.settled_due_micro, "settled"),
        ):
            if after:
                self._accounts.begin_at(f"{kind}/{self._entries}", after - 1)
                moved = ((due, "owed"),) if account == "owed" else ((-due, "owed"), (due, "settled"))
                self._post(kind, after - 1, moved, "carried over")

    def _post(self, kind: str, number: int, moved: Iterable[tuple[int, str]], why: str) -> None:
        """Enter what the consumer owes to the provider more, by account."""
        ours = self.versions.newest
        postings = []
        if ours.shadow:
            moved = [(micro, f"shadow {account}") for micro, account in moved]
        for micro, account in moved:
            for party, sign in ((ours.provider, 1), (ours.consumer, -1)):
                about = Account(party, self._entries, ours.currency, account)
                postings.append(Posting(about, sign * micro))
        self._accounts.post(
            AccountEntry(series=f"{kind}/{self._entries}", number=number, postings=tuple(postings), why=why)
        )

    def _is_asked_for(self, key: TaskKey) -> bool:
        """Whether something that isn't answered yet is about this task."""
        return False

    def _drop_paid(self) -> None:
        """Forget tasks that are home and receipted to their end."""
        paid = [
            key
            for key, task in self.tasks.items()
            if task.home and self._end_row(key, task) >= task.counted and not self._is_asked_for(key)
        ]
        for key in paid:
            del self.tasks[key]
            self.chain.forget(key)
        if not self.tasks:
            self.stopped = ""


def _check(**numbers: int) -> None:
    """Whether these can stand in a record.

    Raises:
        ContractError: the first that can't.
    """
    for name, number in numbers.items():
        if not 0 <= number <= NUMBER_MAX:
            raise ContractError(
                f"{name} is {number:,}: it is between 0 and {NUMBER_MAX:,}", code="contract.number"
            )
