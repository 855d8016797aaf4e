"""Rows with numbers: what changed since a capture, and the table before, make the table of now."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from medusa.engine.state.capture import Capture
from medusa.engine.state.row_changes import GrowingRows, NumberedRows, SlotChanges, SlottedRows

Row = tuple[int, bool]

STEPS = st.tuples(
    st.sampled_from(["nothing", "front", "some", "all but few"]),  # who goes
    st.integers(0, 6),  # rows that are marked
    st.integers(0, 12),  # rows that come
    st.integers(1, 3),  # numbers between them
    st.integers(0, 2),  # captures back to the base
)


@given(steps=st.lists(STEPS, min_size=2, max_size=20), seed=st.integers(0, 1 << 30))
@settings(max_examples=150, deadline=None)
def test_runs_and_fresh_rows_make_the_table(steps: list[tuple[str, int, int, int, int]], seed: int) -> None:
    draw = np.random.default_rng(seed)
    known = NumberedRows()
    rows: list[Row] = [(number, False) for number in range(40)]
    captured: dict[int, list[Row]] = {}
    for number, (goes, marks, come, gap, back) in enumerate(steps, 1):
        match goes:
            case "front":
                rows = rows[int(draw.integers(0, 5)) :]
            case "some":
                rows = [row for row in rows if draw.random() < 0.9]
            case "all but few":
                rows = [row for row in rows if draw.random() < 0.1]
        for at in draw.integers(0, max(len(rows), 1), marks if rows else 0):
            rows[at] = (rows[at][0], True)
        last = rows[-1][0] if rows else 1000 * number
        rows += [(last + gap * step, False) for step in range(1, come + 1)]
        numbers = np.array([row[0] for row in rows], dtype=np.int64)
        base = number - 1 - back
        found = known.since(
            Capture(number, max(base, 0)), numbers, np.array([row[1] for row in rows], dtype=np.bool_)
        )
        if found is not None:
            change, fresh = found
            both = captured[base] + [rows[at] for at in fresh]
            made = [both[start + k] for start, length in change.runs.tolist() for k in range(length)]
            assert made == rows
            assert change.base_rows == len(captured[base])
            assert change.rows == len(rows)
            assert change.same == (captured[base] == rows)
            assert len(fresh) <= len(rows) // 2
        elif base in captured and back == 0:  # more than half of it
            before = set(captured[base])
            assert sum(row not in before for row in rows) > len(rows) // 2
        captured[number] = list(rows)


def test_what_only_grows_needs_a_number_only() -> None:
    known = GrowingRows()
    assert known.since(Capture(1), 10) is None
    same = known.since(Capture(2, 1), 10)
    assert same is not None
    assert same.same
    grown = known.since(Capture(3, 1), 14)
    assert grown is not None
    assert grown.runs.tolist() == [[0, 10], [10, 4]]
    assert known.since(Capture(4, 3), 100) is None  # most of it is new
    assert known.since(Capture(5, 77), 100) is None
    assert GrowingRows().since(Capture(6, 1), 100) is None  # another box


SLOT_STEPS = st.tuples(
    st.lists(st.integers(0, 60), max_size=9),  # slots that change; above all, they come
    st.integers(0, 3),  # slots that come besides
    st.integers(0, 5),  # captures back to the base
)


@given(steps=st.lists(SLOT_STEPS, min_size=2, max_size=25))
@settings(max_examples=200, deadline=None)
def test_slots_that_changed_since_any_base_are_known_however_late_they_are_asked_for(
    steps: list[tuple[list[int], int, int]],
) -> None:
    known, slots, asked, changed_at = SlotChanges(), 20, [], dict[int, int]()
    captured: dict[int, int] = {}
    kept = 0
    for number, (touched, come, back) in enumerate(steps, 1):
        base = max(number - 1 - back, 0)
        layout = SlottedRows(np.arange(slots), np.zeros(0, dtype=np.int64))
        found = known.since(Capture(number, base), layout, slots)
        wanted = {slot for slot in range(slots) if changed_at.get(slot, 0) >= base}
        wanted |= set(range(captured.get(base, 0), slots))
        if found is not None:
            assert found.slots == captured[base]
            asked.append((found, slots, wanted))
            kept += 1
        else:
            assert base not in captured or back > 0  # the newest is always known
        captured[number] = slots
        at = sorted({slot for slot in touched if slot < slots})
        new = list(range(slots, slots + come))
        known.note(np.array([*at, *new], dtype=np.int64))
        changed_at |= dict.fromkeys(at, number)
        slots += come
    for found, then, wanted in asked:  # none was disturbed by what came after
        changed = found.changed(then)
        if changed is None:
            assert len(wanted) > then // 2
        else:
            assert changed.tolist() == sorted(wanted)


def test_a_base_that_stays_is_known_however_many_captures_follow() -> None:
    known, layout = SlotChanges(), SlottedRows(np.arange(100), np.zeros(0, dtype=np.int64))
    for number in range(1, 30):
        found = known.since(Capture(number, min(1, number - 1)), layout, 100)
        assert (found is None) == (number == 1)
        if found is not None:
            changed = found.changed(100)
            assert changed is not None
            assert changed.tolist() == list(range(number - 1))
        known.note(np.array([number - 1], dtype=np.int64))


@given(
    held=st.lists(st.integers(1, 3), max_size=12),  # rows of each slot
    newer=st.dictionaries(st.integers(0, 15), st.integers(1, 3), max_size=8),
    gaps=st.booleans(),
)
@settings(max_examples=300, deadline=None)
@example(held=[1, 1, 1], newer={1: 2}, gaps=False)
@example(held=[1, 3, 1], newer={1: 1}, gaps=True)  # as many rows as slots, and not one each
def test_rows_before_a_slot_are_those_of_all_slots_below(
    held: list[int], newer: dict[int, int], gaps: bool
) -> None:
    step = 2 if gaps else 1
    rows = {slot * step: count for slot, count in enumerate(held)}
    layout = SlottedRows(
        np.repeat(list(rows), list(rows.values())).astype(np.int64),
        np.repeat(sorted(newer), [newer[slot] for slot in sorted(newer)]).astype(np.int64),
    )
    wanted = [sum((rows | newer)[slot] for slot in rows | newer if slot < asked) for asked in range(40)]
    assert layout.before(np.arange(40)).tolist() == wanted
