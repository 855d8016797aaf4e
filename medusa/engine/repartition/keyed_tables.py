"""State of keyed tables and of look-ups by ranges of the table's key, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from medusa.engine.core.row_buffer import Ints
from medusa.engine.operators.key_router import part_of
from medusa.engine.repartition.tables import (
    CutState,
    Joined,
    StateCut,
    StatePartition,
    Tables,
    array_of,
    each_row_once,
    ints,
    ordered,
    typed_keys,
)
from medusa.query.boxes import Box, Lookup, Table
from medusa.query.expressions.expression import Named

__all__ = ["LOOKUP", "TABLE"]


def _waiting(whole: Table) -> list[str]:
    return [f"waiting-{number}" for number in range(len(whole.updates))]


def _own_rows(joined: Joined, keys: tuple[Named, ...]) -> pa.Table:
    """What parts have stored of their ranges: one that began empty has all rows of before all time."""
    rows = joined.table("rows")
    found = typed_keys(rows, keys, joined.inputs[0], joined.made.whole.id)
    owners = part_of(found, joined.made.routers[0].cuts)
    return joined.plain("rows", rows.filter(pa.array(owners == ints(rows, "@part"))))


def _share(cut: StateCut, tables: list[Tables], name: str, keys: tuple[Named, ...], input: int) -> int:
    """Give the rows of an input that wait to their parts, with numbers where its router gives some."""
    rows = cut.state.tables[name]
    found, failed = cut.row_keys(rows, keys, input)
    owners = cut.owners(found, input)
    owners[failed] = 0
    router = cut.made.routers[input]
    numbers = {} if router.number is None else {router.number: pa.array(np.arange(rows.num_rows))}
    for one, each in zip(tables, cut.parts(name, rows, owners, numbers), strict=True):
        one[name] = each
    return int(rows.num_rows)


def _stored(cut: StateCut, keys: tuple[Named, ...]) -> list[Tables]:
    rows = cut.state.tables["rows"]
    parts = cut.parts("rows", rows, cut.owners(cut.keys(rows, keys)), {})
    return [{"rows": each} for each in parts]


def cut_table(cut: StateCut) -> CutState:
    whole = cut.made.whole
    assert isinstance(whole, Table)
    tables = _stored(cut, whole.updates[0].keys)
    seen = [
        _share(cut, tables, name, update.keys, input)
        for input, (name, update) in enumerate(zip(_waiting(whole), whole.updates, strict=True))
    ]
    return tables, {}, seen


def join_table(joined: Joined) -> tuple[Tables, dict[str, Any]]:
    whole = joined.made.whole
    assert isinstance(whole, Table)
    tables = {"rows": _own_rows(joined, whole.updates[0].keys)}
    for name, router in zip(_waiting(whole), joined.made.routers, strict=True):
        assert router.number is not None
        rows = joined.table(name)
        tables[name] = joined.plain(name, ordered(rows, ints(rows, router.number)))
    return tables, {}


def _table_rows(whole: Box, tables: Tables) -> list[Ints]:
    assert isinstance(whole, Table)
    return [rows for name in ("rows", *_waiting(whole)) for rows in each_row_once(name)(whole, tables)]


def _table_keys(cut: StateCut) -> list[list[pa.Array]]:
    whole, held = cut.made.whole, cut.state.tables
    assert isinstance(whole, Table)
    waiting = [
        cut.row_keys(held[name], update.keys, input)[0]
        for input, (name, update) in enumerate(zip(_waiting(whole), whole.updates, strict=True))
    ]
    return [cut.keys(held["rows"], whole.updates[0].keys), *waiting]


LOOKUP_TABLES = ("rows", "waiting", "changes")


def _changed_keys(cut: StateCut, whole: Lookup) -> list[pa.Array]:
    changes = cut.state.tables["changes"]
    return [array_of(changes.column(key.name)) for key in whole.keys]


def cut_lookup(cut: StateCut) -> CutState:
    """Changes of a key stay in their order; that of different keys doesn't matter."""
    whole = cut.made.whole
    assert isinstance(whole, Lookup)
    tables = _stored(cut, whole.keys)
    waiting = _share(cut, tables, "waiting", whole.keys, 0)
    changes = cut.state.tables["changes"]
    owners = cut.owners(_changed_keys(cut, whole), 1)
    for one, each in zip(tables, cut.parts("changes", changes, owners, {}), strict=True):
        one["changes"] = each
    return tables, {}, [waiting, changes.num_rows]


def join_lookup(joined: Joined) -> tuple[Tables, dict[str, Any]]:
    whole = joined.made.whole
    assert isinstance(whole, Lookup)
    number = joined.made.routers[0].number
    assert number is not None
    rows = joined.table("waiting")
    return {
        "rows": _own_rows(joined, whole.keys),
        "waiting": joined.plain("waiting", ordered(rows, ints(rows, number))),
        "changes": joined.plain("changes", joined.table("changes")),
    }, {}


def _lookup_rows(whole: Box, tables: Tables) -> list[Ints]:
    return [rows for name in LOOKUP_TABLES for rows in each_row_once(name)(whole, tables)]


def _lookup_keys(cut: StateCut) -> list[list[pa.Array]]:
    whole, held = cut.made.whole, cut.state.tables
    assert isinstance(whole, Lookup)
    waiting, _ = cut.row_keys(held["waiting"], whole.keys, 0)
    return [cut.keys(held["rows"], whole.keys), waiting, _changed_keys(cut, whole)]


TABLE = StatePartition(cut_table, join_table, _table_rows, _table_keys)
LOOKUP = StatePartition(cut_lookup, join_lookup, _lookup_rows, _lookup_keys)
