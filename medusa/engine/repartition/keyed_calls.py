"""State of a class of the user's by ranges of its keys, and back: fields and timers, and rows that wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.elements import START_US
from medusa.engine.core.row_buffer import Ints
from medusa.engine.repartition.tables import (
    CutState,
    Joined,
    StateCut,
    StatePartition,
    Tables,
    each_row_once,
    ints,
    ordered,
    put,
)
from medusa.query.boxes import Box, Process

__all__ = ["PROCESS"]

BEGAN_US = START_US + 1
"""Of keys that began before the split: before all times, and behind what rows have in place of it."""


def _waiting_keys(cut: StateCut, input: int) -> tuple[list[pa.Array], npt.NDArray[np.bool_]]:
    """The keys of the rows of an input that wait, and on which rows they fail."""
    whole = cut.made.whole
    assert isinstance(whole, Process)
    return cut.row_keys(cut.state.tables[f"waiting-{input}"], whole.keys, input)


def cut_process(cut: StateCut) -> CutState:
    """Keys that have begun come before all that begin later, in the order in which they did."""
    whole, state = cut.made.whole, cut.state
    assert isinstance(whole, Process)
    keys = state.tables["keys"]
    owners = cut.owners(cut.keys(keys, whole.keys))
    more = {"@first_us": pa.array(np.full(keys.num_rows, BEGAN_US), pa.int64())}
    tables: list[Tables] = [{"keys": each} for each in cut.parts("keys", keys, owners, more)]
    largest_us, seen = state.meta["largest_us"], []
    for input, router in enumerate(cut.made.routers):
        name = f"waiting-{input}"
        rows = state.tables[name]
        found, failed = _waiting_keys(cut, input)
        owners = cut.owners(found, input)
        owners[failed] = 0
        assert router.number is not None
        numbers = {router.number: pa.array(np.arange(rows.num_rows))}
        for one, each in zip(tables, cut.parts(name, rows, owners, numbers), strict=True):
            one[name] = each
        times = ints(rows, "@time")[~failed]
        # What the end does depends on the last row, whichever part has it.
        largest_us = max(largest_us, int(times.max(initial=largest_us)))
        seen.append(rows.num_rows)
    meta = {"seen": state.meta["seen"], "largest_us": largest_us, "ended": state.meta["ended"]}
    return tables, meta, seen


def join_process(joined: Joined) -> tuple[Tables, dict[str, Any]]:
    keys = joined.table("keys")
    keys = ordered(keys, ints(keys, "@first_us"), ints(keys, "@first"))
    keys = put(keys, "@first", np.arange(keys.num_rows))
    tables = {"keys": joined.plain("keys", keys)}
    for input, router in enumerate(joined.made.routers):
        assert router.number is not None
        rows = joined.table(f"waiting-{input}")
        rows = ordered(rows, ints(rows, router.number))
        tables[f"waiting-{input}"] = joined.plain(f"waiting-{input}", rows)
    metas = [part.meta for part in joined.parts]
    return tables, {
        "seen": keys.num_rows,
        "largest_us": max(meta["largest_us"] for meta in metas),
        "ended": all(meta["ended"] for meta in metas),
    }


def _rows(whole: Box, tables: Tables) -> list[Ints]:
    names = ["keys", *sorted(name for name in tables if name.startswith("waiting-"))]
    return [rows for name in names for rows in each_row_once(name)(whole, tables)]


def _keys(cut: StateCut) -> list[list[pa.Array]]:
    whole = cut.made.whole
    assert isinstance(whole, Process)
    waiting = sorted(range(len(cut.inputs)), key=str)  # as names are sorted
    return [
        cut.keys(cut.state.tables["keys"], whole.keys),
        *(_waiting_keys(cut, input)[0] for input in waiting),
    ]


PROCESS = StatePartition(cut_process, join_process, _rows, _keys)
