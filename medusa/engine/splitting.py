"""A box that is split, and merged again, while its query runs: with its state, and exactly.

Between two pushes nothing waits between boxes but what the merge holds back, so the state of the box,
cut by ranges of its keys, is all that its parts need to go on (docs/splitting.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from medusa.engine.core.box import BoxState, Operator
from medusa.engine.core.spool import Streamed
from medusa.engine.fragment import Fragment
from medusa.engine.operators.ordered_merge import OrderedMergeBox
from medusa.engine.query_change import Given, whole_state
from medusa.engine.repartition.partition import combine_states, partition_state, weights_of
from medusa.engine.state.delta import read_table
from medusa.errors import QueryError
from medusa.query.boxes import Graph, Input
from medusa.query.rewrite.key_ranges import ranges_of_seen
from medusa.query.rewrite.split import find_split, functions_of_parts, merge, split

__all__ = ["Repartition", "merge_running", "split_running", "weighing"]


@dataclass(frozen=True, slots=True)
class Repartition:
    """What ``change_fragment`` needs to split or merge a box.

    Attributes:
        parts: ids of the parts.
        given: makes the state of the boxes that take over.
        functions: of users, by box, where they aren't registered.
        before: to be called first: sends what waits in the merge.
    """

    graph: Graph
    parts: tuple[str, ...]
    given: Given
    functions: Mapping[str, object]
    before: Callable[[], None] = lambda: None


def split_running(
    fragment: Fragment, box: str, n: int | None, *, ranges: str | Sequence[int], block: int
) -> Repartition:
    """Split a box of a fragment that is at rest.

    Args:
        ranges: ``even``; ``weight``: such that the rows that its state counts are shared; or where they end.

    Raises:
        QueryError: the box can't be split; ``ranges`` are none, or there is no state to weigh by.
    """
    inputs = [fragment.checked.shapes[arc] for arc in _inputs(fragment, box)]
    cuts: Sequence[int] | None = None
    if ranges == "weight":
        cuts = weighing(fragment, box, n)()
    elif isinstance(ranges, str):
        if ranges != "even":
            raise QueryError(
                f'split of {box!r}: ranges is "even", "weight", or where they end, got {ranges!r:.40}',
                code="query.split",
            )
    else:
        cuts = ranges
    graph = split(fragment.graph, box, n, cuts=cuts, block=block)
    made = find_split(graph, box)

    def given(boxes: Mapping[str, Operator]) -> Mapping[str, BoxState]:
        fresh = {id: boxes[id].save() for id in made.ids}
        return partition_state(made, inputs, whole_state(fragment.boxes[box]), fresh, _shelf(fragment))

    functions = functions_of_parts(graph, box, fragment.functions)
    return Repartition(graph, tuple(part.id for part in made.parts), given, functions)


def weighing(fragment: Fragment, box: str, n: int | None) -> Callable[[], tuple[int, ...]]:
    """What finds where ranges of a box end that share what it holds now, for any thread to call.

    Raises:
        QueryError: the box can't be split; when called: it holds no keys.
    """
    trial = find_split(split(fragment.graph, box, n), box)
    inputs = [fragment.checked.shapes[arc] for arc in _inputs(fragment, box)]
    state = whole_state(fragment.boxes[box])

    def cuts() -> tuple[int, ...]:
        hashes, rows = weights_of(trial, inputs, state)
        if not hashes:
            raise QueryError(
                f"split of {box!r}: it holds no keys yet by which ranges could be weighed",
                hint='ranges="even", or split it when rows have come',
                code="query.split",
            )
        return ranges_of_seen(hashes, rows, len(trial.parts))

    return cuts


def merge_running(fragment: Fragment, box: str) -> Repartition:
    """Merge a box of a fragment that is at rest.

    Raises:
        QueryError: it isn't split.
    """
    graph = merge(fragment.graph, box)
    made = find_split(fragment.graph, box)
    inputs = [fragment.checked.shapes[router.inputs[0]] for router in made.routers]

    def before() -> None:
        for each in made.merges:
            running = fragment.boxes[each.id]
            if isinstance(running, OrderedMergeBox):
                running.flush()
        fragment.quiesce()

    def given(boxes: Mapping[str, Operator]) -> Mapping[str, BoxState]:
        states = {id: whole_state(fragment.boxes[id]) for id in made.ids}
        return {box: combine_states(made, inputs, states, boxes[box].save())}

    return Repartition(graph, tuple(part.id for part in made.parts), given, fragment.functions, before)


def _inputs(fragment: Fragment, box: str) -> tuple[Input, ...]:
    found = fragment.checked.boxes.get(box)
    return () if found is None else found.inputs


SHELVED_BYTES_MIN = 1 << 20
"""Of a part's table: smaller ones stay in memory until all parts have theirs."""


def _shelf(fragment: Fragment) -> Callable[[pa.Table], pa.Table]:
    """Puts a part's table on the disk of a run that spills: of all parts one is in memory at a time."""
    spool = None if fragment.storage is None else fragment.storage.spool
    if spool is None:
        return lambda table: table

    def shelve(table: pa.Table) -> pa.Table:
        if table.nbytes < SHELVED_BYTES_MIN:
            return table
        written = Streamed(spool, table.schema, table.to_batches()).write()
        return read_table(written).replace_schema_metadata(None)

    return shelve
