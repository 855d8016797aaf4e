"""An update stream as a table of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from medusa.elements import END_US, Boundary, Element, Kind, Train
from medusa.engine.core.box import show_time

__all__ = ["show"]

FINAL, EARLY, BOUNDARY = "+", "~", "-"


def show(changes: Iterable[Element] | pa.Table, *, limit: int = 100) -> str:
    """What ``run.take(sink, changes=True)`` gave, one line each, in order.

    ::

          # window_start        window_end          n
        ~   2026-03-01 12:00:00 2026-03-01 12:01:00 3
        + 0 2026-03-01 12:00:00 2026-03-01 12:01:00 5
        -   boundary 2026-03-01 12:00:59.999999 UTC

    ``+`` is a final row with its number, ``~`` an early row (void as soon as a row of its window
    and key comes, or a boundary beyond its time), ``-`` a boundary. Times are in UTC; null is empty.

    Args:
        changes: elements, or a table, whose rows are final and numbered from 0.
        limit: lines at most; the rest is counted.

    Returns:
        The text, without a newline at its end; the same elements give the same text.
    """
    elements = _trains(changes) if isinstance(changes, pa.Table) else changes
    header: list[str] = []
    lines: list[tuple[str, str, list[str] | str]] = []
    more = 0
    for element in elements:
        if isinstance(element, Boundary):
            text = "the end" if element.time_us >= END_US else f"boundary {show_time(element.time_us)}"
            made: list[tuple[str, str, list[str] | str]] = [(BOUNDARY, "", text)]
        elif isinstance(element, Train):
            header = header or list(element.batch.schema.names)
            made = _rows(element, limit - len(lines))
            more += len(element) - len(made)
        else:
            made = [("?", "", type(element).__name__)]
        room = max(0, limit - len(lines))
        more += len(made[room:])
        lines += made[:room]
    return "\n".join(_layout(header, lines) + ([f"... {more:,} more"] if more else []))


def _trains(table: pa.Table) -> Iterator[Train]:
    first = 0
    for batch in table.to_batches():
        yield Train(batch=batch, first_seq=first)
        first += batch.num_rows


def _rows(train: Train, limit: int) -> list[tuple[str, str, list[str] | str]]:
    early = train.kind is Kind.TENTATIVE
    columns = [_texts(column) for column in train.batch.slice(0, max(0, limit)).columns]
    return [
        (EARLY if early else FINAL, "" if early else str(train.first_seq + number), list(values))
        for number, values in enumerate(zip(*columns, strict=True))
    ]


def _texts(column: pa.Array) -> list[str]:
    if pa.types.is_timestamp(column.type):
        return [
            "" if us is None else show_time(us).removesuffix(" UTC")
            for us in column.cast(pa.int64()).to_pylist()
        ]
    return [_text(value) for value in column.to_pylist()]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = (
        value if isinstance(value, str) else repr(value) if isinstance(value, float | bytes) else str(value)
    )
    return text.replace("\n", "\\n")


def _layout(header: Sequence[str], lines: list[tuple[str, str, list[str] | str]]) -> list[str]:
    rows = [values for _, _, values in lines if isinstance(values, list)]
    widths = [max(len(text) for text in texts) for texts in zip(header, *rows, strict=True)]
    number = max([1, *(len(seq) for _, seq, _ in lines)])
    made = []
    if header:
        lines = [(" ", "#", list(header)), *lines]
    for mark, seq, values in lines:
        if isinstance(values, list):
            values = " ".join(text.ljust(width) for text, width in zip(values, widths, strict=True))
        made.append(f"{mark} {seq.rjust(number)} {values}".rstrip())
    return made
