"""The events of the engine workloads: seeded, disordered within a bound, one Arrow table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

SPAN_US = 100_000_000
START_US = 1_700_000_000_000_000  # a multiple of 1,000 s, so that all windows used here align with it
DELAY_US = 100_000
DELAYED = 0.1


def events(rows: int, keys: int, seed: int = 7) -> pa.Table:
    """``ts`` int64 us over 100 s in order of arrival, ``key`` uniform, ``value`` uniform in [0, 1).

    A tenth of the rows arrives up to 100 ms after its time, so time runs back by at most that.
    """
    rng = np.random.default_rng(seed)
    ts = START_US + np.arange(rows, dtype=np.int64) * SPAN_US // rows
    delay = np.where(rng.random(rows) < DELAYED, rng.integers(0, DELAY_US, rows, endpoint=True), 0)
    ts = ts[np.argsort(ts + delay, kind="stable")]
    return pa.table({"ts": ts, "key": rng.integers(0, keys, rows), "value": rng.random(rows)})


def streams(rows: int, keys: int) -> pa.Table:
    """Two streams of half as many events each, one after the other in one table; ``sides`` parts them."""
    return pa.concat_tables([events(rows // 2, keys, seed=7), events(rows // 2, keys, seed=8)])


def sides(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The left and the right stream, each in one piece."""
    half = len(table) // 2
    return table.slice(0, half).combine_chunks(), table.slice(half).combine_chunks()


def save(table: pa.Table, path: Path) -> None:
    """One record batch, uncompressed."""
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def load(path: Path) -> pa.Table:
    """Into memory of the process (not mapped), so that its size is counted once and at the start."""
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()
