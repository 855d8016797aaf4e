"""Rows with numbers: what changed since a capture, and the table before, make the table of now."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.state.capture import Capture
from medusa.engine.state.row_changes import GrowingRows, NumberedRows

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
