"""The boxes around a box that was split, slowly and obviously."""

from __future__ import annotations

from typing import Any

import xxhash

from medusa.query.boxes import KeyRouter, OrderedMerge
from tests.oracle import query as q
from tests.test_native_partition import canonical


def routed(box: KeyRouter, rows: list[q.Row], port: str = "") -> list[q.Row]:
    """The rows of a port, numbered among all."""
    found = []
    for number, row in enumerate(rows):
        way = number // box.block % box.parts if box.block else part(box, row)
        if way == int(port or "0"):
            more = {} if box.number is None else {box.number: number}
            found.append(q.Row(row.values | more, row.time, row.late, row.moment))
    return found


def part(box: KeyRouter, row: q.Row) -> int:
    try:
        keys = [q.value(key.expression, row) for key in box.keys]
    except q.Failed:
        return 0
    hash = xxhash.xxh64_intdigest(b"".join(map(canonical, keys)))
    return sum(cut <= hash for cut in box.cuts)


def merged(box: OrderedMerge, *inputs: list[q.Row]) -> list[q.Row]:
    """All rows at once: nobody waits for anybody."""

    def place(row: q.Row) -> tuple[Any, ...]:
        positions = [row.values[name] for name in box.positions]
        order = [(position is None, position or 0) for position in positions]
        if box.arrival:
            return (order,)
        alone = len(positions) == 1 or None in positions
        assert row.time is not None
        if box.release is not None:
            return (row.values[box.release], [], order)
        return (row.time + box.within_us * alone, [row.values[name] for name in box.by], order)

    kept = [row for rows in inputs for row in rows if box.arrival or not row.late]
    return [
        q.Row({n: v for n, v in row.values.items() if n not in box.hidden}, row.time, row.late, row.moment)
        for row in sorted(kept, key=place)
    ]


q.OUTCOMES[KeyRouter] = routed
q.OUTCOMES[OrderedMerge] = merged
