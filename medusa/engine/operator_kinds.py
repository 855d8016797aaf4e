"""What the engine knows of each kind of box: one entry of a table, which all that runs boxes reads.

What a kind is before it runs is in its class in ``medusa.query.boxes``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from medusa.engine.core.box import Operator
from medusa.engine.core.site import Site
from medusa.engine.operators.apply import make_apply
from medusa.engine.operators.connection import ConnectionPointBox
from medusa.engine.operators.drop import RandomDropBox, SemanticDropBox, WindowDropBox
from medusa.engine.operators.filter import FilterBox
from medusa.engine.operators.joins.distinct import DistinctBox
from medusa.engine.operators.joins.join import make_join
from medusa.engine.operators.joins.lookup import make_lookup
from medusa.engine.operators.joins.table import make_table_box
from medusa.engine.operators.key_router import KeyRouterBox
from medusa.engine.operators.order.bsort import BSortBox
from medusa.engine.operators.order.resample import ResampleBox
from medusa.engine.operators.order.sunion import SUnionBox
from medusa.engine.operators.order.wsort import WSortBox
from medusa.engine.operators.ordered_merge import OrderedMergeBox
from medusa.engine.operators.process import make_process
from medusa.engine.operators.project import ProjectBox
from medusa.engine.operators.route import RouteBox
from medusa.engine.operators.sink import SinkBox
from medusa.engine.operators.source import SourceBox
from medusa.engine.operators.spill.spill_join import JoinKind
from medusa.engine.operators.spill.spill_kind import SpillKind
from medusa.engine.operators.spill.spill_kinds import DistinctKind, RunningKind, SessionKind
from medusa.engine.operators.spill.spill_table import LookupKind, TableKind
from medusa.engine.operators.union import UnionBox
from medusa.engine.operators.windows.aggregate import AggregateBox, CombineBox
from medusa.engine.operators.windows.running import RunningBox
from medusa.engine.operators.windows.session import SessionBox
from medusa.engine.operators.windows.span import SpanBox
from medusa.engine.operators.windows.top import TopBox
from medusa.engine.repartition import groups, keyed_calls, keyed_tables, rows
from medusa.engine.repartition.tables import StatePartition
from medusa.query import boxes
from medusa.query.boxes import windows_per_group
from medusa.query.types import schema_to_arrow

__all__ = ["OPERATORS", "OperatorKind"]

Maker = Callable[[Any, Site], Operator]


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """How boxes of a kind run.

    Attributes:
        make: the running box.
        spill: how its state lies on disk in parts; None: it stays in memory.
        repartition: how its state is cut and joined by ranges of keys; None: it has none to cut.
    """

    make: Maker
    spill: Callable[[Any, Site, Operator], SpillKind] | None = None
    repartition: StatePartition | None = None


def _keyed(operator: Callable[..., Operator]) -> Maker:
    return lambda box, site: operator(box, input=site.input.schema, letters=site.letters)


def _row_by_row(operator: Callable[..., Operator]) -> Maker:
    """Of a box that may read the times of its rows."""
    return lambda box, site: operator(
        box, input=site.input.schema, letters=site.letters, timed=site.input.timed
    )


def _with_columns(operator: Callable[..., Operator]) -> Maker:
    return lambda box, site: operator(
        box,
        input=site.input.schema,
        output=site.output.schema,
        letters=site.letters,
        timed=site.input.timed,
    )


def _window(operator: Callable[..., Operator]) -> Maker:
    """Of a box whose results have times of their own, made where something reads them."""
    return lambda box, site: operator(
        box, input=site.input.schema, output=site.output.schema, letters=site.letters, timed=site.timed
    )


def _aggregate(box: boxes.Aggregate, site: Site) -> Operator:
    if box.stage == "combine":
        return _window(CombineBox)(box, site)
    return AggregateBox(
        box,
        input=site.input.schema,
        output=site.output.schema,
        letters=site.letters,
        timed=site.timed,
        workers=site.workers,
        storage=site.storage,
    )


def _resample(box: boxes.Resample, site: Site) -> Operator:
    return ResampleBox(box, input=site.input.schema, output=site.output.schema, letters=site.letters)


def _connection_point(box: boxes.ConnectionPoint, site: Site) -> Operator:
    segments = None if site.histories is None else site.histories(box.id)
    return ConnectionPointBox(box, input=site.input.schema, timed=site.input.timed, segments=segments)


def _ordered_merge(box: boxes.OrderedMerge, site: Site) -> Operator:
    return OrderedMergeBox(box, input=site.input.schema, output=site.output.schema)


def _sink(box: boxes.Sink, site: Site) -> Operator:
    return SinkBox(box.id, schema_to_arrow(site.output.schema), timed=site.input.timed)


_JOIN = OperatorKind(make_join, spill=JoinKind, repartition=rows.JOIN)

OPERATORS: Mapping[type, OperatorKind] = {
    boxes.Source: OperatorKind(lambda box, site: SourceBox(box, timed=site.timed)),
    boxes.Filter: OperatorKind(_row_by_row(FilterBox)),
    boxes.Select: OperatorKind(_with_columns(ProjectBox)),
    boxes.WithColumns: OperatorKind(_with_columns(ProjectBox)),
    boxes.Union: OperatorKind(lambda box, site: UnionBox(box.id, inputs=len(site.inputs))),
    boxes.Aggregate: OperatorKind(_aggregate, repartition=groups.WINDOW),
    windows_per_group.Session: OperatorKind(
        _window(SessionBox), spill=SessionKind, repartition=groups.SESSION
    ),
    windows_per_group.RowWindow: OperatorKind(_with_columns(SpanBox), repartition=groups.ROWS),
    windows_per_group.ValueWindow: OperatorKind(_with_columns(SpanBox)),
    boxes.Running: OperatorKind(_with_columns(RunningBox), spill=RunningKind, repartition=groups.RUNNING),
    boxes.Top: OperatorKind(_window(TopBox)),
    boxes.Apply: OperatorKind(make_apply),
    boxes.Process: OperatorKind(make_process, repartition=keyed_calls.PROCESS),
    boxes.Table: OperatorKind(make_table_box, spill=TableKind, repartition=keyed_tables.TABLE),
    boxes.Lookup: OperatorKind(make_lookup, spill=LookupKind, repartition=keyed_tables.LOOKUP),
    boxes.AsofJoin: _JOIN,
    boxes.Join: _JOIN,
    boxes.WindowJoin: _JOIN,
    boxes.Route: OperatorKind(_row_by_row(RouteBox)),
    boxes.RandomDrop: OperatorKind(lambda box, site: RandomDropBox(box)),
    boxes.SemanticDrop: OperatorKind(_row_by_row(SemanticDropBox)),
    boxes.WindowDrop: OperatorKind(_keyed(WindowDropBox)),
    boxes.Distinct: OperatorKind(_keyed(DistinctBox), spill=DistinctKind, repartition=rows.DISTINCT),
    boxes.SUnion: OperatorKind(lambda box, site: SUnionBox(box, schema=site.output.schema)),
    boxes.BSort: OperatorKind(_keyed(BSortBox)),
    boxes.WSort: OperatorKind(_keyed(WSortBox)),
    boxes.Resample: OperatorKind(_resample),
    boxes.ConnectionPoint: OperatorKind(_connection_point),
    boxes.KeyRouter: OperatorKind(_row_by_row(KeyRouterBox)),
    boxes.OrderedMerge: OperatorKind(_ordered_merge),
    boxes.Sink: OperatorKind(_sink),
}
