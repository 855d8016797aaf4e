"""The steps of md.spark.stream without Spark: all kinds of boxes in random micro-batches, against md.collect.

What Spark does between the steps is done here by hand: rows come in any order, a group is called where it has
rows, and its state goes through the store each time. tests/spark has the same with Spark.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.engine.bounded_run import without_early
from medusa.query.boxes import Sink, Source
from medusa.query.graph import check_graph
from medusa.spark import support
from medusa.spark.streaming import packed as packing
from medusa.spark.streaming import processor
from medusa.spark.streaming.lateness import FOREVER_US, Entered
from medusa.spark.streaming.packed import Packed, place
from medusa.spark.streaming.spark_windows import check_native
from medusa.spark.streaming.stage import RunningGroup, shown
from medusa.spark.streaming.stages import plan
from medusa.spark.streaming.streaming import _leave
from tests.spark import functions
from tests.spark.cases import CASES, SCHEMA, rows
from tests.spark.same import plain
from tests.spark.test_queries import queries

START = -(1 << 62)

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::medusa.errors.{name}") for name in ("LateWarning", "DeadRowWarning")
]


class Store:
    """Chunks in memory."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, int], bytes] = {}
        self.puts = 0

    def get(self, file: str, number: int) -> bytes | None:
        return self.held.get((file, number))

    def put(self, file: str, number: int, data: bytes) -> None:
        self.puts += 1
        self.held[file, number] = data

    def remove(self, file: str, number: int) -> None:
        del self.held[file, number]


class Steps:
    """A query as a row of steps, with the state that Spark would hold."""

    def __init__(self, query: md.Query, *, shards: int = 3, has: tuple[str, ...] = ("_seq",)) -> None:
        graph = support.leads_to_sinks(without_early(query.graph))
        support.check(graph, support.read_ports(graph))
        self.entered = {
            box.id: Entered(
                source=box.id,
                fields=tuple((field.name, field.type) for field in box.schema),
                time=box.time,
                unit=box.unit,
                slack_us=box.slack_us,
                has=has,
            )
            for box in graph.boxes
            if isinstance(box, Source)
        }
        self.plan = plan(
            check_graph(graph),
            self.entered,
            shards=shards,
            numbered=True,
            on_error="dead",
            modules=(),
        )
        self.sinks = [box.id for box in graph.boxes if isinstance(box, Sink)]
        self.states: dict[tuple[int, int], tuple[bytes, Store]] = {}
        self.out: dict[str, list[pa.RecordBatch]] = {sink: [] for sink in self.sinks}

    def batch(self, chance: random.Random, came: Mapping[str, pa.Table]) -> None:
        """One micro-batch: for each source rows with the columns that ``Entered.carried`` names."""
        packed = []
        for source, table in came.items():
            lane, spec = self.plan.sources[source], self.entered[source]
            table = table.take(np.random.default_rng(chance.randrange(99)).permutation(table.num_rows))
            for start in range(0, table.num_rows, 40):
                part = table.slice(start, 40).select(spec.carried.names).cast(spec.carried)
                data = part.combine_chunks().to_batches()[0].serialize().to_pybytes()
                packed.append(Packed(0, self.plan.entry, lane, 0, START, data))
        for stage in self.plan.stages:
            chance.shuffle(packed)
            after = [each for each in packed if each.stage != stage.number]
            for group in stage.groups:
                mine = [each for each in packed if each.stage == stage.number and each.shard == group.shard]
                if mine:
                    after += self._run(stage, group, mine)
            assert all(each.stage > stage.number for each in after)
            packed = after
        for sink, (lane, shape) in self.plan.sinks.items():
            left = [[each.number, each.rows] for each in packed if each.lane == lane]
            chance.shuffle(left)
            batches = [pa.record_batch([[number], [data]], ["number", "rows"]) for number, data in left]
            self.out[sink] += _leave(msgspec.msgpack.encode((shape.schema, True)), batches)

    def _run(self, stage: Any, group: Any, mine: list[Packed]) -> list[Packed]:
        key = stage.number, group.shard
        index, files, store = None, None, Store()
        if key in self.states:
            data, store = self.states[key]
            index = processor.index_of(data)
            files = processor.load(index, store)
        running = RunningGroup(stage, group, files)
        made = running.run(mine)
        self.states[key] = processor.save(running.snapshot(), index, store).encoded(), store
        return made

    def answers(self) -> dict[str, pa.Table]:
        made = {}
        for sink, (_, shape) in self.plan.sinks.items():
            table = pa.Table.from_batches(self.out[sink], shown(shape.schema, numbered=True))
            assert table["_seq"].to_pylist() == list(range(table.num_rows))
            made[sink] = table.drop_columns(["_seq"]).rename_columns([f.name for f in shape.schema])
        return made


