"""State of boxes that hold rows by ranges of their keys, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from medusa.engine.core.row_buffer import Ints
from medusa.engine.repartition.tables import (
    CutState,
    Joined,
    StateCut,
    StatePartition,
    Tables,
    array_of,
    each_row_once,
    ints,
    keys_in,
    ordered,
)
from medusa.query.boxes import AsofJoin, Box, Distinct, Join, WindowJoin
from medusa.query.expressions.expression import Column, Named
from medusa.query.shape import WINDOW_COLUMNS

__all__ = ["DISTINCT", "JOIN"]


def cut_distinct(cut: StateCut) -> CutState:
    whole, state = cut.made.whole, cut.state
    assert isinstance(whole, Distinct)
    known, rows = state.tables["keys"], state.tables["waiting"]
    (name,) = (router.number for router in cut.made.routers)
    assert name is not None
    tables: list[Tables] = [{} for _ in cut.made.parts]
    owners = cut.owners(cut.keys(known, whole.keys))
    for one, each in zip(tables, cut.parts("keys", known, owners, {}), strict=True):
        one["keys"] = each
    owners = cut.owners(cut.row_keys(rows, whole.keys, 0)[0])
    more = {name: pa.array(np.arange(rows.num_rows))}  # equal times stand as they came
    for one, each in zip(tables, cut.parts("waiting", rows, owners, more), strict=True):
        one["waiting"] = each
    return tables, {}, [rows.num_rows]


def join_distinct(joined: Joined) -> tuple[Tables, dict[str, Any]]:
    rows = joined.table("waiting")
    (name,) = (router.number for router in joined.made.routers)
    assert name is not None
    tables = {"keys": joined.plain("keys", joined.table("keys"))}
    tables["waiting"] = joined.plain("waiting", ordered(rows, ints(rows, name)).combine_chunks())
    return tables, {}


AnyJoin = Join | WindowJoin | AsofJoin
SIDES = ("left", "right")


def _join_keys(whole: AnyJoin, side: int) -> tuple[Named, ...]:
    return (whole.left_keys, whole.right_keys)[side]


def _side_keys(cut: StateCut, side: int) -> list[pa.Array]:
    """Keys of the rows of a side: columns of it, or ``@keyN``."""
    whole = cut.made.whole
    assert isinstance(whole, Join | WindowJoin | AsofJoin)
    table = cut.state.tables[SIDES[side]]
    bounds = len(WINDOW_COLUMNS) if isinstance(whole, WindowJoin) else 0
    found = []
    for number, key in enumerate(_join_keys(whole, side)):
        added = f"@key{number + bounds}"
        if added in table.schema.names:
            found.append(array_of(table.column(added)))
        else:
            assert isinstance(key.expression, Column)
            found.append(array_of(table.column(key.expression.name)))
    return found


def cut_join(cut: StateCut) -> CutState:
    """Rows that wait or may still find partners, numbered in the order in which they came."""
    tables: list[Tables] = [{} for _ in cut.made.parts]
    seen = []
    for side, router in enumerate(cut.made.routers):
        rows = cut.state.tables[SIDES[side]]
        owners = cut.owners(_side_keys(cut, side), side)
        more = {} if router.number is None else {router.number: pa.array(np.arange(rows.num_rows))}
        for one, each in zip(tables, cut.parts(SIDES[side], rows, owners, more), strict=True):
            one[SIDES[side]] = each
        seen.append(rows.num_rows)
    return tables, {}, seen


def join_join(joined: Joined) -> tuple[Tables, dict[str, Any]]:
    """In the order in which they came; where that was not kept, it doesn't matter across keys."""
    tables: Tables = {}
    for side, router in zip(SIDES, joined.made.routers, strict=True):
        rows = joined.table(side)
        if router.number is not None:
            rows = ordered(rows, ints(rows, router.number))
        tables[side] = joined.plain(side, rows)
    return tables, {}


def _join_keys_held(cut: StateCut) -> list[list[pa.Array]]:
    return [_side_keys(cut, side) for side in (0, 1)]


def _join_rows(whole: Box, tables: Tables) -> list[Ints]:
    return [rows for side in SIDES for rows in each_row_once(side)(whole, tables)]


DISTINCT = StatePartition(cut_distinct, join_distinct, each_row_once("keys"), keys_in("keys"))
JOIN = StatePartition(cut_join, join_join, _join_rows, _join_keys_held)
