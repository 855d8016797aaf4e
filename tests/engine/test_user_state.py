"""Checkpoints of process boxes and tables: small, open to anyone, and never trusted."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Train
from medusa.engine.fragment import Fragment
from medusa.errors import StateError
from tests.engine.user_functions import OUT, STATE, Alarms

SCHEMA = {"ts": "timestamp", "k": "int64", "n": "int32"}
ACCOUNT = {"k": "int64", "n": "int32"}


def query() -> md.Query:
    q = md.Query("q")
    a = q.source("a", SCHEMA, slack=5)
    q.sink("alarms", a.process(Alarms, OUT, by="k", state=STATE, name="p"))
    acc = q.table("acc", key="k", schema=ACCOUNT, expire=100)
    q.sink("u", a.update(acc, set={"n": "n"}))
    q.sink("found", a.lookup(acc, name="l"))
    return q


def rows(*times: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": pa.array([time % 3 for time in times], pa.int64()),
            "n": pa.array([time % 5 for time in times], pa.int32()),
        }
    )


def saved() -> tuple[md.Query, dict[str, bytes]]:
    q = query()
    fragment = Fragment(q.graph)
    fragment.feed("a", Train(batch=rows(*range(0, 40, 2))))
    return q, {name: bytes(data) for name, data in fragment.snapshot().items()}


def read(data: bytes) -> pa.Table:
    return pa.ipc.open_file(io.BytesIO(data)).read_all()


def written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_what_lies_there() -> None:
    _, files = saved()
    keys = read(files["p.keys.arrow"])
    assert keys.schema.names == ["key.k", "@first", "@timers", "state.n"]
    assert keys["key.k"].to_pylist() == [0, 2, 1]
    assert read(files["acc.rows.arrow"]).schema.names == ["key.k", "value.n", "@changed"]


def column(name: str, values: list[Any]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        return table.set_column(place, field, pa.array(values, field.type))

    return change


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("p.keys.arrow", column("key.k", [0, 0, 2])),
        ("p.keys.arrow", column("@first", [0, 1, 10**6])),
        ("p.keys.arrow", column("@first", [0, 0, 1])),
        ("p.keys.arrow", column("@first", [0, None, 1])),
        ("p.keys.arrow", column("@first", [-1, 0, 1])),
        ("p.keys.arrow", column("@timers", [[50, 40], [], []])),
        ("p.keys.arrow", column("@timers", [[1 << 61], [], []])),
        ("p.keys.arrow", column("@timers", [[-(1 << 61)], [], []])),
        ("p.keys.arrow", column("@timers", [None, [], []])),
        ("p.keys.arrow", lambda table: table.drop_columns(["state.n"])),
        ("acc.rows.arrow", column("key.k", [1, 1, 2])),
        ("acc.rows.arrow", column("@changed", [None, 1, 2])),
        ("acc.rows.arrow", column("@changed", [-(1 << 63), 1, 2])),
        ("acc.rows.arrow", column("@changed", [(1 << 63) - 1, 1, 2])),
        ("l.rows.arrow", lambda table: table.rename_columns(["key.x", "value.n", "@changed"])),
    ],
)
def test_what_cant_have_been_saved_is_refused(file: str, change: Callable[[pa.Table], pa.Table]) -> None:
    q, files = saved()
    Fragment.restore(q.graph, files)
    files[file] = written(change(read(files[file])))
    with pytest.raises(StateError, match=file.replace(".", r"\.")):
        Fragment.restore(q.graph, files)


@pytest.mark.parametrize(
    ("name", "value"),
    [("seen", -1), ("seen", True), ("largest_us", "1"), ("ended", 1)],
)
def test_numbers_too(name: str, value: Any) -> None:
    q, files = saved()
    index = json.loads(files["fragment.json"])
    index["boxes"]["p"]["meta"][name] = value
    files["fragment.json"] = json.dumps(index).encode()
    with pytest.raises(StateError, match="box 'p'"):
        Fragment.restore(q.graph, files)


@md.register("test.Tally")
class Tally:
    """Fields with names that a state object might want for itself."""

    def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int) -> dict[str, Any]:
        state.counted = (state.counted or 0) + batch.num_rows
        state.nbytes = "y" * state.counted
        made = {"key": [key], "n": [state.counted], "what": [state.nbytes]}
        if state.counted == 3:
            state.clear()
        return made


def test_fields_may_have_any_name_that_isnt_reserved() -> None:
    q = md.Query("q")
    a = q.source("a", SCHEMA, slack=0)
    state = {"counted": "int64", "nbytes": "utf8"}
    q.sink("out", a.process(Tally, OUT, by="k", state=state, name="p"))
    fragment = Fragment(q.graph)
    empty = fragment.boxes["p"].state_bytes()
    for time in range(0, 12, 3):  # all of key 0
        fragment.feed("a", Train(batch=rows(time)))
    fragment.finish()
    found = pa.Table.from_batches(e.batch for e in fragment.drain("out") if isinstance(e, Train))
    assert found["n"].to_pylist() == [1, 2, 3, 1]
    assert found["what"].to_pylist() == ["y", "yy", "yyy", "y"]
    held = fragment.boxes["p"].state_bytes()
    assert empty < held < empty + 1000  # of the last row alone


def test_a_row_expires_after_its_time_and_not_at_it() -> None:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, slack=0) for name in "ab")
    acc = q.table("acc", key="k", schema=ACCOUNT, expire=100)
    q.sink("u", a.update(acc, set={"n": "n"}))
    q.sink("found", b.lookup(acc, name="l"))
    fragment = Fragment(q.graph)
    fragment.feed("a", Train(batch=rows(3)))
    for boundary in (103, 104):  # whatever is forgotten by now
        for source in "ab":
            fragment.promise(source, boundary)
        fragment.feed("b", Train(batch=rows(boundary).set_column(1, "k", pa.array([0], pa.int64()))))
    fragment.finish()
    found = [e.batch for e in fragment.drain("found") if isinstance(e, Train)]
    assert pa.Table.from_batches(found)["n_right"].to_pylist() == [3, None]


def test_expired_rows_leave_nothing() -> None:
    q = md.Query("q")
    a = q.source("a", SCHEMA, slack=5)
    acc = q.table("acc", key="k", schema=ACCOUNT, expire=100)
    q.sink("u", a.update(acc, set={"n": "n"}))
    q.sink("found", a.lookup(acc, name="l"))
    fragment = Fragment(q.graph)
    for start in range(0, 40_000, 1000):
        batch = rows(*range(start, start + 1000))
        many = batch.set_column(1, "k", pa.array(range(start, start + 1000), pa.int64()))
        fragment.feed("a", Train(batch=many))
    files = {name: bytes(data) for name, data in fragment.snapshot().items()}
    assert read(files["acc.rows.arrow"]).num_rows <= 200
    assert read(files["l.rows.arrow"]).num_rows <= 200
    assert fragment.boxes["acc"].state_bytes() < 1_000_000
