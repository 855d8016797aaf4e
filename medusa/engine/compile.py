"""From a checked graph to boxes that run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from medusa.engine.core.box import Operator
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.memory_bounds import Storage
from medusa.engine.core.site import Site
from medusa.engine.operators.apply import make_apply
from medusa.engine.operators.connection import ConnectionPointBox
from medusa.engine.operators.drop import RandomDropBox, SemanticDropBox, WindowDropBox
from medusa.engine.operators.filter import FilterBox
from medusa.engine.operators.fused_rows import link_chains
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
from medusa.engine.operators.spill.spillable import make_spilling
from medusa.engine.operators.union import UnionBox
from medusa.engine.operators.windows.aggregate import AggregateBox, CombineBox
from medusa.engine.operators.windows.running import RunningBox
from medusa.engine.operators.windows.session import SessionBox
from medusa.engine.operators.windows.span import SpanBox
from medusa.engine.operators.windows.top import TopBox
from medusa.ports import Segments, Tasks, Workers
from medusa.query.boxes import (
    Aggregate,
    Apply,
    AsofJoin,
    Box,
    BSort,
    ConnectionPoint,
    Distinct,
    Filter,
    Input,
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
from medusa.query.expressions.expression import Call, Expression
from medusa.query.expressions.tree import walk
from medusa.query.graph import CheckedGraph
from medusa.query.types import schema_to_arrow

__all__ = ["compile_graph", "readers_of_time"]


def compile_graph(
    checked: CheckedGraph,
    letters: DeadLetters,
    *,
    sink_times: bool,
    running: Mapping[str, Operator] | None = None,
    functions: Mapping[str, object] | None = None,
    tasks: Tasks | None = None,
    workers: Workers | None = None,
    histories: Callable[[str], Segments] | None = None,
    storage: Storage | None = None,
) -> list[Operator]:
    """One running box for each box of the graph, in its order, not yet connected.

    Args:
        sink_times: trains at sinks carry their times.
        running: boxes that there are already, by id; they are used as they are.
        functions: of users, by box, where they aren't registered.
        tasks: runs async functions.
        workers: run copies of boxes over disjoint keys.
        histories: where each connection point keeps its history; None: they keep none.
        storage: bounds of memory, and where to spill.
    """
    timed = readers_of_time(checked, sink_times=sink_times)
    running = running or {}

    def made(box: Box) -> Operator:
        site = Site(
            inputs=[checked.shapes[arc] for arc in box.inputs],
            output=checked.shapes[Input(box.id)],
            letters=letters,
            timed=timed[box.id],
            functions=functions or {},
            tasks=tasks,
            workers=workers,
            histories=histories,
            storage=storage,
            origins=[checked.boxes[arc.box] for arc in box.inputs],
        )
        return make_spilling(box, site, lambda: MAKERS[type(box)](box, site))

    boxes = [running[box.id] if box.id in running else made(box) for box in checked.graph.boxes]
    link_chains(checked, {box.id: box for box in boxes}, timed)
    return boxes


def readers_of_time(checked: CheckedGraph, *, sink_times: bool) -> dict[str, bool]:
    """Of each box: whether anything below reads the times of its output."""
    reads: dict[str, bool] = {}
    for box in reversed(checked.graph.boxes):
        ports = [port for port in box.ports if checked.shapes[Input(box.id, port)].timed]
        readers = [checked.boxes[id] for port in ports for id, _ in checked.consumers[Input(box.id, port)]]
        reads[box.id] = any(_reads_time(reader, reads, sink_times) for reader in readers)
    return reads


def _reads_time(box: Box, reads: dict[str, bool], sink_times: bool) -> bool:
    match box:
        case Aggregate(stage="combine"):
            return False
        case Filter() | SemanticDrop():
            return reads[box.id] or _has_time(box.predicate)
        case Route():
            return reads[box.id] or any(map(_has_time, box.predicates))
        case Select() | WithColumns():
            return reads[box.id] or any(_has_time(named.expression) for named in box.columns)
        case KeyRouter():
            return reads[box.id] or any(_has_time(key.expression) for key in box.keys)
        case Sink():
            return sink_times
        case Union() | Apply() | RandomDrop():
            return reads[box.id]
    return True


def _has_time(expression: Expression) -> bool:
    return any(isinstance(node, Call) and node.function == "tuple_time" for node in walk(expression))


def _filter(box: Filter, site: Site) -> Operator:
    return FilterBox(box, input=site.input.schema, letters=site.letters, timed=site.input.timed)


def _project(box: Select | WithColumns, site: Site) -> Operator:
    return ProjectBox(
        box,
        input=site.input.schema,
        output=site.output.schema,
        letters=site.letters,
        timed=site.input.timed,
    )


def _aggregate(box: Aggregate, site: Site) -> Operator:
    input, output = site.input.schema, site.output.schema
    if box.stage == "combine":
        return CombineBox(box, input=input, output=output, letters=site.letters, timed=site.timed)
    return AggregateBox(
        box,
        input=input,
        output=output,
        letters=site.letters,
        timed=site.timed,
        workers=site.workers,
        storage=site.storage,
    )


def _route(box: Route, site: Site) -> Operator:
    return RouteBox(box, input=site.input.schema, letters=site.letters, timed=site.input.timed)


def _semantic_drop(box: SemanticDrop, site: Site) -> Operator:
    return SemanticDropBox(box, input=site.input.schema, letters=site.letters, timed=site.input.timed)


def _resample(box: Resample, site: Site) -> Operator:
    return ResampleBox(box, input=site.input.schema, output=site.output.schema, letters=site.letters)


def _session(box: Session, site: Site) -> Operator:
    return SessionBox(
        box, input=site.input.schema, output=site.output.schema, letters=site.letters, timed=site.timed
    )


def _span(box: RowWindow | ValueWindow, site: Site) -> Operator:
    return SpanBox(
        box, input=site.input.schema, output=site.output.schema, letters=site.letters, timed=site.input.timed
    )


def _running(box: Running, site: Site) -> Operator:
    return RunningBox(
        box, input=site.input.schema, output=site.output.schema, letters=site.letters, timed=site.input.timed
    )


def _top(box: Top, site: Site) -> Operator:
    return TopBox(
        box, input=site.input.schema, output=site.output.schema, letters=site.letters, timed=site.timed
    )


def _key_router(box: KeyRouter, site: Site) -> Operator:
    return KeyRouterBox(box, input=site.input.schema, letters=site.letters, timed=site.input.timed)


def _connection_point(box: ConnectionPoint, site: Site) -> Operator:
    segments = None if site.histories is None else site.histories(box.id)
    return ConnectionPointBox(box, input=site.input.schema, timed=site.input.timed, segments=segments)


MAKERS: Mapping[type, Callable[[Any, Site], Operator]] = {
    Source: lambda box, site: SourceBox(box, timed=site.timed),
    Filter: _filter,
    Select: _project,
    WithColumns: _project,
    Union: lambda box, site: UnionBox(box.id, inputs=len(site.inputs)),
    Aggregate: _aggregate,
    Session: _session,
    RowWindow: _span,
    ValueWindow: _span,
    Running: _running,
    Top: _top,
    Apply: make_apply,
    Process: make_process,
    Table: make_table_box,
    Lookup: make_lookup,
    AsofJoin: make_join,
    Join: make_join,
    WindowJoin: make_join,
    Route: _route,
    RandomDrop: lambda box, site: RandomDropBox(box),
    SemanticDrop: _semantic_drop,
    WindowDrop: lambda box, site: WindowDropBox(box, input=site.input.schema, letters=site.letters),
    Distinct: lambda box, site: DistinctBox(box, input=site.input.schema, letters=site.letters),
    SUnion: lambda box, site: SUnionBox(box, schema=site.output.schema),
    BSort: lambda box, site: BSortBox(box, input=site.input.schema, letters=site.letters),
    WSort: lambda box, site: WSortBox(box, input=site.input.schema, letters=site.letters),
    Resample: _resample,
    ConnectionPoint: _connection_point,
    KeyRouter: _key_router,
    OrderedMerge: lambda box, site: OrderedMergeBox(box, input=site.input.schema, output=site.output.schema),
    Sink: lambda box, site: SinkBox(box.id, schema_to_arrow(site.output.schema), timed=site.input.timed),
}
