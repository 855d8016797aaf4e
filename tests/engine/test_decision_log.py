"""Reading decision logs of lives that ended in the middle of a write."""

from __future__ import annotations

from medusa.engine.decision_log import DecisionLog, read_log
from medusa.engine.decisions import Promise
from tests.engine.durable import MemoryJournal


def test_a_torn_end_is_cut_before_another_life_writes() -> None:
    journal, first, second = MemoryJournal(), Promise("s", 0, 10, ()), Promise("s", 5, 20, ())
    log = DecisionLog(journal)
    log.note(first)
    log.sync()
    journal.files[1].extend(journal.files[1][:7])  # the next record, as far as it got
    entries, number = read_log(journal, 1)
    assert (entries, number) == ([first], 2)
    log = DecisionLog(journal, number)
    log.note(second)
    log.sync()
    assert read_log(journal, 1) == ([first, second], 3)


def test_what_a_later_log_carries_counts_once() -> None:
    """It was decided in the log before; who begins with the later one needs it, who begins earlier has it."""
    journal, first, second = MemoryJournal(), Promise("s", 0, 10, ()), Promise("s", 5, 20, ())
    log = DecisionLog(journal)
    log.note(first)
    number = log.turn([first])
    log.turned(number, 1)
    log.note(second)
    log.sync()
    assert read_log(journal, 1) == ([first, second], 3)
    assert read_log(journal, 2) == ([first, second], 3)
