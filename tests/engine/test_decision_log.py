"""Reading decision logs of lives that ended in the middle of a write, and logs that were damaged since."""

from __future__ import annotations

import pytest

from medusa.engine.recovery.decision_log import DecisionLog, FoundLogs, find_logs
from medusa.engine.recovery.decisions import Promise, framed, pack
from medusa.errors import StateError
from tests.engine.durable import MemoryJournal

FIRST, SECOND, THIRD = Promise("s", 0, 10, ()), Promise("s", 5, 20, ()), Promise("s", 9, 30, ())


def read(journal: MemoryJournal, first: int) -> tuple[list[object], int]:
    """As a restored run does: everything is looked at before anything changes."""
    found = find_logs(journal, first)
    found.settle(journal)
    return list(found.entries), found.number


def written(*entries: Promise, journal: MemoryJournal | None = None, number: int = 1) -> MemoryJournal:
    """A log whose entries were synced one by one."""
    journal = journal or MemoryJournal()
    log = DecisionLog(journal, number)
    for each in entries:
        log.note(each)
        log.sync()
    return journal


def refused(journal: MemoryJournal, first: int = 1) -> tuple[FoundLogs, str]:
    """What is found of damaged logs, and what is said; nothing may change."""
    files, marks = {n: bytes(data) for n, data in journal.files.items()}, dict(journal.marks)
    found = find_logs(journal, first)
    with pytest.raises(StateError) as told:
        found.settle(journal)
    assert told.value.code == "state.corrupt"
    assert 'decisions="readable"' in told.value.hint
    assert ({n: bytes(data) for n, data in journal.files.items()}, journal.marks) == (files, marks)
    return found, told.value.message


def test_a_torn_end_is_cut_before_another_life_writes() -> None:
    journal = written(FIRST)
    journal.files[1].extend(journal.files[1][:7])  # the next record, as far as it got
    assert read(journal, 1) == ([FIRST], 2)
    assert journal.files[1] == pack([FIRST])
    written(SECOND, journal=journal, number=2)
    assert read(journal, 1) == ([FIRST, SECOND], 3)


def test_what_a_later_log_carries_counts_once() -> None:
    """It was decided in the log before; who begins with the later one needs it, who begins earlier has it."""
    journal = MemoryJournal()
    log = DecisionLog(journal)
    log.note(FIRST)
    number = log.turn([FIRST])
    log.turned(number, 1)
    log.note(SECOND)
    log.sync()
    assert read(journal, 1) == ([FIRST, SECOND], 3)
    assert read(journal, 2) == ([FIRST, SECOND], 3)


def test_any_bit_and_any_length_of_what_was_synced_is_told() -> None:
    """The last record too: the mark says that it was synced, so it can't have been torn."""
    good = bytes(written(FIRST, SECOND).files[1])
    size = len(pack([FIRST]))
    for at in range(len(good)):
        journal = written(FIRST, SECOND)
        journal.files[1][at] ^= 1 << at % 8
        found, words = refused(journal)
        assert found.entries == [FIRST][: at // size]
        assert words.startswith(f"decisions-1: is damaged at byte {at // size * size}, and {len(good)} bytes")
    for length in range(len(good)):
        journal = written(FIRST, SECOND)
        del journal.files[1][length:]
        found, words = refused(journal)
        assert found.entries == [FIRST][: length // size]
        for zeros in (bytearray(len(good) - length), bytearray(4096)):
            journal.files[1] = bytearray(good[:length]) + zeros
            assert refused(journal)[0].entries == [FIRST][: length // size]


def test_bytes_that_are_no_text_end_the_log_though_their_checksum_is_right() -> None:
    journal = written(FIRST)
    journal.append(1, framed(pack([SECOND])[8:].replace(b"\xa1s", b"\xa1\xff")))
    journal.sync(1)
    assert refused(journal)[0].entries == [FIRST]


def test_a_log_that_is_gone_empty_or_another_is_told() -> None:
    journal = written(FIRST, SECOND)
    journal.files[1].clear()
    assert "is missing or empty" in refused(journal)[1]
    journal.files[1] = bytearray(pack([FIRST]))  # as it was before
    assert f"ends at byte {len(journal.files[1])}, and" in refused(journal)[1]
    journal.files[1] = bytearray(pack([FIRST]) + pack([THIRD]))
    assert "isn't the log of which" in refused(journal)[1]


def test_a_mark_that_is_gone_or_old_costs_nothing() -> None:
    for mark in (None, written(FIRST).marks[1]):
        journal = written(FIRST, SECOND)
        if mark is None:
            del journal.marks[1]
        else:
            journal.marks[1] = mark
        assert read(journal, 1) == ([FIRST, SECOND], 2)


def test_logs_without_marks_are_read_as_before_but_damage_before_a_whole_record_is_told() -> None:
    """As earlier versions wrote them."""
    journal = written(FIRST, SECOND)
    journal.marks.clear()
    journal.files[1][3 + 8] ^= 1
    found, words = refused(journal)
    assert found.entries == []
    assert "is damaged at byte 0, before a record that is whole" in words
    journal = written(FIRST, SECOND)
    journal.marks.clear()
    journal.files[1][-1] ^= 1  # torn, or damaged: nothing tells
    assert read(journal, 1) == ([FIRST], 2)


def test_damage_in_one_of_several_logs_stops_there() -> None:
    journal = written(FIRST)
    written(SECOND, journal=journal, number=2)
    written(THIRD, journal=journal, number=3)
    journal.files[2][0] ^= 1
    found, words = refused(journal)
    assert (found.entries, found.number) == ([FIRST], 4)
    assert words.startswith("decisions-2: ")
    assert read(journal, 3) == ([THIRD], 4), "a checkpoint that needs the third alone has it"


def test_what_is_read_is_durable_before_rows_leave() -> None:
    """It was written and perhaps not synced by the life that was killed."""
    journal = MemoryJournal()
    journal.append(1, pack([FIRST]))
    assert journal.synced(1) is None
    assert read(journal, 1) == ([FIRST], 2)
    mark = journal.synced(1)
    assert mark is not None
    assert mark.length == len(journal.files[1])
