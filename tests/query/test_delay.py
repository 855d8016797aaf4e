"""By how much a failure may hold up an output: what may be said, how it travels, which rows wait at all."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

import medusa as md
from medusa.errors import QueryError
from medusa.query.boxes import Aggregate, Box, Input, Sink
from medusa.query.codec import graph_from_json, graph_from_msgpack, graph_to_json, graph_to_msgpack
from medusa.query.delay import delay_least_us, delay_promise, fork_after_us, margin_us
from medusa.query.graph import check_graph
from medusa.query.signature import signatures
from medusa.query.waiting_rows import waiting_rows

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "int64"}
MS, S = 1_000, 1_000_000


def query(**wish: Any) -> md.Query:
    q = md.Query("roads")
    cars = q.source("cars", SCHEMA, time="ts")
    q.sink("out", cars, **wish)
    return q


# --- as data ------------------------------------------------------------------------------------------


def test_without_a_bound_a_sink_is_what_it_was() -> None:
    said = json.loads(graph_to_json(query().graph))["boxes"][1]
    assert said == {"kind": "sink", "id": "out", "inputs": [{"box": "cars", "port": ""}]}
    assert b"delay" not in graph_to_msgpack(query().graph)
    assert query().explain() == query(delay=None).explain()


@pytest.mark.parametrize("delay", ["2s", 2 * S, timedelta(seconds=2)])
def test_a_bound_travels_and_is_shown(delay: Any) -> None:
    q = query(delay=delay)
    assert q.graph.boxes[1] == Sink(id="out", inputs=(Input("cars"),), delay_us=2 * S)
    assert json.loads(graph_to_json(q.graph))["boxes"][1]["delay_us"] == 2 * S
    assert graph_from_json(graph_to_json(q.graph)) == q.graph
    assert graph_from_msgpack(graph_to_msgpack(q.graph)) == q.graph
    assert "sink out: delay 2s\n" in q.explain()
    both = query(delay=delay, recovery="precise", method="active_standby").explain()
    assert "sink out: recovery precise by active standby; delay 2s\n" in both


def test_a_checkpoint_fits_whatever_the_bound_is() -> None:
    kinds = [signatures(check_graph(query(**wish).graph)) for wish in ({}, {"delay": "2s"}, {"delay": "1s"})]
    assert kinds[0] == kinds[1] == kinds[2]


@pytest.mark.parametrize(
    ("delay", "code", "text", "hint"),
    [
        ("2", "query.duration", "delay: '2' is no duration", 'say which unit: "2s"'),
        (1.5, "query.duration", "delay: float 1.5 is no duration", 'write "100ms"'),
        (True, "query.duration", "delay: bool True is no duration", 'write "100ms"'),
        ("0s", "query.duration", "delay: expected a duration of longer than 0, got '0s'", ""),
        (-1, "query.duration", "delay: expected a duration of longer than 0, got -1", ""),
        ("61 min", "query.delay", "more than 0 and at most 1h, got 1h 1 min", 'delay="2s"; left out'),
    ],
)
def test_what_is_no_bound_is_refused(delay: Any, code: str, text: str, hint: str) -> None:
    with pytest.raises(QueryError) as refused:
        query(delay=delay)
    assert refused.value.message.startswith("sink 'out': delay: ")
    assert text in refused.value.message
    assert hint in refused.value.hint
    assert refused.value.code == code


def test_rows_without_time_can_not_be_taken_back() -> None:
    q = md.Query("q")
    rows = q.source("rows", {"v": "int64"}, time=None)
    with pytest.raises(QueryError, match="sink 'out': delay: its rows have no time, by which") as refused:
        q.sink("out", rows, delay="2s")
    assert refused.value.hint == "leave delay out: rows without time wait for no other input"
    assert [box.id for box in q.graph.boxes] == ["rows"], "a refused call changes nothing"


@pytest.mark.parametrize("wrong", [0, -1, 3_600 * S + 1])
def test_it_is_refused_in_a_file_too(wrong: int) -> None:
    said = json.loads(graph_to_json(query(delay="2s").graph))
    said["boxes"][1]["delay_us"] = wrong
    with pytest.raises(QueryError, match="sink 'out': delay: expected a duration of more than 0") as refused:
        graph_from_json(json.dumps(said))
    assert refused.value.code == "query.delay"


def test_inside_a_program_it_changes_nothing() -> None:
    rows = {"ts": [datetime(2026, 1, 1, tzinfo=UTC)] * 2, "k": [1, 2], "v": [3, 4]}
    plain, bounded = (md.collect(query(**wish), cars=rows)["out"] for wish in ({}, {"delay": "2s"}))
    assert bounded.to_pydict() == plain.to_pydict()
    with md.start(query(delay="2s")) as run:
        run.push("cars", rows)
        assert run.take("out").num_rows == 2


# --- policies -----------------------------------------------------------------------------------------


def test_a_delay_says_what_a_duration_does_and_policies_besides() -> None:
    assert query(delay=md.Delay("2s")).graph == query(delay="2s").graph
    plain = md.Delay(timedelta(seconds=2), failure="process", stabilization="process")
    assert query(delay=plain).graph == query(delay="2s").graph, "what is usual is said nowhere"
    q = query(delay=md.Delay("2s", failure="delay", stabilization="suspend"))
    sink = q.graph.boxes[1]
    assert isinstance(sink, Sink)
    assert (sink.delay_us, sink.policies) == (2 * S, ("delay", "suspend"))
    assert graph_from_json(graph_to_json(q.graph)) == q.graph
    assert graph_from_msgpack(graph_to_msgpack(q.graph)) == q.graph
    assert "sink out: delay 2s (delay & suspend)\n" in q.explain()


@pytest.mark.parametrize(
    ("failure", "stabilization"),
    [(one, other) for one in ("process", "delay") for other in ("process", "delay", "suspend")]
    + [("suspend", "suspend")],
)
def test_these_go_together(failure: str, stabilization: str) -> None:
    assert md.Delay("1s", failure, stabilization).policies == f"{failure} & {stabilization}"


def test_corrections_suspend_what_a_failure_does() -> None:
    assert md.Delay("1s").stabilization == md.Delay("1s", failure="delay").stabilization == "process"
    assert md.Delay("1s", failure="suspend").stabilization == "suspend"


@pytest.mark.parametrize(
    ("wrong", "text", "hint"),
    [
        (
            {"failure": "wait"},
            "Delay: failure: expected one of 'process', 'delay', 'suspend'",
            "there is",
        ),
        ({"failure": "procces"}, "got 'procces'", "did you mean 'process'?"),
        ({"stabilization": 3}, "Delay: stabilization: expected one of", ""),
        (
            {"failure": "suspend", "stabilization": "process"},
            "Delay: stabilization: 'process' doesn't go with failure='suspend': no copy of the state is made",
            "leave stabilization out, or choose failure='process' or 'delay'",
        ),
    ],
)
def test_others_do_not(wrong: Any, text: str, hint: str) -> None:
    with pytest.raises(QueryError) as refused:
        md.Delay("2s", **wrong)
    assert text in refused.value.message
    assert hint in refused.value.hint
    assert refused.value.code == "query.delay"


def test_a_delay_needs_its_bound() -> None:
    with pytest.raises(QueryError, match="Delay: within: '2' is no duration"):
        md.Delay("2")
    with pytest.raises(QueryError, match="sink 'out': delay: expected a duration of more than 0"):
        query(delay=md.Delay("2h"))


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"delay_us": 2 * S, "delay_failure": "never"}, "delay: failure: expected one of"),
        ({"delay_us": 2 * S, "delay_failure": "suspend"}, "doesn't go with failure='suspend'"),
        ({"delay_failure": "delay"}, "delay: policies for new rows, and no bound"),
        ({"delay_stabilization": "suspend"}, "delay: policies for new rows, and no bound"),
    ],
)
def test_policies_are_refused_in_a_file_too(said: Any, text: str) -> None:
    graph = json.loads(graph_to_json(query().graph))
    graph["boxes"][1] |= said
    with pytest.raises(QueryError) as refused:
        graph_from_json(json.dumps(graph))
    assert text in refused.value.message
    assert refused.value.code == "query.delay"


def test_a_promise_says_what_becomes_of_new_rows() -> None:
    usual = delay_promise(2 * S, 2 * S)
    waits = "; new rows wait 1s 800ms while it lasts, and what is corrected by then is never tentative"
    assert delay_promise(2 * S, 2 * S, "delay", "process") == usual + waits
    after = "; while corrections come new rows wait 1s 800ms"
    assert delay_promise(2 * S, 2 * S, "process", "delay") == usual + after
    for_good = "; while corrections come new rows wait for them, however long that takes"
    assert delay_promise(2 * S, 2 * S, "delay", "suspend") == usual + waits + for_good
    assert delay_promise(2 * S, 2 * S, "suspend", "suspend") == (
        "nothing of it is tentative: new rows wait until a failure is over and corrected, and its state says "
        "so after 1s 800ms"
    )


# --- times --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay_us", "margin", "after"),
    [
        (2 * S, 200 * MS, 1_800 * MS),
        (S, 100 * MS, 900 * MS),
        (500 * MS, 100 * MS, 400 * MS),
        (MS, 100 * MS, 0),
    ],
)
def test_a_tenth_is_left_for_the_copy_and_a_tenth_of_a_second_at_least(
    delay_us: int, margin: int, after: int
) -> None:
    assert margin_us(delay_us) == margin
    assert fork_after_us(delay_us) == after


@pytest.mark.parametrize("noticed_us", [1, 99_999, 100 * MS, 700 * MS, 900 * MS, 900_001, S, 7_777_777])
def test_the_least_bound_leaves_its_margin_when_the_failure_is_noticed(noticed_us: int) -> None:
    least = delay_least_us(noticed_us)
    assert fork_after_us(least) >= noticed_us > fork_after_us(least - MS)
    assert least % MS == 0


def test_what_is_promised_says_what_shows_nothing() -> None:
    assert delay_promise(2 * S, 2 * S) == (
        "a failure adds at most 2s to what inputs that are reached bring, which is tentative then and "
        "corrected afterwards; one of up to 1s 800ms shows nothing (margin 200ms)"
    )
    shared = delay_promise(2 * S, S)
    assert shared.startswith("a failure adds at most 2s")
    assert shared.endswith("900ms shows nothing (margin 100ms, as another output wants that has less (1s))")


# --- which rows wait ----------------------------------------------------------------------------------


def waits_of(kind: Any) -> str:
    if kind is Aggregate:  # It says so of what it was made with.
        q = md.Query("q")
        q.source("a", SCHEMA, time="ts").window("1s").aggregate(n=md.count())
        return next(box.waits for box in q.graph.boxes if isinstance(box, Aggregate))
    return str(kind.waits) if isinstance(kind.waits, str) else ""


@pytest.mark.parametrize("kind", get_args(Box), ids=lambda kind: kind.__name__)
def test_a_box_that_says_it_waits_for_boundaries_is_one_of_those(kind: Any) -> None:
    assert kind.awaits_boundary is ("boundar" in waits_of(kind))


def two() -> tuple[md.Query, Any, Any]:
    q = md.Query("q")
    return q, q.source("a", SCHEMA, time="ts"), q.source("b", SCHEMA, time="ts")


def per_s(stream: Any, name: str) -> Any:
    return stream.window("1s").aggregate(n=md.count(), name=name)


def test_rows_wait_for_all_that_is_above_the_last_box_that_waits() -> None:
    q, a, b = two()
    q.sink("straight", a.filter("v > 0").union(b))
    q.sink("one", per_s(a, "per_a"))
    q.sink("both", per_s(a.union(b), "per_ab").filter("n > 0"))
    q.sink("joined", a.join(b, on="k", within="1s", name="meet"))
    q.sink("late", a.late)
    q.sink("counted", a.group_by("k").running(n=md.count()))
    found = waiting_rows(q.graph)
    assert {sink: rows.wait for sink, rows in found.items()} == {
        "straight": False,
        "one": True,
        "both": True,
        "joined": True,
        "late": False,
        "counted": False,
    }
    assert found["both"].last == {"per_ab": {"a", "b"}}
    assert found["joined"].last == {"meet": {"a", "b"}}
    assert found["late"].last == {"a.late": frozenset()}
    assert {rows.mixed for rows in found.values()} == {""}


def test_ways_that_wait_for_the_same_are_one() -> None:
    q, a, b = two()
    both = a.union(b)
    q.sink("diamond", per_s(both, "n1").union(per_s(both.filter("v > 0"), "n2")))
    q.sink("in_order", md.sunion(per_s(a, "n3"), per_s(b, "n4"), bucket="100ms", name="serial"))
    found = waiting_rows(q.graph)
    assert found["diamond"].last == {"n1": {"a", "b"}, "n2": {"a", "b"}}
    assert found["in_order"].last == {"serial": {"a", "b"}}
    assert {rows.mixed for rows in found.values()} == {""}


def test_ways_that_wait_for_others_or_for_nothing_are_named() -> None:
    q, a, b = two()
    counted = per_s(a, "n1").select("n")
    straight = b.select(n="v", name="straight")
    q.sink("part", counted.union(straight))
    q.sink("two", counted.union(per_s(b, "n2").select("n")))
    found = waiting_rows(q.graph)
    assert found["part"].mixed == "rows of 'n1' wait for 'a', and those of 'b' for nothing"
    assert found["two"].mixed == "rows of 'n1' wait for 'a', and those of 'n2' for 'b'"
