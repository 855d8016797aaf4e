"""A fragment in shards elsewhere answers as one that runs here: every element, bit for bit, and its state."""

from __future__ import annotations

import itertools
import random
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.apps.workloads import netmon
from medusa.elements import END_US, Boundary, Element, Train
from medusa.engine.fragment import Fragment
from medusa.errors import StateError
from medusa.ports import Buffer
from medusa.query.boxes import Source
from medusa.query.codec import graph_to_msgpack
from medusa.query.types import schema_to_arrow
from medusa.runtime.machine.clock import SystemClock
from medusa.spark.overflow.group import GroupTask, Made, State, run_group
from medusa.spark.overflow.items import encode
from medusa.spark.overflow.remote_fragment import RemoteFragment
from medusa.spark.overflow.sharding import cutting
from tests.overflow.in_process import InProcess

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COLUMNS = {"ts": "int64", "seg": "utf8", "v": "float64"}


def windows() -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", COLUMNS, time="ts", unit="s", slack="5s")
    fast = rows.filter("v > -90", name="fast")
    mean = (
        fast.window("10s", advance="5s").group_by("seg").aggregate(n=md.count(), v=md.avg("v"), name="mean")
    )
    q.sink("out", mean.filter("n > 0", name="some"))
    q.sink("late", rows.late)
    return q


def running() -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", COLUMNS, time="ts", unit="s", slack="5s")
    q.sink("out", rows.group_by("seg").running(n=md.count(), t=md.sum("v"), name="sofar"))
    return q


def sessions() -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", COLUMNS, time="ts", unit="s", slack="5s")
    q.sink("out", rows.session("3s").group_by("seg").aggregate(n=md.count(), v=md.sum("v"), name="visits"))
    return q


def joined() -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", COLUMNS, time="ts", unit="s", slack="5s")
    other = q.source("other", COLUMNS, time="ts", unit="s", slack="5s")
    both = rows.join(other.select("seg", w="v"), on="seg", within="2s", how="left", name="both")
    q.sink("out", both)
    return q


def plain() -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", COLUMNS, time="ts", unit="s", slack="5s")
    q.sink("out", rows.window("10s").aggregate(n=md.count(), v=md.sum("v"), name="all"))
    return q


QUERIES = {"windows": windows, "running": running, "sessions": sessions, "joined": joined, "plain": plain}


def elements(query: md.Query, seed: int, trains: int = 60) -> list[tuple[str, Element]]:
    dice = random.Random(seed)
    schema = schema_to_arrow(next(iter(query.graph.boxes)).schema)
    sources = [box.id for box in query.graph.boxes if box.id in ("rows", "other")]
    made: list[tuple[str, Element]] = []
    at = 0
    for _ in range(trains):
        rows = dice.randrange(1, 9)
        at += dice.randrange(0, 4)
        batch = pa.record_batch(
            {
                "ts": [at + dice.randrange(-7, 3) for _ in range(rows)],
                "seg": [dice.choice("abcdefgh") for _ in range(rows)],
                "v": [dice.uniform(-100, 100) for _ in range(rows)],
            },
            schema=schema,
        )
        made.append((dice.choice(sources), Train(batch=batch)))
    return made + [(source, Boundary(END_US)) for source in sources]


def drained(fragment: Fragment) -> list[tuple[str, Element]]:
    return [(sink, each) for sink in fragment.sinks for each in fragment.drain(sink)]


Reached = dict[str, int]


def shown(outputs: list[tuple[str, Element]], reached: Reached) -> dict[str, list[Any]]:
    """Of each sink: rows with their number, time and mark, in order, and then the last boundary.

    Args:
        reached: sink -> its last boundary: said again, as after a restore, it says nothing.
    """
    found: dict[str, list[Any]] = {}
    said: Reached = {}
    for sink, each in outputs:
        if isinstance(each, Boundary):
            if each.time_us > reached.get(sink, each.time_us - 1):
                said[sink] = each.time_us
            reached[sink] = max(each.time_us, reached.get(sink, each.time_us))
            continue
        mine = found.setdefault(sink, [])
        late = [False] * len(each) if each.late is None else each.late.to_pylist()
        times = [None] * len(each) if each.times is None else each.times.to_pylist()
        for place, row in enumerate(each.batch.to_pylist()):
            mine.append((each.first_seq + place, repr(row), times[place], late[place]))  # NaN is NaN
    for sink, time_us in said.items():
        found.setdefault(sink, []).append(time_us)
    return found


def away(fragment: Fragment, executor: InProcess, shards: int = 3) -> RemoteFragment:
    return RemoteFragment(fragment, executor, key="f", shards=shards, clock=SystemClock())


