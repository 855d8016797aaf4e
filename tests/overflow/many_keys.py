"""Boxes that remember something of each of many keys, on the way to Spark and back: none is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa

import medusa as md
from medusa.elements import END_US, Boundary, Element, Train
from medusa.engine.fragment import Fragment
from medusa.runtime.machine.clock import SystemClock
from medusa.spark.overflow.executor import Executor
from medusa.spark.overflow.remote_fragment import RemoteFragment
from tests.spark import functions

__all__ = ["KINDS", "there_and_back"]

COLUMNS = {"ts": "int64", "k": "int32", "n": "int64"}
TRAINS = 10


def one(build: Callable[[md.Stream], md.Stream]) -> Callable[[], md.Query]:
    def made() -> md.Query:
        q = md.Query("q")
        q.sink("out", build(q.source("rows", COLUMNS, time="ts", unit="us")))
        return q

    return made


def joined() -> md.Query:
    q = md.Query("q")
    left, right = (q.source(name, COLUMNS, time="ts", unit="us") for name in ("rows", "more"))
    q.sink("out", left.join(right.select("k", m="n"), on="k", within="1h").select("k", "m", "n"))
    return q


KINDS: dict[str, tuple[Callable[[], md.Query], tuple[str, str, str], tuple[tuple[int, ...], ...]]] = {
    "window": (
        one(lambda s: s.window("1h").group_by("k").aggregate(c=md.count(), s=md.sum("n"))),
        ("rows", "rows", "rows"),
        ((3, 0 + 1 + 2),),
    ),
    "running": (
        one(lambda s: s.group_by("k").running(c=md.count(), s=md.sum("n")).select("k", "c", "s")),
        ("rows", "rows", "rows"),
        ((1, 0), (2, 1), (3, 3)),
    ),
    "join": (joined, ("rows", "more", "more"), ((1, 0), (2, 0))),
    "process": (one(functions.most), ("rows", "rows", "rows"), ((0,), (1,), (2,), (-3,))),
}
"""Box: query, the source of the rows here, of those there, and of those behind; what each key gives. Each
key has one row in each, whose ``n`` is 0, then 1, then 2."""


def there_and_back(kind: str, executor: Executor, keys: int = 100_000) -> None:
    """All keys are known here, each is met there, and again here."""
    build, sources, wanted = KINDS[kind]
    query = build()
    fragment = Fragment(query.graph, clock=SystemClock())
    left = _fed(fragment, _trains(sources[0], 0, keys))
    away = RemoteFragment(fragment, executor, key="f", shards=2, clock=SystemClock())
    for each in _trains(sources[1], 1, keys):
        away.give(*each)
    left += [element for answer in away.trigger() for _, element in answer.outputs]
    files = away.copying().files()
    away.close()
    fragment = Fragment.restore(query.graph, files, clock=SystemClock())
    ends: list[tuple[str, Element]] = [(source, Boundary(END_US)) for source in query.sources]
    left += _fed(fragment, [*_trains(sources[2], 2, keys), *ends])
    tables = [pa.Table.from_batches([each.batch]) for each in left if isinstance(each, Train)]
    got = pa.concat_tables(tables)
    hidden = [name for name in got.column_names if name.startswith("window_")]
    columns = got.drop_columns(hidden).to_pydict()
    found = Counter(zip(columns.pop("k"), *columns.values(), strict=True))
    assert found == {(key, *values): 1 for key in range(keys) for values in wanted}


def _trains(source: str, leg: int, keys: int) -> list[tuple[str, Element]]:
    """A row of each key; each time in another order."""
    made: list[tuple[str, Element]] = []
    for begin in range(0, keys, keys // TRAINS):
        numbers = range(begin, begin + keys // TRAINS)
        batch = pa.record_batch(
            {
                "ts": pa.array([leg * keys + number for number in numbers], pa.int64()),
                "k": pa.array([number * (7919 + 2 * leg) % keys for number in numbers], pa.int32()),
                "n": pa.array([leg] * len(numbers), pa.int64()),
            }
        )
        made.append((source, Train(batch=batch)))
    return made


def _fed(fragment: Fragment, elements: list[tuple[str, Element]]) -> list[Element]:
    left: list[Element] = []
    for source, element in elements:
        fragment.feed(source, element)
        left += fragment.drain("out")
    return left
