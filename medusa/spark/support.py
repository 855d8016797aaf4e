"""How Spark runs each kind of box, and which it can't: the compiler, the tests and docs/spark.md read it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from medusa.errors import QueryError
from medusa.query.boxes import (
    KINDS,
    Aggregate,
    Apply,
    Box,
    ConnectionPoint,
    Graph,
    Join,
    KeyRouter,
    Lookup,
    OrderedMerge,
    Process,
    Sink,
    Source,
    SUnion,
    Table,
    Union,
)
from medusa.query.graph import label_of
from medusa.query.ids import kind_of

__all__ = ["WAYS", "Way", "above", "check", "leads_to_sinks", "read_ports", "way_of"]


class Way(Enum):
    """How the rows of a box's inputs are brought to it."""

    SOURCE = "a DataFrame"
    ROWS = "rows where they are, together with the boxes next to it"
    KEYS = "a shard of the keys each"
    ONE = "one task has all rows"
    ORDER = "Spark puts rows in order"
    PASS = "nothing is done"
    SINK = "a DataFrame"
    REFUSED = "refused"


_SHARED = {"rows": Way.ROWS, "keys": Way.KEYS, "one": Way.ONE}
_OTHERS = {
    Source: Way.SOURCE,
    Union: Way.ORDER,
    SUnion: Way.ORDER,
    ConnectionPoint: Way.PASS,
    Apply: Way.ONE,  # its function gives columns of its own, and what orders its rows isn't in them
    Process: Way.ONE,  # what orders the rows of its keys isn't in them
    Table: Way.ONE,  # its look-ups run in the same task
    Lookup: Way.ONE,
    KeyRouter: Way.REFUSED,
    OrderedMerge: Way.REFUSED,
    Sink: Way.SINK,
}

WAYS: Mapping[str, Way] = {kind_of(kind): _OTHERS.get(kind, _SHARED[kind.sharing]) for kind in KINDS}
"""By the kind of the box. A keyed kind without keys, or with an untimed input, goes as ``ONE``."""

JOINS = ("join", "window_join", "asof_join")


def way_of(box: Box, port: str, *, timed: bool) -> Way:
    """How what leaves a box by a port is made.

    Args:
        timed: all its inputs have a time.
    """
    if port == "dead":
        return Way.ONE  # failed rows leave in the order in which they failed
    way = WAYS[kind_of(box)]
    if way is Way.KEYS:
        keyed = box.left_keys if kind_of(box) in JOINS else box.keys  # type: ignore[union-attr]
        if not keyed or not timed or (isinstance(box, Join) and box.how == "semi"):
            return Way.ONE
    return way


def leads_to_sinks(graph: Graph) -> Graph:
    """Only the boxes whose rows reach a sink."""
    wanted: set[str] = set()
    for box in reversed(graph.boxes):
        if isinstance(box, Sink) or box.id in wanted:
            wanted.add(box.id)
            wanted.update(arc.box for arc in box.inputs)
    return Graph(name=graph.name, boxes=tuple(box for box in graph.boxes if box.id in wanted))


def read_ports(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Of each box: its ports that somebody reads."""
    ports: dict[str, dict[str, None]] = {}
    for box in graph.boxes:
        for arc in box.inputs:
            ports.setdefault(arc.box, {})[arc.port] = None
    return {id: tuple(read) for id, read in ports.items()}


def above(graph: Graph, ids: set[str]) -> set[str]:
    """These boxes and all whose rows they read, however indirectly."""
    found = set(ids)
    for box in reversed(graph.boxes):
        if box.id in found:
            found.update(arc.box for arc in box.inputs)
    return found


def check(graph: Graph, ports: Mapping[str, tuple[str, ...]], *, judged: bool = False) -> None:
    """Refuse boxes that can't be run in Spark so that the answer stays the same.

    Args:
        judged: rows of other fragments come as they are, with their times.

    Raises:
        QueryError: names the box and the reason.
    """
    for box in graph.boxes:
        if judged and isinstance(box, Source) and box.judged:
            continue
        why = _why_not(box, ports.get(box.id, ()))
        if why:
            raise QueryError(f"{label_of(box)} can't run in Spark: {why}", code="query.spark")


def _why_not(box: Box, read: tuple[str, ...]) -> str:
    if isinstance(box, Source) and box.judged:
        return "its rows come from another fragment, with times that aren't in their columns"
    if isinstance(box, Source) and box.ahead_us is not None:
        return "with ahead= the arrival of rows decides which enter, and an archive doesn't tell which did"
    if WAYS[kind_of(box)] is Way.REFUSED or (isinstance(box, Aggregate) and box.stage != "whole"):
        return f"it is part of a split {kind_of(box)}: give the query as it was before, see query.merge"
    if isinstance(box, Apply) and box.in_flight is not None:
        return "its function is async, and what such calls gave is a decision that a run logs"
    if "dead" in read and len(box.inputs) > 1:
        return "its .dead is read, and failed rows of several inputs come as they arrive"
    return ""