def there_and_back(query: md.Query, waiting: list[tuple[str, Element]], executor: InProcess) -> int:
    """Feed it here, and now here, now there; each element gives the same. How many rows came out."""
    here = Fragment(query.graph, clock=SystemClock())
    there: Fragment | RemoteFragment = Fragment(query.graph, clock=SystemClock())
    dice = random.Random(5)
    ours: Reached = {}
    theirs: Reached = {}
    rows = 0
    while waiting:
        some = [waiting.pop(0) for _ in range(min(dice.randrange(1, 7), len(waiting)))]
        want = []
        for source, element in some:
            here.feed(source, element)
            left = drained(here)
            rows += sum(len(each) for _, each in left if isinstance(each, Train))
            want.append(shown(left, ours))
        if isinstance(there, RemoteFragment):
            for source, element in some:
                there.give(source, element)
            got = [shown(answer.outputs, theirs) for answer in there.trigger()]
        else:
            got = []
            for source, element in some:
                there.feed(source, element)
                got.append(shown(drained(there), theirs))
        assert got == want
        if dice.random() < 0.4:
            if isinstance(there, RemoteFragment):
                files = there.copying().files()
                there.close()
                there = Fragment.restore(query.graph, files, clock=SystemClock())
            else:
                there = away(there, executor)
    return rows


@pytest.mark.parametrize("name", QUERIES)
def test_each_element_gives_what_it_gives_here_there_and_back_again(name: str) -> None:
    query = QUERIES[name]()
    assert (cutting(query.graph, 3) is None) == (name == "plain")
    executor = InProcess()
    assert there_and_back(query, elements(query, 1), executor) > 5
    assert executor.triggers > 3


def trains_of(source: str, table: pa.Table, rows: int, late: int) -> list[tuple[str, Element]]:
    """Trains of so many rows; now and then one comes ``late`` trains later than it should."""
    parts = table.combine_chunks().to_batches(max_chunksize=rows)
    for place in range(3, len(parts) - late, 7):
        parts.insert(place + late, parts.pop(place))
    return [*((source, Train(batch=part)) for part in parts), (source, Boundary(END_US))]


def test_network_monitoring() -> None:
    query, trace = netmon.query(), netmon.load_trace().drop_columns(["file_row"]).slice(0, 20_000)
    executor = InProcess()
    assert there_and_back(query, trains_of("flows", trace, 300, 6), executor) > 100
    assert executor.triggers > 5


def test_the_tolls_of_figure_1() -> None:
    example = runpy.run_path(str(EXAMPLES / "figure1.py"))
    query = example["query"]()
    schemas = {box.id: schema_to_arrow(box.schema) for box in query.graph.boxes if isinstance(box, Source)}
    tables = dict(zip(schemas, (example["sightings"](), example["tow_trucks"]()), strict=True))
    by_source = [
        trains_of(source, pa.table(tables[source]).cast(schema), 40, 2) for source, schema in schemas.items()
    ]
    waiting = [each for pair in itertools.zip_longest(*by_source) for each in pair if each is not None]
    assert there_and_back(query, waiting, InProcess()) > 0


@pytest.mark.parametrize("name", ["windows", "plain"])
def test_a_lost_trigger_is_done_again_and_nothing_comes_twice(name: str) -> None:
    query = QUERIES[name]()
    here = Fragment(query.graph, clock=SystemClock())
    executor = InProcess()
    executor.fails = {2, 5, 6}
    there = away(Fragment(query.graph), executor)
    ours: Reached = {}
    theirs: Reached = {}
    for number, (source, element) in enumerate(elements(query, 2, 20)):
        here.feed(source, element)
        there.give(source, element)
        [answer] = there.trigger()
        assert shown(answer.outputs, theirs) == shown(drained(here), ours)
        if number == 3:
            there.copying()


