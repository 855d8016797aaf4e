"""A function that a node registers: its rows take their time, the same on any machine."""

from __future__ import annotations

import threading

import pyarrow as pa

import medusa as md

__all__ = ["ROW_US", "slow"]

ROW_US = 300


@md.register("test.slow_rows")
def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, after ``ROW_US`` for each."""
    threading.Event().wait(batch.num_rows * ROW_US / 1e6)
    return batch
