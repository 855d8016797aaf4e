"""Joins, computed slowly and obviously: every pair of rows is looked at (semantics 1, 2, 3 and 9)."""

from __future__ import annotations

from typing import Any

from medusa.query.boxes import AsofJoin, Join, WindowJoin
from medusa.query.expressions.expression import Column
from tests.oracle.query import JOINS, Row, on_time, same, value

AnyJoin = Join | WindowJoin | AsofJoin
BOUNDS = ("window_start", "window_end")

Names = tuple[list[str], list[str]]
"""The columns of the left and of the right side."""

Place = tuple[int, int | None, int | None]
"""Of a result: release, left position, right position."""


def joined(box: Join, left: list[Row], right: list[Row], names: Names) -> list[Row]:
    """Rows of equal keys at most ``within`` apart."""
    pairs = [
        (i, j)
        for i, ours in enumerate(left)
        for j, theirs in enumerate(right)
        if abs(time(ours) - time(theirs)) <= box.within_us and matches(box, ours, theirs)
    ]
    return results(box, left, right, pairs, box.within_us, (), names)


def window_joined(box: WindowJoin, left: list[Row], right: list[Row], names: Names) -> list[Row]:
    """Rows of equal windows, and keys if there are any."""
    pairs = [
        (i, j)
        for i, ours in enumerate(left)
        for j, theirs in enumerate(right)
        if all(ours.values[name] == theirs.values[name] for name in BOUNDS) and matches(box, ours, theirs)
    ]
    return results(box, left, right, pairs, 0, BOUNDS, names)


def results(
    box: Join | WindowJoin,
    left: list[Row],
    right: list[Row],
    pairs: list[tuple[int, int]],
    within: int,
    bounds: tuple[str, ...],
    names: Names,
) -> list[Row]:
    """What ``how`` makes of the pairs, by (release, left position, right position), none last."""
    with_pair = {i for i, _ in pairs}, {j for _, j in pairs}
    released = [(max(time(left[i]), time(right[j])), i, j) for i, j in pairs]
    places: list[Place] = []
    if box.how == "semi":
        places += [
            (min(r for r, i, _ in released if i == left_at), left_at, None) for left_at in with_pair[0]
        ]
    elif box.how != "anti":
        places += released
    if box.how in ("left", "full", "anti"):
        places += [(time(row) + within, i, None) for i, row in enumerate(left) if i not in with_pair[0]]
    if box.how in ("right", "full"):
        places += [(time(row) + within, None, j) for j, row in enumerate(right) if j not in with_pair[1]]
    made = []
    for release, i, j in sorted(places, key=none_last):
        ours, theirs = None if i is None else left[i], None if j is None else right[j]
        if box.how in ("semi", "anti"):
            assert ours is not None
            made.append(Row(ours.values, ours.time))
            continue
        alone = ours is None or theirs is None
        own = ours if ours is not None else theirs
        assert own is not None
        values = columns(box, ours, theirs, names, bounds)
        made.append(Row(values, own.time if alone else release))
    return made


def asof_joined(box: AsofJoin, left: list[Row], right: list[Row], names: Names) -> list[Row]:
    """Each left row with the last right row, by (time, position), that is not after it."""
    made = []
    for i in sorted(range(len(left)), key=lambda i: (time(left[i]), i)):
        ours = left[i]
        earlier = [
            (time(theirs), j)
            for j, theirs in enumerate(right)
            if time(theirs) <= time(ours)
            and (box.within_us is None or time(ours) - time(theirs) <= box.within_us)
            and matches(box, ours, theirs)
        ]
        theirs = right[max(earlier)[1]] if earlier else None
        if theirs is not None or box.how == "left":
            made.append(Row(columns(box, ours, theirs, names, ()), ours.time))
    return made


def time(row: Row) -> int:
    assert row.time is not None
    return row.time


def none_last(place: Place) -> tuple[int, bool, int, bool, int]:
    release, i, j = place
    return release, i is None, i or 0, j is None, j or 0


def matches(box: AnyJoin, ours: Row, theirs: Row) -> bool:
    """Null matches nothing; NaN matches NaN; and ``where`` is true."""
    for left_key, right_key in zip(box.left_keys, box.right_keys, strict=True):
        a, b = value(left_key.expression, ours), value(right_key.expression, theirs)
        if a is None or b is None or same(a) != same(b):
            return False
    if box.where is None:
        return True
    both = {f"left.{name}": v for name, v in ours.values.items()}
    both |= {f"right.{name}": v for name, v in theirs.values.items()}
    return value(box.where, Row(both, None)) is True


def columns(
    box: AnyJoin,
    ours: Row | None,
    theirs: Row | None,
    names: Names,
    bounds: tuple[str, ...],
) -> dict[str, Any]:
    """Window bounds, keys, other left columns, other right columns; suffixes where names clash.

    Bounds and keys of a right row alone are its own.
    """
    row, keys = (ours, box.left_keys) if ours is not None else (theirs, box.right_keys)
    assert row is not None
    made = {name: row.values[name] for name in bounds}
    made |= {ours.name: value(key.expression, row) for ours, key in zip(box.left_keys, keys, strict=True)}
    head = set(made)
    plain = [
        {k.expression.name for k in keys if isinstance(k.expression, Column)} | {*bounds}
        for keys in (box.left_keys, box.right_keys)
    ]
    left = [name for name in names[0] if name not in plain[0]]
    right = [name for name in names[1] if name not in plain[1]]
    for name in left:
        made[name + box.suffixes[0] if name in right else name] = None if ours is None else ours.values[name]
    for name in right:
        clash = name in left or name in head
        made[name + box.suffixes[1] if clash else name] = None if theirs is None else theirs.values[name]
    return made


JOINS[Join] = lambda box, left, right, *names: joined(box, on_time(left), on_time(right), names)
JOINS[WindowJoin] = lambda box, left, right, *names: window_joined(box, on_time(left), on_time(right), names)
JOINS[AsofJoin] = lambda box, left, right, *names: asof_joined(box, on_time(left), on_time(right), names)
