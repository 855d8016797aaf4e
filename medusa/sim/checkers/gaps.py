"""Rows that are missing where some may be: how many, and by which source they came.

Rows are counted in windows (``n``) and summed (``t``). Of two sources the values of the second are odd, and
those are counted too (``odd``). A row is counted where it was lost: a row of the input by the fragment that
held it, a result that had left by its number, at who reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from medusa.query.boxes import Graph
from medusa.sim.world.virtual_time import SimulationError

__all__ = ["WindowSums", "check_gap_counts", "sums_of"]


class WindowSums(NamedTuple):
    """Of the rows of one window and key, or of several."""

    rows: int = 0
    total: int = 0
    odd: int = 0

    def and_of(self, other: WindowSums) -> WindowSums:
        return WindowSums(self.rows + other.rows, self.total + other.total, self.odd + other.odd)

    def more_than(self, other: WindowSums) -> bool:
        return any(have > may for have, may in zip(self, other, strict=True))


def sums_of(table: pa.Table) -> dict[tuple[Any, ...], WindowSums]:
    """By window and key."""
    found: dict[tuple[Any, ...], WindowSums] = {}
    for row in table.to_pylist():
        sums = _sums(row)
        key = tuple(value for name, value in row.items() if name not in ("n", "t", "odd"))
        found[key] = found.get(key, WindowSums()).and_of(sums)
    return found


def _sums(row: Mapping[str, Any]) -> WindowSums:
    return WindowSums(row["n"], row["t"], row.get("odd", 0))


def _all(sums: Iterable[WindowSums]) -> WindowSums:
    found = WindowSums()
    for each in sums:
        found = found.and_of(each)
    return found


def check_gap_counts(
    graph: Graph,
    want: pa.Table,
    got: pa.Table,
    fragments: Sequence[Mapping[str, Any]],
    results: str,
    unread: Sequence[Mapping[str, Any]] = (),
) -> None:
    """At the end.

    Args:
        graph: the query.
        want, got: its windows, as they would be and as they came.
        fragments: as statuses have them.
        results: the fragment that is fed windows, and not the rows that they count.
        unread: windows of which the reader was told, by their numbers, that they are lost.

    Raises:
        SimulationError: a row came twice, or others are missing than are counted.
    """
    wanted, came = sums_of(want), sums_of(got)
    for key, sums in came.items():
        most = wanted.get(key, WindowSums())
        if sums.more_than(most):
            raise SimulationError(f"twice: {sums.rows} rows of {key} were counted, there are {most.rows}")
    told = {each["fragment"]: each["lost_rows"] for each in fragments}
    if any(each["lost_unknown"] for each in fragments) or told.get(results):
        return  # It is said; or results were lost, of which nobody says how many rows they had counted.
    all_wanted = _all(wanted.values())
    all_came = _all([*came.values(), *map(_sums, unread)])
    missing, odd = all_wanted.rows - all_came.rows, all_wanted.odd - all_came.odd
    if missing != sum(told.values()):
        and_so = f", beside {len(unread)} results" if unread else ""
        raise SimulationError(f"counted: {missing} rows are missing, {told} are told lost{and_so}")
    for each in fragments:
        if sum(each["lost_by"].values()) != each["lost_rows"]:
            raise SimulationError(f"by source: {each['lost_by']} are told of {each['fragment']}")
    sources = [box.id for box in graph.boxes if not box.inputs]
    if len(sources) == 1:
        return
    by = _told_by_source(graph, fragments)
    lost = {sources[0]: missing - odd, sources[1]: odd}
    if not any(by[each] for each in by.keys() - lost.keys()) and {each: by[each] for each in lost} != lost:
        raise SimulationError(f"by source: {lost} are missing, {dict(by)} are told lost")


def _told_by_source(graph: Graph, fragments: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """By source of the query, or by the box that had put rows of several together."""
    told: Counter[str] = Counter()
    above: dict[str, set[str]] = {}
    for box in graph.boxes:
        above[box.id] = {source for arc in box.inputs for source in above[arc.box]} or {box.id}
    for each in fragments:
        for box, rows in each["lost_by"].items():
            of = above.get(box, {box})
            told[next(iter(of)) if len(of) == 1 else box] += rows
    return told
