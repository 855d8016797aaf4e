"""Views of a connection point: a range of its history as a table, by time or by row number.

After Borealis' connection point views: the range is fixed, or follows the stream.
"""

from __future__ import annotations

import pyarrow as pa

from medusa.elements import END_US, START_US, Train
from medusa.engine.core.rows import as_int64, filter_rows
from medusa.engine.history.history import History

__all__ = ["view_of_rows", "view_of_times"]


def view_of_times(history: History, start_us: int = START_US, end_us: int = END_US) -> pa.Table:
    """The rows that are kept with ``start_us <= time < end_us``, late ones too, in order of their numbers.

    Raises:
        StateError: a record is damaged that may hold such rows; names the file.
    """
    found: list[pa.RecordBatch] = []
    for segment, entry in history.records():
        if history.timed and not (entry.least_us < end_us and entry.most_us >= start_us):
            continue
        train = history.load(segment, entry)
        if history.timed and not (start_us <= entry.least_us and entry.most_us < end_us):
            times = as_int64(train.times)
            train = filter_rows(train, pa.array((times >= start_us) & (times < end_us)))
        found.append(train.batch)
    return pa.Table.from_batches(found, history.schema)


def view_of_rows(history: History, first: int, end: int) -> pa.Table:
    """The rows that are kept with ``first <= number < end``.

    Raises:
        StateError: as ``view_of_times``.
    """
    first, end = max(first, history.oldest_seq), min(end, history.next_seq)
    found: list[pa.RecordBatch] = []
    for segment, entry in history.records():
        low, high = max(first, entry.first), min(end, entry.end)
        if low < high:
            train: Train = history.load(segment, entry)
            found.append(train.part(low - entry.first, high - low).batch)
    return pa.Table.from_batches(found, history.schema)
