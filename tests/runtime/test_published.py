"""Queries at nodes that read streams of other queries and of definitions: ``of=fed.stream(name)``."""

from __future__ import annotations

import random

import pytest

import medusa as md
from medusa.errors import LinkError, QueryError
from tests.system.nodes import ordered, until

SCHEMA = {"ts": "int64", "v": "int64"}
SLACK = 5
PATIENT = {"limits": {"subscriber_timeout": "10min", "deploy_timeout": "30s"}}
"""Readers rest while other things are done, on a busy machine for longer than they may."""


@pytest.fixture
def nodes(tmp_path):
    """Two nodes that know each other, and a client of the first."""
    addresses = {name: f"ipc://{tmp_path}/{name}" for name in "ab"}

    def config(name, other):
        data = str(tmp_path / f"{name}.data")
        return {
            "name": name,
            "listen": addresses[name],
            "data": data,
            "peers": {other: addresses[other]},
            **PATIENT,
        }

    with (
        md.node(config("a", "b")),
        md.node(config("b", "a")),
        md.connect(addresses["a"], timeout="60s") as fed,
    ):
        until(lambda: fed.status()["peers"] == {"b": "up"})
        yield fed


def refused(act, *arguments, **more):
    with pytest.raises((LinkError, QueryError)) as refusal:
        act(*arguments, **more)
    return refusal.value


def rows(seed, count=400):
    """Some come later than the slack allows."""
    dice = random.Random(seed)
    return {
        "ts": [n + dice.randrange(15) for n in range(count)],
        "v": [dice.randrange(5) for _ in range(count)],
    }


def on_time(table):
    """Rows that aren't late, by the rule."""
    found, largest = [], None
    for ts, v in zip(table["ts"], table["v"], strict=True):
        if largest is None or ts >= largest - SLACK:
            found.append((ts, v))
        largest = ts if largest is None else max(largest, ts)
    return found


