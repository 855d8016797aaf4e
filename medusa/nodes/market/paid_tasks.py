"""The ledger of a node's participant, driven by what runs where: which rows of which task are paid for.

A task is in the ledger from the row on at which it was handed over, up to the one at which it came home. The
owner of a task says both (``task_rows``), and its host looks whether they can be true: a task that begins
behind the rows that have come in would run for nothing. As long as an owner doesn't say where its task ended
the contract takes no other: a number that only one knows ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from medusa.errors import ContractError, RemoteProtocolError
from medusa.market.contract.terms import Contract
from medusa.market.ledger.effects import LedgerEffect, LedgerEffects
from medusa.market.ledger.intervals import ContractIntervals
from medusa.market.ledger.ledger import LedgerStanding, PartyLedger
from medusa.market.ledger.messages import LedgerMessage
from medusa.market.negotiation.kept import KeptDeal
from medusa.nodes.catalog.kept_market import KeptMarket, TaskMark
from medusa.nodes.market.market_words import TaskRows, TaskRowsHeard
from medusa.nodes.market.task_rows import TaskMarks
from medusa.ports import Signer, Verify

__all__ = ["GuestTerms", "PaidTasks"]

TERMS_MAX = 1_000
"""Guests that left before their owner said from which row on they are paid for, and that are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTerms:
    """By what a guest is, or was, here.

    Attributes:
        row: up to there its rows had come in, when it was last looked at.
        begin_most: it is paid from this row on, or an earlier one; None: from any that has come in.
    """

    contract: str
    price_micro: int
    nano_units_per_row: int
    row: int
    begin_most: int | None = None


