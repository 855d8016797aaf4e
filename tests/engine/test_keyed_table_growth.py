"""A keyed table whose keys come one train after the other copies its columns seldom, and takes room once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from medusa.engine.core import keyed_table
from medusa.engine.core.keyed_table import TableStore
from medusa.query.structs import Field

SCHEMA = (Field("k", "int64"), Field("v", "float64"), Field("s", "utf8"))
KEYS, TRAIN = 20_000, 10


def _put(store: TableStore, first: int, count: int) -> None:
    keys = pa.array(range(first, first + count))
    values = {"v": pa.array(np.arange(first, first + count, dtype=float)), "s": keys.cast("string")}
    store.put(store.slots([keys]), np.full(count, 7), values, new=True)


def test_columns_are_copied_a_few_dozen_times(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = []
    resize = keyed_table._Column.resize
    monkeypatch.setattr(
        keyed_table._Column, "resize", lambda self, slots: (copied.append(slots), resize(self, slots))
    )
    store = TableStore(SCHEMA, ["k"], None)
    for first in range(0, KEYS, TRAIN):
        _put(store, first, TRAIN)
    assert len(store) == KEYS
    assert sum(copied) < 2 * 6 * KEYS, "of two columns, in slots: five times what there is in the end"
    assert max(copied) <= KEYS * 5 // 4 + TRAIN, "a quarter to spare at most"
    slots = store.slots([pa.array([0, KEYS // 2, KEYS - 1, KEYS])], insert=False)
    assert slots[-1] == -1
    assert store.columns["v"].read(slots[:-1]).to_pylist() == [0.0, KEYS / 2, KEYS - 1.0]
    assert store.columns["s"].read(slots[:-1]).to_pylist() == ["0", str(KEYS // 2), str(KEYS - 1)]


def test_what_is_filled_at_once_takes_no_room_to_spare() -> None:
    store = TableStore(SCHEMA, ["k"], None)
    _put(store, 0, 1_000)
    assert len(store._present) == 1_000


def test_spare_slots_are_no_rows_and_are_given_back() -> None:
    store = TableStore(SCHEMA, ["k"], expire_us=10)
    for first in range(0, 2 * keyed_table.SLOTS_SPARE, 1_000):
        _put(store, first, 1_000)
    store.forget(1_000)
    assert len(store) == 0
    assert len(store._present) == 0
    _put(store, 5, 3)
    slots = store.slots([pa.array([4, 5, 7])], insert=False)
    assert store.sees(slots[1:], np.full(2, 8)).all()
    assert slots[0] == -1
