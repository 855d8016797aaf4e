"""Which sources hold up the rows of a sink while they bring nothing. Pure.

    a ── window ──┐                 rows of ``one`` wait for a, and nothing else comes there
    b ── window ──┴ union ── two    some of ``two`` wait for a, and others for b
    c ── filter ──── three          rows of ``three`` wait for nobody

A box that awaits boundaries holds its rows until all sources above it have promised so much; the last of
those on the way decides, since what leaves it waits for all that is above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from medusa.query.boxes import Graph, Sink, Source
from medusa.query.graph import UNTIMED_PORTS

__all__ = ["WaitingRows", "waiting_rows"]

NAMED = 3
"""Sources that a message names."""

_Waits = dict[str, frozenset[str]]
"""Where rows waited last, or came in -> the sources that they waited for; none: they came straight."""


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """How the rows of a sink are held up.

    Attributes:
        last: box where rows waited last -> the sources they waited for; of rows that never waited the
            source by which they came, or the box on which they failed -> none.
    """

    last: Mapping[str, frozenset[str]]

    @property
    def wait(self) -> bool:
        """Whether rows wait for a boundary anywhere."""
        return any(self.last.values())

    @property
    def mixed(self) -> str:
        """Which rows wait for which sources, where it isn't the same of all; empty: it is."""
        ways: dict[frozenset[str], str] = {}
        for box, sources in self.last.items():
            ways.setdefault(sources, box)
        if len(ways) < 2:
            return ""
        (one, first), (other, second) = sorted(ways.items(), key=lambda way: (not way[0], way[1]))[:2]
        if not other:
            return f"rows of {first!r} wait for {_named(one)}, and those of {second!r} for nothing"
        return f"rows of {first!r} wait for {_named(one)}, and those of {second!r} for {_named(other)}"


def waiting_rows(graph: Graph) -> dict[str, WaitingRows]:
    """Of each sink of a graph that holds, in its order."""
    above: dict[str, frozenset[str]] = {}
    last: dict[str, _Waits] = {}
    found: dict[str, WaitingRows] = {}
    for box in graph.boxes:
        if isinstance(box, Source):
            above[box.id], last[box.id] = frozenset((box.id,)), {box.id: frozenset()}
            continue
        above[box.id] = frozenset[str]().union(*(above[arc.box] for arc in box.inputs))
        waits: _Waits = {}
        for arc in box.inputs:
            # Late and failed rows leave as they come.
            straight = arc.port in UNTIMED_PORTS
            waits |= {f"{arc.box}.{arc.port}": frozenset()} if straight else last[arc.box]
        last[box.id] = {box.id: above[box.id]} if box.awaits_boundary else waits
        if isinstance(box, Sink):
            found[box.id] = WaitingRows(waits)
    return found


def _named(sources: frozenset[str]) -> str:
    names = [repr(name) for name in sorted(sources)]
    more = [f"{len(names) - NAMED} others"] if len(names) > NAMED else []
    *first, final = [*names[:NAMED], *more]
    return f"{', '.join(first)} and {final}" if first else final
