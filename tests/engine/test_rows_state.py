"""State of the boxes on rows: what can't have come from a checkpoint is refused, and memory is bounded."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Boundary
from medusa.engine.fragment import Fragment

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "float64"}

BUILDS: dict[str, Callable[[md.Stream], md.Stream]] = {
    "sunion": lambda a: md.sunion(a, a, bucket=100, name="x"),
    "bsort": lambda a: a.bsort("v", slack=4, by="k", name="x"),
    "wsort": lambda a: a.wsort("v", timeout=30, by="k", name="x"),
    "wsort_all": lambda a: a.wsort("v", timeout=30, name="x"),
    "resample": lambda a: a.resample(2, by="k", gap=40, name="x"),
    "distinct": lambda a: a.distinct("k", within=20, name="x"),
    "drop": lambda a: a.drop(0.5, name="x"),
}


def batch(rows: int, keys: int = 3, start: int = 0) -> pa.RecordBatch:
    times = pa.array(range(start, start + rows), pa.timestamp("us", "UTC"))
    values = [float(n * 7 % 11) for n in range(rows)]
    return pa.RecordBatch.from_arrays(
        [times, pa.array([n % keys for n in range(start, start + rows)]), pa.array(values)],
        names=["ts", "k", "v"],
    )


def running(kind: str) -> tuple[md.Query, Fragment]:
    q = md.Query("q")
    q.sink("o", BUILDS[kind](q.source("a", SCHEMA, slack=10)))
    fragment = Fragment(q.graph)
    push(fragment, batch(50))
    return q, fragment


def push(fragment: Fragment, rows: pa.RecordBatch) -> None:
    fragment.push_rows("a", [rows], fragment.check_rows("a", [rows]))


def with_table(files: dict[str, Any], name: str, change: Callable[[pa.Table], pa.Table]) -> dict[str, Any]:
    table = change(pa.ipc.open_file(pa.py_buffer(files[name])).read_all())
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return files | {name: sink.getvalue()}


def set_column(name: str, values: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(name)
        column = table.column(index)
        raw = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        made = pa.array(values(raw.to_pylist()), raw.type).cast(column.type)
        return table.set_column(index, table.schema.field(index), made)

    return change


WRONG: list[tuple[str, str, Callable[[pa.Table], pa.Table]]] = [
    ("sunion", "x.input-1.arrow", set_column("@time", lambda v: [None, *v[1:]])),
    ("sunion", "x.input-0.arrow", set_column("@time", lambda v: [1 << 62, *v[1:]])),
    ("sunion", "x.input-0.arrow", lambda table: table.drop_columns(["v"])),
    ("bsort", "x.held.arrow", lambda table: pa.concat_tables([table, table])),
    ("bsort", "x.held.arrow", set_column("@time", lambda v: [-(1 << 62), *v[1:]])),
    ("wsort", "x.tops.arrow", set_column("@level", lambda v: [3, *v[1:]])),
    ("wsort", "x.tops.arrow", set_column("@level", lambda v: [None, *v[1:]])),
    ("wsort", "x.tops.arrow", set_column("key.k", lambda v: [v[1], *v[1:]])),
    ("wsort_all", "x.tops.arrow", lambda table: table.slice(0, 0)),
    ("wsort", "x.held.arrow", set_column("@time", lambda v: [None, *v[1:]])),
    ("resample", "x.held.arrow", lambda table: table.drop_columns(["@time"])),
    ("resample", "x.waiting.arrow", set_column("@time", lambda v: [None, *v[1:]])),
    ("distinct", "x.keys.arrow", set_column("key.k", lambda v: [v[2], *v[1:]])),
    ("distinct", "x.keys.arrow", set_column("@passed", lambda v: [None, *v[1:]])),
    ("distinct", "x.keys.arrow", set_column("@passed", lambda v: [-(1 << 63), *v[1:]])),
]


@pytest.mark.parametrize(("kind", "name", "change"), WRONG)
def test_wrong_tables_are_refused(kind: str, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    q, fragment = running(kind)
    files = {each: bytes(data) for each, data in fragment.snapshot().items()}
    Fragment.restore(q.graph, files)
    with pytest.raises(md.StateError):
        Fragment.restore(q.graph, with_table(files, name, change))


@pytest.mark.parametrize("kind", list(BUILDS))
@pytest.mark.parametrize("value", [-1, 1 << 80, 1.5, "7", None])
def test_wrong_numbers_are_refused(kind: str, value: Any) -> None:
    q, fragment = running(kind)
    files = {each: bytes(data) for each, data in fragment.snapshot().items()}
    document = json.loads(files["fragment.json"])
    meta = document["boxes"]["x"]["meta"]
    changed = 0
    for key in ("seen", "dropped"):
        if key in meta and not (key == "dropped" and value == 1 << 80):
            files["fragment.json"] = json.dumps(
                document
                | {"boxes": document["boxes"] | {"x": document["boxes"]["x"] | {"meta": meta | {key: value}}}}
            ).encode()
            with pytest.raises(md.StateError):
                Fragment.restore(q.graph, files)
            changed += 1
    assert changed == {"drop": 2, "wsort": 1, "wsort_all": 1}.get(kind, 0) or value == 1 << 80


@pytest.mark.parametrize("kind", ["sunion", "resample", "distinct", "wsort_all"])
def test_memory_follows_what_is_open_not_what_has_been(kind: str) -> None:
    """Forty thousand rows, all with keys of their own: what is held stays the same."""
    _, fragment = running(kind)
    sizes = []
    for turn in range(1, 40):
        push(fragment, batch(1000, keys=1 << 40, start=turn * 1000))
        fragment.drain("o")
        (row,) = [each for each in fragment.stats().to_pylist() if each["box"] == "x"]
        sizes.append(row["state_bytes"] + row["queue_bytes"])
    assert max(sizes[30:]) <= 2 * max(sizes[:10])
    fragment.finish()
    assert fragment.boxes["x"].queue_bytes() == 0


def test_a_bounded_sort_holds_its_boundary_back_for_what_it_holds() -> None:
    q = md.Query("q")
    q.sink("o", q.source("a", SCHEMA, slack=0).bsort("ts", slack=3))
    fragment = Fragment(q.graph)
    push(fragment, batch(10))
    boundary = [each for each in fragment.drain("o") if isinstance(each, Boundary)][-1]
    assert boundary.time_us == 7
    assert "holds 3 (3 of each group)" in fragment.explain()


def test_late_rows_never_enter_boxes_that_depend_on_time_and_pass_the_others() -> None:
    q = md.Query("q")
    a = q.source("a", SCHEMA, slack=0)
    ways = a.route("k = 0", otherwise=True)
    q.sink("ways", ways[0])
    q.sink("left", a.drop(where="k = 7"))
    made = {
        "both": md.sunion(ways[0], ways[1], bucket=10),
        "sorted": ways[0].bsort("v", slack=2),
        "timed": ways[0].wsort("v", timeout=5),
        "first": ways[0].distinct("v", within=5),
        "even": ways[0].resample(5, gap=5),
    }
    for name, stream in made.items():
        q.sink(name, stream)
    fragment = Fragment(q.graph)
    assert fragment.sources_read_in_time() == {"a"}
    push(fragment, batch(20, keys=1, start=100))
    push(fragment, batch(5, keys=1))
    fragment.finish()
    late = {row["box"]: row["late"] for row in fragment.stats().to_pylist()}
    for stream in made.values():
        assert late[stream.arc.box] == 5
    assert fragment.sink("ways").rows_out == fragment.sink("left").rows_out == 25
