"""Functions and classes of a user, registered: vectorised where ``tests.oracle.user`` goes row by row."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import medusa as md

COPIES = {"n": "int32", "copy": "int64"}
DOUBLED = {"n": "int32", "s": "utf8"}
OUT = {"key": "int64", "n": "int64", "what": "utf8"}
STATE = {"n": "int64"}


@md.register("test.copies")
def copies(batch: pa.RecordBatch) -> dict[str, Any]:
    n = batch.column("n").to_numpy()
    if (n == 7).any():
        raise ValueError("seven")
    rows = np.repeat(np.arange(len(n)), n % 3)
    copy = [i for each in (n % 3).tolist() for i in range(each)]
    return {"_row": rows, "copy": copy, "n": pa.array(n[rows], pa.int32())}


@md.register("test.doubled")
def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    n = pc.multiply(batch.column("n"), pa.scalar(2, pa.int32()))
    return pa.RecordBatch.from_arrays([n, batch.column("s")], ["n", "s"])


@md.register("test.Session")
class Session:
    wake_after = 6

    def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int, input: str = "") -> None:
        state.n = (state.n or 0) + batch.num_rows
        state.cancel()
        state.wake_at(now + 6)

    def boundary(self, key: Any, time: int, state: Any) -> dict[str, Any]:
        n = state.n
        state.clear()
        return {"key": [key], "n": [n], "what": ["end"]}


@md.register("test.Count")
class Count:
    """Bulk: a running sum over the rows of a call."""

    def rows(
        self, key: Any, batch: pa.RecordBatch, state: Any, now: int, input: str = ""
    ) -> pa.RecordBatch | dict[str, Any]:
        n = batch.column("n").to_numpy().astype(np.int64)
        state.n = int(n.sum()) + (state.n or 0)
        if (n == 7).any():
            raise ValueError("seven")
        sums = state.n - n.sum() + np.cumsum(n)
        rows = np.arange(len(n))
        if len(n) % 2:  # both ways of giving rows back
            return {
                "what": [input] * len(n),
                "key": [key] * len(n),
                "n": sums.tolist(),
                "_row": rows.tolist(),
            }
        columns = [rows, pa.array([key] * len(n), pa.int64()), pa.array([input] * len(n)), sums]
        return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], ["_row", "key", "what", "n"])


@md.register("test.Alarms")
class Alarms:
    def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int, input: str = "") -> dict[str, Any]:
        for n in batch.column("n").to_pylist():
            state.wake_at(now + 1 + n)
            state.wake_at(now + 12)
        rows = batch.num_rows
        return {
            "key": [key] * rows,
            "n": batch.column("n").cast(pa.int64()),
            "what": ["row"] * rows,
            "_row": list(range(rows)),
        }

    def boundary(self, key: Any, time: int, state: Any) -> pa.Table:
        state.n = (state.n or 0) + 1
        return pa.table({"key": pa.array([key], pa.int64()), "n": [state.n], "what": ["alarm"]})


@md.register("test.Restless")
class Restless:
    """Its timers set themselves again, so it ends only because the input does; most are at one time."""

    def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int, input: str = "") -> dict[str, Any]:
        state.n = (state.n or 0) + batch.num_rows
        state.wake_at((now // 4 + 1) * 4)
        return {"key": [key], "n": [state.n], "what": ["row " + ",".join(batch.schema.names)]}

    def boundary(self, key: Any, time: int, state: Any) -> dict[str, Any] | None:
        state.wake_at(time + 4)
        state.n += 100
        if state.n % 7 == 0:
            state.clear()
            return None
        late = pa.array([time, time + 3], pa.timestamp("us"))
        return {"key": [key, key], "n": [state.n, -1], "what": ["alarm", "later"], "_time": late}


@md.register("test.Total")
class Total:
    """The sum of integers, null where there is none: an aggregate of a user."""

    inputs: ClassVar = ["int64"]
    state: ClassVar = {"total": "int64", "rows": "int64"}
    result = "int64"

    def init(self, groups: int) -> dict[str, Any]:
        return {"total": np.zeros(groups, np.int64), "rows": np.zeros(groups, np.int64)}

    def add(self, state: Any, groups: Any, values: Any) -> Any:
        np.add.at(state["total"], groups, values)
        np.add.at(state["rows"], groups, 1)
        return state

    def merge(self, state: Any, other: Any, groups: Any) -> Any:
        state["total"][groups] += other["total"]
        state["rows"][groups] += other["rows"]
        return state

    def finish(self, state: Any) -> Any:
        return pa.array(state["total"], mask=state["rows"] == 0)