def entering(table: pa.Table, **more: Any) -> pa.Table:
    """Rows with their times and positions, as Spark brings them."""
    times = table["ts"].combine_chunks().view(pa.int64())
    table = table.append_column("@time", times)
    table = table.append_column("@_seq", pa.array(np.arange(table.num_rows) * 3 + 1))
    for name, values in more.items():
        table = table.append_column(f"@{name}", values)
    return table


def ending(table: pa.Table) -> pa.Table:
    """The boundary that ends a stream, behind all rows."""
    last = {name: [None] for name in table.column_names}
    last |= {"@_seq": [10**9], "@_boundary": [FOREVER_US]}
    return pa.table(last, table.schema)


def streamed(
    query: md.Query, tables: Mapping[str, pa.Table], seed: int, **options: Any
) -> dict[str, pa.Table]:
    """The answers of the steps, whose rows come in random micro-batches, and then the end."""
    chance = random.Random(seed)
    steps = Steps(query, has=("_seq", "_boundary"), **options)
    left = {
        name: entering(table, _boundary=pa.nulls(table.num_rows, pa.int64()))
        for name, table in tables.items()
        if name in steps.entered
    }
    ends = {name: ending(table) for name, table in left.items()}
    while any(table.num_rows for table in left.values()):
        came = {}
        for name, table in left.items():
            count = min(table.num_rows, chance.choice([0, 1, 7, 60, 150]))
            if count:
                came[name], left[name] = table.slice(0, count), table.slice(count)
        steps.batch(chance, came)
    steps.batch(chance, ends)
    return steps.answers()


