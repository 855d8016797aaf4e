"""Functions of users and keyed tables, slowly: one row at a time, one list of everything that happens.

Nothing is shared with the engine but the names under which the functions are registered
(``tests.engine.user_functions`` registers the vectorised ones).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from medusa.query.boxes import Apply, Lookup, Process, Table
from tests.oracle import query as q

BEFORE = -(10**15)
INPUT = 1 << 52
"""Of a part of a table: the place of a row is that of its router, behind all rows of the inputs before."""


# Apply: name -> what becomes of a row; None: it is dead.


def copies(row: dict[str, Any]) -> list[dict[str, Any]] | None:
    """As many rows as n % 3; a row of n = 7 fails."""
    if row["n"] == 7:
        return None
    return [{"n": row["n"], "copy": i} for i in range(row["n"] % 3)]


def doubled(row: dict[str, Any]) -> list[dict[str, Any]] | None:
    return [{"n": row["n"] * 2, "s": row["s"]}]


APPLIED: dict[str, Callable[[dict[str, Any]], list[dict[str, Any]] | None]] = {
    "test.copies": copies,
    "test.doubled": doubled,
}


def applied(box: Apply, rows: list[q.Row]) -> list[q.Row]:
    hidden = () if box.position is None else (box.position,)
    return [
        q.Row(values | {name: row.values[name] for name in hidden}, row.time, row.late, row.moment)
        for row in rows
        for values in APPLIED[box.function.name](row.values) or []
    ]


def in_time(inputs: tuple[list[q.Row], ...]) -> list[tuple[int, int, int, q.Row]]:
    """(time, input, position, row) of several inputs, merged."""
    every = [
        (row.time or 0, number, place, row)
        for number, rows in enumerate(inputs)
        for place, row in enumerate(q.on_time(rows))
    ]
    return sorted(every, key=lambda each: each[:3])


# Process


class Call:
    """What an operator of this oracle is given, and where it puts what it does."""

    def __init__(self, state: dict[str, Any], timers: set[int]) -> None:
        self.state = state
        self.timers = timers
        self.out: list[dict[str, Any]] = []
        self.clear = False


def session_row(call: Call, key: Any, row: dict[str, Any], time: int, input: str) -> None:
    call.state["n"] = call.state.get("n", 0) + 1
    call.timers.clear()
    call.timers.add(time + 6)


def session_timer(call: Call, key: Any, time: int) -> None:
    call.out.append({"key": key, "n": call.state["n"], "what": "end"})
    call.clear = True


def count_row(call: Call, key: Any, row: dict[str, Any], time: int, input: str) -> None:
    if row["n"] == 7:
        raise ValueError("seven")
    call.state["n"] = call.state.get("n", 0) + row["n"]
    call.out.append({"key": key, "n": call.state["n"], "what": input})


def alarm_row(call: Call, key: Any, row: dict[str, Any], time: int, input: str) -> None:
    call.timers |= {time + 1 + row["n"], time + 12}
    call.out.append({"key": key, "n": row["n"], "what": "row"})


def alarm_timer(call: Call, key: Any, time: int) -> None:
    call.state["n"] = call.state.get("n", 0) + 1
    call.out.append({"key": key, "n": call.state["n"], "what": "alarm"})


PROCESSED: dict[str, tuple[Callable[..., None], Callable[..., None] | None]] = {
    "test.Session": (session_row, session_timer),
    "test.Count": (count_row, None),
    "test.Alarms": (alarm_row, alarm_timer),
}


def processed(box: Process, *inputs: list[q.Row]) -> list[q.Row]:
    """Timers of a time before its rows; timers by first appearance of their key, rows as they are merged."""
    on_row, on_timer = PROCESSED[box.function.name]
    merged = [(row, number) for _, number, _, row in in_time(inputs)]
    keys: dict[Any, tuple[int, Any, dict[str, Any], set[int]]] = {}
    made: list[q.Row] = []

    def place(number: int) -> int:
        row, input = merged[number]
        assert box.positions is not None
        return int(input << 55) + int(row.values[box.positions[-1]])

    def hidden(released: int, first_us: int, number: int) -> dict[str, int]:
        """What a part of a split says of a row besides."""
        if box.positions is None:
            return {}
        return dict(zip(box.positions, (released, first_us, place(number)), strict=True))

    def after(mark: Any, time: int, call: Call, more: dict[str, int]) -> None:
        made.extend(q.Row(values | more, time) for values in call.out)
        if call.clear:
            del keys[mark]

    def wake(until: int | None) -> None:
        while True:
            due = [(t, first, mark) for mark, (first, _, _, timers) in keys.items() for t in timers]
            due = [each for each in due if until is None or each[0] <= until]
            if not due:
                return
            time, _, mark = min(due, key=lambda each: each[:2])
            first, key, state, timers = keys[mark]
            timers.remove(time)
            call = Call(state, timers)
            assert on_timer is not None
            on_timer(call, key, time)
            after(mark, time, call, hidden(time - 1, merged[first][0].time or 0, first))

    for number, (row, input) in enumerate(merged):
        assert row.time is not None
        wake(row.time)
        key = q.value(box.keys[0].expression, row)
        mark = q.same(key)
        fresh = mark not in keys
        first, _, state, timers = keys.get(mark, (number, key, {}, set()))
        keys[mark] = (first, key, state, timers)
        call = Call(state, timers)
        try:
            on_row(call, key, row.values, row.time, box.names[input] if box.names else "")
        except ValueError:
            if fresh:
                del keys[mark]
            continue
        after(mark, row.time, call, hidden(row.time, -(1 << 62), number))
    wake(None)
    return made


# Tables


def changes_of(box: Table, inputs: tuple[list[q.Row], ...]) -> list[tuple[int, q.Row, bool]]:
    """(input, what is stored after it or was before, deleted) in the order in which it happens."""
    stored: dict[Any, tuple[int | None, dict[str, Any]]] = {}
    made: list[tuple[int, q.Row, bool]] = []
    names = [field.name for field in box.schema]
    if box.rows is not None:
        for values in pa.ipc.open_stream(io.BytesIO(box.rows)).read_all().to_pylist():
            stored[tuple(q.same(values[key]) for key in box.keys)] = (None, values)
    for time, number, _, row in in_time(inputs):
        update = box.updates[number]
        keys = {key.name: q.value(key.expression, row) for key in update.keys}
        more = {} if box.position is None else {box.position: number * INPUT + row.values[box.position]}
        mark = tuple(q.same(v) for v in keys.values())
        old = stored.get(mark)
        if old is not None and old[0] is not None and box.expire_us is not None:
            old = None if time - old[0] > box.expire_us else old
        if update.delete:
            if old is not None:
                del stored[mark]
                made.append((number, q.Row({**old[1], **keys, **more}, time), True))
            continue
        if old is not None:
            both = q.Row({**row.values, **{f"table.{n}": v for n, v in old[1].items()}}, time)
            new = {**old[1], **keys, **{c.name: q.value(c.expression, both) for c in update.set}}
        elif update.insert is not None:
            new = dict.fromkeys(names) | keys
            new |= {c.name: q.value(c.expression, row) for c in update.insert}
        else:
            continue
        stored[mark] = (time, new)
        made.append((number, q.Row({name: new[name] for name in names} | more, time), False))
    return made


def table(box: Table, *inputs: list[q.Row], port: str = "") -> list[q.Row]:
    """The main port also tells the oracle's look-ups the rows before all time, and the expiry."""
    made = changes_of(box, inputs)
    if port:
        return [row for number, row, _ in made if port == f"u{number}"]
    nothing = dict.fromkeys(field.name for field in box.schema)
    hidden = {} if box.position is None else {box.position: -1}
    rows = [q.Row({**nothing, **hidden, "_deleted": True, "_expire": None}, BEFORE)]
    given = [] if box.rows is None else pa.ipc.open_stream(io.BytesIO(box.rows)).read_all().to_pylist()
    rows += [q.Row({**values, **hidden, "_deleted": False, "_expire": None}, BEFORE) for values in given]
    return rows + [
        q.Row({**row.values, "_deleted": deleted, "_expire": box.expire_us}, row.time)
        for _, row, deleted in made
    ]


