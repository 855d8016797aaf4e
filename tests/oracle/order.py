"""Sunion, the sorts and resample, slowly and obviously: row by row, with lists."""

from __future__ import annotations

from typing import Any

from medusa.query.boxes import BSort, Resample, SUnion, WSort
from tests.oracle import query as q
from tests.oracle.flow import in_time


def serialised(box: SUnion, *inputs: list[q.Row]) -> list[q.Row]:
    """By (bucket, time, input, position)."""
    rows = [
        (row.time // box.bucket_us, row.time, number, position, row)
        for number, each in enumerate(inputs)
        for position, row in enumerate(q.on_time(each))
        if row.time is not None
    ]
    return [row for *_, row in sorted(rows, key=lambda item: item[:4])]


def rank(value: Any) -> tuple[int, Any]:
    """Null first, NaN last."""
    if value is None:
        return (0, 0)
    return (2, 0) if q.is_nan(value) else (1, value)


def key_of(box: BSort | WSort | Resample, row: q.Row) -> tuple[Any, ...]:
    return tuple(q.same(q.value(named.expression, row)) for named in box.keys)


def bounded_sort(box: BSort, rows: list[q.Row]) -> list[q.Row]:
    held: dict[tuple[Any, ...], list[tuple[Any, int, q.Row]]] = {}
    out = []
    for number, row in enumerate(q.on_time(rows)):
        buffer = held.setdefault(key_of(box, row), [])
        buffer.append((rank(row.values[box.column]), number, row))
        if len(buffer) > box.slack:
            least = min(buffer, key=lambda item: item[:2])
            buffer.remove(least)
            out.append(least[2])
    rest = sorted((item for buffer in held.values() for item in buffer), key=lambda item: item[:2])
    return out + [row for *_, row in rest]


def timed_sort(box: WSort, rows: list[q.Row], port: str = "") -> list[q.Row]:
    """Moment by moment. At each: first the rows that have waited for the timeout leave, with all rows
    of their group that are no greater; then the rows of this time come. One that is below what its
    group has sent is dropped; one equal to it leaves at once."""
    rows = in_time(q.on_time(rows))
    moments = sorted(
        {t for row in rows if row.time is not None for t in (row.time, row.time + box.timeout_us)}
    )
    held: list[tuple[Any, int, q.Row]] = []
    sent: dict[tuple[Any, ...], Any] = {}
    out: list[q.Row] = []
    dropped: list[q.Row] = []
    for moment in moments:
        leaving = []
        for item in held:
            if item[2].time + box.timeout_us == moment:  # type: ignore[operator]
                key = key_of(box, item[2])
                sent[key] = max(item[0], sent.get(key, item[0]))
        for item in held:
            key = key_of(box, item[2])
            if key in sent and item[0] <= sent[key]:
                leaving.append(item)
        held = [item for item in held if item not in leaving]
        out += [item[2] for item in sorted(leaving, key=lambda item: item[:2])]
        at_once = []
        for number, row in enumerate(rows):
            if row.time != moment:
                continue
            key, value = key_of(box, row), rank(row.values[box.column])
            if key in sent and value < sent[key]:
                dropped.append(row)
            elif key in sent and value == sent[key]:
                at_once.append((value, number, row))
            else:
                held.append((value, number, row))
        out += [item[2] for item in sorted(at_once, key=lambda item: item[:2])]
    assert not held
    return dropped if port == "dropped" else out


def resampled(box: Resample, rows: list[q.Row]) -> list[q.Row]:
    """Of each key, for each row and the next: the points of the grid from the one up to the other."""
    rows = in_time(q.on_time(rows))
    series: dict[tuple[Any, ...], list[tuple[int, q.Row]]] = {}
    for number, row in enumerate(rows):
        line = series.setdefault(key_of(box, row), [])
        if line and line[-1][1].time == row.time:
            line.pop()  # of several rows of one time the last
        line.append((number, row))
    made = []
    for line in series.values():
        for (number, row), (_, after) in zip(line, [*line[1:], (0, None)], strict=True):
            start = row.time
            assert start is not None
            end = None if after is None else after.time
            point = -(-start // box.every_us) * box.every_us
            if end is not None and end - start <= box.gap_us:
                while point < end:
                    made.append((point, number, between(box, row, after, point)))
                    point += box.every_us
                continue
            if point == start:
                made.append((point, number, between(box, row, None, point)))
                point += box.every_us
            if end is None or point < end:
                made.append((point, number, between(box, row, None, point)))
    return [row for *_, row in sorted(made, key=lambda item: item[:2])]


def between(box: Resample, row: q.Row, after: q.Row | None, point: int) -> q.Row:
    """The values at a point; null after the row itself where no row is near enough."""
    gap = after is None and point != row.time
    values: dict[str, Any] = {box.time: point}
    values |= {named.name: q.value(named.expression, row) for named in box.keys}
    keys = {named.expression.name for named in box.keys}  # type: ignore[union-attr]
    for name, ours in row.values.items():
        if name == box.time or name in keys:
            continue
        values[name] = None if gap else ours
        if gap or box.how == "previous" or isinstance(ours, str | bool):
            continue
        if point == row.time:
            values[name] = None if ours is None else ours * 1.0
            continue
        assert after is not None
        assert row.time is not None
        theirs = after.values[name]
        if isinstance(theirs, str | bool):
            continue  # text, null before it
        share = (point - row.time) / ((after.time or 0) - row.time)
        values[name] = None if ours is None or theirs is None else ours + (theirs - ours) * share
    values["gap"] = gap
    return q.Row(values, point)


q.OUTCOMES.update({SUnion: serialised, BSort: bounded_sort, WSort: timed_sort, Resample: resampled})