@pytest.fixture(autouse=True, scope="module")
def _small_pieces() -> Iterator[None]:
    """What a step gives travels in many pieces, which Spark may bring in any order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "ROWS_MAX", 16)
        yield


@pytest.mark.parametrize("case", sorted(CASES))
def test_same_as_embedded(case: str) -> None:
    query = CASES[case]()
    tables = {source: rows(seed, 300) for seed, source in enumerate(query.sources)}
    expected = md.collect(query, **tables)
    for seed, shards in ((1, 3), (2, 1)):
        got = streamed(query, tables, seed, shards=shards)
        for sink, table in got.items():
            want = expected[sink].cast(table.schema)
            if case == "union":
                assert sorted(plain(table)) == sorted(plain(want))
            else:
                assert plain(table) == plain(want), f"{sink}: {table.num_rows} rows, expected {want.num_rows}"


@pytest.mark.parametrize("seed", range(3))
def test_functions_of_users_answer_as_embedded(seed: int) -> None:
    q = md.Query("functions")
    cars = q.source("cars", SCHEMA, time="ts", slack="5s")
    q.sink("doubled", cars.filter("n > 10").apply(functions.doubled, {"k": "int32", "n2": "int64"}))
    most = functions.most(cars)
    q.sink("most", most)
    q.sink("sums", most.window("20s").group_by("k").aggregate(c=md.count(), s=md.sum("most")))
    table = rows(seed)
    expected = md.collect(q, cars=table)
    assert min(expected["most"]["most"].to_pylist()) < 0, "timers ran"
    for sink, got in streamed(q, {"cars": table}, seed).items():
        assert plain(got) == plain(expected[sink].cast(got.schema)), sink


def prepared(table: pa.Table, source: str, steps: Steps, seed: int) -> None:
    steps.batch(random.Random(seed), {source: table})


def counts(slack: str | None = "5s", **more: Any) -> md.Query:
    q = md.Query("counts")
    cars = q.source("cars", SCHEMA, time="ts", slack=slack, **more)
    q.sink("out", cars.window("10s").group_by("k").aggregate(c=md.count(), s=md.sum("v")))
    q.sink("late", cars.late)
    return q


def boundary(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64())


def test_boundaries_with_the_rows_make_others_late_as_a_run_s_own_do() -> None:
    table = rows(8)
    half, top = 150, int(np.max(table["ts"].combine_chunks().view(pa.int64()).to_numpy()[:150]))
    with md.start(counts()) as run:
        run.push("cars", table.slice(0, half))
        run.boundary("cars", top)
        run.push("cars", table.slice(half))
        run.finish()
        expected = {sink: run.take(sink) for sink in ("out", "late")}
    for cut in (half, 90, 151):
        steps = Steps(counts(), has=("_seq", "_boundary"))
        marks = [top if row == half - 1 else None for row in range(300)]
        came = entering(table, _boundary=boundary(marks))
        prepared(came.slice(0, cut), "cars", steps, 1)
        prepared(came.slice(cut), "cars", steps, 2)
        prepared(ending(came), "cars", steps, 3)
        got = steps.answers()
        assert {sink: plain(t) for sink, t in got.items()} == {sink: plain(t) for sink, t in expected.items()}
    assert got["late"].num_rows > 40


def test_what_is_said_of_late_and_shed_rows_holds() -> None:
    """The source had partitions: nobody could judge that again."""
    query, table = counts(partition="b"), rows(8)
    with md.start(query) as run:
        run.push("cars", table)
        run.finish()
        expected = {sink: run.take(sink) for sink in ("out", "late")}
    late = plain(expected["late"])
    marks = pa.array([row in late for row in plain(table)])
    least = np.where(np.array(marks), 1 << 60, table["ts"].combine_chunks().view(pa.int64()).to_numpy())
    behind = np.append(np.minimum.accumulate(least[::-1])[::-1][1:], least[-1])
    shed = [row == np.argmin(marks) + 100 for row in range(300)]
    came = entering(table, _boundary=boundary(behind.tolist()), _late=marks, _shed=pa.array(shed))
    steps = Steps(query, has=("_seq", "_late", "_shed", "_boundary"))
    prepared(came.slice(0, 33), "cars", steps, 1)
    prepared(came.slice(33), "cars", steps, 2)
    prepared(ending(came), "cars", steps, 3)
    got = steps.answers()
    assert plain(got["late"]) == late
    assert sum(got["out"]["c"].to_pylist()) == sum(expected["out"]["c"].to_pylist()) - 1


def changed(table: pa.Table, column: str, values: Any) -> pa.Table:
    place = table.column_names.index(column)
    return table.set_column(place, column, pa.array(values, table.schema.field(column).type))


SEQ = list(range(20))


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("@_seq", [*SEQ[:-1], 3], "column '_seq' numbers two rows alike"),
        ("@_seq", [*SEQ[:-1], None], "column '_seq' holds null"),
        ("@_late", [None] * 20, "column '_late' holds null"),
        ("@time", [None] * 20, "its time: a row holds null"),
        ("@time", [1 << 61] * 20, "its time: a row is out of range"),
        ("@_boundary", [1 << 50] * 20, "'_late' says on time .* below the boundary which column '_boundary'"),
    ],
)
def test_values_that_do_not_fit_are_refused(column: str, values: Any, message: str) -> None:
    came = entering(rows(0, 20), _late=pa.array([False] * 20), _boundary=boundary([None] * 20))
    steps = Steps(counts(), has=("_seq", "_late", "_boundary"))
    with pytest.raises(md.DataError, match=f"source 'cars': .*{message}"):
        prepared(changed(came, column, values), "cars", steps, 1)


def test_positions_grow_from_micro_batch_to_micro_batch() -> None:
    came = entering(rows(0, 20))
    steps = Steps(counts())
    prepared(came.slice(10), "cars", steps, 1)
    with pytest.raises(md.DataError, match="'_seq': a row with 1 comes after one with 58 of a micro-batch"):
        prepared(came.slice(0, 10), "cars", steps, 1)


def test_only_chunks_that_changed_are_written_and_damage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(processor, "SMALL_BYTES", 10)
    store = Store()
    data = bytes(range(250)) * 20
    first = processor.save({"a": data, "b": b"small"}, None, store)
    assert (store.puts, len(store.held)) == (5, 5)
    other = data[:2500] + b"!" + data[2501:4100]
    second = processor.save({"a": other, "b": b"Small"}, first, store)
    assert (store.puts, len(store.held)) == (7, 5)  # that with the change, and the last, which is shorter
    assert processor.load(processor.index_of(second.encoded()), store) == {"a": other, "b": b"Small"}
    third = processor.save({"a": data[:1500]}, second, store)
    assert len(store.held) == 2
    store.held["a", 1] = b"x" * 500
    with pytest.raises(md.MedusaError, match="a: chunk 1 is missing or damaged"):
        processor.load(third, store)
    with pytest.raises(md.MedusaError, match="not the state of a step"):
        processor.index_of(b"\xc1")


def test_the_end_closes_a_stream() -> None:
    steps = Steps(counts(), has=("_seq", "_boundary"))
    came = entering(rows(0, 20), _boundary=boundary([None] * 20))
    prepared(ending(came), "cars", steps, 1)
    later = changed(came, "@_seq", [10**9 + n + 1 for n in range(20)])
    with pytest.raises(md.DataError, match="source 'cars' has ended"):
        prepared(later, "cars", steps, 2)


def spark_hash(number: int) -> int:
    """Of an int: Murmur3 (32 bits) of its four bytes with the seed 42, as Java has it."""
    mask = (1 << 32) - 1
    k = number * 0xCC9E2D51 & mask
    k = (k << 15 | k >> 17) * 0x1B873593 & mask
    h = 42 ^ k
    h = ((h << 13 | h >> 19) * 5 + 0xE6546B64) & mask
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def test_a_group_has_one_number_whatever_the_partitions() -> None:
    assert [spark_hash(n) for n in (0, 1, 2, -1)] == [933211791, -559580957, 1765031574, -1604776387]
    numbers = [place(group) for group in range(256)]
    assert [spark_hash(number) for number in numbers] == list(range(256)), "so in partition group mod p"
    assert all(-(1 << 31) <= number < 1 << 31 for number in numbers)


def begun(query: md.Query, came: pa.Table, **options: Any) -> dict[tuple[int, int], tuple[bytes, Store]]:
    """The state behind a first micro-batch."""
    steps = Steps(query, **options)
    prepared(came, "cars", steps, 1)
    return steps.states


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        (counts("1s"), {}, "'cars': .* with a slack in microseconds of 5000000, and now it is 1000000"),
        (counts(None), {}, "'cars': .* with a slack in microseconds of 5000000, and now it is None"),
        (counts(), {"has": ("_seq", "_late", "_boundary")}, r"besides its own \('_seq', '_boundary'\), and"),
        (counts(), {"has": ("_seq",)}, r"besides its own .*, and now it is \('_seq',\)"),
        (counts(), {"shards": 2}, "begun with shards=3, and now it is 2"),
        (counts(), {"shards": 1}, "begun with shards=3, and now it is 1"),
    ],
)
def test_a_checkpoint_is_not_taken_for_another_source_or_other_shards(
    query: md.Query, options: Any, message: str
) -> None:
    empty = pa.nulls(300, pa.int64())
    came = entering(rows(1), _boundary=empty, _late=pa.array([False] * 300))
    before = begun(counts(), came.slice(0, 150), has=("_seq", "_boundary"))
    steps = Steps(query, **{"has": ("_seq", "_boundary"), **options})
    steps.states = before
    with pytest.raises(md.StateError, match=message):
        prepared(came.slice(150), "cars", steps, 2)


def test_shards_do_not_matter_where_there_are_none() -> None:
    q = md.Query("plain")
    q.sink("out", q.source("cars", SCHEMA, time="ts", slack="5s").window("10s").aggregate(c=md.count()))
    came = entering(rows(1))
    steps = Steps(q, shards=4)
    steps.states = begun(q, came.slice(0, 150), shards=2)
    prepared(came.slice(150), "cars", steps, 2)


SETTINGS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": settings.default.phases[:3],  # no shrinking: each try takes a while
}


@settings(max_examples=15, **SETTINGS)
@given(query=queries(), seed=st.integers(0, 1000), shards=st.integers(1, 3))
def test_random_queries(query: md.Query, seed: int, shards: int) -> None:
    tables = {name: rows(seed + place, 120) for place, name in enumerate(query.sources)}
    with md.start(query) as run:  # in which a source without slack lets no row be late, unlike in md.collect
        for source, table in tables.items():
            run.push(source, table)
        run.finish()
        expected = {sink: run.take(sink) for sink in query.sinks}
    for sink, table in streamed(query, tables, seed, shards=shards).items():
        assert plain(table) == plain(expected[sink].cast(table.schema)), sink


@pytest.mark.full
@pytest.mark.issue(7)
@settings(max_examples=300, **SETTINGS)
@given(query=queries(), seed=st.integers(0, 1000), shards=st.integers(1, 3))
def test_many_random_queries(query: md.Query, seed: int, shards: int) -> None:
    test_random_queries.hypothesis.inner_test(query, seed, shards)  # type: ignore[attr-defined]


REFUSED: list[tuple[Any, str]] = [
    (
        lambda s: s.window("10s").group_by("k").aggregate(f=md.first("n"), name="w"),
        "aggregate 'w' has no native plan in Spark: its aggregate 'f' is first, not one of count, sum",
    ),
    (lambda s: s.bsort("n", slack=3, name="b"), "bsort 'b' has no native plan .* only boxes on single rows"),
    (lambda s: s.late, "sink 'out' has no native plan .* it reads .late"),
    (
        lambda s: s.window("1s").aggregate(c=md.count()).window("9s").aggregate(d=md.count(), name="w"),
        "aggregate 'w' has no native plan .* behind another window",
    ),
]


@pytest.mark.parametrize(
    ("options", "said"),
    [({"partition": "k"}, "'cars' has partition="), ({"slack": "1s", "idle": "9s"}, "'cars' has idle=")],
)
def test_no_window_of_spark_s_own_behind_a_source_that_judges_otherwise(
    options: dict[str, Any], said: str
) -> None:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", **options)
    q.sink("rows", cars.filter("n > 0"))
    check_native(q.graph)
    q.sink("out", cars.filter("n > 0").window("1s").aggregate(c=md.count(), name="w"))
    with pytest.raises(md.QueryError, match=f"aggregate 'w' has no native plan in Spark: source {said}"):
        check_native(q.graph)


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_what_spark_has_no_plan_for(build: Any, message: str) -> None:
    q = md.Query("q")
    q.sink("out", build(q.source("cars", SCHEMA, time="ts")))
    with pytest.raises(md.QueryError, match=message):
        check_native(q.graph)
