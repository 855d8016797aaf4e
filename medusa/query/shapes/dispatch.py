"""What comes out of a box, given what goes in: schema, time, windows. Every check of a box is here.

The builder asks box by box, ``medusa.query.graph`` for a whole graph: both refuse the same things
with the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medusa.errors import QueryError
from medusa.query.boxes import (
    Aggregate,
    Apply,
    AsofJoin,
    Box,
    BSort,
    ConnectionPoint,
    Distinct,
    Filter,
    Join,
    KeyRouter,
    Lookup,
    OrderedMerge,
    Process,
    RandomDrop,
    Resample,
    Route,
    RowWindow,
    Running,
    Select,
    SemanticDrop,
    Session,
    Sink,
    Source,
    SUnion,
    Table,
    Top,
    Union,
    ValueWindow,
    WindowDrop,
    WindowJoin,
    WithColumns,
    WSort,
)
from medusa.query.shape import Shape
from medusa.query.shapes.connections import connection_point_shape
from medusa.query.shapes.flow import (
    dead_shape,
    distinct_shape,
    random_drop_shape,
    route_shape,
    semantic_drop_shape,
    window_drop_shape,
)
from medusa.query.shapes.joins import asof_join_shape, join_shape, window_join_shape
from medusa.query.shapes.order import bsort_shape, resample_shape, sunion_shape, wsort_shape
from medusa.query.shapes.qos import sink_shape
from medusa.query.shapes.rows import (
    filter_shape,
    select_shape,
    union_shape,
    with_columns_shape,
)
from medusa.query.shapes.sources import source_shape
from medusa.query.shapes.splits import key_router_shape, ordered_merge_shape
from medusa.query.shapes.tables import lookup_shape, table_shape
from medusa.query.shapes.user import apply_shape, process_shape
from medusa.query.shapes.window_kinds import (
    row_window_shape,
    running_shape,
    session_shape,
    top_shape,
    value_window_shape,
)
from medusa.query.shapes.windows import aggregate_shape, combine_shape
from medusa.query.types import COLUMNS_MAX

__all__ = ["shape_of"]

MANY = 1_000


@dataclass(frozen=True, slots=True)
class _Rule:
    """The check of one kind of box: ``check(box, inputs, label, port)``."""

    check: Callable[[Any, Sequence[Shape], str, str], Shape]
    least: int = 1
    most: int = 1


def _aggregate(box: Aggregate, inputs: Sequence[Shape], label: str, port: str) -> Shape:
    if box.stage == "combine":
        return combine_shape(box, inputs, label)
    _arity(inputs, 1, 1, label)
    return aggregate_shape(box, inputs[0], label)


RULES: Mapping[type, _Rule] = {
    Source: _Rule(lambda box, inputs, label, port: source_shape(box, label, port), 0, 0),
    Filter: _Rule(lambda box, inputs, label, port: filter_shape(box, inputs[0], label)),
    Select: _Rule(lambda box, inputs, label, port: select_shape(box, inputs[0], label)),
    WithColumns: _Rule(lambda box, inputs, label, port: with_columns_shape(box, inputs[0], label)),
    Union: _Rule(lambda box, inputs, label, port: union_shape(inputs, label), 2, MANY),
    Aggregate: _Rule(_aggregate, 1, MANY),
    Session: _Rule(lambda box, inputs, label, port: session_shape(box, inputs[0], label)),
    RowWindow: _Rule(lambda box, inputs, label, port: row_window_shape(box, inputs[0], label)),
    ValueWindow: _Rule(lambda box, inputs, label, port: value_window_shape(box, inputs[0], label)),
    Running: _Rule(lambda box, inputs, label, port: running_shape(box, inputs[0], label)),
    Top: _Rule(lambda box, inputs, label, port: top_shape(box, inputs[0], label)),
    AsofJoin: _Rule(lambda box, inputs, label, port: asof_join_shape(box, inputs[0], inputs[1], label), 2, 2),
    Join: _Rule(lambda box, inputs, label, port: join_shape(box, inputs[0], inputs[1], label), 2, 2),
    WindowJoin: _Rule(
        lambda box, inputs, label, port: window_join_shape(box, inputs[0], inputs[1], label), 2, 2
    ),
    Route: _Rule(lambda box, inputs, label, port: route_shape(box, inputs[0], label, port)),
    RandomDrop: _Rule(lambda box, inputs, label, port: random_drop_shape(box, inputs[0], label, port)),
    SemanticDrop: _Rule(lambda box, inputs, label, port: semantic_drop_shape(box, inputs[0], label, port)),
    WindowDrop: _Rule(lambda box, inputs, label, port: window_drop_shape(box, inputs[0], label, port)),
    Distinct: _Rule(lambda box, inputs, label, port: distinct_shape(box, inputs[0], label)),
    SUnion: _Rule(lambda box, inputs, label, port: sunion_shape(box, inputs, label), 2, MANY),
    BSort: _Rule(lambda box, inputs, label, port: bsort_shape(box, inputs[0], label)),
    WSort: _Rule(lambda box, inputs, label, port: wsort_shape(box, inputs[0], label, port)),
    Resample: _Rule(lambda box, inputs, label, port: resample_shape(box, inputs[0], label)),
    Apply: _Rule(lambda box, inputs, label, port: apply_shape(box, inputs[0], label)),
    Process: _Rule(lambda box, inputs, label, port: process_shape(box, inputs, label), 1, MANY),
    Table: _Rule(table_shape, 0, MANY),
    Lookup: _Rule(lambda box, inputs, label, port: lookup_shape(box, inputs[0], inputs[1], label), 2, 2),
    ConnectionPoint: _Rule(lambda box, inputs, label, port: connection_point_shape(box, inputs[0], label)),
    KeyRouter: _Rule(lambda box, inputs, label, port: key_router_shape(box, inputs[0], label, port)),
    OrderedMerge: _Rule(lambda box, inputs, label, port: ordered_merge_shape(box, inputs, label), 2, MANY),
    Sink: _Rule(lambda box, inputs, label, port: sink_shape(box, inputs[0], label)),
}


def shape_of(box: Box, inputs: Sequence[Shape], *, label: str, port: str = "") -> Shape:
    """Check a box against its inputs and say what comes out of ``port``.

    Raises:
        QueryError: names the box, what was expected and what came.
    """
    rule = RULES[type(box)]
    _arity(inputs, rule.least, rule.most, label)
    if port == "dead" and port not in box.ports:
        rule.check(box, inputs, label, "")
        return dead_shape(box.id)
    made = rule.check(box, inputs, label, port)
    if port not in box.ports:
        raise QueryError(
            f"{label}: has no port {port[:60]!r}", hint="a source with time= has .late", code="query.port"
        )
    if len(made.schema) > COLUMNS_MAX:
        raise QueryError(f"{label}: the output has more than {COLUMNS_MAX:,} columns", code="query.limit")
    return made


def _arity(inputs: Sequence[Shape], least: int, most: int, label: str) -> None:
    if not least <= len(inputs) <= most:
        expected = str(least) if least == most else f"at least {least}"
        raise QueryError(f"{label}: expected {expected} inputs, got {len(inputs)}", code="query.arity")
