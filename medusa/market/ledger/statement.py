"""Who owes whom and why, from the receipts of one contract alone.

Anybody who has the receipts, the contract and both public keys gets the same. Every signature is checked, and
that each receipt follows from the one before: one that is missing, that comes twice, or of which there are
two with the same number, is named. What both have signed counts, whatever else is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from medusa.errors import RemoteProtocolError
from medusa.market.contract.terms import Contract
from medusa.market.ledger.chain import ReceiptChain
from medusa.market.ledger.intervals import ContractIntervals, Slot
from medusa.market.ledger.receipts import (
    READING_CONTEXT,
    SETTLEMENT_CONTEXT,
    LoadReading,
    LoadSettlement,
    read_reading,
    read_receipt,
    read_settlement,
    read_signed_settlement,
)
from medusa.market.money import money_text
from medusa.ports import Verify

__all__ = ["LoadStatement", "StatementFault", "StatementLine", "load_statement"]

DAY_US = 86_400_000_000


class StatementLine(msgspec.Struct, frozen=True, kw_only=True):
    """What one task cost in one receipt.

    Attributes:
        day: since the Unix epoch, of the end of the interval, UTC.
        number, version, interval: of the reading.
        begin_row, end_row: that it pays for; of a credit for breaches, and where a cap was reached, none.
        nano_units: work.
        amount_micro: with its share of the rounding; a credit for breaches is below 0.
    """

    day: int
    number: int
    version: int
    interval: int
    task: str
    negotiation: int
    begin_row: int
    end_row: int
    nano_units: int
    price_micro: int
    amount_micro: int


StatementDocument: TypeAlias = Literal["receipt", "settlement"]
StatementFaultKind: TypeAlias = Literal[
    "gap", "double", "conflict", "signature", "message", "audience", "chain", "settlement"
]


class StatementFault(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Something that is wrong with the receipts.

    Attributes:
        number: of the receipt, or of the settlement (``of``); -1: it can't be told.
        kind: ``gap``: receipts are missing from this number on; ``double``: it comes again, and counts once;
            ``conflict``: two that differ, of which the cheaper one counts; ``signature``, ``message``,
            ``audience``: it counts nothing; ``chain``: it doesn't follow from the one before, and counts;
            ``settlement``: it nets another amount than its receipts make, or receipts that another one nets,
            and counts. Of two settlements in ``conflict`` the one counts that is as its receipts.
    """

    number: int
    kind: StatementFaultKind
    text: str
    of: StatementDocument = "receipt"


