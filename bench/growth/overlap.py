"""Question: is a sliding window's time a x rows + b x output rows, a and b flat from overlap 1 to 1,000?

Data: events over 100 s, 100 keys, windows of 10 s that advance by 10 s / overlap; count and avg. Each
overlap is measured with one and with three times as many rows, which give as many output rows: the
difference gives a; what is left, less the time of a query with one row, gives b.
Not shown: aggregates that can't be taken together from panes (exact distinct, quantiles).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import medusa as md
from bench import data
from bench.growth import common

KEYS = 100
SIZE_US = 10_000_000
MORE = 3


def query(schema: pa.Schema, overlap: int) -> md.Query:
    q = md.Query("overlap")
    events = q.source("events", schema, time="ts", unit="us", slack="100ms")
    sliding = events.window(SIZE_US, advance=SIZE_US // overlap).group_by("key")
    q.sink("out", sliding.aggregate(n=md.count(), mean=md.avg("value")))
    return q


def measure(full: bool, rows: int | None = None, overlaps: tuple[int, ...] | None = None) -> dict[str, Any]:
    rows = rows or (4_000_000 if full else 1_000_000)
    overlaps = overlaps or (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    tables = {1: data.events(rows, KEYS), MORE: data.events(MORE * rows, KEYS)}
    outputs = {
        (overlap, times): len(md.collect(query(table.schema, overlap), events=table)["out"])
        for overlap in overlaps
        for times, table in tables.items()
    }
    cases: dict[Any, Any] = {
        (overlap, times): lambda overlap=overlap, table=table: md.collect(
            query(table.schema, overlap), events=table
        )
        for overlap in overlaps
        for times, table in tables.items()
    }
    first = tables[1].slice(0, 1)
    cases["fixed"] = lambda: md.collect(query(first.schema, 1), events=first)
    spent = common.turns(cases)
    fixed = common.least(spent.pop("fixed"))
    a, b, whole = [], [], []
    for overlap in overlaps:
        little, much = (common.least(spent[overlap, times]) for times in (1, MORE))
        per_row = (much - little) / ((MORE - 1) * rows)
        a.append((overlap, per_row * 1e9))
        b.append((overlap, max(0.0, little - fixed - per_row * rows) / outputs[overlap, 1] * 1e9))
        whole.append((overlap, little / (rows + outputs[overlap, 1]) * 1e9, common.spread(spent[overlap, 1])))
    fit_a, fit_b, off = fit(spent, outputs, rows, fixed)
    sample = f"{rows:,} and {MORE * rows:,} rows, the best of {common.ROUNDS} rounds of CPU time."
    series = {"a: a row": a, "b: an output row": b, "time / (rows + output rows)": whole}
    question = "Sliding windows: time = a x rows + b x output rows."
    found = common.result("overlap", question, sample, "overlap", "ns", series)
    found["output_rows"] = {str(overlap): outputs[overlap, 1] for overlap in overlaps}
    found["fit"] = {"a_ns": fit_a, "b_ns": fit_b, "largest_error": off}
    found["says"] = (
        f"One a and b for all overlaps, by least relative squares: a = {fit_a:.1f} ns a row, "
        f"b = {fit_b:.1f} ns an output row; "
        f"the largest error of that fit is {off:.0%}; {fixed * 1e3:.1f} ms a query are taken off first."
    )
    return found


def fit(spent: Any, outputs: Any, rows: int, fixed: float = 0.0) -> tuple[float, float, float]:
    """(a, b in ns, largest relative error)."""
    import numpy as np

    cases = list(spent)
    seconds = np.array([max(common.least(spent[case]) - fixed, 1e-6) for case in cases])
    work = np.array([[rows * times, outputs[overlap, times]] for overlap, times in cases], float)
    found, *_ = np.linalg.lstsq(work / seconds[:, None], np.ones(len(cases)), rcond=None)
    return found[0] * 1e9, found[1] * 1e9, float(np.abs(work @ found / seconds - 1).max())


if __name__ == "__main__":
    common.main(__doc__ or "", measure)
