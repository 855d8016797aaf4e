"""A query that changes while it runs: choke, drain, change, release (Aurora's way to change a network).

Between two pushes nothing waits between boxes, so all there is to a query is the state of its boxes. A box
that is the same before and after keeps running as it is, with its state; it is only wired anew. What
becomes of the others is decided, and everything that can fail is done, before the first arc is drawn: a
change that is refused has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from medusa.elements import Boundary
from medusa.engine.compile import readers_of_time
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.fragment import Fragment
from medusa.engine.operators.connection import ConnectionPointBox, Connections
from medusa.engine.operators.filter import FilterBox
from medusa.engine.operators.project import ProjectBox
from medusa.engine.operators.sink import SinkBox
from medusa.engine.state.delta import read_table
from medusa.engine.state.evolve import catch_up, check_promised, check_reset, promise_of
from medusa.errors import QueryError, StateError
from medusa.query.boxes import ConnectionPoint, Graph, Source
from medusa.query.graph import CheckedGraph, check_graph, label_of
from medusa.query.signature import differences, signatures

__all__ = ["Change", "Given", "change_fragment", "whole_state"]


@dataclass(frozen=True, slots=True)
class Change:
    """What became of the boxes of a query that was changed.

    Attributes:
        kept: go on with their state.
        fresh: are new, or were to begin empty, and see only rows from now on.
        replaced: what had their name was another box: as ``fresh``. By box, what differs.
        dropped: are gone, with their state.
    """

    kept: tuple[str, ...]
    fresh: tuple[str, ...]
    replaced: Mapping[str, str]
    dropped: tuple[str, ...]

    @property
    def empty(self) -> frozenset[str]:
        """All that begin empty."""
        return frozenset((*self.fresh, *self.replaced))

    @property
    def gone(self) -> frozenset[str]:
        """All whose state nobody has any more."""
        return frozenset((*self.dropped, *self.replaced))

    def __str__(self) -> str:
        words = [
            f"{what} {', '.join(each)}"
            for what, each in (
                ("new:", self.fresh),
                ("replaced:", [f"{id} ({why})" for id, why in self.replaced.items()]),
                ("dropped:", self.dropped),
            )
            if each
        ]
        return "; ".join([f"{len(self.kept)} boxes kept", *words])


Given = Callable[[Mapping[str, Operator]], Mapping[str, BoxState]]


def change_fragment(
    fragment: Fragment,
    graph: Graph,
    *,
    functions: Mapping[str, object],
    reset: Collection[str] = (),
    check: Callable[[Change], None] = lambda change: None,
    given: Given | None = None,
) -> Change:
    """Run another query from now on; only between elements.

    Args:
        functions: of users, by box, where they aren't registered.
        reset: boxes that begin empty although they are the same, and sources although they aren't.
        check: is told what would change, and may raise.
        given: makes state for boxes that would begin empty, of all boxes as they were made.

    Raises:
        QueryError: the query doesn't hold or can't run, a source isn't what it was, ``reset`` names no box:
            nothing changed, as with StateError.
        StateError: a sink that goes holds rows, a box can't follow its new input, a history can't begin.
        DataError: the fragment has stopped; or a row failed that a box gave when its input promised more.
    """
    checked = check_graph(graph)
    fragment.quiesce()
    change = compare(
        fragment.checked, checked, functions=fragment.functions, new_functions=functions, reset=reset
    )
    old = fragment.boxes
    check_sinks(change, old)
    check_points(change, fragment.connections)
    check(change)
    reads = readers_of_time(fragment.checked, sink_times=fragment.sink_times)
    reads_now = readers_of_time(checked, sink_times=fragment.sink_times)
    stay = {id: old[id] for id in change.kept if can_stay(old[id], before=reads[id], now=reads_now[id])}
    boxes = fragment.make_boxes(checked, functions=functions, running=stay)
    made = {box.id: box for box in boxes}
    for id in change.kept:
        if id not in stay:
            carry(old[id], made[id])
    states = {} if given is None else given(made)
    for id, state in states.items():
        made[id].load(state)
    empty = change.empty - states.keys()
    rehearse(checked, made, empty)
    points = Connections(boxes)
    for id in change.empty & points.keys():
        points[id].open()
    # From here on nothing is refused.
    for box in stay.values():
        box.disconnect()
    fragment.letters.untap()
    for id in change.gone & fragment.connections.keys():
        fragment.connections[id].close()
    fragment.wire(checked, boxes, functions)
    for spec in graph.boxes:
        if isinstance(spec, ConnectionPoint):
            points[spec.id].retain(spec)
    for id in made:
        catch_up(graph, made, empty, id)
        fragment.quiesce()
    return change


def compare(
    before: CheckedGraph,
    now: CheckedGraph,
    *,
    functions: Mapping[str, object],
    new_functions: Mapping[str, object],
    reset: Collection[str],
) -> Change:
    """What becomes of each box.

    Args:
        functions: of users, by box, of the query that runs, where they aren't registered: such a box is
            the same only where its function is the same object.
        new_functions: those of the query that it becomes.
        reset: boxes that begin empty though they are the same, and sources though they aren't.

    Raises:
        QueryError: a source isn't what it was, so its numbers would begin anew; ``reset`` names no box.
    """
    check_reset(now, reset)
    old, new = signatures(before), signatures(now)
    kept, fresh, replaced = [], [], {}
    for id, box in now.boxes.items():
        if id not in old:
            fresh.append(id)
            continue
        found = differences(old[id], new[id])
        if functions.get(id) is not new_functions.get(id):
            found.append("its function is another one, and isn't registered")
        if id in reset:
            replaced[id] = "; ".join(found) or "to begin empty"
        elif not found:
            kept.append(id)
        elif isinstance(box, Source):
            raise QueryError(
                f"{label_of(box)} isn't what it was ({'; '.join(found)}): its rows would be numbered anew",
                hint=f"give it another name, or begin it empty: reset=[{id!r}]",
                code="query.change",
            )
        else:
            replaced[id] = "; ".join(found)
    dropped = tuple(id for id in old if id not in new)
    return Change(tuple(kept), tuple(fresh), replaced, dropped)


def check_sinks(change: Change, boxes: Mapping[str, Operator]) -> None:
    """Refuse to lose rows.

    Raises:
        StateError: a sink that goes holds rows that nobody has taken.
    """
    for id in change.gone:
        box = boxes[id]
        if isinstance(box, SinkBox) and box.held_rows:
            raise StateError(
                f"sink {id!r} goes, and {box.held_rows} rows of it wait to be taken",
                hint=f"take({id!r}) first",
                code="change.rows",
            )


def check_points(change: Change, points: Mapping[str, ConnectionPointBox]) -> None:
    """Refuse to write a history on disk anew while a checkpoint stands on the old one.

    Raises:
        QueryError: a connection point with a history on disk isn't what it was.
    """
    for id, why in change.replaced.items():
        history = points[id].history if id in points else None
        if history is not None and not history.port.memory:
            raise QueryError(
                f"connection_point {id!r} isn't what it was ({why}), and its history is on disk",
                hint="give it another name",
                code="query.change",
            )


def can_stay(box: Operator, *, before: bool, now: bool) -> bool:
    """Whether a box that is kept can run on as it is; else a new one takes its state.

    Args:
        before, now: whether anything below reads the times of its output.
    """
    # A connection point passes times on in any case, and its history is not in its state.
    if isinstance(box, ConnectionPointBox):
        return True
    # Those that look at one row hold nothing, and belong to a chain that may be another one now.
    return before == now and not isinstance(box, FilterBox | ProjectBox)


def carry(old: Operator, new: Operator) -> None:
    """Give a new box all that a box of the same kind holds."""
    new.load(whole_state(old))
    new.succeed(old)


def whole_state(box: Operator) -> BoxState:
    """All that a box holds as tables, of which those that are on disk are read where they are touched.

    Raises:
        StateError: the disk doesn't take it.
    """
    state = box.save()
    read = {
        part: read_table(stream.write()).replace_schema_metadata(None)
        for part, stream in state.streams.items()
    }
    return BoxState(meta=state.meta, tables={**state.tables, **read})


def rehearse(checked: CheckedGraph, boxes: Mapping[str, Operator], empty: Collection[str]) -> None:
    """Bring new boxes, not yet wired, to the boundaries of this moment, and see that the others can follow.

    Raises:
        StateError: a box that is kept was promised more than its new input can hold.
    """
    for spec in checked.graph.boxes:
        for number, arc in enumerate(spec.inputs):
            time_us = promise_of(boxes[arc.box], arc.port)
            if spec.id in empty:
                boxes[spec.id].receive(number, Boundary(time_us))
            else:
                check_promised(spec, boxes[spec.id], number, boxes[arc.box], time_us)
