"""Groups of fragments as Spark jobs: a trigger is one job, in which each group is one partition.

What Spark holds between two triggers are rows: the state of each group in chunks. A job takes these and what
is to be fed, brings both to the partition of the group, and makes the rows that the next one takes, and the
answers. They stay where they were made (``localCheckpoint``): should an executor be lost, the fragment is
begun again from its last checkpoint.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from medusa.decoders import msgpack_decoder
from medusa.ports import Buffer
from medusa.query.boxes import Graph
from medusa.query.codec import graph_to_msgpack
from medusa.runtime.machine.clock import ThreadCpuClock
from medusa.spark.overflow.executor import LostError, modules_of
from medusa.spark.overflow.group import GroupTask, Made, State, run_group
from medusa.spark.session import ended, refuse_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["OnSpark", "worker"]

_MADE = msgpack_decoder(Made)

_TASKS = msgpack_decoder(GroupTask)

CHUNK_BYTES = 1 << 20
STATE, TASK, MADE = 0, 1, 2
_SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("kind", pa.int32()),
        ("token", pa.binary()),
        ("name", pa.string()),
        ("number", pa.int32()),
        ("data", pa.binary()),
    ]
)
COLUMNS = "shard int, kind int, token binary, name string, number int, data binary"

Row = tuple[int, int, bytes, str, int, bytes]


class OnSpark:
    """An ``Executor`` whose groups run on Spark.

    Args:
        modules: that workers import besides those of the functions of a fragment.

    Attributes:
        down: see ``Executor``.

    Raises:
        ConfigError: the session is of Spark Connect.
    """

    def __init__(self, spark: SparkSession, *, modules: tuple[str, ...] = ()) -> None:
        refuse_connect(spark, "a node on Spark keeps state in its driver")
        self._spark = spark
        self._modules = modules
        self._held: dict[str, _Held] = {}
        self.cores = int(spark.sparkContext.defaultParallelism)
        self.down = ""

    def begin(self, key: str, groups: Mapping[int, tuple[Graph, Mapping[str, Buffer]]]) -> None:
        """See ``Executor``."""
        self.end(key)
        rows = [row for number, (_, files) in groups.items() for row in _rows(number, State.of(files))]
        tasks = {
            number: (graph_to_msgpack(graph), (*self._modules, *modules_of(graph)))
            for number, (graph, _) in groups.items()
        }
        try:
            self._held[key] = _Held(tasks, self._frame(rows))
        except Exception as error:
            raise self._lost(key, "a state can't be given to Spark", error) from error

    def run(self, key: str, work: Mapping[int, bytes]) -> dict[int, Made]:
        """See ``Executor``."""
        held = self._of(key)
        tasks = []
        for number, items in work.items():
            graph, modules = held.tasks[number]
            task = GroupTask(graph=graph, modules=modules, items=items)
            tasks += _chunks(number, TASK, b"", "", msgspec.msgpack.encode(task))
        try:
            made = held.rows.union(self._frame(tasks)).repartitionById(len(held.tasks), "shard")
            made = made.mapInArrow(partial(worker), COLUMNS).localCheckpoint(eager=True)
            found = _joined(made.where(f"kind = {MADE}").drop("token").toArrow())
        except Exception as error:
            raise self._lost(key, "a trigger failed", error) from error
        held.go_on_from(made)
        return {number: _MADE.decode(data) for (number, _), data in found.items()}

    def states(self, key: str) -> dict[int, dict[str, Buffer]]:
        """See ``Executor``."""
        held = self._of(key)
        try:
            found = _joined(held.rows.drop("token").toArrow())
        except Exception as error:
            raise self._lost(key, "a state is lost", error) from error
        states: dict[int, dict[str, Buffer]] = {number: {} for number in held.tasks}
        for (number, name), data in found.items():
            states[number][name] = data
        return states

    def end(self, key: str) -> None:
        """See ``Executor``."""
        held = self._held.pop(key, None)
        if held is not None:
            held.let_go()

    def _lost(self, key: str, what: str, error: Exception) -> LostError:
        self._held.pop(key, None)
        if ended(self._spark):
            self.down = "its Spark session has ended"
        return LostError(f"{what}: {error}"[:500])

    def _of(self, key: str) -> _Held:
        if key not in self._held:
            raise LostError(f"nothing is held of {key!r}")
        return self._held[key]

    def _frame(self, rows: Iterable[Row]) -> DataFrame:
        columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        return self._spark.createDataFrame(pa.table(arrays, schema=_SCHEMA))


class _Held:
    """A fragment: of each group its graph and modules; and the rows of all states."""

    def __init__(self, tasks: dict[int, tuple[bytes, tuple[str, ...]]], rows: DataFrame) -> None:
        self.tasks = tasks
        self.rows = rows
        self.made: DataFrame | None = None

    def go_on_from(self, made: DataFrame) -> None:
        """What a trigger made has the states from now on."""
        self.let_go()
        self.made, self.rows = made, made.where(f"kind = {STATE}")

    def let_go(self) -> None:
        """Free what the last trigger made; Spark would, when Java collects garbage."""
        if self.made is not None:
            _free(self.made)


def _free(made: DataFrame) -> None:
    with contextlib.suppress(Exception):  # what a plan is made of is Spark's own affair
        made._jdf.queryExecution().analyzed().rdd().unpersist(False)


# --- on the worker ------------------------------------------------------------------------------


def worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of one partition: groups that have a task run, and the state of others passes."""
    came = list(batches)
    if not came:
        return
    rows = pa.Table.from_batches(came)
    kinds = rows.column("kind").to_pylist()
    if TASK not in kinds:
        yield from came
        return
    files: dict[int, dict[str, bytes]] = {}
    states = rows.filter(pa.array([kind == STATE for kind in kinds]))
    tasks = rows.filter(pa.array([kind == TASK for kind in kinds]))
    shards, named = states.column("shard").to_pylist(), states.column("token").to_pylist()
    tokens: dict[int, bytes] = dict(zip(shards, named, strict=True))
    for (shard, name), data in _joined(states.drop_columns(["token"])).items():
        files.setdefault(shard, {})[name] = data
    work = {shard: data for (shard, _), data in _joined(tasks.drop_columns(["token"])).items()}
    for shard, token in tokens.items():
        state = State(token, files.get(shard, {}))
        out: list[Row] = []
        if shard in work:
            made, state = run_group(_TASKS.decode(work[shard]), state, ThreadCpuClock())
            out += _chunks(shard, MADE, b"", "", msgspec.msgpack.encode(made))
        yield from _batches([*out, *_rows(shard, state)])


