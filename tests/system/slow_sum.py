"""An aggregate that a node registers: each row takes four milliseconds, and no processor."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import numpy as np

import medusa as md

__all__ = ["SlowSum", "query"]


@md.register("test.slow_sum_of_processes", version=1)
class SlowSum:
    """A sum."""

    inputs = ("int64",)
    state: ClassVar[dict[str, str]] = {"total": "int64"}
    result = "int64"

    def init(self, groups: int) -> dict[str, Any]:
        return {"total": np.zeros(groups, np.int64)}

    def add(self, state: dict[str, Any], groups: Any, values: Any) -> dict[str, Any]:
        threading.Event().wait(0.004 * len(values))
        np.add.at(state["total"], groups, values)
        return state

    def merge(self, state: dict[str, Any], other: dict[str, Any], groups: Any) -> dict[str, Any]:
        state["total"][groups] += other["total"]
        return state

    def finish(self, state: dict[str, Any]) -> Any:
        return state["total"]


def query() -> md.Query:
    """Sums of each segment in each ten seconds."""
    q = md.Query("cars")
    cars = q.source("cars", {"ts": "int64", "seg": "int64", "v": "int64"}, time="ts", unit="s", slack="0s")
    sums = cars.window("10s").group_by("seg").aggregate(t=md.user(SlowSum, "v"), name="per_seg")
    q.sink("out", sums)
    return q
