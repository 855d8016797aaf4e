"""A class of users, for trials: timers that set themselves again, many of them at one time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from medusa.query.user_registry import register

__all__ = ["OUT", "STATE", "Reminders"]

OUT = {"k": "utf8", "n": "int64", "what": "utf8"}
STATE = {"n": pa.int64(), "rings": pa.int64()}
EVERY_US = 2_000_000
RINGS_MAX = 3
"""Then it forgets the key, which begins anew with its next row."""


@register("medusa.sim.Reminders")
class Reminders:
    """Says how many rows of a key have come: at each of them, and at every full ``EVERY_US`` after."""

    def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int, input: str = "") -> dict[str, Any]:
        counts = list(range((state.n or 0) + 1, (state.n or 0) + batch.num_rows + 1))
        state.n = counts[-1]
        state.wake_at((now // EVERY_US + 1) * EVERY_US)
        return {
            "_row": list(range(len(counts))),
            "k": [key] * len(counts),
            "n": counts,
            "what": [f"row {input}"] * len(counts),
        }

    def boundary(self, key: Any, time: int, state: Any) -> dict[str, Any]:
        rings, rows = (state.rings or 0) + 1, state.n
        state.rings = rings
        state.wake_at(time + EVERY_US)
        if rings == RINGS_MAX:
            state.clear()
        return {"k": [key], "n": [rows], "what": [f"ring {rings}"]}
