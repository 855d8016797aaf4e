"""Runs a case in several ways; all give the same rows in the same order, bit by bit."""

from __future__ import annotations

import random
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

import medusa as md
from medusa.elements import END_US, Boundary, Element, Train
from medusa.engine import scheduler
from medusa.engine.core import keyed_table, output_pieces, rows
from medusa.engine.expressions import evaluate
from medusa.engine.operators.joins import distinct, join
from medusa.engine.operators.order import resample, wsort
from medusa.engine.operators.windows import groups, running, session, top, window_parts
from medusa.engine.state import checkpoint, delta
from tests.differential.data import batch
from tests.differential.generator import Case
from tests.engine.test_properties import Driver
from tests.oracle.query import Promise, Push

Tables = dict[str, pa.Table]
Outcome = tuple[Tables, dict[str, int]]
"""Tables of the sinks, and how many rows of each source were late."""


def cut(rng: random.Random, case: Case) -> list[tuple[str, pa.RecordBatch | int]]:
    """Every push in pieces: (source, batch or boundary)."""
    most = rng.choice([1, 3, 5, 9, 100])
    made: list[tuple[str, pa.RecordBatch | int]] = []
    for event in case.events:
        if isinstance(event, Promise):
            made.append((event.source, event.time))
            continue
        whole = batch(case.schemas[event.source], event.rows)
        start = 0
        while start < whole.num_rows or not start:
            rows = rng.randint(1, most)
            made.append((event.source, whole.slice(start, rows)))
            start += rows
    return made


LIMITS = [
    *((checkpoint, "FULL_BYTES_MIN"), (delta, "ROWS_MIN"), (distinct, "KEYS_SPARE")),
    *((groups, "DEAD_LEAST"), (join, "KEYS_SPARE"), (join, "ROWS_SPARE")),
    *(
        (join, "PAIRS_MAX"),
        (output_pieces, "ROWS_MAX"),
        (output_pieces, "BYTES_MAX"),
        (resample, "POINTS_MAX"),
    ),
    *((rows, "SMALL_ROWS"), (running, "SPARE"), (scheduler, "QUEUE_MAX")),
    *((session, "KEYS_SPARE"), (keyed_table, "SLOTS_SPARE")),
    *((top, "REDUCE_ROWS"), (window_parts, "PARALLEL_ROWS"), (wsort, "FEW_ROWS")),
]


@contextmanager
def few_are_many(few: int) -> Iterator[None]:
    """Does from a few rows on what is else done from thousands on: threads, native programs, cleaning up."""
    with ExitStack() as patches:
        for module, name in LIMITS:
            patches.enter_context(patch.object(module, name, few))
        yield


class Feeder(Driver):
    """Feeds pieces; checks every header, and that no row of a train lies below its boundary. Early results
    are left out: which come depends on the cuts."""

    def give(self, source: str, what: pa.RecordBatch | int) -> None:
        element = Boundary(what) if isinstance(what, int) else Train(batch=what)
        self.fragment.feed(source, element)

    def elements(self, sink: str) -> list[Element]:
        found = self.fragment.drain(sink)
        return [each for each in found if isinstance(each, Boundary) or each.kind is md.Kind.STABLE]


def outcome(driver: Driver) -> Outcome:
    driver.fragment.finish()
    driver.drain()
    return driver.tables(), {name: spec.late for name, spec in driver.fragment.sources.items()}


def uncut(case: Case) -> Outcome:
    # By kernels one by one; all other ways of running use native programs.
    with patch.object(evaluate, "program_of", lambda *args, **options: None):
        driver = Feeder(case.query)
    for event in case.events:
        if isinstance(event, Push):
            driver.give(event.source, batch(case.schemas[event.source], event.rows))
        else:
            driver.give(event.source, event.time)
    return outcome(driver)


def restored(case: Case, rng: random.Random) -> Outcome:
    """In pieces, with the state taken out and put into a fresh fragment between any two of them."""
    parts = cut(rng, case)
    moments = {rng.randint(0, len(parts)) for _ in range(rng.choice([1, 1, 2, 4]))}
    drains = rng.choice([0.0, 0.3, 1.0])
    driver = Feeder(case.query)
    for number, (source, what) in enumerate(parts):
        if number in moments:
            driver.reload()
        driver.give(source, what)
        if rng.random() < drains:
            driver.drain()
    if len(parts) in moments:
        driver.reload()
    return outcome(driver)


