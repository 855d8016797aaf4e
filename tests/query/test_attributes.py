"""Names that a stream hasn't got are errors that say what there is."""

from __future__ import annotations

import copy
import re

import pytest

import medusa as md
from medusa.query.stream.stream import Stream
from medusa.query.stream.time_windows import WindowedStream
from medusa.query.stream.window_steps import KeyedStream, KindStream
from medusa.query.suggest_methods import INSTEAD, NEEDS


def cars() -> Stream:
    return md.Query("q").source("cars", {"ts": "timestamp", "vid": "int64", "speed": "float64"})


@pytest.mark.parametrize(
    ("find", "says"),
    [
        (lambda s: s.where, "'Stream' object has no attribute 'where' (.filter(...))"),
        (lambda s: s.windw, "'Stream' object has no attribute 'windw' (did you mean 'window'?)"),
        (
            lambda s: s.aggregate,
            "'Stream' object has no attribute 'aggregate' (say over which rows: .window(",
        ),
        (lambda s: s.window("1 min").agg, "'WindowedStream' object has no attribute 'agg' (.aggregate(...))"),
        (lambda s: s.window("1 min").group_by("vid").topp, "(did you mean 'top'?)"),
        (lambda s: s.group_by("vid").window, "(windows come first: stream.window("),
        (lambda s: s.session("30s").zzz, "'SessionStream' object has no attribute 'zzz' (there is: "),
    ],
)
def test_a_name_that_isnt_there(find, says: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(says)):
        find(cars())


def test_what_is_suggested_exists() -> None:
    steps = (Stream, WindowedStream, KeyedStream, KindStream)
    for hint in (*INSTEAD.values(), *NEEDS.values()):
        for method in re.findall(r"\.(\w+)\(", hint):
            assert any(hasattr(step, method) for step in steps), method
    assert not {name for name in INSTEAD if any(hasattr(step, name) for step in steps)}


def test_protocols_of_python_find_nothing() -> None:
    stream = cars()
    assert not hasattr(stream, "__array__")
    assert copy.copy(stream).schema == stream.schema


def test_lag_as_text() -> None:
    q = md.Query("q")
    source = q.source("cars", {"ts": "int64", "vid": "int64"}, unit="s")
    q.sink("out", source.running(before="lag(vid)"))
    assert md.collect(q, cars={"ts": [1, 2, 3], "vid": [7, 8, 9]}).only["before"].to_pylist() == [None, 7, 8]
    q.sink("two", source.running(before="lag(vid, 2)"))
    q.sink("same", source.running(before=md.lag("vid", 2)))
    out = md.collect(q, cars={"ts": [1, 2, 3], "vid": [7, 8, 9]})
    assert out["two"]["before"].to_pylist() == out["same"]["before"].to_pylist() == [None, None, 7]
    for text, says in (
        ("lag(vid, 0)", "offset of lag must be 1 to 10,000, got 0"),
        ("lag(vid, 1.5)", "got 1.5"),
        ("lag(vid) FILTER (WHERE vid > 7)", "FILTER is for aggregates, not for lag"),
    ):
        with pytest.raises(md.QueryError, match=says):
            source.running(before=text)
    with pytest.raises(md.QueryError, match=r"no aggregate 'lag' \(lag is for running"):
        source.window("1s").aggregate(before="lag(vid, 2)")


def test_names_that_other_libraries_have() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'mean' \(did you mean 'avg'"):
        md.mean  # noqa: B018
    for name, here in (
        ("std", "stddev"),
        ("var", "variance"),
        ("nunique", "count_distinct"),
        ("n_unique", "count_distinct"),
        ("any_value", "first"),
        ("percentile", "quantile"),
        ("count_if", "count(where=...)"),
    ):
        with pytest.raises(
            AttributeError, match=re.escape(f"no attribute {name!r} (did you mean {here!r}?)")
        ):
            getattr(md, name)
    for name, here in (("sum", "sum"), ("mean", "avg"), ("std", "stddev"), ("count", "count")):
        with pytest.raises(AttributeError, match=rf"no {name!r}: aggregates stand outside.*md\.{here}\("):
            getattr(md.col("x"), name)
    q = md.Query("q")
    q.sink("out", q.source("cars", {"ts": "timestamp"}))
    out = md.collect(q, cars={"ts": []})
    with pytest.raises(KeyError, match=r"no sink 'oout' \(did you mean 'out'"):
        out["oout"]
    assert out.get("oout") is None