def looked_up(box: Lookup, rows: list[q.Row], changes: list[q.Row]) -> list[q.Row]:
    names = [key.name for key in box.keys]
    # A part of a look-up may have no change at all.
    known = changes[0].values if box.table is None else [field.name for field in box.table.schema]
    columns = [name for name in known if name not in (*names, "_deleted", "_expire")]
    made = []
    for row in sorted(q.on_time(rows), key=lambda row: row.time or 0):
        assert row.time is not None
        mark = [q.same(q.value(key.expression, row)) for key in box.keys]
        found = None
        for change in changes:
            assert change.time is not None
            if change.time <= row.time and [q.same(change.values[name]) for name in names] == mark:
                found = change
        if found is not None:
            expire = found.values["_expire"]
            assert found.time is not None
            if found.values["_deleted"] or (expire is not None and row.time - found.time > expire):
                found = None
        if found is None and box.how == "inner":
            continue
        values = dict(row.values)
        for name in columns:
            shown = name + box.suffix if name in row.values else name
            values[shown] = None if found is None else found.values[name]
        made.append(q.Row(values, row.time))
    return made


q.OUTCOMES[Apply] = applied
q.OUTCOMES[Process] = processed
q.OUTCOMES[Table] = table
q.OUTCOMES[Lookup] = looked_up
