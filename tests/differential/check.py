"""One case, all ways: ``python -m tests.differential.check SEED`` replays it and tells what was drawn."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext

import duckdb

from medusa.query.boxes import Box
from medusa.query.graph import order_dependent
from tests.differential import asking, runner
from tests.differential.answers import Difference, expected, same_answer, same_bits, same_rows
from tests.differential.data import plain
from tests.differential.generator import Case, case
from tests.oracle.query import Promise

SAVED_EVERY = 16
"""A checkpoint folder is synced, which takes long: one case in so many."""

THREADS = (1, 2, 3)


def check(seed: int, con: duckdb.DuckDBPyConnection) -> Counter[str]:
    """Raises ``Difference``, which names the seed; tells what was drawn."""
    try:
        drawn = case(seed)
        return compare(drawn, con)
    except Exception as error:
        raise Difference(
            f"seed {seed}: {type(error).__name__}: {error}\nreplay: python -m tests.differential.check {seed}"
        ) from error


def compare(case: Case, con: duckdb.DuckDBPyConnection) -> Counter[str]:
    modes: Counter[str] = Counter()
    base, late = runner.uncut(case)
    oracle = expected(case, case.events)
    same_answer(case, base, oracle, "the oracle")
    if late != oracle.late:
        raise Difference(f"late rows {late}, expected {oracle.late}")

    rng = random.Random(f"run {case.seed}")
    threads = THREADS[case.seed // 4 % len(THREADS)]

    def again(what: str, run: Callable[[], runner.Outcome]) -> None:
        with runner.few_are_many(rng.choice([1, 2, 4])) if rng.random() < 0.6 else nullcontext():
            tables, counted = run()
        same_bits(case, base, tables, what)
        if counted != late:
            raise Difference(f"{what}: late rows {counted}, expected {late}")
        modes[f"mode.{what}"] += 1

    again("restored", lambda: runner.restored(case, rng))
    again("sliced", lambda: runner.sliced(case, rng))
    again(f"threads={threads}", lambda: runner.live(case, rng, threads))
    if not any(isinstance(event, Promise) for event in case.events) and case.seed % 2:
        again("collected", lambda: runner.collected(case, rng.choice(THREADS)))
    if case.seed % SAVED_EVERY in (1, 3) and not order_dependent(case.query.graph):
        again("saved", lambda: runner.saved(case, rng, threads))
    modes.update(with_duckdb(case, base, con))
    rows = sum(table.num_rows for table in base.values())
    modes["data.rows"] += rows
    modes["data.empty"] += not rows
    modes["data.late"] += any(late.values())
    return modes + case.drawn


def with_duckdb(case: Case, base: runner.Tables, con: duckdb.DuckDBPyConnection) -> Counter[str]:
    graph, modes = case.query.graph, Counter[str]()
    if case.text is not None:
        theirs = asking.ask_text(con, case.text, graph, case.schemas, case.events)
        (sink,) = base
        ours = [tuple(row.values()) for row in plain(base[sink])]
        same_rows(ours, theirs, f"DuckDB: {case.text}", loose=True)
        modes["duckdb.text"] += 1
        return modes
    for sink, theirs in asking.ask(con, graph, case.schemas, case.events).items():
        names = base[sink].schema.names
        known = [place for place, name in enumerate(names) if not name.startswith("r_approx")]
        ours = [tuple(row.values()) for row in plain(base[sink])]
        same_rows(
            [tuple(row[place] for place in known) for row in ours],
            [tuple(row[place] for place in known) for row in theirs],
            f"DuckDB: sink {sink}",
            loose=sink in case.loose,
        )
        modes["duckdb.sinks"] += 1
    return modes


def many(seeds: Iterable[int]) -> Counter[str]:
    """All of them; what was drawn in total."""
    total: Counter[str] = Counter()
    with asking.connected() as con:
        for seed in seeds:
            total.update(check(seed, con))
    return total


def main(seeds: list[str]) -> None:
    for seed in seeds:
        drawn = case(int(seed))
        print(f"seed {seed}")
        for box in drawn.query.graph.boxes:
            print(f"  {shown(box)}")
        for event in drawn.events:
            print(f"  {event}")
        if drawn.text:
            print(f"  DuckDB: {drawn.text}")
        print(dict(sorted(many([int(seed)]).items())))


def shown(box: Box) -> str:
    """What a box is and reads, with the parameters that it was given."""
    arcs = ", ".join(f"{arc.box}.{arc.port}".removesuffix(".") for arc in box.inputs)
    given = [
        f"{name}={getattr(box, name)}"
        for name in box.__struct_fields__
        if name not in ("id", "inputs") and getattr(box, name) is not None
    ]
    return f"{type(box).__name__} {box.id} <- {arcs}: {', '.join(given)}"


if __name__ == "__main__":
    main(sys.argv[1:])
