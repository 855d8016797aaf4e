"""Partitions, rows ahead of their arrival, idle sources: beside brute force, under cuts and restores."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import START_US, Boundary, Element, Train
from medusa.engine.fragment import Fragment
from tests.oracle.query import Promise, Push, answer

SCHEMA = {"ts": "timestamp", "at": "timestamp", "p": "utf8", "n": "int64"}
ARROW = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("at", pa.timestamp("us", "UTC")),
        ("p", pa.string()),
        ("n", pa.int64()),
    ]
)


def rows(*given: tuple[int, str | None], at: int = 0) -> list[dict[str, Any]]:
    return [{"ts": time, "at": at, "p": part, "n": n} for n, (time, part) in enumerate(given)]


def batch(made: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(made, schema=ARROW)


def plain(elements: list[Element]) -> list[dict[str, Any]]:
    found = [each.batch for each in elements if isinstance(each, Train)]
    table = pa.Table.from_batches(found) if found else pa.table({})
    return [{name: as_us(value) for name, value in row.items()} for row in table.to_pylist()]


def as_us(value: Any) -> Any:
    """Times as the oracle writes them."""
    return int(pa.scalar(value, pa.timestamp("us", "UTC")).value) if isinstance(value, datetime) else value


def query(window: int = 10, **given: Any) -> md.Query:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, **given)
    q.sink("all", cars)
    q.sink("late", cars.late)
    q.sink("counts", cars.window(window).group_by("p").aggregate(n=md.count(), total=md.sum("n")))
    if "ahead" in given:
        q.sink("ahead", cars.ahead)
    return q


# -- beside the oracle -------------------------------------------------------------------------------

events = st.lists(
    st.one_of(
        st.lists(
            st.fixed_dictionaries(
                {
                    "ts": st.integers(0, 60),
                    "at": st.integers(0, 60),
                    "p": st.sampled_from([None, "a", "b", "c"]),
                    "n": st.integers(0, 9),
                }
            ),
            max_size=9,
        ).map(lambda made: Push("cars", made)),
        st.integers(0, 40).map(lambda time: Promise("cars", time)),
    ),
    max_size=6,
)


@settings(max_examples=200)
@given(
    events=events,
    slack=st.integers(0, 12),
    ahead=st.sampled_from([None, 0, 15]),
    listed=st.booleans(),
    cut=st.sampled_from([1, 2, 3, 100]),
    reload_at=st.integers(-1, 6),
)
def test_the_answer_is_that_of_the_oracle(
    events: list[Push | Promise],
    slack: int,
    ahead: int | None,
    listed: bool,
    cut: int,
    reload_at: int,
) -> None:
    """Also with state taken out and put back at a random moment."""
    given: dict[str, Any] = {"slack": slack, "partition": "p"}
    if ahead is not None:
        given |= {"ahead": ahead, "arrival": "at"}
    if listed:
        given["partitions"] = ["a", "b", "c", "d"]
        for event in events:
            if isinstance(event, Push):
                event.rows[:] = [row for row in event.rows if row["p"] is not None]
    promised = 0
    for number, event in enumerate(events):
        if isinstance(event, Promise):
            promised = max(promised, event.time)
            events[number] = Promise("cars", promised)
    q = query(**given)
    fragment = Fragment(q.graph)
    out: dict[str, list[Element]] = {name: [] for name in q.sinks}
    for number, event in enumerate(events):
        if number == reload_at:
            files = {name: bytes(data) for name, data in fragment.snapshot().items()}
            fragment = Fragment.restore(q.graph, files)
        if isinstance(event, Promise):
            fragment.promise("cars", event.time)
            continue
        for start in range(0, len(event.rows), cut):
            fragment.feed("cars", Train(batch=batch(event.rows[start : start + cut])))
        for name in out:
            out[name] += fragment.drain(name)
    fragment.finish()
    for name in out:
        out[name] += fragment.drain(name)
    expected = answer(q.graph, events)
    for name, elements in out.items():
        assert plain(elements) == expected.sinks[name]
        check_boundaries(elements)
    source = fragment.source("cars")
    assert source.late == expected.late["cars"]
    assert source.ahead == len(expected.sinks.get("ahead", ()))
    assert source.accepted == sum(len(event.rows) for event in events if isinstance(event, Push))


def check_boundaries(elements: list[Element]) -> None:
    """No row in time comes below a boundary, and boundaries ascend."""
    boundary = int(START_US)
    for each in elements:
        if isinstance(each, Boundary):
            assert each.time_us >= boundary
            boundary = each.time_us
        elif isinstance(each, Train) and each.times is not None:
            late = [False] * len(each) if each.late is None else each.late.to_pylist()
            times = each.times.cast(pa.int64()).to_pylist()
            assert all(time >= boundary for time, is_late in zip(times, late, strict=True) if not is_late)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from("abc")), min_size=1, max_size=20))
def test_measured_slack_keeps_every_row_of_every_partition(given: list[tuple[int, str]]) -> None:
    """It is just enough: nothing is late with it, and with 1 us less something is."""
    from medusa.engine.bounded_run import SourcePart, measured_slack

    spec = query(partition="p").graph.boxes[0]
    made = batch(rows(*given))
    slack = measured_slack(
        spec, [SourcePart(each, each.column(0)) for each in (made.slice(0, 3), made.slice(3))]
    )
    for tried in (slack, slack - 1):
        if tried >= 0:
            late = answer(query(slack=tried, partition="p").graph, [Push("cars", rows(*given))]).late["cars"]
            assert (late > 0) == (tried < slack)
    collected = md.collect(query(partition="p"), cars=pa.table(made))
    assert collected["late"].num_rows == 0


# -- partitions ----------------------------------------------------------------------------------------


def boundary_after(fragment: Fragment, *given: tuple[int, str | None]) -> int:
    fragment.feed("cars", Train(batch=batch(rows(*given))))
    return fragment.source("cars").boundary_us


def test_the_boundary_is_the_least_of_the_partitions() -> None:
    fragment = Fragment(query(slack=2, partition="p").graph)
    assert boundary_after(fragment, (100, "a")) == 98
    assert boundary_after(fragment, (103, "b")) == 98  # b starts there
    assert boundary_after(fragment, (200, "a")) == 101
    assert boundary_after(fragment, (90, "c")) == 101  # new, and late: it starts at the boundary
    assert fragment.source("cars").late == 1
    assert boundary_after(fragment, (300, "b"), (150, None)) == 101
    assert "partition 'c' holds it" in fragment.explain()


def test_listed_partitions_hold_until_they_are_seen() -> None:
    fragment = Fragment(query(partition="p", partitions=["a", "b"]).graph)
    assert boundary_after(fragment, (100, "a")) == START_US
    assert "partition 'b', not seen yet holds it" in fragment.explain()
    assert boundary_after(fragment, (50, "b")) == 50
    with pytest.raises(
        md.DataError, match="row 1 is of partition 'x', which partitions= doesn't list"
    ) as caught:
        boundary_after(fragment, (400, "a"), (400, "x"))
    assert caught.value.code == "data.partition"
    assert fragment.positions() == {"cars": 2}
    fragment.promise("cars", 70)
    assert fragment.source("cars").boundary_us == 70


@pytest.mark.parametrize(
    ("type", "values"),
    [
        ("int8", [1, -1, 1]),
        ("uint64", [1 << 63, 2, 1 << 63]),
        ("bool", [True, False, True]),
        ("float32", [0.5, float("nan"), 0.5]),
        ("binary", [b"x", b"", b"x"]),
        ("date32", [10, 11, 10]),
        ("timestamp", [10, 11, 10]),
    ],
)
def test_any_key_type(type: str, values: list[Any]) -> None:
    """The third row is late in the partition of the first."""
    q = md.Query("q")
    cars = q.source("cars", {"ts": "timestamp", "p": type}, partition="p")
    q.sink("out", cars.late)
    from medusa.query.types import to_arrow

    column = pa.array(values, to_arrow(q.graph.boxes[0].schema[1].type))
    times = pa.array([50, 60, 49], pa.timestamp("us", "UTC"))
    fragment = Fragment(q.graph)
    schema = fragment.source("cars").schema
    fragment.feed("cars", Train(batch=pa.RecordBatch.from_arrays([times, column], schema=schema)))
    restored = Fragment.restore(q.graph, {k: bytes(v) for k, v in fragment.snapshot().items()})
    for each in (fragment, restored):
        assert each.source("cars").late == 1
        assert each.source("cars").boundary_us == 50
        assert each.source("cars").holder() == fragment.source("cars").holder()


def damaged(change: Callable[[pa.Table], pa.Table]) -> None:
    q = query(partition="p", partitions=["a", "b"])
    fragment = Fragment(q.graph)
    boundary_after(fragment, (100, "a"))
    state = fragment.source("cars").save()
    state.tables["partitions"] = change(state.tables["partitions"])
    Fragment(q.graph).source("cars").load(state)


def test_damaged_state_is_refused() -> None:
    def with_column(table: pa.Table, number: int, values: list[Any]) -> pa.Table:
        return table.set_column(
            number, table.schema.field(number), pa.array(values, table.schema.field(number).type)
        )

    damaged(lambda table: table)
    for change in (
        lambda table: table.slice(1),
        lambda table: with_column(table, 0, ["a", "a"]),
        lambda table: with_column(table, 1, [1, (1 << 62) + 1]),
        lambda table: with_column(table, 2, [-(1 << 63), None]),
        lambda table: table.rename_columns(["x", "y", "z"]),
    ):
        with pytest.raises(ValueError, match=r"."):
            damaged(change)


# -- ahead --------------------------------------------------------------------------------------------


def test_a_clock_that_runs_ahead_poisons_nobody() -> None:
    fragment = Fragment(query(ahead=5, arrival="at").graph)
    fragment.feed("cars", Train(batch=batch(rows((10, "a"), (26, "b"), (25, "c"), at=20))))
    assert fragment.source("cars").boundary_us == 25
    assert [row["ts"] for row in plain(fragment.drain("ahead"))] == [26]
    assert [row["ts"] for row in plain(fragment.drain("all"))] == [10, 25]
    assert fragment.positions() == {"cars": 3}
    assert fragment.stats().filter(fragment.stats()["ahead"].to_numpy() > 0)["box"].to_pylist() == ["cars"]
    assert "1 rows ahead" in fragment.explain()
    # Rows of which all are ahead change nothing besides.
    fragment.feed("cars", Train(batch=batch(rows((99, "a"), at=20))))
    assert fragment.source("cars").boundary_us == 25


def test_arrival_has_to_be_said_once() -> None:
    by_push = Fragment(query(ahead=5).graph)
    one = [batch(rows((10, "a")))]
    with pytest.raises(md.DataError, match="must be known when its rows arrived") as caught:
        by_push.check_rows("cars", one)
    assert caught.value.code == "data.arrival"
    by_push.push_rows("cars", one, by_push.check_rows("cars", one, 4), 4)
    by_push.push_rows("cars", one, by_push.check_rows("cars", one, 5), 5)
    assert by_push.source("cars").ahead == 1
    for other, says in (({"ahead": 5, "arrival": "at"}, "in column 'at'"), ({}, "has no ahead=")):
        with pytest.raises(md.DataError, match=says):
            Fragment(query(**other).graph).check_rows("cars", one, 7)
    with pytest.raises(md.DataError, match="must be known when its rows arrived"):
        md.collect(query(ahead=5), cars=pa.Table.from_batches(one))
    nothing = batch([{"ts": 1, "at": None, "p": "a", "n": 1}])
    with pytest.raises(md.DataError, match="'at'"):
        Fragment(query(ahead=5, arrival="at").graph).check_rows("cars", [nothing])


# -- idle ---------------------------------------------------------------------------------------------


def joined(**given: Any) -> tuple[md.Query, Fragment]:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA)
    vans = q.source("vans", SCHEMA, **given)
    q.sink("pairs", cars.join(vans.filter("n >= 0"), on="n", within=5))
    q.sink("vans_late", vans.late)
    return q, Fragment(q.graph)


def feed(fragment: Fragment, source: str, now_us: int, *given: tuple[int, str | None]) -> None:
    fragment.at(now_us)
    fragment.feed(source, Train(batch=batch(rows(*given))))
    fragment.tick(now_us)


def test_an_idle_source_takes_the_boundary_of_those_that_wait_and_no_more() -> None:
    _, fragment = joined(idle=100)
    fragment.tick(0)
    feed(fragment, "vans", 10, (50, "a"))
    feed(fragment, "cars", 20, (50, "a"), (80, "a"))
    assert plain(fragment.drain("pairs")) == []
    fragment.tick(109)
    assert fragment.source("vans").boundary_us == 50
    fragment.tick(110)
    assert fragment.source("vans").boundary_us == 80
    assert len(plain(fragment.drain("pairs"))) == 1
    assert "it is idle" in fragment.explain()
    feed(fragment, "cars", 120, (90, "a"))
    assert fragment.source("vans").boundary_us == 90
    feed(fragment, "vans", 130, (89, "a"), (90, "a"))
    assert fragment.source("vans").late == 1
    feed(fragment, "cars", 140, (200, "a"))
    assert fragment.source("vans").boundary_us == 90  # it is awake


def test_a_source_that_meets_no_other_is_left_alone_and_nobody_is_ended() -> None:
    alone = Fragment(query(idle=10).graph)
    alone.tick(0)
    feed(alone, "cars", 5, (50, "a"))
    alone.tick(1_000)
    assert alone.source("cars").boundary_us == 50
    q, fragment = joined(idle=10)
    fragment.tick(0)
    feed(fragment, "cars", 1, (50, "a"))
    fragment.promise("cars", 60)
    fragment.tick(100)
    assert fragment.source("vans").boundary_us == 60
    fragment = Fragment(q.graph)
    fragment.tick(0)
    feed(fragment, "cars", 1, (50, "a"))
    fragment.promise("cars", 1 << 62)
    fragment.tick(100)
    assert not fragment.source("vans").finished
    feed(fragment, "vans", 101, (50, "a"))
    assert fragment.source("vans").late == 0


def test_a_user_may_promise_less_than_idleness_gave() -> None:
    _, fragment = joined(idle=10)
    fragment.tick(0)
    feed(fragment, "cars", 1, (80, "a"))
    fragment.tick(100)
    assert fragment.source("vans").boundary_us == 80
    fragment.promise("vans", 70)
    assert fragment.source("vans").boundary_us == 80
    again = Fragment.restore(fragment.graph, {k: bytes(v) for k, v in fragment.snapshot().items()})
    feed(again, "vans", 101, (79, "a"), (80, "a"))
    assert again.source("vans").late == 1


def test_idle_partitions_let_go_of_the_others() -> None:
    fragment = Fragment(query(idle=10, partition="p").graph)
    fragment.tick(0)
    feed(fragment, "cars", 1, (50, "a"), (40, "b"))
    assert fragment.source("cars").late == 1
    feed(fragment, "cars", 8, (90, "a"))
    assert fragment.source("cars").boundary_us == 50
    fragment.tick(11)
    assert fragment.source("cars").boundary_us == 90
    fragment.tick(1_000)  # all are idle now: nobody to go by
    assert fragment.source("cars").boundary_us == 90
    feed(fragment, "cars", 1_001, (95, "b"), (89, "a"))
    assert fragment.source("cars").late == 2


def test_a_listed_partition_is_not_idle_before_anyone_has_waited_for_it() -> None:
    fragment = Fragment(query(idle=10, partition="p", partitions=["a", "b"]).graph)
    feed(fragment, "cars", 1_000, (50, "a"))
    fragment.tick(1_009)
    assert fragment.source("cars").boundary_us == START_US
    feed(fragment, "cars", 1_009, (60, "a"))
    fragment.tick(1_010)
    assert fragment.source("cars").boundary_us == 60


@pytest.mark.parametrize("port", ["late", "ahead"])
def test_side_streams_of_a_source_end_with_it(port: str) -> None:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, ahead=5, arrival="at")
    q.sink("side", getattr(cars, port))
    fragment = Fragment(q.graph)
    fragment.feed("cars", Train(batch=batch(rows((5, "a"), (9, "a"), (4, "a")))))
    fragment.drain("side")
    fragment.finish()
    assert [type(each) for each in fragment.drain("side")] == [Boundary]


def test_ticks_without_idle_sources_change_nothing() -> None:
    fragment = Fragment(query().graph)
    feed(fragment, "cars", 1, (50, "a"))
    before = {name: bytes(data) for name, data in fragment.snapshot().items()}
    fragment.tick(1 << 50)
    assert {name: bytes(data) for name, data in fragment.snapshot().items()} == before


# -- explain ------------------------------------------------------------------------------------------


def test_explain_names_the_cause_and_since_when() -> None:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA)
    vans = q.source("vans", SCHEMA, partition="p")
    counts = [s.window(10).group_by("n").aggregate(c=md.count(), name=f"{s.name}_n") for s in (cars, vans)]
    q.sink("out", counts[0].join(counts[1], on=["window", "n"], name="both").filter("n > 0", name="some"))
    fragment = Fragment(q.graph)
    feed(fragment, "vans", 1_000_000, (25, "x"), (47, "y"))
    feed(fragment, "cars", 3_000_000, (70, "a"))
    text = fragment.explain(5_500_000)
    lines = {line.split()[1].rstrip(":"): line for line in text.splitlines()[1:]}
    at = "1970-01-01 00:00:00.00002"
    assert f"holds its boundary at {at}5 UTC" in lines["vans"]
    assert "partition 'x' holds it; unmoved for 4s" in lines["vans"]
    assert (
        f"vans holds its boundary at {at}5 UTC; unmoved for 4s, because of partition 'x'" in lines["vans_n"]
    )
    for box in ("both", "out", "some"):
        assert "because of source vans, partition 'x'" in lines[box]
    assert "unmoved for 4s, because of source vans, partition 'x'" in lines["both"]
    assert "because of source cars" not in text
    assert "unmoved" not in fragment.explain()
    fragment.finish()
    assert "held back" not in fragment.explain(6_000_000)


def test_pairs_of_cuts_are_all_there() -> None:
    """However rows are cut, the elements at a sink say the same."""
    made = rows(*[((i * 7) % 40 + i, "abc"[i % 3]) for i in range(30)])
    seen = []
    for cuts in ([], [7], list(range(1, 30))):
        fragment = Fragment(query(slack=5, partition="p").graph)
        for start, end in pairwise([0, *cuts, 30]):
            fragment.feed("cars", Train(batch=batch(made[start:end])))
        fragment.finish()
        seen.append({name: plain(fragment.drain(name)) for name in ("all", "late", "counts")})
    assert seen[0] == seen[1] == seen[2]
