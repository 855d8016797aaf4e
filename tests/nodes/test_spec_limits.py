"""What a node doesn't even begin (reliability D 22 and 23): a spec that is wrong, or asks too much."""

from __future__ import annotations

import contextlib
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.apps.workloads import linear_road, netmon
from medusa.errors import QueryError
from medusa.nodes.placement.placement import cut
from medusa.nodes.spec import spec_limits
from medusa.nodes.spec.fragment_spec import fragment_from, fragment_to
from medusa.nodes.spec.spec_limits import check_limits
from medusa.query import user_registry
from medusa.query.boxes import Graph, Input, Union
from medusa.query.codec import graph_to_msgpack
from medusa.query.graph import ARCS_MAX, check_graph
from medusa.wire.messages.commands import Deploy, Install, Reply
from tests.nodes.keyed import Keyed

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}


def begun(name="q"):
    q = md.Query(name)
    return q, q.source("flows", SCHEMA, time="ts")


def refused(q, *says):
    with pytest.raises(QueryError) as caught:
        check_limits(q.graph)
    assert caught.value.code == "E_SPEC"
    for each in says:
        assert each in str(caught.value), str(caught.value)


# --- limits ---------------------------------------------------------------------------------------


def test_unions_that_double_are_counted_without_following_paths():
    q, stream = begun()
    for number in range(30):
        stream = stream.union(stream, name=f"u{number}")
    q.sink("out", stream)
    refused(q, "boxes[20] (union 'u19')", "one row of each of 1 sources becomes 1.05e+06 rows")


def test_a_union_of_many_sources_is_no_fan_out():
    q = md.Query("q")
    first, *rest = [q.source(f"s{n}", SCHEMA, time="ts") for n in range(300)]
    q.sink("out", first.union(*rest, name="all"))
    check_limits(q.graph)


def test_windows_over_windows_that_overlap():
    q, stream = begun()
    once = stream.window("1000 s", advance="10 ms").group_by("k").aggregate(n=md.count(), name="w")
    q.sink("one", once)
    check_limits(q.graph)
    q.sink("two", once.window("1000 s", advance="10 ms").group_by("k").aggregate(m=md.sum("n"), name="ww"))
    refused(q, "(aggregate 'ww')", "rows")


def test_a_time_grid_counts_as_its_gap():
    q, stream = begun()
    for number in range(3):
        stream = stream.resample("1ms", by="k", gap="90 s", name=f"r{number}").select("ts", "k", "v")
    q.sink("out", stream)
    refused(q, "(resample 'r1')")


def test_texts_that_double_box_by_box():
    q, stream = begun()
    for number in range(30):
        stream = stream.with_columns(k="k || k", name=f"d{number}")
    q.sink("out", stream)
    refused(q, "boxes[17] (with_columns 'd16')", "texts up to 1.31e+05 times as long")
    q, stream = begun()
    for number in range(4):
        stream = stream.select("ts", k=f"replace(k, 'a', '{'a' * 100}')", name=f"r{number}")
    q.sink("out", stream)
    refused(q, "(select 'r2')", "texts up to 1e+06 times")


def test_texts_grow_through_joins_and_windows_too():
    q, stream = begun()
    grown = stream
    for number in range(16):
        grown = grown.with_columns(k="k || k", name=f"d{number}")
    joined = grown.join(stream, on="ts", within="1 s", name="j")
    closed = joined.window("1 s").aggregate(k=md.max("k"), name="w")
    q.sink("still", closed)
    check_limits(q.graph)
    q.sink("out", closed.select(k="k || k", name="last"))
    refused(q, "(select 'last')", "texts up to 1.31e+05")


def test_ordinary_cleaning_of_texts_is_no_bomb():
    q, stream = begun()
    for number in range(20):
        stream = stream.with_columns(k="replace(replace(k, 'ab', ''), 'x', 'y')", name=f"c{number}")
    q.sink("out", stream)
    check_limits(q.graph)


def test_rows_that_boxes_would_keep():
    q, stream = begun()
    for number in range(8):
        stream = stream.bsort("ts", slack=10_000_000, name=f"b{number}")
    q.sink("out", stream)
    refused(q, "(bsort 'b6')", "bytes of rows kept")
    q, stream = begun()
    wide = stream.group_by("k").window_rows(1 << 30).aggregate(m=md.median("v"), name="w")
    q.sink("out", wide)
    refused(q, "(window_rows 'w')", "bytes of rows kept")


