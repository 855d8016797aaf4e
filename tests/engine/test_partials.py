"""Partial results from another node: what can't have come from a partial window is refused whole."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import medusa as md
from medusa.elements import END_US, Boundary, Train
from medusa.engine.fragment import Fragment
from medusa.errors import DataError, StateError
from medusa.query.boxes import Graph
from tests.engine.queries import numbers
from tests.engine.test_windows import split

SECOND = 1_000_000
TIME = pa.timestamp("us", "UTC")

ROWS = {
    "t": [0, 5, 9, 1_500_000, 1_500_001],
    "k": [1, 2, 1, 1, None],
    "v": [5, 6, 7, 8, 9],
    "s": ["a", "b", "", "c", None],
}

MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "null start": ({"window_start": [None, 0, SECOND, SECOND]}, "a bound of the window is null"),
    "null end": ({"window_end": [SECOND, None, 2 * SECOND, 2 * SECOND]}, "a bound of the window is null"),
    "start off the grid": ({"window_start": [7, 0, SECOND, SECOND]}, r"\[7, 1000000\) is not one"),
    "other size": ({"window_end": [SECOND + 1, SECOND, 2 * SECOND, 2 * SECOND]}, "is not one of the windows"),
    "another window than the time says": (
        {"window_start": [SECOND] * 4, "window_end": [2 * SECOND] * 4},
        "a row's time is not the last microsecond of its window",
    ),
    "a closed window": (
        {"window_start": [-SECOND] * 2 + [SECOND] * 2, "window_end": [0] * 2 + [2 * SECOND] * 2},
        "a row's time is not",
    ),
    "out of range": ({"window_start": [1 << 62] * 4, "window_end": [(1 << 62) + SECOND] * 4}, "is not one"),
    "negative count": ({"n.n": [1, -1, 1, 1]}, "row 1: state 'n' of aggregate 0 is negative"),
    "null count": ({"n.n": [1, 1, 1, None]}, "row 3: state 'n' of aggregate 0 is null"),
    "null sum": ({"total.lo": [None, 1, 1, 1]}, "is null"),
    "broken set": ({"d.set": [b"\xff" * 7, b"", b"", b""]}, "a packed set ends within a value"),
    "null set": ({"d.set": [None, b"", b"", b""]}, "is null"),
    "broken texts": ({"texts.texts": [b"", b"\x09\x00\x00\x00a", b"", b""]}, "packed set"),
    "null mean": ({"spread.mean": [None, 1.0, 1.0, 1.0]}, "is null"),
}


def query() -> md.Query:
    q = md.Query("q")
    rows = q.source("a", {"t": "timestamp", "k": "int64", "v": "int64", "s": "utf8"}, time="t", slack=0)
    window = rows.window("1s").group_by("k")
    aggregates = {"n": md.count(), "total": md.sum("v"), "mean": md.avg("v"), "low": md.min("v")}
    sets = {"d": md.count_distinct("v"), "texts": md.count_distinct("s"), "spread": md.variance("v")}
    q.sink("o", window.aggregate(**aggregates, **sets))
    return q


def rows() -> pa.RecordBatch:
    types = (TIME, pa.int64(), pa.int64(), pa.string())
    columns = [pa.array(values, type) for values, type in zip(ROWS.values(), types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=list(ROWS))


def cut() -> tuple[Graph, Train]:
    """A graph that combines two inputs, and what the only edge with rows sends."""
    sender, core = split(query(), 2)
    edge = Fragment(sender)
    edge.feed("a", Train(batch=rows()))
    edge.finish()
    trains = [each for each in edge.drain("out") if isinstance(each, Train)]
    batch = pa.Table.from_batches([each.batch for each in trains]).combine_chunks().to_batches()[0]
    assert batch.num_rows == 4
    times = pa.concat_arrays([each.times for each in trains])
    return core, Train(batch=batch, times=times)


def altered(train: Train, columns: dict[str, Any]) -> Train:
    batch = train.batch
    for name, values in columns.items():
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, batch.schema.field(at), pa.array(values, batch.schema.field(at).type))
    return replace(train, batch=batch)


def answer(fragment: Fragment) -> list[dict[str, Any]]:
    for source in fragment.sources:
        fragment.feed(source, Boundary(END_US))
    trains = [each for each in fragment.drain("o") if isinstance(each, Train)]
    return numbers(pa.Table.from_batches([each.batch for each in trains]))


def contents(fragment: Fragment) -> dict[str, bytes]:
    return {name: bytes(data) for name, data in fragment.snapshot().items()}


def by_key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["window_end"], row["k"] is not None, row["k"]


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_partials_are_refused_on_arrival_and_change_nothing(kind: str) -> None:
    columns, says = MALFORMED[kind]
    core, good = cut()
    fragment = Fragment(core)
    fragment.feed("in0", Boundary(100_000))
    before = contents(fragment)
    with pytest.raises(DataError, match=says) as refused:
        fragment.feed("in0", altered(good, columns))
    assert refused.value.code == "data.partial"
    assert "source 'in0': not partial results of window" in str(refused.value)
    assert contents(fragment) == before
    assert not fragment.stopped
    fragment.feed("in0", good)
    wanted = numbers(md.collect(query(), a=pa.Table.from_batches([rows()])).only)
    assert answer(fragment) == sorted(wanted, key=by_key)


def test_windows_out_of_order_are_refused() -> None:
    core, good = cut()
    order = pa.array([2, 3, 0, 1])
    with pytest.raises(DataError, match="don't come in order of their ends"):
        Fragment(core).feed("in0", Train(batch=good.batch.take(order), times=good.times.take(order)))


def test_malformed_partials_in_a_checkpoint_are_refused() -> None:
    core, good = cut()
    fragment = Fragment(core)
    fragment.feed("in0", good)
    files = dict(fragment.snapshot())
    (name,) = (name for name in files if name.endswith("input-0.arrow"))
    bad = altered(good, {"n.n": [-1, 1, 1, 1]}).batch
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, bad.schema) as writer:
        writer.write_batch(bad)
    assert answer(Fragment.restore(core, files)) == answer(fragment)
    with pytest.raises(StateError, match="is negative"):
        Fragment.restore(core, {**files, name: memoryview(sink.getvalue())})
