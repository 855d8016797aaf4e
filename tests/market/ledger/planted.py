"""Mistakes in the ledger; seeds of the trial, or a test, notice each.

``tests.sim.planting`` plants one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.market.ledger import test_liars
from tests.sim.planting import Edit, edit

__all__ = ["PLANTED", "LedgerMistake"]

_LEDGER = "market.ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMistake:
    """Attributes:
    about: what it costs whom.
    seed: of the trial, which notices it; None: ``test`` does.
    """

    about: str
    edits: tuple[Edit, ...]
    seed: int | None = None
    shows: str = ""
    test: Callable[[], Any] | None = None


PLANTED: dict[str, LedgerMistake] = {
    "a receipt counted twice": LedgerMistake(
        about="A receipt that comes again is entered again. Three checks stand in its way; all are away.",
        edits=(
            Edit(
                f"{_LEDGER}.provider_book:ProviderBook._receive_receipt",
                "if reading.number < self.chain.number:\n        return",
                "",
            ),
            Edit(
                f"{_LEDGER}.provider_book:ProviderBook._receive_receipt",
                "if fault:",
                'if "paid" in fault and 0:',
            ),
            Edit(f"{_LEDGER}.accounts:Accounts.post", "if entry.number < after:", "if entry.number < 0:"),
        ),
        seed=0,
        shows="",
    ),
    "rows that were skipped are paid": LedgerMistake(
        about="The consumer signs whatever rows a reading says, as long as they follow each other.",
        edits=edit(
            f"{_LEDGER}.consumer_book:ConsumerBook._short", "if each.end_row > allowed:", "if allowed < 0:"
        ),
        test=lambda: test_liars.test_rows_that_were_not_delivered_are_not_paid(0, 1.5, 0),
    ),
    "the rest is lost each interval": LedgerMistake(
        about="Each reading is rounded down by itself: the provider loses up to a micro-unit each time.",
        edits=edit(
            f"{_LEDGER}.chain:ReceiptChain.bill",
            "self.left_micro(contract, slot), self.rest, []",
            "self.left_micro(contract, slot), 0, []",
        ),
        seed=0,
    ),
    "exposure is looked at after the work": LedgerMistake(
        about="An interval more is worked before anything is missed.",
        edits=edit(
            f"{_LEDGER}.provider_book:ProviderBook.may_work",
            "self.versions.ordinal(self.covered) + 2",
            "self.versions.ordinal(self.covered) + 3",
        ),
        seed=1,
        shows="exposure",
    ),
    "a signature over other bytes than those that count": LedgerMistake(
        about="Only the beginning is signed: who has a receipt may write another amount into it.",
        edits=(
            Edit(f"{_LEDGER}.book:LedgerIdentity.sign", "context + data", "context + data[:24]"),
            Edit(f"{_LEDGER}.book:LedgerIdentity.has_signed", "context + data", "context + data[:24]"),
        ),
        seed=0,
        shows="statement",
    ),
    "a dispute that pays": LedgerMistake(
        about="The counter-reading has the rows that the provider says.",
        edits=edit(
            f"{_LEDGER}.consumer_book:ConsumerBook._say_counter",
            "max(min(each.end_row, own), each.begin_row)",
            "each.end_row",
        ),
        test=lambda: test_liars.test_rows_that_were_not_delivered_are_not_paid(0, 1.5, 0),
    ),
    "a settlement again after a death": LedgerMistake(
        about="What was settled is forgotten at a restart.",
        edits=edit(
            f"{_LEDGER}.provider_book:ProviderBook._enter_proposed",
            "self._enter_settlement(record.settlement)",
            "pass",
        ),
        seed=4,
    ),
    "a receipt is said before it is kept": LedgerMistake(
        about="The consumer dies in between, and knows nothing of what it signed.",
        edits=edit(
            f"{_LEDGER}.consumer_book:ConsumerBook._answer",
            "self._take_receipt(receipt)\n    self._say_receipt(receipt)",
            "self._say_receipt(receipt)\n    self._take_receipt(receipt)",
        ),
        seed=0,
    ),
    "what is receipted for less covers the interval": LedgerMistake(
        about="A consumer that understates is worked for without end.",
        edits=edit(
            f"{_LEDGER}.provider_book:ProviderBook._enter_receipt",
            "for each in said.tasks",
            "for each in reading.tasks",
        ),
        test=lambda: test_liars.test_who_understates_gains_two_intervals(0.5),
    ),
    "the tolerance is of all rows so far": LedgerMistake(
        about="Not of those of the interval: it grows with time, and the provider takes 1 % for ever.",
        edits=edit(
            f"{_LEDGER}.consumer_book:ConsumerBook._short",
            "(each.end_row - each.begin_row) * tolerance",
            "each.end_row * tolerance",
        ),
        test=lambda: test_liars.test_rows_that_were_not_delivered_are_not_paid(20_000, 1.01, 400_000),
    ),
    "who takes its tasks home owes nothing for them": LedgerMistake(
        about="What was written off is forgotten: two intervals are lost again and again.",
        edits=edit(
            f"{_LEDGER}.provider_book:ProviderBook._enter_went",
            "self.written_off_micro + record.written_off_micro",
            "0",
        ),
        test=test_liars.test_who_hands_over_again_and_again_and_says_that_it_had_nothing_gains_two_intervals,
    ),
    "the cap is counted anew for each reading": LedgerMistake(
        about="More is billed in a settlement period than the contract caps.",
        edits=edit(
            f"{_LEDGER}.chain:ReceiptChain.left_micro",
            "spent = self._period_micro if",
            "spent = 0 if",
        ),
        seed=2,
        shows="cap: ",
    ),
    "the last interval again": LedgerMistake(
        about="A contract that is over isn't read again: rows that came late are never paid.",
        edits=edit(f"{_LEDGER}.provider_book:ProviderBook._again", "return now_us >=", "return 0 * now_us >"),
        seed=50,
    ),
}
