"""Boxes that put rows in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from medusa.errors import QueryError
from medusa.query.boxes import BSort, Resample, SUnion, WSort
from medusa.query.stream.flow import By, keys_of
from medusa.query.stream.output import Output
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["bsort", "resample", "sunion", "wsort"]


def sunion(output: Output, others: Sequence[Stream], *, bucket: Duration, name: str | None) -> Stream:
    """As ``Stream.sunion``."""
    label = output.labelled("sunion", name)
    arcs = (output.arc, *(output.owned(other, label) for other in others))
    bucket_us = duration_us(bucket, what=f"{label}: bucket", minimum_us=1)
    return output.add(SUnion(id="", inputs=arcs, bucket_us=bucket_us), name)


def bsort(output: Output, column: str, slack: int, by: By, *, name: str | None) -> Stream:
    """As ``Stream.bsort``."""
    label = output.labelled("bsort", name)
    if not isinstance(slack, int) or isinstance(slack, bool):
        raise QueryError(
            f"{label}: slack is a number of rows, got {slack!r:.80}",
            hint='a sort by length of time is wsort(..., timeout="5s")',
            code="query.sort",
        )
    keys = keys_of(by, output.schema, box=label)
    box = BSort(id="", inputs=(output.arc,), column=_column(column, label), slack=slack, keys=keys)
    return output.add(box, name)


def wsort(output: Output, column: str, timeout: Duration, by: By, *, name: str | None) -> Stream:
    """As ``Stream.wsort``."""
    label = output.labelled("wsort", name)
    box = WSort(
        id="",
        inputs=(output.arc,),
        column=_column(column, label),
        timeout_us=duration_us(timeout, what=f"{label}: timeout", minimum_us=1),
        keys=keys_of(by, output.schema, box=label),
    )
    return output.add(box, name)


def resample(
    output: Output, every: Duration, by: By, how: str, *, gap: Duration, time: str, name: str | None
) -> Stream:
    """As ``Stream.resample``."""
    label = output.labelled("resample", name)
    if not isinstance(how, str) or not isinstance(time, str):
        raise QueryError(f"{label}: how and time are texts", code="query.resample")
    box = Resample(
        id="",
        inputs=(output.arc,),
        every_us=duration_us(every, what=f"{label}: every", minimum_us=1),
        gap_us=duration_us(gap, what=f"{label}: gap"),
        how=how,
        time=time,
        keys=keys_of(by, output.schema, box=label),
    )
    return output.add(box, name)


def _column(column: object, label: str) -> str:
    if isinstance(column, str):
        return column
    raise QueryError(
        f"{label}: expected the name of a column to sort by, got {type(column).__name__}",
        hint="compute it before, in a with_columns",
        code="query.expression",
    )