def test_many_expressions(monkeypatch):
    monkeypatch.setattr(spec_limits, "NODES_MAX", 30)
    q, stream = begun()
    q.sink("out", stream.select(**{f"c{n}": "v + 1" for n in range(12)}, name="wide"))
    refused(q, "boxes[1] (select 'wide').columns[10].expression", "31 parts", "at most 30")
    q, stream = begun()
    for number in range(60):
        stream = stream.select("ts", v="v" + " + v" * 20, name=f"s{number}")
    q.sink("out", stream)
    refused(q, "(select 's13')", "322 parts of expressions up to here")


def test_many_steps_for_one_row(monkeypatch):
    monkeypatch.setattr(spec_limits, "STEPS_MAX", 100)
    q, stream = begun()
    for number in range(6):
        stream = stream.union(stream, name=f"u{number}").filter("v > 0", name=f"f{number}")
    q.sink("out", stream)
    refused(q, "steps for one row")


def test_many_arcs_and_many_readers():
    q, _ = begun()
    graph = q.graph
    union = Union(id="u", inputs=(Input("flows"),) * 1_001)
    with pytest.raises(QueryError, match=r"inputs\[1000\]: 'flows' has 1,001 readers, at most 1,000"):
        check_limits(Graph(name="q", boxes=(*graph.boxes, union)))
    union = Union(id="u", inputs=(Input("flows"),) * (ARCS_MAX + 1))
    with pytest.raises(QueryError, match="10,001 arcs"):
        check_graph(Graph(name="q", boxes=(*graph.boxes, union)))


def test_limits_are_not_in_the_way_of_the_workloads():
    check_limits(linear_road.query().graph)
    check_limits(netmon.query().graph)


# --- a spec from another node ---------------------------------------------------------------------


def spec_of(q):
    [fragment] = cut(q.graph, {"n": [box.id for box in q.graph.boxes]}).fragments
    return fragment


def good():
    q, stream = begun()
    kept = stream.filter("v > 0", name="f")
    q.sink("out", kept.window("1 s").group_by("k").aggregate(n=md.count(), name="w"))
    return spec_of(q)


def changed(change):
    """A spec as plain data, changed, as bytes."""
    data = msgspec.msgpack.decode(fragment_to(good()))
    change(data, {box["id"]: box for box in data["graph"]["boxes"]})
    return msgspec.msgpack.encode(data)


def deep(depth):
    tree = {"node": "column", "name": "v"}
    for _ in range(depth):
        tree = {"node": "call", "function": "neg", "args": [tree]}
    return tree


def deeper(depth):
    """The bytes of a spec with an expression so deep that no encoder would write it."""
    whole = changed(lambda d, b: b["f"].update(predicate=deep(1)))
    inner = msgspec.msgpack.encode(deep(0))
    prefix = msgspec.msgpack.encode(deep(1)).removesuffix(inner)
    assert prefix + inner in whole
    return whole.replace(prefix + inner, prefix * depth + inner)


def boxes(data):
    return data["graph"]["boxes"]


SPECS = {
    "a cycle": (
        lambda d, b: b["f"].update(inputs=[{"box": "w", "port": ""}]),
        "feed themselves",
    ),
    "a million boxes": (lambda d, b: boxes(d).extend([b["f"]] * 5_000), "5,00"),
    "an unknown operator": (lambda d, b: b["f"].update(kind="shell"), "Invalid value 'shell'"),
    "an unknown field": (lambda d, b: b["f"].update(code="import os"), "unknown field `code`"),
    "an expression 100 deep": (lambda d, b: b["f"].update(predicate=deep(100)), "64 deep"),
    "a huge window": (lambda d, b: b["w"].update(size_us=1 << 62, advance_us=1), ""),
    "a window of no size": (lambda d, b: b["w"].update(size_us=0), "size"),
    "wrong arity": (lambda d, b: b["f"].update(inputs=b["f"]["inputs"] * 2), "filter 'f'"),
    "no input": (lambda d, b: b["w"].update(inputs=[]), "'w'"),
    "a port that isn't": (lambda d, b: b["f"]["inputs"][0].update(port="x"), "no port"),
    "an unknown function": (
        lambda d, b: b["f"].update(predicate={"node": "call", "function": "system", "args": []}),
        "system",
    ),
    "a wrong type": (
        lambda d, b: b["f"].update(predicate={"node": "column", "name": "k"}),
        "filter 'f'",
    ),
    "a pattern that backtracks": (
        lambda d, b: b["f"].update(
            predicate={
                "node": "call",
                "function": "regexp_matches",
                "args": [
                    {"node": "column", "name": "k"},
                    {"node": "literal", "type": "utf8", "value": "(a+)+\\1$"},
                ],
            }
        ),
        "filter 'f'",
    ),
    "text in place of a number": (lambda d, b: b["w"].update(size_us="1"), "Expected `int`"),
    "a function of a user": (
        lambda d, b: (
            b["f"].update(
                kind="apply", function={"name": "os.system", "version": 1}, schema=b["flows"]["schema"]
            )
            or b["f"].pop("predicate")
        ),
        "os.system",
    ),
    "another's streams": (lambda d, b: d["streams"].update(out="other.out"), "not called q.something"),
}


