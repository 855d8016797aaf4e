"""A function of users, for trials: of each row none, one or two."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from medusa.query.user_registry import register

__all__ = ["OUT", "copies"]

OUT = {"k": "utf8", "copy": "int64"}


@register("medusa.sim.copies")
def copies(batch: pa.RecordBatch) -> dict[str, Any]:
    """As many as the number ``n`` of the row leaves, divided by three."""
    counts = [n % 3 for n in batch["n"].to_pylist()]
    rows = pa.array([row for row, count in enumerate(counts) for _ in range(count)], pa.int64())
    return {
        "_row": rows,
        "k": batch["k"].take(rows),
        "copy": [copy for count in counts for copy in range(count)],
    }
