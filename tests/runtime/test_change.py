"""``run.change``: what stays the same is not disturbed; what is refused has changed nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from tests.runtime.changed_query import EXTRAS, STAYS, query, rows, taken

pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")

CARS = {"ts": "int64", "vid": "int64"}


def cars(size: str = "10 min", name: str | None = "w", **more: str) -> md.Query:
    q = md.Query("cars")
    source = q.source("cars", CARS, time="ts", unit="s", slack="1 min")
    q.sink("counts", source.window(size).group_by("vid").aggregate(n=md.count(), name=name))
    for sink, predicate in more.items():
        q.sink(sink, source.filter(predicate, name=f"only_{sink}"))
    return q


def batch(*times: int) -> dict[str, list[int]]:
    return {"ts": list(times), "vid": [time % 3 for time in times]}


def state(run: Any) -> dict[str, bytes]:
    return {name: bytes(data) for name, data in run._fragment.snapshot().items()}


def undisturbed(pushes: list[tuple[str, int, int]], threads: int = 1) -> dict[str, list[Any]]:
    got: dict[str, list[Any]] = {}
    with md.start(query([], 0), threads=threads) as run:
        for source, start, count in pushes:
            run.push(source, rows(start, count, source))
        run.finish()
        taken(run, STAYS, got)
    return got


def cuts(draw: random.Random, total: int) -> list[tuple[str, int, int]]:
    at, pushes = {"a": 0, "b": 0}, []
    while min(at.values()) < total:
        source = "a" if at["a"] <= at["b"] else "b"
        count = draw.choice([1, 3, 17, 40])
        pushes.append((source, at[source], count))
        at[source] += count
    return pushes


FULL = [pytest.mark.full, pytest.mark.issue(4)]


@pytest.mark.parametrize(
    ("seed", "threads"), [(1, 1), pytest.param(2, 1, marks=FULL), pytest.param(3, 2, marks=FULL)]
)
def test_fifty_changes_disturb_nothing(tmp_path: Path, seed: int, threads: int) -> None:
    draw = random.Random(seed)
    pushes = cuts(draw, 500)
    moments = sorted(draw.sample(range(len(pushes)), 50))
    got: dict[str, list[Any]] = {}
    others: list[str] = []
    made = []
    with md.start(query([], 0), threads=threads) as run:
        for number, (source, start, count) in enumerate(pushes):
            if number in moments:
                for sink in others:
                    run.take(sink)
                extras = draw.sample(list(EXTRAS), draw.randint(1, 5))
                # What a box below a window was promised, a shorter one can't: those sinks begin anew.
                reset = [f"o_{name}" for name in extras if f"o_{name}" in others]
                made.append(run.change(query(extras, draw.randrange(100)), reset=reset))
                others = [f"o_{name}" for name in extras]
            run.push(source, rows(start, count, source))
            if "o_other" in others:
                run.push("c", rows(start, count, "c"))
            if draw.random() < 0.3:
                taken(run, STAYS, got)
        run.finish()
        taken(run, STAYS, got)
        assert len(made) == 50
    assert got == undisturbed(pushes, threads)
    # All kinds of changes came.
    assert all({*each.kept} >= {"a", "b", "w", "ss", "j", "r", "tt", *STAYS} for each in made)
    assert sum(bool(each.dropped) for each in made) > 10
    assert sum(any(id.startswith("x_") for id in each.replaced) for each in made) > 5


def test_new_boxes_see_the_rows_from_now_on() -> None:
    pushes = cuts(random.Random(5), 300)
    half = len(pushes) // 2
    extras = ["few", "wide", "pairs", "behind", "early"]
    with md.start(query([], 0)) as run, md.start(query(extras, 3)) as other:
        for source, start, count in pushes[:half]:
            run.push(source, rows(start, count, source))
        boundaries = {box: run._fragment.boxes[box].boundary_us for box in ("a", "b")}
        run.change(query(extras, 3))
        for source, time_us in boundaries.items():
            other.boundary(source, time_us)
        for source, start, count in pushes[half:]:
            for each in (run, other):
                each.push(source, rows(start, count, source))
        got: dict[str, list[Any]] = {}
        expected: dict[str, list[Any]] = {}
        sinks = tuple(f"o_{name}" for name in extras)
        for each, into in ((run, got), (other, expected)):
            each.finish()
            taken(each, sinks, into)
        assert got == expected
        assert all(got.values())


def test_what_became_of_each_box_is_told() -> None:
    with md.start(cars(old="vid > 1")) as run:
        run.push("cars", batch(0, 30, 60))
        assert run.take("old").num_rows == 0
        made = run.change(cars("20 min", new="vid > 0"))
        assert made.kept == ("cars", "counts")
        assert made.fresh == ("only_new", "new")
        assert list(made.replaced) == ["w"]
        assert "size_us: 600000000 -> 1200000000" in made.replaced["w"]
        assert made.dropped == ("only_old", "old")
        assert str(made).startswith("2 boxes kept; new: only_new, new; replaced: w (size_us: 600000000 ->")
        run.push("cars", batch(61))
        run.finish()
        assert run.take("counts")["n"].to_pylist() == [1]  # the state of the window went with it
        assert run.positions() == {"cars": 4}


def test_sinks_keep_their_numbers_and_the_rows_that_wait() -> None:
    with md.start(cars(fast="vid >= 0")) as run:
        run.push("cars", batch(0, 30))
        run.take("fast")
        run.push("cars", batch(60, 70))
        run.change(cars(fast="vid >= 0", more="vid > 0"))
        assert run.taken("fast") == 2
        assert run.take("fast")["ts"].to_pylist() == [60, 70]
        (train,) = [
            each for each in _pushed(run, 80).take("fast", changes=True) if isinstance(each, md.Train)
        ]
        assert train.first_seq == 4
        assert run.taken("more") == 0


def _pushed(run: Any, *times: int) -> Any:
    run.push("cars", batch(*times))
    return run


def refused(run: Any, q: md.Query, error: type[Exception], match: str, **options: Any) -> None:
    before, sinks = state(run), {sink: run.taken(sink) for sink in ("counts", "fast")}
    boxes = dict(run._fragment.boxes)
    with pytest.raises(error, match=match):
        run.change(q, **options)
    assert state(run) == before
    assert run._fragment.boxes == boxes
    assert {sink: run.taken(sink) for sink in sinks} == sinks


def test_what_is_refused_has_changed_nothing() -> None:
    def bare(batch: Any) -> Any:
        return batch

    with md.start(cars("50 min", fast="vid >= 0")) as run, md.start(cars("50 min", fast="vid >= 0")) as twin:
        for each in (run, twin):
            _pushed(each, *range(0, 1200, 30))
        q = md.Query("cars")
        q.source("cars", CARS, time="ts", unit="s", slack="1 min")
        refused(run, q, md.QueryError, "has no sink")
        refused(run, "cars", md.QueryError, "expected a md.Query")  # type: ignore[arg-type]
        q = md.Query("cars")
        q.sink("fast", q.source("cars", CARS, time="ts", unit="s", slack="2 min"))
        refused(run, q, md.QueryError, r"source 'cars' isn't what it was \(slack_us: 60000000 -> 120000000\)")
        refused(run, cars("50 min"), md.StateError, "sink 'fast' goes, and 40 rows of it wait")
        # A window of five minutes can't promise what one of fifty did.
        shorter = cars("5 min", fast="vid >= 0")
        refused(run, shorter, md.StateError, "sink 'counts' was promised")
        refused(run, shorter, md.QueryError, "no box 'conts'", reset=["conts"])
        named = cars("50 min", fast="vid >= 0")
        named.sink("x", named.stream("cars").apply(bare, CARS, name="mine"))
        graph = md.Query.from_graph(named.graph)  # a graph can't hold a function that isn't registered
        refused(run, graph, md.QueryError, "its function is not registered")
        for each in (run, twin):
            _pushed(each, 3600, 7200)
            each.finish()
        for sink in ("counts", "fast"):
            assert run.take(sink).equals(twin.take(sink))


def test_a_function_that_isnt_registered_is_the_same_as_long_as_it_is() -> None:
    def first(batch: Any) -> Any:
        return batch

    def second(batch: Any) -> Any:
        return batch.slice(0)

    def of(function: Any) -> md.Query:
        q = cars()
        q.sink("mine", q.stream("cars").apply(function, CARS, name="f"))
        return q

    with md.start(of(first)) as run:
        assert "f" in run.change(of(first)).kept
        assert "its function is another one" in run.change(of(second)).replaced["f"]


def test_callbacks_go_on_and_those_of_sinks_that_go_dont() -> None:
    seen: list[tuple[str, int]] = []
    with md.start(cars(fast="vid >= 0", old="vid > 1")) as run:
        for sink in ("fast", "old"):
            run.on(sink, lambda table, sink=sink: seen.append((sink, table.num_rows)))  # type: ignore[misc]
        run.push("cars", batch(2))
        run.change(cars(fast="vid >= 0"))
        run.push("cars", batch(5))
        run.change(cars(fast="vid >= 0", old="vid > 1"))  # the same name, but another sink
        run.push("cars", batch(8))
        assert seen == [("fast", 1), ("old", 1), ("fast", 1), ("fast", 1)]
        assert run.take("old")["ts"].to_pylist() == [8]


def test_a_callback_cant_change_the_run_that_calls_it() -> None:
    with md.start(cars(fast="vid >= 0")) as run:
        run.on("fast", lambda table: run.change(cars()))
        with pytest.raises(md.StateError, match="the run is at work"):
            run.push("cars", batch(2))


def test_dead_rows_and_what_reads_them_go_on() -> None:
    def of(limit: int | None) -> md.Query:
        q = md.Query("q")
        bad = q.source("a", {"ts": "int64", "s": "utf8"}, time="ts", unit="s").select(
            n="cast(s as int64)", name="parse"
        )
        q.sink("numbers", bad)
        if limit is not None:
            q.sink("failed", bad.dead.select("error", name=f"e{limit}"))
        return q

    with md.start(of(None)) as run:
        with pytest.warns(md.DeadRowWarning):
            run.push("a", {"ts": [1, 2], "s": ["1", "x"]})
        run.change(of(1))
        run.push("a", {"ts": [3, 4], "s": ["3", "y"]})
        assert run.take("failed").num_rows == 1
        run.change(of(None))
        assert not run._fragment.letters._taps  # nobody reads them any more
        run.push("a", {"ts": [5, 6], "s": ["5", "z"]})
        assert [row.row["s"] for row in run.dead()] == ["x", "y", "z"]
        assert run.take("numbers")["n"].to_pylist() == [1, 3, 5]
        stats = {row["box"]: row for row in run.stats().to_pylist()}
        assert (stats["parse"]["rows_in"], stats["parse"]["dead"]) == (6, 3)


@pytest.mark.parametrize("history", [pytest.param(False, marks=FULL), True])
def test_a_checkpoint_between_changes_goes_on(tmp_path: Path, history: bool) -> None:
    draw = random.Random(11)
    pushes = cuts(draw, 450)
    got: dict[str, list[Any]] = {}
    place = {"history": tmp_path / "h"} if history else {}
    run = md.start(query([], 0), checkpoint=tmp_path / "s", checkpoint_every=None, **place)
    others: list[str] = []
    for number, (source, start, count) in enumerate(pushes):
        if number % 9 == 4:
            for sink in others:
                run.take(sink)
            extras = draw.sample([name for name in EXTRAS if name != "other"], draw.randint(0, 4))
            # A history on disk isn't begun anew under its name, so that one stays as it is.
            reset = [f"o_{name}" for name in extras if f"o_{name}" in others]
            seed = 1 if history else number
            run.change(query(extras, seed), reset=reset)
            others = [f"o_{name}" for name in extras]
        if number % 12 == 11:
            if number % 24 == 23:
                run.close()
            else:
                run.checkpoint()
                run._end(save=False)  # as if it had been killed
            run = md.restore(tmp_path / "s", **place)
            assert set(run._fragment.sinks) == {*STAYS, *others}
        run.push(source, rows(start, count, source))
        taken(run, STAYS, got)
    with run:
        run.finish()
        taken(run, STAYS, got)
    assert got == undisturbed(pushes)


def test_the_change_itself_is_durable(tmp_path: Path) -> None:
    run = md.start(cars(), checkpoint=tmp_path / "s", checkpoint_every=None)
    run.push("cars", batch(0, 30))
    run.change(cars(fast="vid >= 0"))
    run.push("cars", batch(60))
    run._end(save=False)
    with md.restore(tmp_path / "s") as run:
        assert run.positions() == {"cars": 2}
        assert run.take("fast").num_rows == 0
        q = cars()
        q.sink("mine", q.stream("cars").apply(lambda batch: batch, CARS, name="f"))
        with pytest.raises(md.QueryError, match="checkpoint= needs"):
            run.change(q)


def test_a_checkpoint_that_cant_be_written_warns(tmp_path: Path) -> None:
    with md.start(cars(), checkpoint=tmp_path / "s", checkpoint_every=None) as run:
        run.push("cars", batch(0, 30))
        assert run._checkpoints._store is not None
        good = run._checkpoints._store._store.write

        def full(name: str, files: Any) -> None:
            raise md.StateError("no space left")

        run._checkpoints._store._store.write = full  # type: ignore[method-assign]
        with pytest.warns(md.CheckpointWarning, match="no space left"):
            run.change(cars(fast="vid >= 0"))
        run._checkpoints._store._store.write = good  # type: ignore[method-assign]
        run.push("cars", batch(60))
        assert run.take("fast").num_rows == 1
    with md.restore(tmp_path / "s") as run:
        assert run.taken("fast") == 1


def test_a_closed_run_doesnt_change() -> None:
    run = md.start(cars())
    run.close()
    with pytest.raises(md.StateError, match="is closed"):
        run.change(cars())


def test_a_connection_point_keeps_more_or_less_from_now_on() -> None:
    def of(keep: str) -> md.Query:
        q = md.Query("q")
        q.sink("all", q.connection_point("recent", q.source("a", CARS, time="ts", unit="s"), keep=keep))
        return q

    with md.start(of("10s")) as run:
        for change in ("10s", "1000s", "30s"):
            assert run.change(of(change)).kept == ("a", "recent", "all")
            before = run.history("recent").next
            for time in range(before, before + 80):
                run.push("a", batch(time))
                run.view("recent")  # each row is a record of its own
            history = run.history("recent")
            kept = int(change[:-1])
            assert history.next == before + 80
            if kept == 1000:
                assert history.rows >= 80
            else:
                assert kept <= history.rows <= 2 * kept


@pytest.mark.parametrize("disk", [False, True])
def test_a_connection_point_keeps_its_history_whoever_reads_it(tmp_path: Path, disk: bool) -> None:
    def of(*, read: bool) -> md.Query:
        q = md.Query("q")
        source = q.source("a", CARS, time="ts", unit="s")
        recent = q.connection_point("recent", source, keep="1h")
        q.sink("all", source)
        if read:
            q.sink("counts", recent.window("10s").aggregate(n=md.count()))
        return q

    look = md.Query("look")
    look.sink("all", look.source("recent", CARS, time="ts", unit="s"))
    folders = {"history": tmp_path / "h", "checkpoint": tmp_path / "c"} if disk else {}
    with md.start(of(read=False), **folders) as run:
        attached = run.attach(look, at="recent")
        for number, read in enumerate((True, False, True, False)):
            run.push("a", batch(2 * number, 2 * number + 1))
            for sink in run._fragment.sinks:
                run.take(sink)
            assert "recent" in run.change(of(read=read)).kept
            assert attached.take("all")["ts"].to_pylist() == [2 * number, 2 * number + 1]
        assert run.view("recent")["ts"].to_pylist() == list(range(8))
    if disk:
        with md.restore(tmp_path / "c", history=tmp_path / "h") as run:
            run.push("a", batch(8))
            assert run.view("recent")["ts"].to_pylist() == list(range(9))


def test_quality_of_service_changes_and_the_sink_stays() -> None:
    def of(qos: md.QoS | None) -> md.Query:
        q = md.Query("q")
        q.sink("all", q.source("a", CARS, time="ts", unit="s"), qos=qos)
        return q

    with md.start(of(None)) as run:
        run.push("a", batch(1, 2))
        assert run.change(of(md.QoS(latency=[(0, 1), ("5s", 0)]))).kept == ("a", "all")
        run.push("a", batch(3))
        assert run.qos()["sink"].to_pylist() == ["all"]
        assert run.change(of(None)).kept == ("a", "all")
        assert run.qos().num_rows == 0
        assert run.take("all").num_rows == 3


def test_a_box_that_could_follow_doesnt_where_another_cant() -> None:
    def of(first: str, second: str) -> md.Query:
        q = md.Query("q")
        streams = {each: q.source(each, CARS, time="ts", unit="s") for each in "ab"}
        q.sink("counts", streams[first].window("1 min").aggregate(n=md.count(), name="w"))
        q.sink("fast", streams[second])
        return q

    with md.start(of("b", "a")) as run:
        run.push("b", batch(10))
        run.boundary("a", "1970-01-01 01:00:00")
        refused(run, of("a", "b"), md.StateError, "sink 'fast' was promised")
        assert run.take("counts").num_rows == 0
        run.change(of("a", "a"))  # the window may close now
        assert run.take("counts").num_rows == 1
