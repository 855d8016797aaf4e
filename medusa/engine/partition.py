"""State of a box by ranges of its keys, and back: SEEP's ``partition`` (SIGMOD'13, 3.2), and its reverse.

What a checkpoint holds of a box is cut into what each part of the split box takes, each key going where
the router will send its rows, and the numbers of first rows go along, by which the merge orders. All
of it happens on tables as ``BoxState`` has them (docs/checkpoints.md); no row is looked at twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from medusa.engine.boxes.base import BoxState
from medusa.engine.partition_groups import (
    cut_rows,
    cut_running,
    cut_session,
    cut_window,
    join_rows,
    join_running,
    join_session,
    join_window,
)
from medusa.engine.partition_rows import (
    SIDES,
    cut_distinct,
    cut_join,
    join_distinct,
    join_join,
    side_keys,
)
from medusa.engine.partition_tables import Cut, CutState, Joined, Tables, ints
from medusa.errors import StateError
from medusa.query.boxes import (
    Aggregate,
    AsofJoin,
    Distinct,
    Join,
    RowWindow,
    Running,
    Session,
    WindowJoin,
)
from medusa.query.shape import Shape
from medusa.query.split import Split

__all__ = ["combine_states", "partition_state", "weights_of"]

COUNTS = 4
LEFT_OUT = ("dropped", "shed")


def partition_state(
    made: Split, inputs: Sequence[Shape], state: BoxState, fresh: Mapping[str, BoxState]
) -> dict[str, BoxState]:
    """The state of a box as that of the boxes it was split into.

    Args:
        made: these.
        inputs: the streams that the box reads.
        state: what it saved.
        fresh: what each part saves that never took a row: how its tables look.

    Returns:
        Of routers, parts and merges, by id. Together they hold what the box held; its counters are
        those of the first part.
    """
    cut = Cut(made, inputs, state, [fresh[part.id] for part in made.parts])
    tables, meta, seen = CUTS.get(type(made.whole), _nothing)(cut)
    states: dict[str, BoxState] = {}
    for router, reached_us, rows in zip(made.routers, state.meta["inputs_us"], seen, strict=True):
        states[router.id] = _at([reached_us], reached_us, {"seen": rows})
    for number, part in enumerate(made.parts):
        one = _at(state.meta["inputs_us"], state.meta["boundary_us"], meta)
        if number == 0:
            one.meta["counts"] = list(state.meta["counts"])
            one.meta |= {name: state.meta[name] for name in LEFT_OUT if name in state.meta}
        one.tables = tables[number]
        states[part.id] = one
    for merge in made.merges:
        reached_us = state.meta["boundary_us"]
        states[merge.id] = _at([reached_us] * len(made.parts), reached_us, {})
        states[merge.id].tables = dict(fresh[merge.id].tables)
    return states


def combine_states(
    made: Split, inputs: Sequence[Shape], states: Mapping[str, BoxState], fresh: BoxState
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
    tables, meta = JOINED.get(type(made.whole), _nothing_joined)(joined)
    state = _at(reached, last.meta["boundary_us"], meta)
    state.tables = tables
    state.meta["counts"] = [sum(part.meta["counts"][i] for part in parts) for i in range(COUNTS)]
    for name in LEFT_OUT:
        if count := sum(part.meta.get(name, 0) for part in parts):
            state.meta[name] = count
    return state


def weights_of(made: Split, inputs: Sequence[Shape], state: BoxState) -> dict[int, int]:
    """Rows seen of each key, by its hash, as the state of a box tells: what ranges are cut by.

    Windows count the rows of each open group; other boxes hold rows of their keys, or the keys. So
    observing costs nothing while the box runs, and takes no memory of its own.
    """
    cut = Cut(made, inputs, state, [])
    found: dict[int, int] = {}
    for keys, rows in _weighed(cut):
        for hash, count in zip(cut.hashes(keys), rows, strict=True):
            found[hash] = found.get(hash, 0) + count
    return found


def _at(inputs_us: Sequence[int], boundary_us: int, meta: Mapping[str, Any]) -> BoxState:
    head = {"inputs_us": list(inputs_us), "boundary_us": boundary_us, "counts": [0] * COUNTS}
    return BoxState(meta={**head, **meta})


def _nothing(cut: Cut) -> CutState:
    return [{} for _ in cut.made.parts], {}, [0] * len(cut.made.routers)


def _nothing_joined(joined: Joined) -> tuple[Tables, dict[str, Any]]:
    return {}, {}


CUTS: Mapping[type, Callable[[Cut], CutState]] = {
    Aggregate: cut_window,
    Session: cut_session,
    RowWindow: cut_rows,
    Running: cut_running,
    Distinct: cut_distinct,
    Join: cut_join,
    WindowJoin: cut_join,
    AsofJoin: cut_join,
}

JOINED: Mapping[type, Callable[[Joined], tuple[Tables, dict[str, Any]]]] = {
    Aggregate: join_window,
    Session: join_session,
    RowWindow: join_rows,
    Running: join_running,
    Distinct: join_distinct,
    Join: join_join,
    WindowJoin: join_join,
    AsofJoin: join_join,
}


def _weighed(cut: Cut) -> list[tuple[list[pa.Array], list[int]]]:
    """Keys, and how many rows each stands for."""
    whole, tables = cut.made.whole, cut.state.tables
    if isinstance(whole, Join | WindowJoin | AsofJoin):
        return [(side_keys(cut, side), [1] * tables[SIDES[side]].num_rows) for side in (0, 1)]
    if isinstance(whole, Aggregate) and whole.keys:
        groups = tables["groups"]
        return [(cut.keys(groups, whole.keys), ints(groups, "rows").tolist())]
    if isinstance(whole, Session | Running | RowWindow | Distinct):
        held = tables["sessions" if isinstance(whole, Session) else "keys"]
        rows = [1] * held.num_rows
        if isinstance(whole, Session | Running) and "groups" in tables:
            groups = tables["groups"]
            of = dict(zip(ints(groups, "slot").tolist(), ints(groups, "rows").tolist(), strict=True))
            rows = [of[slot] for slot in ints(held, "slot").tolist()]
        return [(cut.keys(held, whole.keys), rows)]
    return []