def per_window(found):
    """Rows in each window of 10 s."""
    windows = {}
    for ts, _ in found:
        windows[ts // 10] = windows.get(ts // 10, 0) + 1
    return windows


def counts(found):
    """The same in order."""
    return [n for _, n in sorted(per_window(found).items())]


def counting(name, stream, condition="true"):
    q = md.Query(name)
    cars = q.source("cars", of=stream)
    q.sink("out", cars.filter(condition).window("10s").aggregate(n=md.count()))
    return q


def define(fed):
    fed.define("cars", SCHEMA, time="ts", unit="s", slack=f"{SLACK}s")
    return fed.stream("cars")


def test_what_a_stream_is_said_to_be(nodes):
    stream = define(nodes)
    assert (stream.name, stream.time, stream.unit, stream.version) == ("local/cars", "ts", "s", 1)
    assert (stream.timed, stream.window_us, stream.epoch) == (True, None, 1)
    assert stream == nodes.stream("local/cars")
    nodes.deploy(counting("n", stream))
    out = nodes.stream("n.out")
    assert (out.name, out.time, out.version) == ("local/n.out", None, 0)
    assert out.schema.names == ["window_start", "window_end", "n"]
    assert out.window_us == (10_000_000, 10_000_000)
    for name, hint in {"cras": "cars", "n.ot": "n.out", "x/cars": "cars"}.items():
        error = refused(nodes.stream, name)
        assert (error.code, hint in error.hint) == ("E_STREAM", True), name
    assert "no name" in str(refused(nodes.stream, 7))


@pytest.mark.parametrize("seed", range(2))
def test_several_queries_read_one_stream_and_each_other_and_rows_are_judged_once(nodes, seed):
    stream = define(nodes)
    at = {"first": {"a": ["cars", "out"]}, "second": {"b": ["cars", "out"]}}
    nodes.deploy(counting("first", stream), at=at["first"])
    nodes.deploy(counting("second", stream, "v > 2"), at=at["second"])
    third = md.Query("third")
    third.sink("out", third.source("counts", of=nodes.stream("second.out")).filter("n > 1"))
    nodes.deploy(third)
    both = md.Query("both")
    left, right = (both.source(name, of=nodes.stream(f"{name}.out")) for name in ("first", "second"))
    both.sink("out", left.join(right, on="window", suffixes=("", "_2")).select("n", "n_2"))
    nodes.deploy(both, at={"b": ["first", "second"]})
    table = rows(seed)
    names = ("cars", "first.out", "second.out", "third.out", "both.out")
    reads = {name: nodes.subscribe(name, from_="oldest", timeout="60s") for name in names}
    for begin in range(0, 400, 50):
        nodes.publish("cars", {name: column[begin : begin + 50] for name, column in table.items()})
    nodes.finish("cars")
    found = {name: trains.table() for name, trains in reads.items()}
    assert found["cars"]["ts"].to_pylist() == table["ts"], "late rows are in the stream too"
    kept = on_time(table)
    first, second = counts(kept), counts([row for row in kept if row[1] > 2])
    assert len(kept) < 400
    assert found["first.out"]["n"].to_pylist() == first
    assert found["second.out"]["n"].to_pylist() == second
    assert found["third.out"]["n"].to_pylist() == [n for n in second if n > 1]
    ours, theirs = per_window(kept), per_window([row for row in kept if row[1] > 2])
    pairs = list(zip(*found["both.out"].to_pydict().values(), strict=True))
    assert pairs == [(ours[window], theirs[window]) for window in sorted(theirs)]


def test_who_reads_is_named_and_what_is_read_stays(nodes):
    stream = define(nodes)
    nodes.deploy(counting("n", stream))
    assert {each["name"]: each["reads"] for each in nodes.queries()} == {"n": ["local/cars"]}
    assert nodes.find("n", "query")["reads"] == ["local/cars"]
    waits = [each["waits_for"] for each in nodes.explain("n") if each["box"] == "cars"]
    assert "local/cars" in waits[0]
    assert nodes.status()["streams"] == ["cars.out", "n.out"], "that of the reader alone isn't listed"
    error = refused(nodes.undefine, "cars")
    assert (error.code, "'n'" in str(error)) == ("E_READ", True)
    changed = refused(nodes.define, "cars", {**SCHEMA, "w": "int64"}, time="ts", unit="s")
    assert changed.code == "E_READ"
    nodes.undeploy("n")
    nodes.undefine("cars")
    until(lambda: not nodes.status()["fragments"])


def test_after_it_is_undeployed_nothing_is_kept_for_it_and_it_begins_anew(nodes):
    stream = define(nodes)
    for round_ in range(2):
        nodes.deploy(counting("n", stream), at={"b": ["cars"]})
        with nodes.subscribe("n.out", from_="oldest", timeout="60s") as trains:
            nodes.publish("cars", {"ts": [100 * round_, 100 * round_ + 50], "v": [1, 1]})
            assert trains.next().batch["n"].to_pylist() == [1]
        nodes.undeploy("n")
        until(lambda: len(nodes.status()["fragments"][0]["outputs"]) == 1)


def test_only_rows_from_now_on_are_read(nodes):
    stream = define(nodes)
    nodes.publish("cars", {"ts": [1, 2, 30], "v": [1, 1, 1]})
    nodes.flush()
    nodes.deploy(counting("n", stream))
    with nodes.subscribe("n.out", from_="oldest", timeout="60s") as trains:
        nodes.publish("cars", {"ts": [31, 60, 3], "v": [1, 1, 1]})
        nodes.finish("cars")
        assert trains.table()["n"].to_pylist() == [1, 1], "and the row at 3 is late, as it is for cars"


def test_a_name_that_cannot_be_defined_is_refused_as_such(nodes):
    error = refused(nodes.define, "farm.alarms", SCHEMA)
    assert error.message == "define: 'farm.alarms' can't be a name"
    assert "letters, digits, _ and -" in error.hint


def test_a_stream_that_is_another_by_now_is_refused_and_nothing_is_deployed(nodes):
    stream = define(nodes)
    nodes.undefine("cars")
    assert refused(nodes.deploy, counting("n", stream)).code == "E_STREAM"
    nodes.define("cars", {"ts": "int64", "v": "float64"}, time="ts", unit="s")
    error = refused(nodes.deploy, counting("n", stream))
    assert (error.code, "'v' is float64" in str(error)) == ("E_SCHEMA", True)
    assert nodes.queries() == []


def test_what_is_no_sink_is_refused_and_nothing_stays(nodes):
    q = md.Query("apart")
    cars = q.source("cars", SCHEMA, time="ts", unit="s")
    q.sink("out", cars.filter("v > 0", name="some").filter("v > 1", name="few"))
    nodes.deploy(q, at={"a": ["cars", "some"], "b": ["few", "out"]})
    error = refused(nodes.deploy, counting("n", nodes.stream("apart.some")), at={"b": ["cars"]})
    assert (error.code, "links parts of query" in str(error)) == ("E_STREAM", True)
    until(lambda: [each["name"] for each in nodes.queries()] == ["apart"])
    several = counting("n", nodes.stream("apart.out"))
    wrong = refused(nodes.deploy, several, at={"a": ["cars"], "b": ["cars"]})
    assert wrong.code.startswith("query.placement")


def test_a_stream_that_moves_while_its_reader_is_deployed_is_found(nodes, monkeypatch):
    stream = define(nodes)
    ordered(lambda: nodes.move("cars/in", to="b"))
    looked, names = [[("cars", "a", "cars.out", 1)]] * 2, nodes._names
    now = names.reads
    monkeypatch.setattr(names, "reads", lambda graph: looked.pop() if looked else now(graph))
    nodes.deploy(counting("n", stream))
    assert looked == []
    assert [each["name"] for each in nodes.queries()] == ["n"]


def test_a_reader_and_what_it_reads_move(nodes):
    q = md.Query("up")
    q.sink("some", q.source("cars", SCHEMA, time="ts", unit="s").filter("v >= 0", name="kept"))
    nodes.deploy(q, at={"a": ["cars"], "b": ["kept"]})
    nodes.deploy(counting("n", nodes.stream("up.some")), at={"a": ["cars"]})
    table = {"ts": list(range(0, 400)), "v": [1] * 400}
    moves = {100: ("up/kept", "a"), 200: ("n/cars", "b"), 300: ("up/kept", "b")}
    with nodes.subscribe("n.out", from_="oldest", timeout="60s") as trains:
        for begin in range(0, 400, 50):
            nodes.publish("up.cars", {name: column[begin : begin + 50] for name, column in table.items()})
            if begin in moves:
                fragment, to = moves[begin]
                ordered(lambda fragment=fragment, to=to: nodes.move(fragment, to=to))
        nodes.finish("up.cars")
        assert trains.table()["n"].to_pylist() == [10] * 40
    until(lambda: nodes.stream("up.some").epoch >= 3, what="it has moved twice")
    nodes.flush()
    nodes.undeploy("n")
    nodes.undeploy("up")
