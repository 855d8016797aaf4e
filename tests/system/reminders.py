"""Classes of users that nodes of system tests import: timers that set themselves again, many at one time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import medusa as md

OUT = {"k": "int64", "n": "int64", "what": "utf8"}
STATE = {"n": pa.int64(), "rings": pa.int64()}
EVERY_US = 100


@md.register("tests.Reminders")
class Reminders:
    """Counts the rows of a key, and says so each hundred microseconds; now and then it forgets the key."""

    def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int, input: str = "") -> dict[str, Any]:
        state.n = (state.n or 0) + batch.num_rows
        state.wake_at((now // EVERY_US + 1) * EVERY_US)
        return {"k": [key], "n": [state.n], "what": [f"row {input}"]}

    def boundary(self, key: Any, time: int, state: Any) -> dict[str, Any]:
        rings, n = (state.rings or 0) + 1, state.n
        state.rings = rings
        state.wake_at(time + EVERY_US)
        if rings % 9 == key % 9:
            state.clear()
        return {"k": [key], "n": [n], "what": [f"ring {rings}"]}
