"""Does the answer of a query depend on how its rows were cut, on checkpoints, on threads? It must not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from medusa.engine.bounded_run import SourcePart, measured_slack, merged, with_slack
from medusa.engine.fragment import Fragment
from medusa.engine.input.ingest import normalise, times_of
from medusa.engine.run.output import to_table
from medusa.errors import DataError, QueryError
from medusa.query.boxes import Graph, Source
from medusa.query.codec import refuse_unregistered
from medusa.runtime.embedded.embedded_run import start
from medusa.runtime.machine.event_loop import LoopTasks

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["check_cuts"]

Piece = tuple[str, pa.RecordBatch]
Answer = dict[str, list[str]]


def check_cuts(
    q: Query,
    tables: Mapping[str, Any],
    *,
    runs: int = 20,
    seed: int = 0,
    threads: Sequence[int] = (),
) -> dict[str, pa.Table]:
    """Run a query many times over the same rows and compare what comes out, row by row and bit by bit.

    Each run gets the rows in one order, but cut otherwise: whole tables, single rows, random pieces.
    Every other one is stopped at a random place, its state taken out and put into a fresh query,
    which goes on. Use it for classes and functions of your own (``process``, ``apply``, aggregates),
    which shouldn't notice any of that.

    Where the query has a ``union``, whose order is that of arrival, rows are compared without order.

    Args:
        tables: for each source its rows, as for ``md.collect``; a source without slack gets what
            it needs, so that nothing is late.
        runs: how many.
        seed: of the random pieces; the same seed gives the same ones.
        threads: also run with so many threads, as ``md.start(q, threads=n)``.

    Returns:
        What came out of each sink.

    Raises:
        AssertionError: two runs differ; names the sink, the row, both values, and how to repeat it.
        DataError: the rows don't fit.
    """
    graph = q.graph
    pieces, graph = _pieces(graph, tables)
    loose = any(box.determinism == "arbitrary" for box in graph.boxes)
    expected_tables = _run(q, graph, [pieces])
    expected = _answer(expected_tables, loose)
    saves = _can_save(graph)
    for number in range(runs):
        draw = random.Random(f"{seed}-{number}")
        cut = list(_cut(pieces, draw))
        at = draw.randrange(len(cut) + 1) if saves and number % 2 else None
        parts = [cut] if at is None else [cut[:at], cut[at:]]
        what = f"run {number} of seed {seed}, in {len(cut)} pushes"
        what += "" if at is None else f", restored after {at} of them"
        _compare(expected, _answer(_run(q, graph, parts), loose), what)
    for count in threads:
        _compare(expected, _answer(_threaded(q, graph, pieces, count), loose), f"with threads={count}")
    return expected_tables


def _pieces(graph: Graph, tables: Mapping[str, Any]) -> tuple[list[Piece], Graph]:
    """All rows in the order in which every run gets them, and the graph with a slack that keeps them."""
    inputs: dict[str, list[SourcePart]] = {}
    measured: dict[str, int] = {}
    for spec in (box for box in graph.boxes if isinstance(box, Source)):
        if spec.id not in tables:
            raise DataError(f"no rows for source {spec.id!r}", code="data.source")
        batches = normalise(tables[spec.id], spec.schema, source=spec.id)
        inputs[spec.id] = [SourcePart(batch, times_of(batch, spec)) for batch in batches]
        if spec.time is not None and spec.slack_us is None:
            measured[spec.id] = measured_slack(spec, inputs[spec.id])
    return [(name, part.batch) for name, part in merged(inputs)], with_slack(graph, measured)


def _cut(pieces: Sequence[Piece], draw: random.Random) -> Iterator[Piece]:
    most = draw.choice([1, 3, 50, 5_000])
    for name, batch in pieces:
        start = 0
        while start < batch.num_rows:
            rows = draw.randint(1, most)
            yield name, batch.slice(start, rows)
            start += rows


def _can_save(graph: Graph) -> bool:
    try:
        refuse_unregistered(graph, "a checkpoint")
    except QueryError:
        return False
    return not any(getattr(box, "in_flight", None) is not None for box in graph.boxes)


def _run(q: Query, graph: Graph, parts: Sequence[Sequence[Piece]]) -> dict[str, pa.Table]:
    tasks = LoopTasks()
    try:
        fragment = Fragment(graph, functions=q.functions, tasks=tasks)
        for number, part in enumerate(parts):
            if number:
                files = {name: bytes(data) for name, data in fragment.snapshot().items()}
                fragment = Fragment.restore(graph, files)
            for name, batch in part:
                fragment.push_rows(name, [batch], fragment.check_rows(name, [batch]))
        fragment.finish()
        return {name: to_table(fragment.drain(name), sink.schema) for name, sink in fragment.sinks.items()}
    finally:
        tasks.close()


@dataclass(frozen=True)
class _Given:
    """A graph with the slack it needs, and the functions of the query that it is of."""

    graph: Graph
    functions: dict[str, object]


def _threaded(q: Query, graph: Graph, pieces: Sequence[Piece], threads: int) -> dict[str, pa.Table]:
    given = _Given(graph, q.functions)
    with start(given, threads=threads) as run:  # type: ignore[arg-type]  # all that start reads of a query
        for name, batch in pieces:
            run.push(name, batch)
        run.finish()
        return {name: run.take(name) for name in q.sinks}


def _answer(tables: Mapping[str, pa.Table], loose: bool) -> Answer:
    """Rows as text that tells every bit: NaN is itself, -0.0 isn't 0.0."""
    order: Callable[[list[str]], list[str]] = sorted if loose else list
    return {name: order([repr(row) for row in table.to_pylist()]) for name, table in tables.items()}


def _compare(expected: Answer, found: Answer, what: str) -> None:
    for sink, rows in expected.items():
        for number in range(max(len(rows), len(found[sink]))):
            ours = rows[number] if number < len(rows) else "nothing"
            theirs = found[sink][number] if number < len(found[sink]) else "nothing"
            if ours != theirs:
                raise AssertionError(f"sink {sink!r}, row {number}: uncut {ours}; {what}: {theirs}")