@pytest.mark.parametrize(("change", "says"), SPECS.values(), ids=SPECS)
def test_a_spec_that_does_not_hold_is_refused_whole(change, says):
    """D 22: nothing of it is installed, the node goes on, and the answer says where."""
    node = Keyed()
    node.hello("near")
    before = node.state()
    install = Install(request=7, query="q", fragment="q/flows")
    [reply] = [m for m in node.say("near", install, changed(change)) if isinstance(m, Reply)]
    assert reply.code == "E_SPEC"
    assert says in reply.text
    assert node.state() == before
    assert node.answer("near", install, fragment_to(good())) == ""


def test_functions_come_from_here_by_name_only(monkeypatch):
    """D 23: registered here it runs, under its name; nothing of it travels."""

    def double(batch):
        return batch

    monkeypatch.setattr(user_registry, "_known", dict(user_registry._known))
    md.register("limits.double", version=1)(double)
    q, stream = begun()
    q.sink("out", stream.apply(double, SCHEMA, name="mine"))
    data = fragment_to(spec_of(q))
    assert b"limits.double" in data
    node = Keyed()
    node.hello("near")
    install = Install(request=7, query="q", fragment="q/flows")
    assert node.answer("near", install, data) == ""
    monkeypatch.setattr(user_registry, "_known", {})
    other = Keyed()
    other.hello("near")
    before = other.state()
    assert other.answer("near", install, data) == "E_SPEC"
    assert other.state() == before


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_wounded_spec_is_taken_whole_or_refused_with_a_reason(seed):
    """D 22: whatever stands in place of a value, only ``QueryError`` comes out."""
    random = Random(seed)
    data = msgspec.msgpack.decode(fragment_to(good()))
    for _ in range(random.choice([1, 1, 2, 4])):
        wound(data, random)
    with contextlib.suppress(QueryError):
        fragment = fragment_from(msgspec.msgpack.encode(data))
        assert fragment_from(fragment_to(fragment)) == fragment


VALUES = [None, True, -1, 0, 1, 1 << 62, 1.5, float("nan"), "", "v", "x" * 300, "../x", [], {}, b"\0", [[]]]


def wound(data, random):
    """Another value somewhere, or one less, or one twice."""
    here = data
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            return
        key = random.choice(keys)
        inner = here[key]
        if isinstance(inner, dict | list) and inner and random.random() < 0.85:
            here = inner
            continue
        kind = random.randrange(4)
        if kind == 0:
            del here[key]
        elif kind == 1 and isinstance(here, list):
            here.append(inner)
        else:
            here[key] = random.choice(VALUES)
        return


def test_bytes_that_are_no_spec_at_all():
    random = Random(1)
    data = fragment_to(good())
    for _ in range(250):
        wounded = bytearray(data)
        for _ in range(random.choice([1, 2, 8])):
            wounded[random.randrange(len(wounded))] = random.randrange(256)
        with contextlib.suppress(QueryError):
            fragment_from(bytes(wounded))
    whole = [b"", b"\xc1", b"\x91" * 100_000, b"\x81" * 100_000, b"\xdd\xff\xff\xff\xff", data + b"\0"]
    for wrong in (*whole, deeper(100), deeper(20_000), data.replace(b"flows", b"\xfflows")):
        with pytest.raises(QueryError):
            fragment_from(wrong)


def test_a_field_that_stands_twice_is_refused():
    """D 10: the last one would win, and who looked at the first would have seen another query."""
    data = fragment_to(good())
    kind = b"\xa4kind\xa6filter"
    at = data.index(kind)
    twice = data[: at - 1] + bytes([data[at - 1] + 1]) + b"\xa2id\xa1x" + data[at:]
    assert msgspec.msgpack.decode(twice)["graph"] == msgspec.msgpack.decode(data)["graph"]
    with pytest.raises(QueryError, match="canonical"):
        fragment_from(twice)
    node = Keyed()
    node.hello("maker")
    graph = graph_to_msgpack(good().graph)
    at = graph.index(kind)
    twice = graph[: at - 1] + bytes([graph[at - 1] + 1]) + b"\xa2id\xa1x" + graph[at:]
    deploy = Deploy(request=9, at=(("n", ("flows",)),))
    assert node.answer("maker", deploy, twice) == "E_MESSAGE"
    assert node.answer("maker", deploy, graph) == ""
