"""Functions of users, as Spark's workers find them: in a module that they import."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import medusa as md

MODULE = __name__


@md.register("spark_test.doubled")
def doubled(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"k": batch["k"], "n2": pc.multiply(batch["n"], 2)}


@md.register("spark_test.most")
class Most:
    """For each row the greatest number of its key so far; 6 s after the last one how many there were."""

    def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int) -> Any:
        made = []
        for number in batch["n"].to_pylist():
            state.most = number if state.most is None else max(state.most, number)
            state.seen = (state.seen or 0) + 1
            made.append(state.most)
        state.cancel()
        state.wake_at(now + 6_000_000)
        return {"k": [key] * len(made), "most": made, "_row": list(range(len(made)))}

    def boundary(self, key: Any, time: int, state: Any) -> Any:
        seen = state.seen
        state.clear()
        return {"k": [key], "most": [-seen]}


def most(rows: md.Stream) -> md.Stream:
    """``Most`` of each ``k``."""
    state = {"most": "int64", "seen": "int64"}
    return rows.process(Most, {"k": "int32", "most": "int64"}, by="k", state=state)
