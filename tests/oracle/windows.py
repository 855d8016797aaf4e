"""Windows by brute force: slow, obvious, and sharing nothing with the native code.

A row is (time, key tuple, input tuple); None is null. Restates rules 2 and 3 of docs/semantics.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

Row = tuple[int, tuple[Any, ...], tuple[Any, ...]]


def same_key(value: Any) -> Any:
    """What makes two key parts, or two distinct values, one: all NaN are one, -0.0 is 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


@functools.cache
def pane_of(t: int, size: int, advance: int) -> tuple[int, int]:
    """The pane of a time: cuts at every window start, every window end, every multiple of the size."""

    def cut(x: int) -> bool:
        return x % advance == 0 or (x - size) % advance == 0 or x % size == 0

    start, end = t, t + 1
    while not cut(start):
        start -= 1
    while not cut(end):
        end += 1
    return start, end


def less(a: Any, b: Any) -> bool:
    """Value order with NaN greatest."""
    if isinstance(a, float) and math.isnan(a):
        return False
    if isinstance(b, float) and math.isnan(b):
        return True
    return bool(a < b)


def extreme(values: Sequence[Any], *, greatest: bool) -> Any:
    """The least or greatest non-null value; None where there is none."""
    best = None
    for value in values:
        if value is not None and (best is None or (less(best, value) if greatest else less(value, best))):
            best = value
    return best


def float_sum(panes: Sequence[tuple[int, Sequence[float]]], start: int, size: int) -> float:
    """The sum of one group as the panes rule orders it: panes (start, values in row order), by time."""
    middle = start // size * size + size
    suffix = prefix = None
    sums = []
    for pane_start, values in panes:
        total = 0.0
        for value in values:
            total += value
        sums.append((pane_start, total))
    for pane_start, total in reversed(sums):
        if pane_start < middle:
            suffix = total if suffix is None else total + suffix
    for pane_start, total in sums:
        if pane_start >= middle:
            prefix = total if prefix is None else prefix + total
    if suffix is None or prefix is None:
        return (suffix if prefix is None else prefix) or 0.0
    return suffix + prefix


def aggregate(function: str, rows: Sequence[Row], index: int, start: int, size: int, advance: int) -> Any:
    """One aggregate over the rows of one group in one window; ``OverflowError`` where it fails."""
    if index < 0:
        return len(rows)
    values = [row[2][index] for row in rows if row[2][index] is not None]
    if function == "count":
        return len(values)
    if function == "count_distinct":
        return len({same_key(value) for value in values})
    if function in ("min", "max"):
        return extreme(values, greatest=function == "max")
    if function == "variance":
        if len(values) < 2:
            return None
        mean = math.fsum(map(float, values)) / len(values)
        return math.fsum((float(value) - mean) ** 2 for value in values) / (len(values) - 1)
    if not values:
        return None
    if isinstance(values[0], float):
        panes: dict[int, list[float]] = {}
        for row in rows:
            if row[2][index] is not None:
                panes.setdefault(pane_of(row[0], size, advance)[0], []).append(row[2][index])
        total: Any = float_sum(sorted(panes.items()), start, size)
    else:
        total = sum(map(int, values))
        if function == "sum" and not -(2**63) <= total < 2**63:
            raise OverflowError(total)
    return total if function == "sum" else float(total) / len(values)


def windows(
    rows: Sequence[Row], size: int, advance: int, aggregates: Sequence[tuple[str, int]]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """(rows out, groups that failed): (start, end, *keys, *values) and (start, end, *keys, aggregate)."""
    out: list[tuple[Any, ...]] = []
    failed: list[tuple[Any, ...]] = []
    starts = {s for t, _, _ in rows for s in range((t - size) // advance * advance + advance, t + 1, advance)}
    for start in sorted(starts):
        groups: dict[tuple[Any, ...], list[Row]] = {}
        names: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for row in rows:
            if start <= row[0] < start + size:
                key = tuple(map(same_key, row[1]))
                groups.setdefault(key, []).append(row)
                names.setdefault(key, tuple(v + 0.0 if isinstance(v, float) else v for v in row[1]))
        for key, members in groups.items():
            values = []
            bad = []
            for number, (function, index) in enumerate(aggregates):
                try:
                    values.append(aggregate(function, members, index, start, size, advance))
                except OverflowError:
                    bad.append((start, start + size, *names[key], number))
            if bad:
                failed += bad
            else:
                out.append((start, start + size, *names[key], *values))
    return out, failed