class PassesOver(InProcess):
    """Some triggers pass over one of their groups, as if its rows were lost, and nothing fails."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = self.looks = 0

    def run(self, key: str, work: Mapping[int, bytes]) -> dict[int, Made]:
        self.runs += 1
        if self.runs % 4 == 1:
            work = {number: items for number, items in work.items() if number != max(work)}
        return super().run(key, work)

    def states(self, key: str) -> dict[int, dict[str, Buffer]]:
        self.looks += 1
        found = super().states(key)
        return found | {max(found): {}} if self.looks % 3 == 1 else found


@pytest.mark.parametrize("name", ["windows", "running", "plain"])
def test_a_group_that_does_not_answer_is_lost(name: str) -> None:
    query, executor = QUERIES[name](), PassesOver()
    assert there_and_back(query, elements(query, 1), executor) > 5
    assert executor.runs > 3
    assert executor.looks > 1


def test_what_is_lost_again_and_again_is_told() -> None:
    executor = InProcess()
    there = away(Fragment(windows().graph), executor)
    executor.fails = set(range(1, 100))
    there.give("rows", Boundary(1_000_000))
    with pytest.raises(StateError, match="3 times in a row"):
        there.trigger()


@pytest.mark.parametrize("name", ["windows", "plain"])
def test_what_a_source_refuses_is_refused_alone(name: str) -> None:
    query = QUERIES[name]()
    there = away(Fragment(query.graph), InProcess())
    batch = pa.record_batch({"ts": pa.array([None], pa.int64()), "seg": ["a"], "v": [1.0]})
    good = elements(query, 3, 1)[0]
    for each in (good, ("rows", Train(batch=batch)), ("rows", Boundary(END_US))):
        there.give(*each)
    first, refused, last = there.trigger()
    assert (first.refused, last.refused) == ("", "")
    assert "null" in refused.refused
    assert last.outputs


def test_figures_are_those_of_the_boxes_of_the_query() -> None:
    query = windows()
    here, there = Fragment(query.graph, clock=SystemClock()), away(Fragment(query.graph), InProcess())
    for source, element in elements(query, 4)[:-1]:
        here.feed(source, element)
        there.give(source, element)
    there.trigger()
    want, got = here.figures(), there.figures()
    assert [(each["box"], each["kind"]) for each in got] == [(each["box"], each["kind"]) for each in want]
    for mine, theirs in zip(got, want, strict=True):
        for name in ("rows_in", "rows_out", "late", "dead", "boundary", "finished"):
            assert mine[name] == theirs[name], (mine["box"], name)
    assert there.boxes["mean"].state_bytes() > 0
    assert set(there.sources) == {"rows"}


def triggered(
    monkeypatch: pytest.MonkeyPatch, executor: InProcess, shards: int, busy_us: Callable[[int], int]
) -> tuple[list[int], list[int]]:
    """Some triggers, after each of which a group says for how long its first box was at work: what is told of
    each, and what boxes count in all by then."""
    run = executor.run
    worked: list[int] = []
    counted: list[int] = []

    def saying(key: str, work: Mapping[int, bytes]) -> dict[int, Made]:
        found = {}
        for number, made in run(key, work).items():
            figures = [{**each, "busy_us": 0} for each in made.figures]
            figures[0]["busy_us"] = busy_us(number)
            found[number] = msgspec.structs.replace(made, figures=figures)
        return found

    monkeypatch.setattr(executor, "run", saying)
    query = running()
    away = RemoteFragment(
        Fragment(query.graph),
        executor,
        key="q/rows",
        shards=shards,
        clock=SystemClock(),
        ran=lambda took_us, worked_us: worked.append(worked_us),
    )
    for source, element in elements(query, 1, trains=3):
        away.give(source, element)
        away.trigger()
        counted.append(sum(each["busy_us"] for each in away.figures()))
    assert len(worked) == executor.triggers > 2
    return worked, counted


@pytest.mark.parametrize(("cores", "want_us"), [(2, 2_000), (1, 3_000), (8, 2_000)])
def test_how_long_cores_had_to_work_is_told_with_each_trigger(
    monkeypatch: pytest.MonkeyPatch, cores: int, want_us: int
) -> None:
    """Each group counts in all what it has done; the busiest has 2 ms of 3, which wait for a single core."""
    executor, busy_us = InProcess(), {0: 0, 1: 0}
    executor.cores = cores

    def more(number: int) -> int:
        busy_us[number] += 1_000 * (number + 1)
        return busy_us[number]

    worked, _ = triggered(monkeypatch, executor, 2, more)
    assert set(worked) == {want_us}


def test_who_has_just_read_a_group_counts_anew_and_what_is_told_never_falls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each worker is new to the group, and has done less than the one before."""
    executor = InProcess()
    worked, counted = triggered(monkeypatch, executor, 1, lambda _: 9_000 - 1_000 * executor.triggers)
    assert worked == [9_000 - 1_000 * trigger for trigger in range(1, executor.triggers + 1)]
    assert counted == list(itertools.accumulate(worked))


def test_a_group_measures_its_boxes_by_the_clock_that_it_is_given() -> None:
    class Counted(SystemClock):
        reads = 0

        def monotonic_us(self) -> int:
            self.reads += 1
            return 10 * self.reads

    query, clock = running(), Counted()
    task = GroupTask(
        graph=graph_to_msgpack(query.graph),
        modules=(),
        items=encode([(number, *each) for number, each in enumerate(elements(query, 1, trains=3))]),
    )
    made, _ = run_group(task, State.of(Fragment(query.graph).snapshot()), clock)
    assert not made.failed
    assert clock.reads
    assert sum(each["busy_us"] for each in made.figures) > 0
