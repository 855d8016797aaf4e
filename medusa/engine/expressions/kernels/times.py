"""Functions on points of time, in UTC.

Arrow would look the zone UTC up in the machine's time zone files, which a bare machine lacks: the
kernels see the same numbers without a zone.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.expressions.kernels.kernel import (
    AWARE,
    NAIVE,
    Faulty,
    Kernel,
    KernelSite,
    Maker,
    Mask,
    Value,
    as_array,
    as_integers,
    function,
    raw,
    strike,
    valid_rows,
)

__all__ = ["TIMES", "calendar"]

YEARS_US = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""First and last microsecond of the years 1 to 9999, in which there is a calendar."""


def _outside(array: pa.Array) -> Mask | None:
    numbers = raw(array)
    low, high = YEARS_US
    if not len(numbers) or (numbers.min() >= low and numbers.max() <= high):
        return None
    mask: Mask = ((numbers < low) | (numbers > high)) & valid_rows(array)
    return mask if mask.any() else None


def calendar(run: Kernel) -> Kernel:
    """A kernel of one time (given without zone) that needs a calendar: other years fail."""

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
        time = as_array(args[0], rows)
        mask = _outside(time)
        if mask is None:
            return run(rows, [time.view(NAIVE)])
        made = run(rows, [strike(time, mask).view(NAIVE)])
        numbers = raw(time)
        return Faulty(
            made, mask, lambda row: f"a time outside the years 1 to 9999: {numbers[row]} us since 1970"
        )

    return kernel


def _part(name: str) -> Maker:
    run = function(name)
    kernel = calendar(lambda rows, args: run(args))
    return lambda site: kernel


def _date_trunc(site: KernelSite) -> Kernel:
    run = function("floor_temporal")
    options = pc.RoundTemporalOptions(1, site.text(0))
    truncate = calendar(lambda rows, args: run(args, options).view(AWARE))
    return lambda rows, args: truncate(rows, args[1:])


TIMES: dict[str, Maker] = {
    **{name: _part(name) for name in ("year", "month", "day", "hour", "minute", "second")},
    "epoch_us": lambda site: lambda rows, args: as_integers(as_array(args[0], rows)),
    "date_trunc": _date_trunc,
}
"""Makers of kernels by operation."""