def _rows(shard: int, state: State) -> list[Row]:
    return [
        row for name, data in state.files.items() for row in _chunks(shard, STATE, state.token, name, data)
    ]


def _chunks(shard: int, kind: int, token: bytes, name: str, data: bytes) -> list[Row]:
    starts = range(0, max(len(data), 1), CHUNK_BYTES)
    return [
        (shard, kind, token, name, number, data[start : start + CHUNK_BYTES])
        for number, start in enumerate(starts)
    ]


def _joined(rows: pa.Table) -> dict[tuple[int, str], bytes]:
    """Shard and name -> what its chunks say."""
    found: dict[tuple[int, str], dict[int, bytes]] = {}
    columns = (rows.column(name).to_pylist() for name in ("shard", "name", "number", "data"))
    for shard, name, number, data in zip(*columns, strict=True):
        found.setdefault((shard, name), {})[number] = data
    return {key: b"".join(parts[number] for number in sorted(parts)) for key, parts in found.items()}


def _batches(rows: list[Row]) -> Iterator[pa.RecordBatch]:
    """Of some megabytes each."""
    begin, size = 0, 0
    for place, row in enumerate(rows):
        size += len(row[5])
        if size >= 8 * CHUNK_BYTES or place == len(rows) - 1:
            columns: Any = zip(*rows[begin : place + 1], strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
            begin, size = place + 1, 0
