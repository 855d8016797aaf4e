"""The workloads W1, W2, W3, W5: what is asked, and the answer by numpy, which is no contestant.

W1  tumbling 1 s, 1,000 keys: count, sum, min, max, avg per key and window.
W2  sliding 10 s by 1 s, 1,000 keys: count, avg per key and window.
W3  filter value > 0.5, two computed columns, count; the columns are summed too, since an engine
    that leaves unused columns out would otherwise answer another question.
W5  W1 with 1,000,000 keys: most groups hold one event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SECOND = 1_000_000
PANES = 10  # of W2: window length over advance


@dataclass(frozen=True)
class Workload:
    name: str
    keys: int
    title: str
    columns: tuple[str, ...]
    """Of the answer; ``start`` (int64 us) and ``key`` identify a row where they are there."""


WORKLOADS = {
    "W1": Workload("W1", 1_000, "tumbling 1 s, 1,000 keys", ("start", "key", "n", "s", "lo", "hi", "mean")),
    "W2": Workload("W2", 1_000, "sliding 10 s by 1 s, 1,000 keys", ("start", "key", "n", "mean")),
    "W3": Workload("W3", 1_000, "filter, two columns, count", ("n", "x", "y")),
    "W5": Workload(
        "W5", 1_000_000, "tumbling 1 s, 1,000,000 keys", ("start", "key", "n", "s", "lo", "hi", "mean")
    ),
}


def reference(name: str, table: pa.Table) -> pa.Table:
    """The exact answer, sorted by (start, key)."""
    ts, key, value = (table[column].to_numpy() for column in ("ts", "key", "value"))
    if name == "W3":
        kept = value > 0.5
        x, y = value[kept] * 2.0 + 1.0, value[kept] * key[kept]
        return pa.table({"n": [int(kept.sum())], "x": [float(x.sum())], "y": [float(y.sum())]})
    start, group_key, columns = _groups(ts - ts % SECOND, key, value)
    if name == "W2":
        return _sliding(start, group_key, columns["n"], columns["s"])
    return pa.table({"start": start, "key": group_key, **columns, "mean": columns["s"] / columns["n"]})


def _groups(
    start: np.ndarray, key: np.ndarray, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    order = np.lexsort((key, start))
    start, key, value = start[order], key[order], value[order]
    first = np.flatnonzero(np.r_[True, (np.diff(start) != 0) | (np.diff(key) != 0)])
    columns = {
        "n": np.diff(np.r_[first, len(start)]),
        "s": np.add.reduceat(value, first),
        "lo": np.minimum.reduceat(value, first),
        "hi": np.maximum.reduceat(value, first),
    }
    return start[first], key[first], columns


def _sliding(start: np.ndarray, key: np.ndarray, n: np.ndarray, s: np.ndarray) -> pa.Table:
    starts = np.concatenate([start - back * SECOND for back in range(PANES)])
    keys, counts, sums = (np.tile(column, PANES) for column in (key, n, s))
    order = np.lexsort((keys, starts))
    starts, keys, counts, sums = starts[order], keys[order], counts[order], sums[order]
    first = np.flatnonzero(np.r_[True, (np.diff(starts) != 0) | (np.diff(keys) != 0)])
    count = np.add.reduceat(counts, first)
    mean = np.add.reduceat(sums, first) / count
    return pa.table({"start": starts[first], "key": keys[first], "n": count, "mean": mean})


def difference(name: str, got: pa.Table, wanted: pa.Table) -> str:
    """Why an answer is not exact; empty where it is. Integers equal, floats within 1e-9 of the value."""
    columns = WORKLOADS[name].columns
    if missing := [column for column in columns if column not in got.column_names]:
        return f"no column {', '.join(missing)}"
    if len(got) != len(wanted):
        return f"{len(got):,} rows instead of {len(wanted):,}"
    arrays = {column: got[column].to_numpy() for column in columns}
    if "key" in arrays:
        order = np.lexsort((arrays["key"], arrays["start"]))
        arrays = {column: array[order] for column, array in arrays.items()}
    for column, array in arrays.items():
        other = wanted[column].to_numpy()
        same = array == other if other.dtype.kind in "iu" else np.isclose(array, other, rtol=1e-9, atol=0)
        if not same.all():
            row = int(np.flatnonzero(~same)[0])
            return f"{column} of row {row} is {array[row]!r} instead of {other[row]!r}"
    return ""
