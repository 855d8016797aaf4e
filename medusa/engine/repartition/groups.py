"""State of windows and of running aggregates by ranges of their keys, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.engine.core.row_buffer import Ints
from medusa.engine.repartition.partials import panes_combined
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
    put,
)
from medusa.errors import StateError
from medusa.query.boxes import Aggregate, Box, Running
from medusa.query.boxes.windows_per_group import RowWindow, Session

__all__ = ["ROWS", "RUNNING", "SESSION", "WINDOW"]


def cut_window(cut: StateCut) -> CutState:
    """Groups by key, with the position of their first row as the hidden ``min`` of it."""
    whole, state = cut.made.whole, cut.state
    assert isinstance(whole, Aggregate)
    groups = state.tables["groups"]
    boundary, taken = state.meta["position"]
    if not whole.keys:  # partial results: those so far are of the first part
        owners = np.zeros(groups.num_rows, np.int64)
        more: dict[str, pa.Array] = {}
    else:
        owners = cut.owners(cut.keys(groups, whole.keys))
        more = {cut.hidden: array_of(groups.column("first"))}
    tables = [{"groups": each} for each in cut.parts("groups", groups, owners, more)]
    if "users" in state.tables:  # row by row as the groups
        for one, users in zip(tables, cut.parts("users", state.tables["users"], owners, {}), strict=True):
            one["users"] = users
    return tables, {"position": [boundary, taken]}, [taken]


def join_window(joined: Joined) -> tuple[Tables, dict[str, Any]]:
    whole = joined.made.whole
    assert isinstance(whole, Aggregate)
    groups = joined.table("groups")
    boundary = max(part.meta["position"][0] for part in joined.parts)
    users = joined.table("users") if "users" in joined.fresh.tables else None
    starts = ints(groups, "pane_start")
    if whole.keys:
        first = ints(groups, joined.hidden)
    else:
        first = ints(groups, "first")
        if len(np.unique(starts)) < len(starts):
            if users is not None:
                raise StateError(
                    f"window {whole.id!r} has no key and aggregates of users, and several parts have partial"
                    " results of an open window",
                    hint="merge it when no window is open, or end the run",
                    code="state.split",
                )
            part = joined.made.parts[0]
            assert isinstance(part, Aggregate)
            groups = panes_combined(part, joined.inputs[0], joined.plain("groups", groups))
            starts, first = ints(groups, "pane_start"), ints(groups, "first")
    order = pa.array(np.lexsort((first, starts)))
    tables = {"groups": joined.plain("groups", put(groups, "first", first).take(order))}
    if users is not None:
        tables["users"] = joined.plain("users", users.take(order))
    return tables, {"position": [boundary, joined.seen[0]]}


# --- what has slots: sessions, row windows, running --------------------------------------------


def _with_groups(cut: StateCut, tables: list[Tables], slots: Ints, owners: Ints, first: Ints | None) -> None:
    """Add the accumulators of the slots that each part has, and the hidden one."""
    if "groups" not in cut.state.tables:
        return
    groups = cut.state.tables["groups"]
    held = ints(groups, "slot")
    order = np.argsort(slots)
    at = order[slots[order].searchsorted(held)]
    more = {} if first is None else {cut.hidden: pa.array(first[at])}
    for one, each in zip(tables, cut.parts("groups", groups, owners[at], more), strict=True):
        one["groups"] = each
    if "users" in cut.state.tables:
        users = cut.state.tables["users"]
        at = order[slots[order].searchsorted(ints(users, "slot"))]
        for one, each in zip(tables, cut.parts("users", users, owners[at], {}), strict=True):
            one["users"] = each


def _renumbered(joined: Joined, tables: Tables, names: Sequence[str]) -> tuple[Tables, list[int]]:
    """Slots of later parts behind those of earlier ones; how many each part may have given."""
    given = []
    for part in joined.parts:
        held = [ints(part.tables[name], "slot") for name in names if name in part.tables]
        highest = max((int(slots.max()) for slots in held if len(slots)), default=-1)
        given.append(highest + 1)
    firsts = np.cumsum([0, *given])
    for name, table in tables.items():
        if "slot" in table.schema.names:
            moved = ints(table, "slot") + firsts[ints(table, "@part")]
            tables[name] = put(table, "slot", moved)
    return tables, firsts.tolist()


def _groups_joined(joined: Joined, tables: Tables) -> dict[str, Any]:
    """Accumulators in the order of their slots; the rows that the store says it took."""
    meta: dict[str, Any] = {}
    if "groups" in tables:
        groups = tables["groups"]
        groups = put(groups, "first", np.arange(groups.num_rows))
        meta["rows"] = int(ints(groups, "rows").sum())  # each has taken one at least
        tables["groups"] = joined.plain("groups", groups)
    if "users" in tables:
        users = tables["users"]
        tables["users"] = joined.plain("users", ordered(users, ints(users, "slot")))
    return meta


def cut_session(cut: StateCut) -> CutState:
    whole, state = cut.made.whole, cut.state
    assert isinstance(whole, Session)
    sessions = state.tables["sessions"]
    owners = cut.owners(cut.keys(sessions, whole.keys))
    tables = [{"sessions": each} for each in cut.parts("sessions", sessions, owners, {})]
    _with_groups(cut, tables, ints(sessions, "slot"), owners, ints(sessions, "position"))
    meta = {"slots": state.meta["slots"], "rows": state.meta["rows"]}
    return tables, meta, [state.meta["slots"][1]]


def join_session(joined: Joined) -> tuple[Tables, dict[str, Any]]:
    names = [name for name in ("sessions", "groups", "users") if name in joined.fresh.tables]
    tables, firsts = _renumbered(joined, {name: joined.table(name) for name in names}, names)
    sessions, groups = tables["sessions"], tables["groups"]
    numbers = dict(zip(ints(groups, "slot").tolist(), ints(groups, joined.hidden).tolist(), strict=True))
    parts, session = ints(sessions, "@part"), ints(sessions, "session")
    position: dict[tuple[int, int], int] = {}
    owners = list(zip(parts.tolist(), session.tolist(), strict=True))
    for whose, slot in zip(owners, ints(sessions, "slot").tolist(), strict=True):
        position[whose] = min(position.get(whose, numbers[slot]), numbers[slot])
    ids = {whose: number for number, whose in enumerate(position)}
    sessions = put(sessions, "position", np.array([position[whose] for whose in owners], np.int64))
    sessions = put(sessions, "session", np.array([ids[whose] for whose in owners], np.int64))
    tables["sessions"] = joined.plain("sessions", sessions)
    meta = _groups_joined(joined, tables)
    return tables, {**meta, "slots": [firsts[-1], joined.seen[0]]}


def cut_rows(cut: StateCut) -> CutState:
    """Windows of rows. Their last row, which the hidden ``max`` tells, is still to come."""
    whole, state = cut.made.whole, cut.state
    assert isinstance(whole, RowWindow)
    keys, panes = state.tables["keys"], state.tables["panes"]
    owners = cut.owners(cut.keys(keys, whole.keys))
    tables = [{"keys": each} for each in cut.parts("keys", keys, owners, {})]
    key = ints(panes, "key")
    number = np.zeros(len(owners), np.int64)
    for part in range(len(tables)):
        ours = owners == part
        number[ours] = np.arange(int(ours.sum()))
    panes = put(panes, "key", number[key])
    for one, each in zip(tables, cut.parts("panes", panes, owners[key], {}), strict=True):
        one["panes"] = each
    _with_groups(cut, tables, ints(panes, "slot"), owners[key], ints(panes, "position"))
    meta = {"slots": state.meta["slots"], "rows": state.meta["rows"]}
    return tables, meta, [state.meta["slots"][1]]


def join_rows(joined: Joined) -> tuple[Tables, dict[str, Any]]:
    names = [name for name in ("keys", "panes", "groups", "users") if name in joined.fresh.tables]
    tables, firsts = _renumbered(joined, {name: joined.table(name) for name in names}, ["panes"])
    keys, panes, groups = tables["keys"], tables["panes"], tables["groups"]
    begins = np.cumsum([0, *(part.tables["keys"].num_rows for part in joined.parts)])
    panes = put(panes, "key", ints(panes, "key") + begins[ints(panes, "@part")])
    # A row is the last of at most one pane.
    last = dict(zip(ints(groups, "slot").tolist(), ints(groups, joined.hidden).tolist(), strict=True))
    positions = [last[slot] for slot in ints(panes, "slot").tolist()]
    panes = put(panes, "position", np.array(positions, np.int64))
    tables["keys"], tables["panes"] = joined.plain("keys", keys), joined.plain("panes", panes)
    meta = _groups_joined(joined, tables)
    return tables, {**meta, "slots": [firsts[-1], joined.seen[0]]}


def cut_running(cut: StateCut) -> CutState:
    whole, state = cut.made.whole, cut.state
    assert isinstance(whole, Running)
    keys = state.tables["keys"]
    owners = cut.owners(cut.keys(keys, whole.keys))
    slots = ints(keys, "slot")
    number = np.zeros(len(owners), np.int64)
    for part in range(len(cut.made.parts)):
        ours = owners == part
        number[ours] = np.arange(int(ours.sum()))
    dense = {int(slot): int(new) for slot, new in zip(slots, number, strict=True)}
    tables = [{"keys": each} for each in cut.parts("keys", keys, owners, {})]
    _with_groups(cut, tables, slots, owners, None)
    if "lags" in state.tables:
        lags = state.tables["lags"]
        order = np.argsort(slots)
        at = order[slots[order].searchsorted(ints(lags, "slot"))]
        for one, each in zip(tables, cut.parts("lags", lags, owners[at], {}), strict=True):
            one["lags"] = each
    for one in tables:
        for name, table in one.items():
            moved = np.array([dense[slot] for slot in ints(table, "slot").tolist()], np.int64)
            one[name] = put(table, "slot", moved)
            if name in ("users", "lags"):  # which stand by slot
                one[name] = ordered(one[name], moved)
    meta: dict[str, Any] = {name: state.meta[name] for name in ("next_slot", "rows") if name in state.meta}
    return tables, meta, [0]


def join_running(joined: Joined) -> tuple[Tables, dict[str, Any]]:
    whole = joined.made.whole
    assert isinstance(whole, Running)
    names = [name for name in ("keys", "groups", "users", "lags") if name in joined.fresh.tables]
    tables, firsts = _renumbered(joined, {name: joined.table(name) for name in names}, ["keys"])
    tables["keys"] = joined.plain("keys", tables["keys"])
    if "lags" in tables:
        tables["lags"] = joined.plain("lags", tables["lags"])
    meta = _groups_joined(joined, tables)
    return tables, {**meta, "next_slot": 0 if whole.expire_us is None else firsts[-1]}


def _window_rows(whole: Box, tables: Tables) -> list[Ints]:
    return [ints(tables["groups"], "rows")] if getattr(whole, "keys", ()) else []


def _window_keys(cut: StateCut) -> list[list[pa.Array]]:
    return keys_in("groups")(cut) if getattr(cut.made.whole, "keys", ()) else []


def _slot_rows(name: str) -> Callable[[Box, Tables], list[Ints]]:
    """What groups count is that of the slots of another table."""

    def rows(whole: Box, tables: Tables) -> list[Ints]:
        if "groups" not in tables:
            return each_row_once(name)(whole, tables)
        slots, counted = ints(tables["groups"], "slot"), ints(tables["groups"], "rows")
        of = np.zeros(int(slots.max(initial=-1)) + 1, np.int64)
        of[slots] = counted
        return [of[ints(tables[name], "slot")]]

    return rows


WINDOW = StatePartition(cut_window, join_window, _window_rows, _window_keys)
SESSION = StatePartition(cut_session, join_session, _slot_rows("sessions"), keys_in("sessions"))
RUNNING = StatePartition(cut_running, join_running, _slot_rows("keys"), keys_in("keys"))
ROWS = StatePartition(cut_rows, join_rows, each_row_once("keys"), keys_in("keys"))
