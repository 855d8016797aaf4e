"""Sessions, row windows, value windows, running aggregates and top-N give what the oracle gives,
wherever batches are cut, rows come late or out of order, or state is taken out and put back."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
import tests.oracle.window_kinds  # noqa: F401  registers its boxes
from medusa.elements import Boundary, Train
from medusa.engine.fragment import Fragment
from medusa.engine.operators.windows import groups, running, session, top
from tests.engine.queries import AGGREGATES, KEYS, SCHEMA, WINDOWS, batch_of, inputs, numbers, rows_of
from tests.engine.test_properties import Driver, close_to
from tests.oracle.query import Push, answer

EXAMPLES = 60
SIZES = [(1, 1), (2, 2), (3, 1), (4, 2), (5, 3), (3, 3), (7, 2)]


def aggregates(draw: st.DrawFn) -> dict[str, str]:
    names = draw(st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=4, unique=True))
    return {name: AGGREGATES[name] for name in names}


def running_values(draw: st.DrawFn) -> dict[str, Any]:
    made: dict[str, Any] = dict(aggregates(draw)) if draw(st.booleans()) else {}
    if draw(st.booleans()) or not made:
        made["before"] = md.lag(draw(st.sampled_from(["s", "v", "n"])))
        made["further"] = md.lag(draw(st.sampled_from(["s", "v"])), draw(st.integers(1, 3)))
    return made


@st.composite
def queries(draw: st.DrawFn, kind: str) -> md.Query:
    q = md.Query("random")
    source = q.source("a", SCHEMA, time="ts", slack=draw(st.sampled_from([0, 3, 10, 40])))
    keys = draw(st.sampled_from(KEYS))
    grouped: Any = source.group_by(*keys) if keys else source
    match kind:
        case "session":
            cut: Any = source.session(draw(st.sampled_from([1, 2, 3, 5, 9, 30])))
            made = (cut.group_by(*keys) if keys else cut).aggregate(**aggregates(draw))
        case "rows":
            size, advance = draw(st.sampled_from(SIZES))
            made = grouped.window_rows(size, advance).aggregate(**aggregates(draw))
        case "values":
            column = draw(st.sampled_from(["n", "v", "ts", "x"]))
            size, advance = draw(st.sampled_from(SIZES))
            if column == "x":  # ascends, so that few rows are late
                grouped = source.with_columns(x="epoch_us(ts) * 0.25")
                grouped = grouped.group_by(*keys) if keys else grouped
            if column in ("v", "x"):
                size, advance = size / 4, advance / 4
            made = grouped.window_values(column, size, advance).aggregate(**aggregates(draw))
        case "running":
            expire = draw(st.sampled_from([None, 1, 5, 20]))
            made = grouped.running(running_values(draw), expire=expire)
        case "top":
            size, advance = draw(st.sampled_from(WINDOWS))
            windowed = source.window(size, advance=advance)
            by = draw(st.sampled_from(["v", "s", "n", "ts"]))
            n, down = draw(st.integers(1, 3)), draw(st.booleans())
            made = (windowed.group_by(*keys) if keys else windowed).top(n, by=by, descending=down)
    q.sink("out", made)
    if kind != "rows" and kind != "values":
        q.sink("again", made.window(10).aggregate(rows=md.count()))
    return q


@pytest.mark.parametrize("kind", ["session", "rows", "values", "running", "top"])
def test_a_fragment_gives_what_the_oracle_gives(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Panes of top-N are cut down, and what has closed is forgotten, from a few rows on.
    monkeypatch.setattr(top, "REDUCE_ROWS", 2)
    monkeypatch.setattr(groups, "DEAD_LEAST", 2)
    monkeypatch.setattr(session, "KEYS_SPARE", 1)
    monkeypatch.setattr(running, "SPARE", 1)

    @settings(max_examples=EXAMPLES)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        q = data.draw(queries(kind))
        events = data.draw(inputs(["a"]))
        cuts = data.draw(st.sampled_from([[], [1], [2, 3, 7], list(range(1, 12))]))
        reload_at = data.draw(st.integers(-1, len(events)))
        driver = Driver(q)
        for number, event in enumerate(events):
            if number == reload_at:
                driver.reload()
            driver.feed(event, cuts)
            driver.drain()
        if reload_at == len(events):
            driver.reload()
        driver.fragment.finish()
        driver.drain()
        expected = answer(q.graph, events)
        for sink, table in driver.tables().items():
            close_to(numbers(table), expected.sinks[sink])

    run()


def untimed(q: md.Query) -> md.Stream:
    return q.source("a", SCHEMA, time=None)


@pytest.mark.parametrize("kind", ["rows", "running"])
def test_streams_without_time(kind: str) -> None:
    @settings(max_examples=EXAMPLES // 2)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        q = md.Query("random")
        keys = data.draw(st.sampled_from(KEYS))
        grouped: Any = untimed(q).group_by(*keys) if keys else untimed(q)
        if kind == "rows":
            size, advance = data.draw(st.sampled_from(SIZES))
            made = grouped.window_rows(size, advance).aggregate(**data.draw(st.composite(aggregates)()))
        else:
            made = grouped.running(data.draw(st.composite(running_values)()))
        assert not made.timed
        q.sink("out", made)
        events = [Push("a", data.draw(rows_of(st.integers(0, 9)))) for _ in range(3)]
        driver = Driver(q)
        for number, event in enumerate(events):
            driver.feed(event, [2, 5])
            if number == 1:
                driver.reload()
            driver.drain()
        driver.fragment.finish()
        driver.drain()
        close_to(numbers(driver.tables()["out"]), answer(q.graph, events).sinks["out"])

    run()


# Bits: sums of tenths depend on the order in which they are added


TENTHS = st.lists(
    st.tuples(st.integers(-8, 8), st.integers(0, 1), st.integers(-99, 99)), min_size=1, max_size=40
)


def outcome(q: md.Query, rows: list[dict[str, Any]], cuts: list[int], reload_at: int) -> pa.Table:
    driver = Driver(q)
    edges = [0, *sorted(c for c in set(cuts) if 0 < c < len(rows)), len(rows)]
    for number, (start, end) in enumerate(pairwise(edges)):
        driver.fragment.feed("a", Train(batch=batch_of(rows[start:end])))
        if number == reload_at:
            driver.drain()
            driver.reload()
    driver.fragment.finish()
    driver.drain()
    return driver.tables()["out"]


@settings(max_examples=EXAMPLES)
@given(TENTHS, st.lists(st.integers(1, 39), max_size=5), st.integers(-1, 4), st.integers(0, 3))
def test_bits_depend_on_the_rows_and_their_order_only(
    steps: list[tuple[int, int, int]], cuts: list[int], reload_at: int, which: int
) -> None:
    """Out of order within the slack: sessions join, and neither cuts nor a restore show in a bit."""
    rows = []
    now = 0
    for step, key, tenth in steps:
        now += 3
        rows.append({"ts": now + step, "k": key, "v": tenth / 10, "s": None, "n": 0})
    q = md.Query("q")
    source = q.source("a", SCHEMA, time="ts", slack=30)
    cut: Any = [
        lambda: source.session(7).group_by("k"),
        lambda: source.group_by("k").window_rows(5, 2),
        lambda: source.group_by("k").window_values("ts", 9, 4),
        lambda: None,
    ][which]()
    if cut is None:
        q.sink("out", source.group_by("k").running(t=md.sum("v"), m=md.avg("v")))
    else:
        q.sink("out", cut.aggregate(t=md.sum("v"), m=md.avg("v"), x=md.variance("v")))
    assert outcome(q, rows, cuts, reload_at).equals(outcome(q, rows, [], -1))


# One thing at a time


def rows_at(times: list[int], **columns: list[Any]) -> list[dict[str, Any]]:
    blank = {"k": 0, "v": None, "s": None, "n": 0}
    return [
        blank | {"ts": t} | {name: values[i] for name, values in columns.items()} for i, t in enumerate(times)
    ]


def one(make: Any, rows: list[dict[str, Any]], slack: int = 0) -> tuple[list[dict[str, Any]], Fragment]:
    q = md.Query("q")
    q.sink("out", make(q.source("a", SCHEMA, time="ts", slack=slack)))
    driver = Driver(q)
    driver.fragment.feed("a", Train(batch=batch_of(rows)))
    driver.fragment.finish()
    driver.drain()
    return numbers(driver.tables()["out"]), driver.fragment


def test_a_row_exactly_the_gap_later_begins_a_new_session() -> None:
    rows, _ = one(lambda s: s.session(5).aggregate(n=md.count()), rows_at([0, 4, 9, 13]))
    assert [(r["window_start"], r["window_end"], r["n"]) for r in rows] == [(0, 9, 2), (9, 18, 2)]


def test_a_late_arrival_joins_two_sessions_with_all_aggregates() -> None:
    calls = {"n": "count()", "kinds": "count_distinct(s)", "f": "first(s)", "l": "last(s)", "q": "median(v)"}
    given_rows = rows_at([0, 8, 4], v=[1.0, 5.0, 3.0], s=["a", "b", "a"])
    rows, _ = one(lambda s: s.session(5).aggregate(calls), given_rows, slack=9)
    assert rows == [{"window_start": 0, "window_end": 13, "n": 3, "kinds": 2, "f": "a", "l": "b", "q": 3.0}]


def boundaries_of(make: Any, steps: list[Any]) -> list[int]:
    q = md.Query("q")
    q.sink("out", make(q.source("a", SCHEMA, time="ts", slack=0)))
    fragment = Fragment(q.graph)
    seen = []
    for step in steps:
        fragment.feed("a", Boundary(step) if isinstance(step, int) else Train(batch=batch_of(step)))
        seen += [e.time_us for e in fragment.drain("out") if isinstance(e, Boundary)]
    return seen


def test_the_boundary_of_sessions_is_the_earliest_open_end_or_a_gap_ahead() -> None:
    seen = boundaries_of(
        lambda s: s.session(10).group_by("k").aggregate(n=md.count()),
        [rows_at([100], k=[1]), rows_at([105], k=[2]), rows_at([108], k=[1]), 115, 118],
    )
    # Open ends: 110; still 110; then k=2 ends at 115, closed at 115; then k=1 at 118; then 118 + 10.
    assert seen == [109, 114, 117, 127]


def test_incomplete_row_windows_are_not_sent() -> None:
    rows, _ = one(lambda s: s.window_rows(2).aggregate(t=md.sum("n")), rows_at([1, 2, 3], n=[1, 2, 4]))
    assert [(r["window_start"], r["window_end"], r["t"]) for r in rows] == [(0, 2, 3)]


def test_a_value_that_decreases_is_late_and_one_that_is_none_is_dead() -> None:
    values = [1.0, 3.0, 2.0, None, float("nan"), 3.0]
    rows, fragment = one(
        lambda s: s.window_values("v", 2.0).aggregate(n=md.count()), rows_at([1, 2, 3, 4, 5, 6], v=values)
    )
    assert [(r["window_start"], r["window_end"], r["n"]) for r in rows] == [(0.0, 2.0, 1), (2.0, 4.0, 2)]
    box = next(box for box in fragment.boxes.values() if box.kind == "window_values")
    assert (box.late, box.dead) == (1, 2)
    assert {row.box for row in fragment.dead()} == {box.id}


def test_bounds_have_the_type_of_times_and_dates() -> None:
    q = md.Query("q")
    source = q.source("a", {"ts": "timestamp", "d": "date32"}, time="ts")
    made = source.window_values("d", "2 days").aggregate(n=md.count())
    assert made.schema["window_start"] == made.schema["window_end"] == "date32"
    q.sink("out", made)
    days = pa.array([0, 1, 2, 5], pa.int32()).cast(pa.date32())
    table = pa.table({"ts": pa.array([1, 2, 3, 4]).cast(pa.timestamp("us")), "d": days})
    out = md.collect(q, a=table)["out"]
    assert [b.toordinal() - 719163 for b in out["window_start"].to_pylist()] == [0, 2, 4]
    assert out["n"].to_pylist() == [2, 1, 1]


def test_a_sum_that_does_not_fit_fails_its_window_only() -> None:
    q = md.Query("q")
    source = q.source("a", {"ts": "timestamp", "x": "int64"}, time="ts")
    q.sink("rows", source.window_rows(2).aggregate(t=md.sum("x")))
    q.sink("slide", source.window_rows(2, 1).aggregate(t=md.sum("x")))
    q.sink("run", source.running(t=md.sum("x")))
    big = 2**62
    table = pa.table({"ts": pa.array(range(4)).cast(pa.timestamp("us")), "x": [big, big, 1, 2]})
    with pytest.warns(md.DeadRowWarning):
        got = md.collect(q, a=table)
    assert [r["t"] for r in got["rows"].to_pylist()] == [3]
    assert [r["t"] for r in got["slide"].to_pylist()] == [big + 1, 3]
    assert [r["t"] for r in got["run"].to_pylist()] == [big]


def test_late_rows_pass_running_unless_state_expires() -> None:
    given_rows = rows_at([10, 2, 11])
    rows, _ = one(lambda s: s.running(c=md.count()), given_rows)
    assert [r["c"] for r in rows] == [1, 2, 3]
    rows, fragment = one(lambda s: s.running(c=md.count(), expire=5), given_rows)
    assert [r["c"] for r in rows] == [1, 2]
    assert sum(box.late for box in fragment.boxes.values() if box.kind == "running") == 1


def test_memory_follows_what_is_open() -> None:
    """A million keys one after the other: what has closed or expired is forgotten."""
    q = md.Query("q")
    source = q.source("a", {"ts": "timestamp", "k": "int64"}, time="ts", slack=0)
    q.sink("s", source.session(50).group_by("k").aggregate(n=md.count(), d=md.count_distinct("k")))
    q.sink("r", source.group_by("k").running(n=md.count(), p=md.lag("k"), expire=50))
    fragment = Fragment(q.graph)
    largest = 0
    step = 20_000
    for start in range(0, 10 * step, step):
        ids = pa.array(range(start, start + step), pa.int64())
        batch = pa.record_batch([ids.cast(pa.timestamp("us", "UTC")), ids], names=["ts", "k"])
        fragment.feed("a", Train(batch=batch))
        for sink in ("s", "r"):
            fragment.drain(sink)
        if start == 3 * step:
            largest = sum(box.state_bytes() for box in fragment.boxes.values())
    assert sum(box.state_bytes() for box in fragment.boxes.values()) <= largest
    files = fragment.snapshot()
    held = pa.ipc.open_file(pa.py_buffer(next(data for name, data in files.items() if "sessions" in name)))
    assert held.read_all().num_rows <= 51


@pytest.mark.parametrize("size", [(5, 2), (6, 3), (7, 7)])
def test_many_windows_at_once(size: tuple[int, int]) -> None:
    rng = random.Random(size[0])
    given_rows = [
        {"ts": 3 * i, "k": rng.randrange(3), "v": rng.randrange(40) / 4, "s": rng.choice("abc"), "n": i // 3}
        for i in range(200)
    ]
    calls = AGGREGATES
    q = md.Query("q")
    source = q.source("a", SCHEMA, time="ts", slack=0)
    q.sink("rows", source.group_by("k").window_rows(*size).aggregate(calls))
    q.sink("values", source.group_by("k").window_values("n", *size).aggregate(calls))
    q.sink("sessions", source.session(size[0]).group_by("k").aggregate(calls))
    driver = Driver(q)
    event = Push("a", given_rows)
    driver.feed(event, [])
    driver.fragment.finish()
    driver.drain()
    expected = answer(q.graph, [event])
    for sink, table in driver.tables().items():
        close_to(numbers(table), expected.sinks[sink])


def test_of_equal_times_in_joined_sessions_the_row_that_came_first_is_first() -> None:
    """The row that joins two sessions, and those after it, come behind what was there before."""
    q = md.Query("joined")
    rows = q.source("rows", {"ts": "int64", "v": "float64", "t": "utf8"}, time="ts", unit="us", slack=10)
    columns = {"v": md.last("v"), "first": md.first("t"), "last": md.last("t")}
    q.sink("out", rows.session(3).aggregate(**columns))
    came = [
        (16, 1.0, None),
        (20, 2.0, "x"),
        (20, 3.0, None),
        (18, 9.0, None),
        (20, 7.0, "c"),
        (20, 7.5, None),
    ]
    for cut in range(len(came)):
        with md.start(q) as run:
            for part in (came[:cut], came[cut:]):
                if part:
                    run.push(
                        "rows", dict(zip(("ts", "v", "t"), map(list, zip(*part, strict=True)), strict=True))
                    )
            run.finish()
            (row,) = run.take("out").to_pylist()
            assert (row["v"], row["first"], row["last"]) == (7.5, "x", "c")
