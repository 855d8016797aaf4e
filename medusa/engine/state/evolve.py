"""Which boxes of a changed query can go on with the state that an earlier form of it left."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from medusa.elements import END_US, START_US, Boundary
from medusa.engine.core.box import Operator, show_time
from medusa.engine.state.fragment_state import box_sums, graph_checksum, read_index
from medusa.errors import QueryError, StateError
from medusa.ports import Buffer
from medusa.query.boxes import Box, Graph
from medusa.query.graph import CheckedGraph, check_graph, label_of
from medusa.query.signature import differences, signatures
from medusa.query.suggest import did_you_mean

__all__ = ["EvolutionPlan", "catch_up", "check_promised", "check_reset", "plan", "promise_of"]


@dataclass(frozen=True, slots=True)
class EvolutionPlan:
    """What becomes of every box and of all state there is.

    Attributes:
        kept: boxes that go on with their state.
        fresh: boxes that begin empty.
        dropped: boxes whose state nobody takes.
    """

    kept: tuple[str, ...]
    fresh: tuple[str, ...]
    dropped: tuple[str, ...]

    def __str__(self) -> str:
        words = [
            f"{what}: {', '.join(ids)}"
            for what, ids in (("begin empty", self.fresh), ("state dropped of", self.dropped))
            if ids
        ]
        return "; ".join(words) or "every box takes its state"


def plan(
    graph: Graph, files: Mapping[str, Buffer], *, before: Graph, raw: Any, reset: Collection[str] = ()
) -> EvolutionPlan:
    """Compare a query with the state that an earlier form of it left.

    Args:
        before: the query that the state is of.
        raw: that one's JSON values as they were written.
        reset: boxes that begin empty although there is state of that name.

    Raises:
        StateError: a box has the id of one with state, but isn't the same; names it and what changed.
        QueryError: ``reset`` names a box that isn't there.
    """
    index = read_index(files)
    now, old = check_graph(graph), check_graph(before)
    check_reset(now, reset)
    if index.graph and index.graph != graph_checksum(raw):
        raise StateError("fragment.json: the state belongs to another query", code="state.graph")
    was = box_sums(old) if index.graph else {id: entry.sum for id, entry in index.boxes.items()}
    sums = box_sums(now)
    kept, fresh, changed = [], [], []
    for id, box in now.boxes.items():
        if id in reset or id not in index.boxes:
            fresh.append(id)
        elif was.get(id) == sums[id]:
            kept.append(id)
        else:
            changed.append(_changed(box, old, now))
    if changed:
        raise StateError(
            f"the state there is not that of {'; nor that of '.join(changed)}",
            hint="give a changed box another name, or begin it empty: reset=[its name]",
            code="state.changed",
        )
    dropped = [id for id in index.boxes if id not in kept]
    return EvolutionPlan(tuple(kept), tuple(fresh), tuple(dropped))


def check_reset(now: CheckedGraph, reset: Collection[str]) -> None:
    """Raises: QueryError: ``reset`` is no list, or names a box that isn't there."""
    if isinstance(reset, str):
        raise QueryError(
            f"reset: expected a list of boxes, got {reset!r}",
            hint=f"reset=[{reset!r}]",
            code="query.argument",
        )
    for id in reset:
        if id not in now.boxes:
            raise QueryError(
                f"reset: the query has no box {id!r}",
                hint=did_you_mean(str(id), now.boxes),
                code="query.box",
            )


def _changed(box: Box, old: CheckedGraph, now: CheckedGraph) -> str:
    before = signatures(old).get(box.id)
    found = [] if before is None else differences(before, signatures(now)[box.id])
    return f"{label_of(box)} ({'; '.join(found) or 'what it was is not known'})"


def catch_up(graph: Graph, boxes: Mapping[str, Operator], fresh: Collection[str], id: str) -> None:
    """Tell a box the boundaries of its inputs that it doesn't know; boxes above it know theirs.

    Raises:
        StateError: a box with state was promised more than its new input can hold.
    """
    spec = next(box for box in graph.boxes if box.id == id)
    for number, arc in enumerate(spec.inputs):
        above, box = boxes[arc.box], boxes[id]
        time_us = promise_of(above, arc.port)
        if id not in fresh:
            check_promised(spec, box, number, above, time_us)
        box.receive(number, Boundary(time_us))


def promise_of(box: Operator, port: str) -> int:
    """What a box has promised by one of its ports so far."""
    if port in box.boundary_ports:
        return box.boundary_us
    return int(END_US) if box.boundary_us >= END_US else int(START_US)


def check_promised(spec: Box, box: Operator, number: int, above: Operator, time_us: int) -> None:
    """See that an input of a box with state can promise as much as was promised to it.

    Raises:
        StateError: it can't.
    """
    promised_us = box.inputs_us[number]
    # A table without updates has no inputs: its look-ups know that it says nothing.
    if promised_us > time_us and above.inputs_us:
        raise StateError(
            f"{label_of(spec)} was promised that nothing before {show_time(promised_us)} comes any more;"
            f" its input {above.id!r} can promise {show_time(time_us)} only",
            hint=f"begin it empty too: reset=[{spec.id!r}]",
            code="state.boundary",
        )
