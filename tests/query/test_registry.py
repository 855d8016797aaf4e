"""Functions of users by name and version, and the boxes that name them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.query.boxes import Function
from medusa.query.user_registry import check_functions, reference, registered, resolve

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "float64"}

MAKES_A_TABLE = """
import os
import medusa as md

q = md.Query("q")
q.sink("out", q.source("a", {"k": "int64"}, time=None))
md.collect(q, a={"k": [1]})  # What is begun once for all has begun.
before = len(os.listdir("/proc/self/task"))
q.table("acc", key="k", schema={"k": "int64", "v": "float64"}, from_={"k": [1, 2], "v": [0.5, None]})
print(len(os.listdir("/proc/self/task")) - before, "threads more")
"""


@md.register("registry.same", version=2)
def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


class Nothing:
    def rows(self, key: Any, batch: Any, state: Any, now: int) -> None: ...


def source(q: md.Query) -> md.Stream:
    return q.source("a", SCHEMA, slack=0)


def refused(build: Any, *parts: str) -> None:
    q = md.Query("q")
    a = source(q)
    with pytest.raises(md.QueryError) as caught:
        build(q, a)
    for part in parts:
        assert part in str(caught.value)


class TestRegister:
    def test_a_name_and_version_stand_for_one_object(self) -> None:
        assert md.register("registry.same", version=2)(same) is same
        assert registered("registry.same", 2) is same
        assert reference(same) == Function("registry.same", 2)
        with pytest.raises(md.QueryError, match="stands for same already"):
            md.register("registry.same", version=2)(lambda batch: batch)
        with pytest.raises(md.QueryError, match="is registered as 'registry.same' version 2"):
            md.register("registry.other")(same)

    def test_a_subclass_isnt_registered_with_its_base(self) -> None:
        base = md.register("registry.Base")(type("Base", (Nothing,), {}))
        assert reference(type("Below", (base,), {})) == Function("")

    @pytest.mark.parametrize("name", ["", "1a", "a b", "a" * 65, None])
    def test_names(self, name: Any) -> None:
        with pytest.raises(md.QueryError, match="can't be the name"):
            md.register(name)

    @pytest.mark.parametrize("version", [0, -1, True, 1.0, "1"])
    def test_versions(self, version: Any) -> None:
        with pytest.raises(md.QueryError, match="whole number from 1"):
            md.register("registry.version", version=version)

    def test_what_is_missing_is_said(self) -> None:
        with pytest.raises(md.QueryError, match="there is version 2 of it"):
            resolve(Function("registry.same", 1), label="apply 'x'")
        with pytest.raises(md.QueryError, match="did you mean 'registry.same'"):
            check_functions({"apply 'x'": [Function("registry.sam")]})
        with pytest.raises(md.QueryError, match="is not registered"):
            check_functions({}, [Nothing])


class TestQueries:
    def test_a_query_holds_the_name_never_the_function(self) -> None:
        q = md.Query("q")
        a = source(q)
        q.sink("out", a.apply(same, SCHEMA))
        again = md.Query.from_json(q.to_json())
        assert again.graph == q.graph
        assert again.functions == {}
        rows = {"ts": [1], "k": [1], "v": [1.0]}
        table = pa.table({**rows, "ts": pa.array([1], pa.timestamp("us"))})
        assert md.collect(again, a=table).only.num_rows == 1

    def test_an_unregistered_one_has_no_text_form(self) -> None:
        q = md.Query("q")
        a = source(q)
        q.sink("out", a.process(Nothing, SCHEMA, by="k", name="mine"))
        assert q.functions == {"mine": Nothing}
        for form in (q.to_json, q.to_msgpack):
            with pytest.raises(md.QueryError, match="process 'mine': its function is not registered"):
                form()

    def test_a_text_form_with_an_empty_name_is_refused(self) -> None:
        q = md.Query("q")
        q.sink("out", source(q).apply(same, SCHEMA))
        text = q.to_json().replace('"registry.same"', '""').replace('"version": 2', '"version": 1')
        with pytest.raises(md.QueryError, match="not registered"):
            md.Query.from_json(text)


class TestRefused:
    def test_apply(self) -> None:
        refused(lambda q, a: a.apply(3, SCHEMA), "expected a function, got int")
        refused(lambda q, a: a.apply(same, {"_row": "int64"}), "'_row'", "can't be declared")
        refused(lambda q, a: a.apply(same, SCHEMA, in_flight=3), "in_flight is for async functions")

        async def call(batch: Any) -> Any: ...

        refused(lambda q, a: a.apply(call, SCHEMA, in_flight=0), "in_flight is 1 to 10,000")
        refused(lambda q, a: a.apply(call, SCHEMA, in_flight=True), "in_flight is a number of calls")

    def test_process(self) -> None:
        refused(lambda q, a: a.process(same, SCHEMA, by="k"), "expected a class with a method rows")
        refused(lambda q, a: a.process(Nothing(), SCHEMA, by="k"), "the class itself")
        refused(lambda q, a: a.process(Nothing, SCHEMA, by="kk"), "no column 'kk'")
        refused(lambda q, a: a.process(Nothing, SCHEMA, by="k", state={"wake_at": "int64"}), "'wake_at'")
        refused(lambda q, a: a.process(Nothing, SCHEMA, by="k", state={"a b": "int64"}), "an attribute")
        refused(lambda q, a: a.process(Nothing, {"_time": "timestamp"}, by="k"), "'_time'")
        refused(lambda q, a: a.late.process(Nothing, SCHEMA, by="k"), "needs a time")
        refused(lambda q, a: md.process(Nothing, [a], SCHEMA, by="k"), "a mapping of names to streams")
        other = lambda q, a: md.process(  # noqa: E731
            Nothing, {"a": a, "b": a.select(k="CAST(k AS utf8)")}, SCHEMA, by="k"
        )
        refused(other, "the key is int64 in", "and utf8 in")

    def test_tables(self) -> None:
        def table(q: md.Query, **more: Any) -> Any:
            return q.table("acc", **{"key": "k", "schema": {"k": "int64", "v": "float64"}, **more})

        refused(lambda q, a: table(q, key="kk"), "the key 'kk' is not in the schema", "did you mean 'k'?")
        refused(lambda q, a: table(q, from_={"k": [1, 1], "v": [0.0, 1.0]}), "several rows have the same k")
        refused(lambda q, a: table(q, from_={"k": [1]}), "no v")
        refused(lambda q, a: table(q, expire=0), "expire")
        refused(lambda q, a: a.update(table(q), set={"v": "table.v + v"}), "say what a key that isn't there")
        refused(lambda q, a: a.update(table(q), set={"k": "k"}), "no column of the table besides its key")
        refused(lambda q, a: a.update(table(q), set={"w": "v"}), "'w' is no column", "there is: v")
        refused(lambda q, a: a.update(table(q), set={"v": "k"}), "is float64, the expression int64")
        refused(lambda q, a: a.update(table(q), set={"v": "v"}, by="v"), "the key 'k' of the table is int64")
        refused(lambda q, a: a.lookup(table(q), how="right"), '"left" or "inner"')
        refused(lambda q, a: a.lookup(table(q), suffix=""), "'v' stands twice")
        refused(lambda q, a: a.lookup("acc"), "expected a table, got str")
        refused(lambda q, a: a.late.lookup(table(q)), "needs a time")

    @pytest.mark.skipif(
        not Path("/proc/self/task").exists(), reason="threads are counted as Linux shows them"
    )
    def test_a_table_is_made_in_the_thread_of_its_caller(self) -> None:
        """A thread of pyarrow's that still has its rows when the program ends aborts that."""
        done = subprocess.run(
            [sys.executable, "-c", MAKES_A_TABLE], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "0 threads more\n"), done.stderr

    def test_an_update_fed_by_a_look_up_of_its_table(self) -> None:
        def build(q: md.Query, a: md.Stream) -> None:
            acc = q.table("acc", key="k", schema={"k": "int64", "v": "float64"})
            found = a.lookup(acc, name="seen").filter("v > 1")
            found.update(acc, set={"v": "v"})

        refused(build, "update of table 'acc'", "lookup 'seen' of the same table 'acc'")

    def test_a_refused_update_leaves_the_query_as_it_was(self) -> None:
        q = md.Query("q")
        a = source(q)
        acc = q.table("acc", key="k", schema={"k": "int64", "v": "float64"})
        a.update(acc, set={"v": "v"})
        before = q.graph
        with pytest.raises(md.QueryError):
            a.update(acc, set={"v": "nothing"})
        assert q.graph == before
        assert md.Query.from_graph(before).graph == before

    def test_updates_may_come_after_look_ups(self) -> None:
        q = md.Query("q")
        a, b = source(q), q.source("b", SCHEMA, slack=0)
        acc = q.table("acc", key="k", schema={"k": "int64", "w": "float64"})
        q.sink("found", a.lookup(acc))
        b.filter("v > 0").update(acc, set={"w": "v"})
        assert md.Query.from_json(q.to_json()).graph == q.graph
        at = lambda *us: pa.array(us, pa.timestamp("us"))  # noqa: E731
        tables = {
            "a": {"ts": at(1, 5), "k": [7, 7], "v": [0.0, 0.0]},
            "b": {"ts": at(5), "k": [7], "v": [2.5]},
        }
        assert md.collect(q, **tables).only["w"].to_pylist() == [None, 2.5]
