"""Partial results of a window without a key as those of one window: what its parts hold of the same pane."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from medusa._native import Window
from medusa.engine.core.row_buffer import Ints
from medusa.engine.operators.windows.aggregate_calls import combine_calls
from medusa.engine.repartition.tables import array_of, ints
from medusa.query.boxes import Aggregate
from medusa.query.shape import StreamShape

__all__ = ["panes_combined"]

HEAD = ("pane_start", "pane_end", "first", "rows")


def panes_combined(part: Aggregate, input: StreamShape, groups: pa.Table) -> pa.Table:
    """One row for each pane, as of a window that took the rows of all; floats to the last bits.

    What parts hold is what they would send, so it is combined as their results are: by a native window.

    Args:
        part: one of the parts; none of its aggregates is a user's.
        input: what it reads.
        groups: the panes of all parts, in the order of the parts, with the columns of their state.
    """
    starts, first_of, pane = np.unique(ints(groups, "pane_start"), return_index=True, return_inverse=True)
    states = {field.name: field.type for field in part.shape([input], part.id, "").schema[2:]}
    calls, arguments, _ = combine_calls(part.aggregates, states)
    # Panes have ends of their own: here each is a window of one microsecond.
    window = Window(
        size_us=1, advance_us=1, keys=[], inputs=arguments, aggregates=calls.native, stage="combine"
    )
    held = groups.select([name for name in groups.schema.names if name not in HEAD])
    begins = pa.array(pane.astype(np.int64))
    columns = [begins, pa.array(pane.astype(np.int64) + 1), *map(array_of, held.columns)]
    window.add(pa.RecordBatch.from_arrays(columns, names=["start", "end", *held.schema.names]))
    combined = pa.table(pa.record_batch(window.state()))
    head = {
        "pane_start": starts,
        "pane_end": ints(groups, "pane_end")[first_of],
        "first": _least(ints(groups, "first"), pane, len(starts)),
        "rows": np.bincount(pane, ints(groups, "rows"), len(starts)).astype(np.int64),
    }
    arrays = [pa.array(values) for values in head.values()]
    states_of = [combined.column(name) for name in combined.schema.names if name not in HEAD]
    return pa.Table.from_arrays([*arrays, *states_of], names=[*HEAD, *held.schema.names])


def _least(values: Ints, group: Ints, groups: int) -> Ints:
    found = np.full(groups, np.iinfo(np.int64).max)
    np.minimum.at(found, group, values)
    return found
