"""How much a fragment may ask of a node, told from its spec alone, before anything of it runs.

What a spec says of itself is counted in few passes over boxes and arcs, never by following paths:
twenty unions that each read the one before twice are forty arcs and a million rows.

What depends on the data is bounded where the data is: rows by credit, memory by retention.
"""

from __future__ import annotations

from medusa.errors import QueryError
from medusa.query.boxes import Box, Graph, Input, Source
from medusa.query.expressions.expression import Expression
from medusa.query.expressions.tree import DEPTH_MAX, children
from medusa.query.graph import label_of
from medusa.query.structs import expressions_of
from medusa.query.text_growth import TextGrowth

__all__ = ["check_limits"]

READERS_MAX = 1_000
"""Boxes that read one stream."""

NODES_MAX = 10_000
"""Parts of the expressions of one box. All boxes together: ten times as many."""

ROWS_MAX = 1_000_000
"""Rows that one row of every source may become, by unions, windows that overlap, and time grids."""

STEPS_MAX = 100_000_000
"""Parts of expressions computed for one row of every source."""

HELD_BYTES_MAX = 1 << 30
"""Of rows that boxes keep by number (sorts, row windows, lag, top), however few groups there are."""

GROWTH_MAX = 100_000
"""How many times longer than those of the sources a text may become."""


def check_limits(graph: Graph) -> None:
    """Whether a checked graph stays within the limits of this module.

    Raises:
        QueryError: it doesn't (``E_SPEC``); says the place in the spec, the number and the limit.
    """
    readers: dict[Input, int] = {}
    total = held = 0
    for index, box in enumerate(graph.boxes):
        where = f"boxes[{index}] ({label_of(box)})"
        total += _check_expressions(box, where)
        if total > 10 * NODES_MAX:
            raise _beyond(where, f"{total:,} parts of expressions up to here", 10 * NODES_MAX)
        for place, arc in enumerate(box.inputs):
            readers[arc] = readers.get(arc, 0) + 1
            if readers[arc] > READERS_MAX:
                raise _beyond(
                    f"{where}.inputs[{place}]", f"{arc.box!r} has {readers[arc]:,} readers", READERS_MAX
                )
        held += box.kept_bytes
        if held > HELD_BYTES_MAX:
            raise _beyond(where, f"{held:,} bytes of rows kept up to here", HELD_BYTES_MAX)
    _check_rows(graph)
    _check_growth(graph)


def _beyond(where: str, what: str, limit: float) -> QueryError:
    return QueryError(f"{where}: {what}, at most {limit:,}", code="E_SPEC")


# --- expressions ----------------------------------------------------------------------------------


def _check_expressions(box: Box, where: str) -> int:
    """Parts of all expressions of a box."""
    total = 0
    for path, expression in expressions_of(box, where):
        stack = [(expression, path, 1)]
        while stack:
            node, place, depth = stack.pop()
            total += 1
            if depth > DEPTH_MAX:
                raise _beyond(path, f"an expression {depth} deep", DEPTH_MAX)
            if total > NODES_MAX:
                raise _beyond(path, f"{total:,} parts of expressions in one box", NODES_MAX)
            stack += [(child, place, depth + 1) for child in children(node)]
    return total


# --- rows -------------------------------------------------------------------------------------------


def _check_rows(graph: Graph) -> None:
    """How many rows one row of every source becomes, and how much is computed for them."""
    sources = max(sum(isinstance(box, Source) for box in graph.boxes), 1)
    rows: dict[str, float] = {}
    steps = 0.0
    for index, box in enumerate(graph.boxes):
        came = sum(rows[arc.box] for arc in box.inputs) if box.inputs else 1.0
        rows[box.id] = made = came * box.rows_made
        where = f"boxes[{index}] ({label_of(box)})"
        if made > ROWS_MAX * sources:
            what = f"one row of each of {sources} sources becomes {made:.3g} rows"
            raise _beyond(where, what, ROWS_MAX * sources)
        parts = sum(_size(expression) for _, expression in expressions_of(box, ""))
        steps += max(came, made) * (1 + parts)
        if steps > STEPS_MAX * sources:
            what = f"{steps:.3g} steps for one row of each of {sources} sources up to here"
            raise _beyond(where, what, STEPS_MAX * sources)


def _size(expression: Expression) -> int:
    count, stack = 0, [expression]
    while stack:
        count += 1
        stack.extend(children(stack.pop()))
    return count


# --- texts ------------------------------------------------------------------------------------------


def _check_growth(graph: Graph) -> None:
    """How long texts become: a chain of ``s || s`` doubles them in each box."""
    streams: dict[str, TextGrowth] = {}
    for index, box in enumerate(graph.boxes):
        made = box.texts([streams[arc.box] for arc in box.inputs])
        streams[box.id] = made
        if max(made.most(), made.others) > GROWTH_MAX:
            text = f"texts up to {max(made.most(), made.others):.3g} times as long as those of the sources"
            raise _beyond(f"boxes[{index}] ({label_of(box)})", text, GROWTH_MAX)
