"""State of a box by ranges of its keys, and back: SEEP's ``partition`` (SIGMOD'13, 3.2), and its reverse.

What a checkpoint holds of a box is cut into what each part of the split box takes, each key going where
the router will send its rows, and the numbers of first rows go along, by which the merge orders. All
of it happens on tables as ``BoxState`` has them (docs/checkpoints.md); no row is looked at twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.engine.core.box import BoxState
from medusa.engine.operator_kinds import OPERATORS
from medusa.engine.repartition.tables import Joined, StateCut, StatePartition
from medusa.errors import StateError
from medusa.query.boxes import Box
from medusa.query.rewrite.split import SplitBoxes
from medusa.query.shape import StreamShape

__all__ = ["combine_states", "partition_state", "rows_of", "weights_of"]

COUNTS = 4
LEFT_OUT = ("dropped", "shed")


def partition_state(
    made: SplitBoxes,
    inputs: Sequence[StreamShape],
    state: BoxState,
    fresh: Mapping[str, BoxState],
    shelve: Callable[[pa.Table], pa.Table] = lambda table: table,
) -> dict[str, BoxState]:
    """The state of a box as that of the boxes it was split into.

    Args:
        made: these.
        inputs: the streams that the box reads.
        state: what it saved.
        fresh: what each part saves that never took a row: how its tables look.
        shelve: is given each table of a part as it is cut, and gives back what is kept of it until all are.

    Returns:
        Of routers, parts and merges, by id. Together they hold what the box held; its counters are
        those of the first part.
    """
    cut = StateCut(made, inputs, state, [fresh[part.id] for part in made.parts], shelve)
    tables, meta, seen = _kind(made.whole).cut(cut)
    states: dict[str, BoxState] = {}
    for router, reached_us, rows in zip(made.routers, state.meta["inputs_us"], seen, strict=True):
        states[router.id] = _at([reached_us], reached_us, {"seen": rows}, {})
    for number, part in enumerate(made.parts):
        one = _at(state.meta["inputs_us"], state.meta["boundary_us"], meta, tables[number])
        if number == 0:
            one.meta["counts"] = list(state.meta["counts"])
            one.note(**{name: state.meta[name] for name in LEFT_OUT if name in state.meta})
        states[part.id] = one
    for merge in made.merges:
        reached_us = state.meta["boundary_us"]
        inputs_us = [reached_us] * len(made.parts)
        states[merge.id] = _at(inputs_us, reached_us, {}, fresh[merge.id].tables)
    return states


def combine_states(
    made: SplitBoxes, inputs: Sequence[StreamShape], states: Mapping[str, BoxState], fresh: BoxState
) -> BoxState:
    """The state of the boxes that a box was split into, as that of the box.

    Args:
        made: these boxes.
        inputs: the streams that the box reads.
        states: what they saved, by id; they have taken the same rows.
        fresh: what the box saves that never took a row.

    Raises:
        StateError: boxes have got further than others, or partial results of one group are in several parts.
    """
    routers = [states[router.id] for router in made.routers]
    parts = [states[part.id] for part in made.parts]
    last = states[made.merges[-1].id]
    reached = [router.meta["boundary_us"] for router in routers]
    waiting = sum(table.num_rows for merge in made.merges for table in states[merge.id].tables.values())
    if any(part.meta["inputs_us"] != reached for part in parts) or waiting:
        raise StateError(
            f"the parts of {made.whole.id!r} have got further than others: {waiting} rows wait in the merge",
            code="state.split",
        )
    joined = Joined(made, inputs, parts, [router.meta["seen"] for router in routers], fresh)
    tables, meta = _kind(made.whole).join(joined)
    state = _at(reached, last.meta["boundary_us"], meta, tables)
    state.meta["counts"] = [sum(part.meta["counts"][i] for part in parts) for i in range(COUNTS)]
    for name in LEFT_OUT:
        if count := sum(part.meta.get(name, 0) for part in parts):
            state.meta[name] = count
    return state


def weights_of(
    made: SplitBoxes, inputs: Sequence[StreamShape], state: BoxState
) -> tuple[list[int], list[int]]:
    """The hashes of the keys that a box holds, ascending, and how many rows of each it has seen: what ranges
    are cut by.

    Windows count the rows of each open group; other boxes hold rows of their keys, or the keys. So
    observing costs nothing while the box runs, and takes no memory of its own.
    """
    cut = StateCut(made, inputs, state, [], lambda table: table)
    kind = _kind(made.whole)
    weights = kind.weights(made.whole, state.tables)
    seen = [(cut.hashes(keys), rows) for keys, rows in zip(kind.keys(cut), weights, strict=True)]
    if not seen:
        return [], []
    hashes, which = np.unique(np.concatenate([each for each, _ in seen]), return_inverse=True)
    rows = np.zeros(len(hashes), np.int64)
    np.add.at(rows, which, np.concatenate([each for _, each in seen]))
    held = rows > 0
    return hashes[held].tolist(), rows[held].tolist()


def rows_of(whole: Box, state: BoxState) -> int:
    """How many rows ``weights_of`` counts in this state of the box, or of a part of it."""
    return sum(int(rows.sum()) for rows in _kind(whole).weights(whole, state.tables))


def _at(
    inputs_us: Sequence[int], boundary_us: int, meta: Mapping[str, Any], tables: Mapping[str, pa.Table]
) -> BoxState:
    head = {"inputs_us": list(inputs_us), "boundary_us": boundary_us, "counts": [0] * COUNTS}
    return BoxState(meta={**head, **meta}, tables=dict(tables))


def _kind(whole: Box) -> StatePartition:
    return OPERATORS[type(whole)].repartition or NOTHING


NOTHING = StatePartition(
    cut=lambda cut: ([{} for _ in cut.made.parts], {}, [0] * len(cut.made.routers)),
    join=lambda joined: ({}, {}),
    weights=lambda whole, tables: [],
    keys=lambda cut: [],
)
"""Of boxes without state."""
