"""Question: how many rows per second of one core does an as-of join take, beside polars?

    python -m bench.asof [--rows 2000000] [--keys 1000]

Two streams of half as many rows each; every left row is joined with the latest right row of its key.
polars needs both sides sorted by time; its sort is part of its figure, since streams come disordered.
The answers are compared first, on data where no two right rows of a key have one time.
What it does not show: other numbers of keys than asked for, ``within``, conditions.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import polars as pl
import pyarrow as pa

import medusa as md
from bench import data


def by_medusa(left: pa.Table, right: pa.Table) -> pa.Table:
    q = md.Query("asof")
    a, b = (q.source(name, left.schema, time="ts", unit="us", slack="100ms") for name in ("left", "right"))
    q.sink("out", a.asof_join(b, on="key"))
    return md.collect(q, left=left, right=right)["out"]


def by_polars(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    ours = left.sort("ts", maintain_order=True)
    theirs = right.sort("ts", maintain_order=True).with_columns(ts_right=pl.col("ts"))
    return ours.join_asof(theirs, on="ts", by="key", check_sortedness=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    left, right = data.sides(data.streams(options.rows, options.keys))
    codes = right["key"].to_numpy() * (1 << 40) + (right["ts"].to_numpy() - data.START_US)
    right = right.take(pa.array(np.sort(np.unique(codes, return_index=True)[1]))).combine_chunks()
    frames = pl.from_arrow(left), pl.from_arrow(right)
    got, wanted = by_medusa(left, right), by_polars(*frames)  # type: ignore[arg-type]
    for name in ("key", "ts", "value", "ts_right", "value_right"):
        if not pl.Series(got[name]).equals(wanted[name], null_equal=True):
            sys.exit(f"medusa and polars differ in column {name}")
    print("exact")
    runs: dict[str, list[float]] = {"medusa": [], "polars": []}
    for _ in range(options.rounds):
        for engine, run in (
            ("medusa", lambda: by_medusa(left, right)),
            ("polars", lambda: by_polars(*frames)),
        ):
            begin = time.process_time()
            run()
            runs[engine].append((len(left) + len(right)) / (time.process_time() - begin) / 1e6)
    for engine, speeds in runs.items():
        print(f"{engine:8} {statistics.median(speeds):6.2f} M rows / CPU s")


if __name__ == "__main__":
    main()
