"""Rows by slot as captures take them: what isn't kept in time is never taken for what it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from medusa.engine.core.box import BoxState
from medusa.engine.core.captured_slots import CapturedSlots
from medusa.engine.state import background_copy
from medusa.engine.udf.key_state import state_class
from medusa.engine.udf.key_states import KeyStates
from medusa.query.boxes import Field

ROWS = 300


@pytest.fixture(autouse=True)
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_copy, "AT_ONCE", 8)


class Squares:
    """A column whose reading may fail."""

    def __init__(self) -> None:
        self.values = np.arange(ROWS) ** 2
        self.fails = False
        self.captured = CapturedSlots(pa.schema([("v", pa.int64())]), self.read)
        self.captured.come(np.arange(ROWS))

    def read(self, slots: Any) -> list[pa.Array]:
        if self.fails:
            raise MemoryError("no room")
        return [pa.array(self.values[slots])]

    def change(self, slots: Any) -> None:
        self.captured.come(slots)
        self.values[slots] = -1

    def begin(self) -> Any:
        state = BoxState(patient=True)
        schema = pa.schema([("slot", pa.int64()), ("v", pa.int64())])
        self.captured.save(state, "t", ROWS, lambda slots: [slots], schema)
        return state.later["t"]


def test_rows_that_change_are_those_of_the_beginning_whatever_slots_they_get() -> None:
    made = Squares()
    later = made.begin()
    later.copy(100)
    made.change(np.array([3, 150, 299, 150]))
    later.copy(64)
    made.captured.renumber(2)
    made.values = np.array([8, 9])
    made.change(np.array([0]))
    while not later.done:
        later.copy(64)
    table = later.table()
    assert table.column("slot").to_pylist() == list(range(ROWS))
    assert table.column("v").to_pylist() == [n * n for n in range(ROWS)]


def test_a_copy_for_which_a_row_could_not_be_kept_fails() -> None:
    made = Squares()
    later = made.begin()
    made.fails = True
    with pytest.raises(MemoryError, match="no room"):
        made.change(np.array([200]))
    made.fails = False
    made.change(np.array([200, 250]))
    for _ in range(2):
        with pytest.raises(MemoryError, match="may have changed since"):
            later.copy(ROWS)
    assert not later.done


def test_a_piece_that_could_not_be_read_is_not_read_later() -> None:
    made = Squares()
    later = made.begin()
    made.fails = True
    with pytest.raises(MemoryError, match="no room"):
        later.copy(64)
    made.fails = False
    made.change(np.arange(ROWS))
    with pytest.raises(MemoryError, match="may have changed since"):
        later.copy(64)


def test_one_that_begins_while_another_is_under_way_leaves_that_as_it_was() -> None:
    made = Squares()
    first = made.begin()
    first.copy(64)
    second = made.begin()
    made.change(np.arange(ROWS))
    for later in (second, first):
        later.copy(ROWS)
        assert later.table().column("v").to_pylist() == [n * n for n in range(ROWS)]


def test_keys_of_a_process_box_likewise() -> None:
    fields = (Field("n", "int64"), Field("s", "utf8"))
    make = state_class(fields)
    states = KeyStates(["k"], ["int64"], fields, timed=False)

    def put(key: int, first: int) -> None:
        state = states.get(key)
        if state is None:
            state = make(first)
        else:
            states.touch(state)
        state.n, state.s = first, f"at {first}"
        state.wake_at(first + 1)
        if states.get(key) is None:
            states.keep(key, state)

    def begin() -> Any:
        state = BoxState(patient=True)
        states.save(state, "keys")
        return state.later["keys"]

    for key in range(ROWS):
        put(key, key)
    wanted = BoxState()
    states.save(wanted, "keys")
    first = begin()
    first.copy(50)
    for key in (1, 77, 200):
        put(key, 1000 + key)
    for key in (5, 210):
        held = states.get(key)
        assert held is not None
        states.touch(held)
        held.clear()
        states.drop(key)
    put(210, 3000)
    second = begin()
    put(299, 4000)
    first.copy(ROWS)
    second.copy(ROWS)
    assert first.table().equals(wanted.tables["keys"])
    rows = {row["key.k"]: row["state.n"] for row in second.table().to_pylist()}
    assert list(rows)[-1] == 210  # it came again, and stands last
    assert rows == {**{key: key for key in range(ROWS) if key != 5}, 1: 1001, 77: 1077, 200: 1200, 210: 3000}
