"""Wrong use of every public method says what is wrong: never a TypeError or KeyError from inside."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.query.builder import Query
from medusa.query.stream.time_windows import GroupedStream

CARS = {"ts": "timestamp", "vid": "int64", "speed": "float64", "tag": "utf8"}


WRONG: list[Any] = [
    None,
    True,
    -1,
    0,
    1 << 70,
    -(1 << 70),
    1.5,
    math.nan,
    -math.inf,
    "",
    "no such name",
    "x" * 70_000,
    "a\x00b",
    "\ud800",
    "((((",
    b"bytes",
    [],
    [None],
    ["", 7],
    [[]],
    {},
    {"": ""},
    {None: None},
    {"vid": None},
    {7: "vid"},
    (),
    ("a",),
    (1, 2),
    ("", ""),
    timedelta(days=-1),
    timedelta.max,
    object(),
    print,
    md.col("nowhere"),
    md.lit(None),
    md.count(),
    md.lag("vid"),
]
"""None is refused or means what leaving the argument out means; so it is with the others: an answer or a
MedusaError."""


class Enrich:
    def rows(self, key: Any, batch: Any, state: Any, now: int) -> None: ...


class Total:
    inputs = ("int64",)
    state: ClassVar = {"total": "int64"}
    result = "int64"

    def init(self, groups: int) -> Any:
        return {"total": np.zeros(groups, np.int64)}

    def add(self, state: Any, groups: Any, values: Any) -> Any:
        np.add.at(state["total"], groups, values)
        return state

    def merge(self, state: Any, other: Any, groups: Any) -> Any:
        state["total"][groups] += other["total"]
        return state

    def finish(self, state: Any) -> Any:
        return state["total"]


md.register("test.wrong_use.Total")(Total)


def same(batch: Any) -> Any:
    return batch


Call = Callable[..., object]


def calls(q: Query) -> Iterator[tuple[str, Call, dict[str, Any]]]:
    """Every method with arguments that work."""
    s = q.stream("cars")
    other = q.stream("vans")
    table: Any = q.table("accounts", key="vid", schema={"vid": "int64", "bal": "float64"})
    agg = {"aggregates": {"n": md.count()}, "name": "made"}

    def positional(method: Any) -> Call:
        return lambda aggregates, **named: method(aggregates, **named)

    yield "source", q.source, {"name": "new", "schema": CARS, "time": "ts", "slack": "1s"}
    yield "source.unit", q.source, {"name": "new", "schema": {"t": "int64"}, "time": "t", "unit": "s"}
    yield (
        "source.idle",
        q.source,
        {"name": "new", "schema": CARS, "idle": "1s", "ahead": "1s", "arrival": "ts"},
    )
    yield "source.parts", q.source, {"name": "new", "schema": CARS, "partition": "vid", "partitions": [1, 2]}
    yield "table", q.table, {"name": "t", "key": "vid", "schema": CARS, "from_": None, "expire": "1s"}
    yield "table.from", q.table, {"name": "t", "key": "a", "schema": {"a": "int8"}, "from_": {"a": [1]}}
    yield "sink", q.sink, {"name": "out", "stream": s, "qos": md.QoS(value=("vid", [(0, 1), (9, 0)]))}
    graphs = {"latency": [(0, 1), ("5s", 0)], "loss": [(0, 0), (100, 1)], "value": ("vid", [(0, 1), (9, 0)])}
    yield "QoS", md.QoS, graphs
    keep = {"name": "recent", "stream": s, "keep": "1h", "keep_bytes": "1 MiB"}
    yield "connection_point", q.connection_point, keep
    yield "stream", q.stream, {"name": "cars"}
    yield "from_json", md.Query.from_json, {"text": md.Query("q").to_json()}
    yield "from_msgpack", md.Query.from_msgpack, {"data": md.Query("q").to_msgpack()}
    yield "Query", md.Query, {"name": "q"}
    yield "filter", s.filter, {"predicate": "speed > 0", "name": "f"}
    yield "select", lambda column, **n: s.select(column, **n), {"column": "vid", "name": "f"}
    yield "select.named", lambda x: s.select(x=x), {"x": "vid"}
    yield "with_columns", lambda x: s.with_columns(x=x), {"x": "vid + 1"}
    yield "union", lambda other, **n: s.union(other, **n), {"other": other, "name": "u"}
    yield "route", lambda p, **n: s.route(p, **n), {"p": "vid = 1", "otherwise": True, "name": "r"}
    yield "drop", s.drop, {"rate": 0.5, "window": "1s", "by": "vid", "seed": 1, "name": "d"}
    yield "drop.where", s.drop, {"where": "vid = 1"}
    yield "distinct", lambda c, **n: s.distinct(c, **n), {"c": "vid", "within": "1s", "name": "d"}
    yield "sunion", lambda other, **n: s.sunion(other, **n), {"other": other, "bucket": "1s", "name": "u"}
    yield "md.sunion", lambda other, **n: md.sunion(s, other, **n), {"other": other, "bucket": "1s"}
    yield "bsort", s.bsort, {"column": "vid", "slack": 3, "by": "tag", "name": "b"}
    yield "wsort", s.wsort, {"column": "vid", "timeout": "1s", "by": "tag", "name": "b"}
    yield "resample", s.resample, {"every": "1s", "by": "vid", "gap": "5s", "how": "linear", "name": "r"}
    yield (
        "join",
        s.join,
        {
            "other": other,
            "on": "vid",
            "within": "1s",
            "where": "left.speed > right.speed",
            "how": "left",
            "suffixes": ("", "_r"),
            "name": "j",
        },
    )
    yield (
        "asof_join",
        s.asof_join,
        {
            "other": other,
            "on": {"vid": "vid"},
            "within": "1s",
            "where": "right.speed > 0",
            "how": "inner",
            "suffixes": ("", "_r"),
            "name": "j",
        },
    )
    yield "window", s.window, {"size": "10s", "advance": "5s"}
    yield "window.group_by", lambda k: s.window("1s").group_by(k), {"k": "vid"}
    yield "aggregate", positional(s.window("1s").aggregate), {**agg, "early": "1s"}
    yield "aggregate.named", lambda n: s.window("1s").aggregate(n=n), {"n": "count()"}
    grouped = s.window("1s").group_by("vid")
    assert isinstance(grouped, GroupedStream)
    yield "top", grouped.top, {"n": 3, "by": "speed", "descending": True, "name": "t"}
    yield "session", s.session, {"gap": "1s"}
    yield "session.group_by", lambda k: s.session("1s").group_by(k), {"k": "vid"}
    yield "session.aggregate", positional(s.session("1s").aggregate), agg
    yield "group_by", lambda k: s.group_by(k), {"k": "vid"}
    yield "window_rows", lambda **g: s.window_rows(**g).aggregate(n="count()"), {"size": 3, "advance": 1}
    yield (
        "window_values",
        lambda **g: s.window_values(**g).aggregate(n="count()"),
        {"value": "speed", "size": 3.0, "advance": 1.0},
    )
    yield (
        "window_values.time",
        lambda **g: s.window_values(**g).aggregate(n="count()"),
        {
            "value": "ts",
            "size": "3s",
            "advance": "1s",
        },
    )
    yield "running", positional(s.running), {**agg, "expire": "1s"}
    yield "running.named", lambda n: s.group_by("vid").running(n=n), {"n": md.lag("tag", 2)}
    for name in ("count", "sum", "min", "max", "avg", "first", "last", "variance", "stddev", "median"):
        function = getattr(md, name)
        yield f"md.{name}", (lambda x, f=function: s.window("1s").aggregate(n=f(x))), {"x": "vid"}
    for name in ("count_distinct", "approx_count_distinct"):
        function = getattr(md, name)
        yield f"md.{name}", (lambda x, f=function: s.window("1s").aggregate(n=f(x))), {"x": "tag"}
    for name in ("quantile", "approx_quantile"):
        function = getattr(md, name)
        yield (
            f"md.{name}",
            lambda x, p, f=function: s.window("1s").aggregate(n=f(x, p)),
            {"x": "vid", "p": 0.5},
        )
    yield "md.lag", lambda x, n: s.running(n=md.lag(x, n)), {"x": "vid", "n": 2}
    yield "md.user", lambda f, x: s.window("1s").aggregate(n=md.user(f, x)), {"f": Total, "x": "vid"}
    yield "apply", s.apply, {"function": same, "schema": CARS, "in_flight": None, "name": "a"}
    yield (
        "process",
        s.process,
        {
            "operator": Enrich,
            "schema": CARS,
            "by": "vid",
            "state": {"n": "int64"},
            "name": "p",
        },
    )
    yield "md.process", md.process, {"operator": Enrich, "inputs": {"a": s}, "schema": CARS, "by": "vid"}
    yield (
        "update",
        s.update,
        {
            "table": table,
            "set": {"bal": "speed"},
            "insert": {"bal": "0.0"},
            "by": "vid",
        },
    )
    yield "delete", s.delete, {"table": table, "by": "vid"}
    yield "lookup", s.lookup, {"table": table, "how": "left", "by": "vid", "suffix": "_t", "name": "u"}
    yield "register", lambda **g: md.register(**g)(Enrich), {"name": "test.wrong_use.Enrich", "version": 1}
    yield "md.col", lambda x: s.select(x=md.col(x)), {"x": "vid"}
    yield "md.lit", lambda x: s.select(x=md.lit(x)), {"x": 1}
    yield "md.source", md.source, {"schema": CARS, "time": "ts", "slack": "1s"}
    yield (
        "md.sql",
        lambda text, **g: md.sql(text, **g),
        {"text": "SELECT vid FROM cars", "cars": CARS, "into": "o"},
    )


def refusal(call: Callable[..., object], given: Mapping[str, Any], argument: str) -> md.MedusaError | None:
    """What the call raises, which must be one of ours, with a code and of readable length."""
    try:
        call(**given)
    except md.MedusaError as error:
        found = error
    except Exception as error:
        wrong = f"{argument}={given[argument]!r:.80}"
        raise AssertionError(f"{wrong} gives {type(error).__name__}: {error}") from error
    else:
        return None
    assert found.code
    assert found.message
    assert len(str(found)) < 2_000
    return found


def fresh() -> Query:
    q = md.Query("tolls")
    q.source("cars", CARS)
    q.source("vans", CARS)
    return q


NAMES = [name for name, _, _ in calls(fresh())]


@pytest.mark.parametrize("which", NAMES)
def test_wrong_arguments_of_the_builder(which: str) -> None:
    q = fresh()
    ((call, good),) = [(call, good) for name, call, good in calls(q) if name == which]
    for argument in good:
        for wrong in WRONG:
            before = q.graph
            if refusal(call, {**good, argument: wrong}, argument) is not None:
                assert q.graph == before, "an error changes nothing"
            elif q.graph != before:  # it was right after all
                q = fresh()
                ((call, good),) = [(call, good) for name, call, good in calls(q) if name == which]


def test_a_table_of_arguments_that_work() -> None:
    """The calls work as they stand: so what is refused above is refused for the argument that is wrong."""
    refused = []
    for name in NAMES:
        q = fresh()
        ((call, good),) = [(call, good) for each, call, good in calls(q) if each == name]
        try:
            call(**good)
        except md.QueryError as error:
            refused.append(f"{name}: {error}")
    assert [each.split(":")[0] for each in refused] == [], refused


RUN_CALLS: dict[str, tuple[Callable[[Any], Call], dict[str, Any]]] = {
    "push": (lambda run: run.push, {"source": "cars", "data": {"ts": [1], "vid": [1]}, "extra": "refuse"}),
    "push.first": (lambda run: run.push, {"source": "cars", "data": {"ts": [], "vid": []}, "first": 0}),
    "boundary": (lambda run: run.boundary, {"source": "cars", "time": 5}),
    "take": (lambda run: run.take, {"sink": "out"}),
    "taken": (lambda run: run.taken, {"sink": "out"}),
    "on": (lambda run: run.on, {"sink": "out", "call": lambda table: None}),
    "stream": (lambda run: run.stream, {"sink": "out"}),
}


@pytest.mark.parametrize("which", sorted(RUN_CALLS))
def test_wrong_arguments_of_a_run(which: str) -> None:
    q = md.Query("q")
    q.sink("out", q.source("cars", {"ts": "int64", "vid": "int64"}, time="ts", unit="us", slack=0))
    of, good = RUN_CALLS[which]
    for argument in good:
        for wrong in [*WRONG, pa.table({"x": [1]}), {"ts": [1], "vid": ["a"]}, {"ts": [1, 2], "vid": [1]}]:
            with md.start(q) as run, warnings.catch_warnings():
                warnings.simplefilter("ignore", md.LateWarning)
                if refusal(of(run), {**good, argument: wrong}, argument) is not None:
                    assert run.positions() == {"cars": 0}


STARTS: dict[str, Any] = {
    "q": None,
    "checkpoint_every": "1s",
    "memory": "1 MiB",
    "on_error": "dead",
    "threads": 1,
}


@pytest.mark.parametrize("argument", sorted(STARTS))
def test_wrong_arguments_of_start(argument: str) -> None:
    q = md.Query("q")
    q.sink("out", q.source("cars", CARS))
    for wrong in WRONG:
        refusal(lambda **given: md.start(**given).close(), {**STARTS, "q": q, argument: wrong}, argument)
