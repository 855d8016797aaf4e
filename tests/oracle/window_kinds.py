"""Sessions, windows of rows and of values, running aggregates and top-N, on whole lists of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from medusa.query.boxes import AggregateCall, Running, Top
from medusa.query.boxes.windows_per_group import RowWindow, Session, ValueWindow
from medusa.query.expressions.expression import Column
from tests.oracle.query import OUTCOMES, Row, aggregate, in_order, is_nan, on_time, same, value

Groups = dict[tuple[Any, ...], tuple[list[Any], list[tuple[int, Row]]]]


def grouped(keys: Iterable[Any], rows: list[Row]) -> Groups:
    """Groups by first appearance: the key as its first row has it, and the rows with their positions."""
    made: Groups = {}
    for position, row in enumerate(rows):
        values = [value(key.expression, row) for key in keys]
        made.setdefault(tuple(map(same, values)), (values, []))[1].append((position, row))
    return made


def result(
    box: Any,
    start: Any,
    end: Any,
    keys: list[Any],
    rows: list[Row],
    time: int | None,
    *,
    by_time: bool = False,
) -> Row:
    made: dict[str, Any] = {"window_start": start, "window_end": end}
    made |= {key.name: k for key, k in zip(box.keys, keys, strict=True)}
    made |= {call.name: called(call, rows, by_time=by_time) for call in box.aggregates}
    return Row(made, time)


def called(call: AggregateCall, rows: list[Row], *, by_time: bool = False) -> Any:
    """first and last: by time in sessions, else by arrival."""
    if by_time:
        rows = in_order(call, rows)
    args = rows if call.arg is None else [value(call.arg, row) for row in rows]
    return aggregate(call.function, [a for a in args if a is not None], call.parameter)


def sessions(box: Session, rows: list[Row]) -> list[Row]:
    made = []
    for keys, members in grouped(box.keys, on_time(rows)).values():
        by_time = sorted(members, key=lambda member: member[1].time or 0)
        runs: list[list[tuple[int, Row]]] = []
        for member in by_time:
            if runs and member[1].time - runs[-1][-1][1].time < box.gap_us:  # type: ignore[operator]
                runs[-1].append(member)
            else:
                runs.append([member])
        for run in runs:
            start, end = run[0][1].time, run[-1][1].time + box.gap_us  # type: ignore[operator]
            arrived = [row for _, row in sorted(run, key=lambda member: member[0])]
            order = (end, start, min(position for position, _ in run))
            made.append((order, result(box, start, end, keys, arrived, end - 1, by_time=True)))
    return [row for _, row in sorted(made, key=lambda pair: pair[0])]


def row_windows(box: RowWindow, rows: list[Row]) -> list[Row]:
    made = []
    for keys, members in grouped(box.keys, on_time(rows)).values():
        for start in range(0, len(members) - box.size + 1, box.advance):
            window = members[start : start + box.size]
            held = [row for _, row in window]
            times = [row.time for row in held if row.time is not None]
            latest = max(times) if times else None
            made.append((window[-1][0], result(box, start, start + box.size, keys, held, latest)))
    return [row for _, row in sorted(made, key=lambda pair: pair[0])]


def value_windows(box: ValueWindow, rows: list[Row]) -> list[Row]:
    """A window closes with the first row of its group at or beyond its end, else at the end of all."""
    closed: list[tuple[Any, Row]] = []
    left: list[tuple[Any, Row]] = []
    for keys, members in grouped(box.keys, on_time(rows)).values():
        kept: list[tuple[int, Any, Row]] = []
        for position, row in members:
            v = value(box.value, row)
            if v is None or is_nan(v) or (kept and v < kept[-1][1]):
                continue
            kept.append((position, v, row))
        numbers = {
            k
            for _, v, _ in kept
            for k in range(math.floor((v - box.size) / box.advance), math.floor(v / box.advance) + 2)
        }
        for k in sorted(numbers):
            start, end = k * box.advance, k * box.advance + box.size
            inside = [(p, row) for p, v, row in kept if start <= v < end]
            if not inside:
                continue
            held = [row for _, row in inside]
            latest = max(row.time for row in held)  # type: ignore[type-var]
            beyond = [(p, row) for p, v, row in kept if v >= end]
            if beyond:
                time = max(latest, beyond[0][1].time)  # type: ignore[type-var]
                closed.append(((beyond[0][0], k), result(box, start, end, keys, held, time)))
            else:
                left.append(((k, inside[0][0]), result(box, start, end, keys, held, latest)))
    return [row for part in (closed, left) for _, row in sorted(part, key=lambda pair: pair[0])]


def running(box: Running, rows: list[Row]) -> list[Row]:
    made = []
    seen: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows if box.expire_us is None else on_time(rows):
        before = seen.setdefault(tuple(same(value(key.expression, row)) for key in box.keys), [])
        if box.expire_us is not None and before:
            latest = max(other.time for other in before)  # type: ignore[type-var]
            if row.time - latest > box.expire_us:  # type: ignore[operator]
                before.clear()
        values = dict(row.values)
        before.append(row)
        for call in box.aggregates:
            if call.function == "lag":
                at = len(before) - 1 - int(call.parameter or 1)
                assert call.arg is not None
                values[call.name] = value(call.arg, before[at]) if at >= 0 else None
            else:
                values[call.name] = called(call, before)
        made.append(Row(values, row.time, row.late, row.moment))
    return made


def top(box: Top, rows: list[Row]) -> list[Row]:
    windows: dict[tuple[int, int], list[Row]] = {}
    for row in on_time(rows):
        assert row.time is not None
        start = row.time // box.advance_us * box.advance_us
        while start > row.time - box.size_us:
            windows.setdefault((start + box.size_us, start), []).append(row)
            start -= box.advance_us
    made = []
    gone = {key.expression.name for key in box.keys if isinstance(key.expression, Column)}
    for (end, start), members in sorted(windows.items()):
        for keys, group in grouped(box.keys, members).values():
            known = [pair for pair in group if value(box.by, pair[1]) is not None]
            unknown = [pair for pair in group if value(box.by, pair[1]) is None]
            known.sort(key=lambda pair: order_of(value(box.by, pair[1])), reverse=False)
            if box.descending:
                known = descending(known, lambda pair: order_of(value(box.by, pair[1])))
            for rank, (_, row) in enumerate([*known, *unknown][: box.n], 1):
                values: dict[str, Any] = {"window_start": start, "window_end": end}
                values |= {key.name: k for key, k in zip(box.keys, keys, strict=True)}
                values |= {name: v for name, v in row.values.items() if name not in gone}
                made.append(Row(values | {"rank": rank}, end - 1))
    return made


def order_of(v: Any) -> tuple[bool, Any]:
    return is_nan(v), 0 if is_nan(v) else v


def descending(rows: list[Any], key: Callable[[Any], Any]) -> list[Any]:
    """Stable: equal ones stay in order of position."""
    kept = sorted(rows, key=lambda pair: pair[0])
    return sorted(kept, key=key, reverse=True)


OUTCOMES[Session] = sessions
OUTCOMES[RowWindow] = row_windows
OUTCOMES[ValueWindow] = value_windows
OUTCOMES[Running] = running
OUTCOMES[Top] = top
