"""For users: does my query give its answer whatever happens to the nodes that run it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from medusa.engine.input.ingest import normalise
from medusa.errors import QueryError
from medusa.nodes.placement.placement import cut
from medusa.query.boxes import Source
from medusa.query.builder import Query
from medusa.query.suggest import did_you_mean
from medusa.query.types import schema_to_arrow
from medusa.sim.shrink import shrink
from medusa.sim.trials.federations import options
from medusa.sim.trials.queries import QueryTrial
from medusa.sim.trials.trial import Outcome, Scenario, run_trial
from medusa.sim.world.fault_kinds import KINDS, LINKS, MACHINES, WEATHER
from medusa.sim.world.virtual_time import SimulationError, World

__all__ = ["check"]

SHRINK_RUNS_MAX = 30


def check(
    q: Query,
    tables: Mapping[str, Any],
    *,
    at: Mapping[str, Sequence[str]] | None = None,
    seeds: int = 10,
    seed: int | None = None,
    kinds: Sequence[str] | None = None,
    faults: int = 8,
    only: Sequence[int] | None = None,
    rows: int | None = None,
) -> list[Outcome]:
    """Run a query over simulated nodes, under faults drawn from seeds, and compare with one program.

    Nodes, links and recovery are those of ``medusa node``; clock, network, disks and threads are
    simulated. Rows are published over 0.1 or 1.5 virtual seconds while machines crash and links are
    cut; then everything heals, and each sink must hold the rows of ``md.collect``, each once. Their
    order is not compared.

    Args:
        q: the query.
        tables: source -> rows, as for ``md.collect``. They are published in this order, so they are
            in order of time as far as the slack of the source says.
        at: node -> the sources and boxes it has, as for ``deploy``; None: all on one node.
        seeds: how many, from 0.
        seed: this one only.
        kinds: what may go wrong, names of ``medusa.sim.KINDS``; None: weather, links and machines,
            but no damaged disks.
        faults: the most of them in a seed.
        only: numbers of the faults that happen, as a failure says them.
        rows: so many rows of each source only, as a failure says it.

    Returns:
        how each seed ended.

    Raises:
        SimulationError: a seed gave another answer. Its text holds the seed, what it decided, the
            last events and the call that runs it again; then the same of the smallest run that
            fails likewise.
        QueryError: there is no such node, box or kind of fault.
        DataError: the rows don't fit their source.
    """
    chosen = tuple(kinds if kinds is not None else (*WEATHER, *LINKS, *MACHINES))
    for kind in chosen:
        if kind not in KINDS:
            raise QueryError(f"no fault {kind!r}", hint=did_you_mean(kind, KINDS), code="query.argument")
    places = {node: list(boxes) for node, boxes in (at or {"node": list(q.sources)}).items()}
    cut(q.graph, {node: tuple(boxes) for node, boxes in places.items()}, nodes=list(places))
    given = _tables(q, tables)

    def build(world: World, count: int | None, parts: Any) -> QueryTrial:
        part = {source: table.slice(0, count) for source, table in given.items()}
        return QueryTrial(world, q, part, options(world.dice("options"), places))

    scenario = Scenario(about=f"query {q.graph.name}", build=build, kinds=chosen, count=faults)

    def run(number: int, numbers: Sequence[int] | None, count: int | None) -> Outcome:
        outcome = run_trial(q.graph.name, scenario, number, only=numbers, rows=count)
        words = f"seed={number}"
        if numbers is not None:
            words += f", only={[fault.number for fault in outcome.faults]}"
        if count is not None:
            words += f", rows={count}"
        return replace(outcome, replay=f"medusa.sim.check(q, tables, ..., {words})")

    outcomes = []
    for number in range(seeds) if seed is None else [seed]:
        outcome = run(number, only, rows)
        if not outcome.ok:
            most = max(len(table) for table in given.values())
            small = shrink(
                outcome,
                lambda numbers, count, number=number: run(number, numbers, count),  # type: ignore[misc]
                rows=rows or most,
                runs_max=SHRINK_RUNS_MAX,
            )
            smaller = "" if small is outcome else f"\nsmaller, with the same violation:\n{small}"
            raise SimulationError(f"{outcome}{smaller}")
        outcomes.append(outcome)
    return outcomes


def _tables(q: Query, tables: Mapping[str, Any]) -> dict[str, pa.Table]:
    """Rows with the columns of their sources."""
    sources = {box.id: box for box in q.graph.boxes if isinstance(box, Source)}
    for name in tables:
        if name not in sources:
            hint = did_you_mean(name, sources)
            raise QueryError(f"query {q.graph.name!r} has no source {name!r}", hint=hint, code="query.source")
    for name in sources:
        if name not in tables:
            raise QueryError(
                f"no rows for source {name!r}", hint="an empty table will do", code="query.source"
            )
    return {
        name: pa.Table.from_batches(
            normalise(tables[name], source.schema, source=name), schema_to_arrow(source.schema)
        )
        for name, source in sources.items()
    }