class PaidTasks:
    """What is owed for tasks.

    Args:
        own: our participant.
        keys: participant -> its public key; may change.
        kept: as it was before a restart.

    Raises:
        StateError: what was kept is no ledger.
    """

    def __init__(
        self,
        own: str,
        federation: str,
        *,
        signer: Signer,
        verify: Verify,
        keys: Mapping[str, str],
        kept: KeptMarket,
    ) -> None:
        self._effects = LedgerEffects()
        self._marks = TaskMarks(kept.marks)
        self._ledger = PartyLedger.restored(
            kept.ledger, own, federation, signer=signer, verify=verify, keys=keys, effects=self._effects
        )
        self._seen: dict[tuple[str, int, str], GuestTerms] = {}
        self._uncounted: dict[tuple[str, str, int, str], None] = {}
        """Contract, partner, negotiation and task of which that was reported."""

    def take_effects(self) -> Iterator[LedgerEffect]:
        """What the ledger wants done, oldest first."""
        return self._effects.take()

    # --- contracts ------------------------------------------------------------------------------------

    def sign(self, time_us: int, contract: Contract) -> None:
        """Both have signed it.

        Raises:
            ContractError: see ``PartyLedger.sign``; nothing changed.
        """
        self._ledger.sign(time_us, contract)

    def end(self, contract: str, partner: str, ends_us: int) -> None:
        """It was revoked as of then. Said again it is no news."""
        versions = self.versions(contract, partner)
        if versions is not None and versions.last_us > ends_us:
            self._ledger.end(contract, partner, ends_us)

    def versions(self, contract: str, partner: str) -> ContractIntervals | None:
        """None: there is no such contract."""
        try:
            return self._ledger.book(contract, partner).versions
        except ContractError:
            return None

    def stopped(self, contract: str, partner: str) -> str:
        """Why no task is taken under it now, as what was done isn't receipted; empty: one may be."""
        try:
            return self._ledger.book(contract, partner).stopped
        except ContractError:
            return "contract.unknown"

    # --- tasks of ours --------------------------------------------------------------------------------

    def went(self, time_us: int, deal: KeptDeal, row: int) -> str:
        """A task of ours runs at a partner from this row on; why it can't be paid for, or empty."""
        contract, partner = deal.contract.id, deal.partner
        try:
            self._ledger.began(
                time_us,
                contract,
                partner,
                negotiation=deal.negotiation,
                task=deal.task.name,
                begin_row=row,
                nano_units_per_row=deal.nano,
                price_micro=deal.price_micro,
            )
        except ContractError as error:
            return error.message
        self._marks.began(partner, contract, deal.negotiation, deal.task.name, row)
        return ""

    def came_home(self, time_us: int, deal: KeptDeal, row: int | None) -> None:
        """It runs here again from this row on; None: nobody knows, so what was last seen counts."""
        partner, contract, task = deal.partner, deal.contract.id, deal.task.name
        if row is None:
            row = self._counted(contract, partner, deal.negotiation, task)
        mark = self._marks.find(partner, contract, deal.negotiation, task)
        if mark is None:
            return
        row = max(row, mark.begin_row)
        # In the ledger it ends with the word of its host, who may never have had it there.
        if self.count(time_us, deal, row):
            row = max(self._counted(contract, partner, deal.negotiation, task), mark.begin_row)
        self._uncounted.pop((contract, partner, deal.negotiation, task), None)
        self._marks.ended(partner, contract, deal.negotiation, task, row)

    def due(self, time_us: int) -> Iterator[tuple[str, TaskRows]]:
        """What partners have to be told of our tasks now."""
        return self._marks.due(time_us)

    def heard(self, time_us: int, partner: str, word: TaskRowsHeard) -> None:
        """A partner knows."""
        mark = self._marks.find(partner, word.contract, word.negotiation, word.task)
        if mark is not None and mark.end_row is not None and word.ended:
            row = mark.begin_row if word.unpaid else mark.end_row
            self._ledger.ended(time_us, word.contract, partner, word.negotiation, word.task, row)
        self._marks.heard(partner, word)

    def is_reached(self, partner: str) -> None:
        """A partner is there again."""
        self._marks.is_reached(partner)

    def kept_marks(self) -> tuple[TaskMark, ...]:
        """What partners have to know, for the next life."""
        return self._marks.kept()

    # --- tasks of others ------------------------------------------------------------------------------

    def is_paid(self, deal: KeptDeal) -> bool:
        """Whether the ledger has it: its owner has said from which row on."""
        return self.has(deal.contract.id, deal.partner, deal.negotiation, deal.task.name)

    def runs_here(self, deal: KeptDeal, row: int, *, begin_most: int | None = None) -> None:
        """A guest is here, and its rows have come in up to there.

        Args:
            begin_most: it has to be paid from this row on; None: from any that has come in.
        """
        self._seen[deal.partner, deal.negotiation, deal.task.name] = GuestTerms(
            contract=deal.contract.id,
            price_micro=deal.price_micro,
            nano_units_per_row=deal.nano,
            row=row,
            begin_most=begin_most,
        )
        while len(self._seen) > TERMS_MAX:
            del self._seen[next(iter(self._seen))]

    def told(self, time_us: int, partner: str, word: TaskRows) -> TaskRowsHeard | None:
        """The owner of a guest says which of its rows are paid for; the answer, or None: not yet.

        Raises:
            RemoteProtocolError: it says what can't be (``E_BILLING``); nothing changed.
        """
        seen = self._seen.get((partner, word.negotiation, word.task))
        known = self.has(word.contract, partner, word.negotiation, word.task)
        if not known and seen is not None and seen.contract == word.contract:
            if word.begin_row > seen.row:
                raise RemoteProtocolError(
                    f"task {word.task!r} begins at row {word.begin_row:,}: {seen.row:,} have come in",
                    peer=partner,
                    code="E_BILLING",
                )
            if seen.begin_most is not None and word.begin_row > seen.begin_most:
                raise RemoteProtocolError(
                    f"task {word.task!r} is paid from row {word.begin_row:,} on: it began at row"
                    f" {seen.begin_most:,}",
                    peer=partner,
                    code="E_BILLING",
                )
            self._begin_guest(time_us, partner, word, seen)
            known = self.has(word.contract, partner, word.negotiation, word.task)
        if not known and (
            word.end_row is None or (seen is not None and self._counts(time_us, word, partner))
        ):
            return None  # Not before what was done until then is receipted.
        if word.end_row is not None:
            if known:
                self._ledger.ended(time_us, word.contract, partner, word.negotiation, word.task, word.end_row)
            self._seen.pop((partner, word.negotiation, word.task), None)
            self._uncounted.pop((word.contract, partner, word.negotiation, word.task), None)
        return TaskRowsHeard(
            contract=word.contract,
            negotiation=word.negotiation,
            task=word.task,
            ended=word.end_row is not None,
            unpaid=not known,
        )

    def _counts(self, time_us: int, word: TaskRows, partner: str) -> bool:
        versions = self.versions(word.contract, partner)
        return versions is not None and versions.at(time_us) is not None

    def _begin_guest(self, time_us: int, partner: str, word: TaskRows, seen: GuestTerms) -> None:
        terms = seen.nano_units_per_row, seen.price_micro
        about = word.contract, partner
        try:
            self._ledger.began(
                time_us,
                *about,
                negotiation=word.negotiation,
                task=word.task,
                begin_row=word.begin_row,
                nano_units_per_row=terms[0],
                price_micro=terms[1],
            )
        except ContractError as error:
            self._effects.report("warning", f"a guest isn't paid for: {error.message}", partner=partner)
            return
        self._count(time_us, *about, word.negotiation, word.task, seen.row)

    # --- both -----------------------------------------------------------------------------------------

    def count(self, time_us: int, deal: KeptDeal, row: int) -> str:
        """Of a task that is away: up to there we have it; of a guest: up to there rows have come in. Why that
        can't be counted, or empty: the number is a partner's, and may be anything."""
        if not self.is_paid(deal):
            return ""
        return self._count(time_us, deal.contract.id, deal.partner, deal.negotiation, deal.task.name, row)

    def _count(self, time_us: int, contract: str, partner: str, negotiation: int, task: str, row: int) -> str:
        key = contract, partner, negotiation, task
        try:
            self._ledger.counted(time_us, *key, row)
        except ContractError as error:
            if key not in self._uncounted:
                self._uncounted[key] = None
                about = {"task": task, "contract": contract, "partner": partner}
                self._effects.report("error", f"rows that can't be counted: {error.message}", **about)
            return error.message
        self._uncounted.pop(key, None)
        return ""

    def measured(self, time_us: int, contract: str, partner: str, missed_us: int) -> None:
        """For so long tasks under it should have run here, and didn't."""
        if self.versions(contract, partner) is not None:
            self._ledger.measured(time_us, contract, partner, missed_us=missed_us, latency_us=0)

    def receive(self, time_us: int, partner: str, message: LedgerMessage) -> None:
        """See ``PartyLedger.receive``."""
        self._ledger.receive(time_us, partner, message)

    def tick(self, time_us: int) -> None:
        """Time has passed."""
        self._ledger.tick(time_us)

    def wake_at_us(self, time_us: int) -> int | None:
        """When ``tick`` has something to do, or something is to be said again."""
        times = self._ledger.wake_at_us(time_us), self._marks.wake_at_us(time_us)
        return min((each for each in times if each is not None), default=None)

    def status(self) -> tuple[LedgerStanding, ...]:
        """Of each contract."""
        return self._ledger.status()

    def paid_row(self, contract: str, partner: str, negotiation: int, task: str) -> int | None:
        """Rows before this one count as delivered; None: the ledger doesn't have the task."""
        if not self.has(contract, partner, negotiation, task):
            return None
        return self._counted(contract, partner, negotiation, task)

    def snapshot(self) -> tuple[bytes, ...]:
        """Records of which the next life makes the same ledger."""
        return tuple(self._ledger.snapshot())

    def prices(self, contract: str, partner: str, number: int, task: str) -> tuple[int, int] | None:
        """Micro-units of money of a unit, and nano-units of a row, as it began; None: the ledger doesn't have
        it."""
        if not self.has(contract, partner, number, task):
            return None
        found = self._ledger.book(contract, partner).tasks[number, task]
        return found.price_micro, found.nano_units_per_row

    def has(self, contract: str, partner: str, number: int, task: str) -> bool:
        """Whether the ledger has it."""
        try:
            return (number, task) in self._ledger.book(contract, partner).tasks
        except ContractError:
            return False

    def _counted(self, contract: str, partner: str, number: int, task: str) -> int:
        """Rows before this one count as delivered, as far as is known."""
        if not self.has(contract, partner, number, task):
            return 0
        return self._ledger.book(contract, partner).tasks[number, task].counted
