"""What the boxes of a query will cost, and what will cross between them: measured, or estimated. Pure.

A box that ran costs what it was measured to; of others rows are counted from the sources on (selectivity 1
where nothing was measured), and each costs what its kind does. That orders boxes rightly more often than it
gets their costs right: measure by running the query for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from medusa.errors import QueryError
from medusa.nodes.placement.balance import Arc, PlacedPiece
from medusa.query.boxes import Graph, Input, Schema, Sink, Source, Table
from medusa.query.graph import UNTIMED_PORTS, check_graph
from medusa.query.ids import kind_of
from medusa.query.suggest import did_you_mean

__all__ = ["Estimate", "MeasuredBox", "BoxTraffic", "estimate", "traffic_of"]

ROWS_PER_S = 10_000.0
"""Of a source of which nothing is known."""

COSTS_US = {
    "source": 0.05,
    "sink": 0.02,
    "filter": 0.03,
    "select": 0.05,
    "with_columns": 0.05,
    "union": 0.02,
    "route": 0.05,
    "aggregate": 0.3,
    "session": 0.5,
    "join": 1.0,
    "window_join": 1.0,
    "asof_join": 0.5,
    "apply": 2.0,
    "process": 5.0,
}
"""Microseconds a row, by kind; others 0.3. Measured in this project, and rounded: docs/performance.md."""

BYTES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "float32": 4}
"""Of a value; texts 20, all others 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBox:
    """A box as it ran: the share of a core that it took, and rows per second."""

    share: float
    rows_in_per_s: float
    rows_out_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Pieces that stand together, what goes between them, and which boxes each is."""

    pieces: tuple[PlacedPiece, ...]
    arcs: tuple[Arc, ...]
    boxes: Mapping[str, tuple[str, ...]]
    measured: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxTraffic:
    """Of each box the share of a core that it takes, and of each port the bytes per second that come out."""

    costs: Mapping[str, float]
    bytes_per_s: Mapping[Input, float]


def estimate(
    graph: Graph,
    pins: Mapping[str, Sequence[str]],
    *,
    here: str,
    rates: Mapping[str, float] | None = None,
    measured: Mapping[str, MeasuredBox] | None = None,
) -> Estimate:
    """Cut a query into what can be placed.

    Args:
        pins: node -> boxes that must stand there.
        here: where sources stand that no pin names.
        rates: rows per second of sources; what was measured counts less.
        measured: boxes that ran.

    Raises:
        QueryError: a pin or a rate for a box that isn't there, or two pins for one.
    """
    homes = _pinned(graph, pins, rates or {}, here)
    group = _groups(graph, homes)
    known, costs = measured or {}, dict[str, float]()
    traffic = traffic_of(graph, rates=rates, measured=known)
    for box in graph.boxes:
        costs[group[box.id]] = costs.get(group[box.id], 0.0) + traffic.costs[box.id]
    arcs: dict[tuple[str, str], float] = {}
    for box in graph.boxes:
        for arc in box.inputs:
            ends = group[arc.box], group[box.id]
            if ends[0] != ends[1]:
                arcs[ends] = arcs.get(ends, 0.0) + traffic.bytes_per_s[arc]
    boxes: dict[str, list[str]] = {}
    for box in graph.boxes:
        boxes.setdefault(group[box.id], []).append(box.id)
    at = {group[box]: node for box, node in homes.items()}
    return Estimate(
        pieces=tuple(PlacedPiece(name=name, cost=cost, at=at.get(name, "")) for name, cost in costs.items()),
        arcs=tuple(Arc(source=a, target=b, bytes_per_s=nbytes) for (a, b), nbytes in arcs.items()),
        boxes={name: tuple(each) for name, each in boxes.items()},
        measured=sum(box.id in known for box in graph.boxes),
    )


def traffic_of(
    graph: Graph,
    *,
    rates: Mapping[str, float] | None = None,
    measured: Mapping[str, MeasuredBox] | None = None,
) -> BoxTraffic:
    """What the boxes of a query will cost, and what will come out of them; arguments as for ``estimate``."""
    shapes, rows, costs = check_graph(graph).schemas, dict[str, float](), dict[str, float]()
    known = measured or {}
    for box in graph.boxes:
        figures = known.get(box.id)
        came = sum(rows[arc.box] for arc in box.inputs)
        if isinstance(box, Source):
            came = figures.rows_out_per_s if figures is not None else ROWS_PER_S
            came = (rates or {}).get(box.id, came)
        costs[box.id] = came * COSTS_US.get(kind_of(box), 0.3) / 1e6
        rows[box.id] = came
        if figures is not None and figures.rows_in_per_s > 0:  # Scaled to the rows that come now.
            scale = came / figures.rows_in_per_s
            costs[box.id], rows[box.id] = figures.share * scale, figures.rows_out_per_s * scale
    nbytes = {arc: rows[arc.box] * _row_bytes(shape) for arc, shape in shapes.items()}
    return BoxTraffic(costs=costs, bytes_per_s=nbytes)


def _pinned(
    graph: Graph, pins: Mapping[str, Sequence[str]], rates: Mapping[str, float], here: str
) -> dict[str, str]:
    ids = [box.id for box in graph.boxes]
    homes: dict[str, str] = {}
    for node, boxes in pins.items():
        for box_id in boxes:
            if box_id in homes:
                raise QueryError(
                    f"box {box_id!r} is pinned to {homes[box_id]!r} and {node!r}",
                    hint="a placement splits nothing: name it once, or place by hand with at={...}",
                    code="query.placement",
                )
            homes[box_id] = node
    for name in (*homes, *rates):
        if name not in ids:
            raise QueryError(
                f"query {graph.name!r} has no box {name[:100]!r}",
                hint=did_you_mean(name, ids),
                code="query.placement.box",
            )
    sources = {box.id: here for box in graph.boxes if isinstance(box, Source)}
    return {**sources, **homes}


def _groups(graph: Graph, homes: Mapping[str, str]) -> dict[str, str]:
    """Box -> the first box of those that stand with it: a sink with what it shows, a table with who reads it,
    a source that may be silent with all that may wait for it."""
    group = {box.id: box.id for box in graph.boxes}
    kinds = {box.id: box for box in graph.boxes}

    def join(one: str, other: str) -> None:
        first, second = group[one], group[other]
        pins = [
            {homes[box] for box, of in group.items() if of == each and box in homes}
            for each in (first, second)
        ]
        if first != second and len(pins[0] | pins[1]) <= 1:
            for box, of in group.items():
                group[box] = first if of == second else of

    silent: dict[str, str] = {}
    for box in graph.boxes:
        if isinstance(box, Source) and box.idle_us is not None:
            silent[box.id] = box.id
        for arc in box.inputs:
            if arc.box in silent and arc.port not in UNTIMED_PORTS:
                silent[box.id] = silent[arc.box]
                join(arc.box, box.id)
            origin = kinds[arc.box]
            if isinstance(box, Sink) or (isinstance(origin, Table) and origin.position is None):
                join(arc.box, box.id)
    return group


def _row_bytes(schema: Schema) -> float:
    return sum(20 if field.type in ("utf8", "binary") else BYTES.get(field.type, 8) for field in schema)
