"""Route, the drops and distinct, slowly and obviously."""

from __future__ import annotations

from typing import Any

from medusa.query.boxes import ConnectionPoint, Distinct, RandomDrop, Route, SemanticDrop, WindowDrop
from tests.oracle import query as q


def routed(box: Route, rows: list[q.Row], port: str = "") -> list[q.Row]:
    """The rows whose first true predicate is that of the port."""
    ways: dict[str, list[q.Row]] = {port: [] for port in (*box.ports, "otherwise")}
    for row in rows:
        for place, predicate in enumerate(box.predicates):
            if q.value(predicate, row) is True:
                ways[str(place) if place else ""].append(row)
                break
        else:
            ways["otherwise"].append(row)
    return ways[port]


def dropped_by_value(box: SemanticDrop, rows: list[q.Row], port: str = "") -> list[q.Row]:
    return [row for row in rows if (q.value(box.predicate, row) is True) == (port == "dropped")]


def dropped_by_number(box: RandomDrop, rows: list[q.Row], port: str = "") -> list[q.Row]:
    return [
        row
        for number, row in enumerate(rows)
        if chance(box.rate, box.seed, splitmix(number)) == (port == "dropped")
    ]


def dropped_by_window(box: WindowDrop, rows: list[q.Row], port: str = "") -> list[q.Row]:
    """Without keys only: the hash of keys has its own tests."""
    assert not box.keys
    kept = []
    for row in rows:
        assert row.time is not None
        word = splitmix(row.time // box.window_us % (1 << 64))
        if chance(box.rate, box.seed, word) == (port == "dropped"):
            kept.append(row)
    return kept


def splitmix(word: int) -> int:
    """SplitMix64, from its published definition."""
    z = (word + 0x9E3779B97F4A7C15) % (1 << 64)
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % (1 << 64)
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % (1 << 64)
    return z ^ (z >> 31)


def chance(rate: float, seed: int, word: int) -> bool:
    return splitmix(word ^ splitmix(seed)) < rate * 2**64


def distinct(box: Distinct, rows: list[q.Row], port: str = "") -> list[q.Row]:
    """By time; a row passes unless one of its key passed less than ``within`` before."""
    passed: dict[tuple[Any, ...], int] = {}
    kept = []
    for row in in_time(q.on_time(rows)):
        key = tuple(q.same(q.value(named.expression, row)) for named in box.keys)
        assert row.time is not None
        if key not in passed or row.time - passed[key] >= box.within_us:
            passed[key] = row.time
            kept.append(row)
    return kept


def in_time(rows: list[q.Row]) -> list[q.Row]:
    """By time; equal times in the order in which they came."""
    return sorted(rows, key=lambda row: row.time or 0)


q.OUTCOMES.update(
    {
        Route: routed,
        SemanticDrop: dropped_by_value,
        RandomDrop: dropped_by_number,
        WindowDrop: dropped_by_window,
        Distinct: distinct,
        ConnectionPoint: lambda box, rows: rows,
    }
)