class LoadStatement(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts are micro-units that the consumer owes to the provider, or below 0 the reverse.

    Attributes:
        receipts: that count; ``first_number``, ``last_number``: of them, -1 where there is none.
        amount_micro: of all lines together: what was done, less ``breaches_micro``.
        settled_micro: of it, by settlements that both have signed.
        owed_micro: the rest: what is open.
        missing_micro: what receipts that are missing come to, as the ones behind them say.
        nano_units: work.
        shadow: nothing is owed: it is what would be.
        by_task, by_day: task, or day since the Unix epoch, -> micro-units; credits stand by day alone.
    """

    contract: str
    provider: str
    consumer: str
    currency: str
    shadow: bool
    receipts: int
    first_number: int
    last_number: int
    amount_micro: int
    breaches_micro: int
    settled_micro: int
    owed_micro: int
    missing_micro: int
    nano_units: int
    by_task: dict[str, int]
    by_day: dict[int, int]
    lines: tuple[StatementLine, ...]
    faults: tuple[StatementFault, ...]

    def summary(self) -> str:
        """One sentence: who owes whom."""
        who, whom = self.consumer, self.provider
        if self.owed_micro < 0:
            who, whom = whom, who
        owed, billed, settled = (
            money_text(micro, self.currency)
            for micro in (abs(self.owed_micro), self.amount_micro, self.settled_micro)
        )
        owes = "would owe" if self.shadow else "owes"
        return (
            f"{who} {owes} {whom} {owed} by contract {self.contract}: {self.receipts} receipts over {billed},"
            f" {settled} are settled"
        )


def load_statement(
    receipts: Iterable[bytes],
    contracts: Sequence[Contract],
    *,
    federation: str,
    keys: Mapping[str, str],
    verify: Verify,
    settlements: Iterable[bytes] = (),
) -> LoadStatement:
    """Work out what is owed.

    Args:
        receipts: bytes of ``LoadReceipt``, in any order.
        contracts: the versions of one contract, ascending.
        keys: party -> public key.
        settlements: bytes of ``SignedSettlement``, in any order.

    Raises:
        ContractError: the versions aren't those of one contract.
    """
    versions = ContractIntervals(contracts[0])
    for contract in contracts[1:]:
        versions.add(contract)
    reader = _Reader(versions, federation, keys, verify)
    readings = reader.read(receipts)
    lines = reader.walk(readings)
    settled_micro = reader.settled(settlements, readings)
    ours = versions.newest
    by_task: dict[str, int] = {}
    by_day: dict[int, int] = {}
    for line in lines:
        by_day[line.day] = by_day.get(line.day, 0) + line.amount_micro
        if line.task:
            by_task[line.task] = by_task.get(line.task, 0) + line.amount_micro
    amount_micro = sum(line.amount_micro for line in lines)
    return LoadStatement(
        contract=ours.id,
        provider=ours.provider,
        consumer=ours.consumer,
        currency=ours.currency,
        shadow=ours.shadow,
        receipts=len(readings),
        first_number=readings[0].number if readings else -1,
        last_number=readings[-1].number if readings else -1,
        amount_micro=amount_micro,
        breaches_micro=sum(reading.breach_micro for reading in readings),
        settled_micro=settled_micro,
        owed_micro=amount_micro - settled_micro,
        missing_micro=reader.missing_micro,
        nano_units=sum(line.nano_units for line in lines),
        by_task=dict(sorted(by_task.items())),
        by_day=dict(sorted(by_day.items())),
        lines=tuple(lines),
        faults=tuple(sorted(reader.faults)),
    )


class _Reader:
    """What is found on the way."""

    def __init__(
        self, versions: ContractIntervals, federation: str, keys: Mapping[str, str], verify: Verify
    ) -> None:
        self.faults: list[StatementFault] = []
        self.missing_micro = 0
        self._versions, self._federation = versions, federation
        self._keys, self._verify = keys, verify

    def read(self, receipts: Iterable[bytes]) -> list[LoadReading]:
        """Those that count, by number."""
        found: dict[int, bytes] = {}
        for data in sorted(receipts):
            try:
                receipt = read_receipt(data)
                reading = read_reading(receipt.reading)
            except RemoteProtocolError as error:
                self._fault(-1, "message", error.message)
                continue
            signatures = (receipt.provider_signature, receipt.consumer_signature)
            if not self._counts(reading, receipt.reading, READING_CONTEXT, signatures):
                continue
            if self._versions.get(reading.version) is None:
                self._fault(reading.number, "audience", f"version {reading.version} is not among those given")
                continue
            known = found.get(reading.number)
            if known is None:
                found[reading.number] = receipt.reading
            elif known == receipt.reading:
                self._fault(reading.number, "double", "it comes twice and counts once")
            else:
                cheaper = min(known, receipt.reading, key=lambda each: (_due(read_reading(each)), each))
                found[reading.number] = cheaper
                self._fault(reading.number, "conflict", "both signed two that differ: the cheaper one counts")
        return [read_reading(found[number]) for number in sorted(found)]

    def walk(self, readings: Sequence[LoadReading]) -> list[StatementLine]:
        """Lines of all receipts in order, each checked against the one before."""
        chain = ReceiptChain()
        lines: list[StatementLine] = []
        behind_gap = False
        for reading in readings:
            contract = self._versions.get(reading.version)
            assert contract is not None
            if reading.number != chain.number:
                self._gap(chain, reading)
                chain, behind_gap = chain.resumed(reading), True
            fault = chain.fault(reading, contract, {})
            # How far a cap was from being reached before a gap isn't known behind it.
            if fault and not (behind_gap and contract.cap_micro):
                self._fault(reading.number, "chain", fault)
            lines += self._lines(chain, reading, contract)
            chain.apply(reading, contract)
        return lines

    def settled(self, settlements: Iterable[bytes], readings: Sequence[LoadReading]) -> int:
        """What both have signed as settled, each compared with the receipts that it nets."""
        dues = {reading.number: _due(reading) for reading in readings}
        found: dict[int, LoadSettlement] = {}
        for data in sorted(settlements):
            try:
                signed = read_signed_settlement(data)
                settlement = read_settlement(signed.settlement)
            except RemoteProtocolError as error:
                self._fault(-1, "message", error.message, "settlement")
                continue
            signatures = (signed.provider_signature, signed.consumer_signature)
            if self._counts(settlement, signed.settlement, SETTLEMENT_CONTEXT, signatures):
                known = found.setdefault(settlement.number, settlement)
                if known != settlement:
                    self._fault(
                        settlement.number,
                        "conflict",
                        "both signed two settlements that differ: the one counts that is as its receipts",
                        "settlement",
                    )
                    found[settlement.number] = min(
                        known, settlement, key=lambda each: (_differs(each, dues) != 0, each.due_micro)
                    )
        before: LoadSettlement | None = None
        for _, settlement in sorted(found.items()):
            self._compare(settlement, before, _differs(settlement, dues))
            before = settlement
        return sum(settlement.due_micro for settlement in found.values())

    def _compare(
        self, settlement: LoadSettlement, before: LoadSettlement | None, differs: int | None
    ) -> None:
        about = f"settlement {settlement.number} of receipts {settlement.first} to {settlement.through}"
        if differs:
            due, currency = settlement.due_micro, settlement.currency
            self._fault(
                settlement.number,
                "settlement",
                f"{about} is over {money_text(due, currency)}, and they are over"
                f" {money_text(due - differs, currency)}",
                "settlement",
            )
        if before is not None and settlement.first <= before.through:
            text = f"{about} nets some that settlement {before.number} nets: it goes to {before.through}"
            self._fault(settlement.number, "settlement", text, "settlement")

    def _counts(
        self,
        document: LoadReading | LoadSettlement,
        data: bytes,
        context: bytes,
        signatures: tuple[bytes, bytes],
    ) -> bool:
        """Whether it is about this contract, and both have signed it; else that is noted."""
        of: StatementDocument = "settlement" if isinstance(document, LoadSettlement) else "receipt"
        ours = self._versions.newest
        said = document.federation, document.contract, document.provider, document.consumer
        if said != (self._federation, ours.id, ours.provider, ours.consumer):
            self._fault(
                document.number,
                "audience",
                f"it is about contract {said[1]!r} of {said[2]!r} and {said[3]!r} in federation {said[0]!r}",
                of,
            )
            return False
        for party, signature in zip((ours.provider, ours.consumer), signatures, strict=True):
            key = self._keys.get(party)
            if key is None or not self._verify(key, context + data, signature):
                self._fault(document.number, "signature", f"the signature of {party!r} is not theirs", of)
                return False
        return True

    def _gap(self, chain: ReceiptChain, reading: LoadReading) -> None:
        before = reading.total_micro - reading.amount_micro
        before_breaches = reading.breaches_micro - reading.breach_micro
        missing = before - chain.total_micro - (before_breaches - chain.breaches_micro)
        self.missing_micro += missing
        currency = self._versions.newest.currency
        self._fault(
            chain.number,
            "gap",
            f"receipts {chain.number} to {reading.number - 1} are missing, over"
            f" {money_text(missing, currency)}",
        )

    def _lines(
        self, chain: ReceiptChain, reading: LoadReading, contract: Contract
    ) -> Iterable[StatementLine]:
        slot = Slot(reading.version, reading.interval)
        day = self._versions.ends_at_us(slot) // DAY_US
        amounts = list(chain.bill(contract, slot, reading.tasks, reading.broken).amounts)
        # What both have signed counts: the last task takes the difference to what its rows make.
        if amounts:
            amounts[-1] += reading.amount_micro - sum(amounts)
        about = {"day": day, "number": reading.number, "version": slot.version, "interval": slot.interval}
        for task, amount in zip(reading.tasks, amounts, strict=True):
            yield StatementLine(
                **about,
                task=task.task,
                negotiation=task.negotiation,
                begin_row=task.begin_row,
                end_row=task.end_row,
                nano_units=(task.end_row - task.begin_row) * task.nano_units_per_row,
                price_micro=task.price_micro,
                amount_micro=amount,
            )
        if reading.breach_micro or (reading.amount_micro and not amounts):
            yield StatementLine(
                **about,
                task="",
                negotiation=0,
                begin_row=0,
                end_row=0,
                nano_units=0,
                price_micro=contract.breach_micro,
                amount_micro=-reading.breach_micro + (0 if amounts else reading.amount_micro),
            )

    def _fault(
        self,
        number: int,
        kind: StatementFaultKind,
        text: str,
        of: StatementDocument = "receipt",
    ) -> None:
        self.faults.append(StatementFault(number=number, kind=kind, text=text, of=of))


def _differs(settlement: LoadSettlement, dues: Mapping[int, int]) -> int | None:
    """By how much it is over more than its receipts; None: some of them are missing."""
    numbers = settlement.through - settlement.first + 1
    if not 0 <= numbers <= len(dues):
        return None
    netted = range(settlement.first, settlement.through + 1)
    if not all(number in dues for number in netted):
        return None
    return settlement.due_micro - sum(dues[number] for number in netted)


def _due(reading: LoadReading) -> int:
    return reading.amount_micro - reading.breach_micro