class Slicer(Feeder):
    """Runs each element in slices, and drains between some of them."""

    def __init__(self, query: md.Query, rng: random.Random) -> None:
        super().__init__(query)
        self.rng = rng
        self.slices = 0

    def give(self, source: str, what: pa.RecordBatch | int) -> None:
        element = Boundary(what) if isinstance(what, int) else Train(batch=what)
        fragment, often = self.fragment, self.rng.choice([0.3, 1.0])
        done = fragment.feed_slice(source, element, lambda: self.rng.random() < often)
        while not done:
            self.slices += 1
            if self.rng.random() < 0.2:
                self.drain()
            done = fragment.go_on(lambda: self.rng.random() < often)


def sliced(case: Case, rng: random.Random) -> Outcome:
    """In tiny pieces, as a node runs elements that make too much for one turn."""
    with few_are_many(1):
        driver = Slicer(case.query, rng)
        for source, what in cut(rng, case):
            driver.give(source, what)
        for source in case.query.sources:
            driver.give(source, END_US)
        return outcome(driver)


def live(case: Case, rng: random.Random, threads: int) -> Outcome:
    """As ``md.start`` runs it."""
    taken: dict[str, list[pa.Table]] = {name: [] for name in case.query.sinks}
    with quiet(), md.start(case.query, threads=threads) as run:
        push(run, cut(rng, case), rng, taken)
        run.finish()
        take(run, taken)
        return joined(taken), lates(run)


def saved(case: Case, rng: random.Random, threads: int) -> Outcome:
    """With checkpoints in a folder, some of them deltas, and a run that goes on from the last one."""
    parts = cut(rng, case)
    stop = rng.randint(0, len(parts))
    taken: dict[str, list[pa.Table]] = {name: [] for name in case.query.sinks}
    with quiet(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        with md.start(case.query, checkpoint=path, checkpoint_every=None, threads=threads) as run:
            for _ in range(rng.randint(0, 3)):
                until = rng.randint(0, stop)
                push(run, parts[:until], rng, taken)
                run.checkpoint()
                parts, stop = parts[until:], stop - until
            push(run, parts[:stop], rng, taken)
        with md.restore(path, threads=rng.choice([1, threads])) as run:
            push(run, parts[stop:], rng, taken)
            run.finish()
            take(run, taken)
            return joined(taken), lates(run)


def collected(case: Case, threads: int) -> Outcome:
    """Sources merged by time, so that only what doesn't depend on arrival is compared."""
    tables = {}
    for name, schema in case.schemas.items():
        rows = [
            row
            for event in case.events
            if isinstance(event, Push) and event.source == name
            for row in event.rows
        ]
        tables[name] = pa.Table.from_batches([batch(schema, rows)])
    with quiet():
        got = md.collect(case.query, threads=threads, **tables)
    late = {row["box"]: row["late"] for row in got.stats.to_pylist() if row["box"] in case.schemas}
    return dict(got), late


def push(
    run: md.Run,
    parts: list[tuple[str, pa.RecordBatch | int]],
    rng: random.Random,
    taken: dict[str, list[pa.Table]],
) -> None:
    often = rng.choice([0.0, 0.3])
    for source, what in parts:
        if isinstance(what, int):
            run.boundary(source, what)
        else:
            run.push(source, what)
        if rng.random() < often:
            take(run, taken)


def take(run: md.Run, taken: dict[str, list[pa.Table]]) -> None:
    for name, tables in taken.items():
        tables.append(run.take(name))


def joined(taken: dict[str, list[pa.Table]]) -> dict[str, pa.Table]:
    return {name: pa.concat_tables(tables) for name, tables in taken.items()}


def lates(run: md.Run) -> dict[str, int]:
    rows = run.stats().to_pylist()
    return {row["box"]: row["late"] for row in rows if row["kind"] == "source"}


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        for category in (md.LateWarning, md.DeadRowWarning):
            warnings.simplefilter("ignore", category)
        yield
