"""The workloads W1 to W5: what is asked, and the answer by numpy, which is no contestant.

W1  tumbling 1 s, 1,000 keys: count, sum, min, max, avg per key and window.
W2  sliding 10 s by 1 s, 1,000 keys: count, avg per key and window.
W3  filter value > 0.5, two computed columns, count; the columns are summed too, since an engine
    that leaves unused columns out would otherwise answer another question.
W4  two streams of two fifths of the events in all, joined on key within 1 s, 100,000 keys: all pairs.
W5  W1 with 1,000,000 keys: most groups hold one event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench import data

SECOND = 1_000_000
PANES = 10  # of W2: window length over advance


@dataclass(frozen=True)
class Workload:
    name: str
    keys: int
    title: str
    columns: tuple[str, ...]
    """Of the answer; ``start`` (int64 us) and ``key`` identify a row where they are there."""
    identity: tuple[str, ...] = ("start", "key")
    """The columns by which answers are put into one order."""
    share: float = 1.0
    """Of the events that the contest is about."""
    streams: int = 1

    def table(self, rows: int) -> pa.Table:
        """Its events; ``bench.data.sides`` parts the two streams of a join."""
        rows = int(rows * self.share)
        return data.events(rows, self.keys) if self.streams == 1 else data.streams(rows, self.keys)


WORKLOADS = {
    "W1": Workload("W1", 1_000, "tumbling 1 s, 1,000 keys", ("start", "key", "n", "s", "lo", "hi", "mean")),
    "W2": Workload("W2", 1_000, "sliding 10 s by 1 s, 1,000 keys", ("start", "key", "n", "mean")),
    "W3": Workload("W3", 1_000, "filter, two columns, count", ("n", "x", "y")),
    "W4": Workload(
        "W4",
        100_000,
        "two streams joined on 100,000 keys within 1 s",
        ("key", "ts", "value", "ts_right", "value_right"),
        ("key", "ts", "ts_right", "value", "value_right"),
        share=0.4,
        streams=2,
    ),
    "W5": Workload(
        "W5", 1_000_000, "tumbling 1 s, 1,000,000 keys", ("start", "key", "n", "s", "lo", "hi", "mean")
    ),
}


def reference(name: str, table: pa.Table) -> pa.Table:
    """The exact answer, sorted by what identifies a row."""
    if name == "W4":
        return _sorted(WORKLOADS[name], _joined(*data.sides(table)))
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


def _joined(left: pa.Table, right: pa.Table) -> pa.Table:
    """All pairs, by a binary search among the right rows sorted by (key, time)."""
    (lt, lk), (rt, rk) = ([side[name].to_numpy() for name in ("ts", "key")] for side in (left, right))
    base, span = min(lt.min(), rt.min()) - SECOND, 1 << 40
    order = np.argsort(rk * span + (rt - base), kind="stable")
    codes = (rk * span + (rt - base))[order]
    first = np.searchsorted(codes, lk * span + (lt - base - SECOND))
    counts = np.searchsorted(codes, lk * span + (lt - base + SECOND), side="right") - first
    ours = np.repeat(np.arange(len(lt)), counts)
    theirs = order[
        np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    ]
    return pa.table(
        {
            "key": lk[ours],
            "ts": lt[ours],
            "value": left["value"].to_numpy()[ours],
            "ts_right": rt[theirs],
            "value_right": right["value"].to_numpy()[theirs],
        }
    )


def _sorted(workload: Workload, table: pa.Table) -> pa.Table:
    names = [name for name in workload.identity if name in workload.columns]
    if not names:
        return table
    order = np.lexsort([table[name].to_numpy() for name in reversed(names)])
    return table.take(pa.array(order))


def difference(name: str, got: pa.Table, wanted: pa.Table) -> str:
    """Why an answer is not exact; empty where it is. Integers equal, floats within 1e-9 of the value."""
    columns = WORKLOADS[name].columns
    if missing := [column for column in columns if column not in got.column_names]:
        return f"no column {', '.join(missing)}"
    if len(got) != len(wanted):
        return f"{len(got):,} rows instead of {len(wanted):,}"
    got = _sorted(WORKLOADS[name], got.select(columns))
    arrays = {column: got[column].to_numpy() for column in columns}
    for column, array in arrays.items():
        other = wanted[column].to_numpy()
        same = array == other if other.dtype.kind in "iu" else np.isclose(array, other, rtol=1e-9, atol=0)
        if not same.all():
            row = int(np.flatnonzero(~same)[0])
            return f"{column} of row {row} is {array[row]!r} instead of {other[row]!r}"
    return ""
