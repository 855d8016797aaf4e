"""Run: what goes in is whole or not at all, what comes out is numbered, and nothing is silent."""

from __future__ import annotations

import datetime as dt
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Boundary, Train
from medusa.engine.stats import TIMED
from tests.engine.queries import numbers

CARS = {"ts": "timestamp", "vid": "int64", "speed": "float64"}


def counting(*, slack: Any = "2s") -> md.Query:
    q = md.Query("counting")
    cars = q.source("cars", CARS, time="ts", slack=slack)
    q.sink("per_vid", cars.window("10s").group_by("vid").aggregate(n=md.count(), top=md.max("speed")))
    q.sink("fast", cars.filter("speed > 1"))
    return q


def rows(*seconds: float, vid: int = 1, speed: float = 2.0) -> dict[str, Any]:
    return {
        "ts": pa.array([int(s * 1_000_000) for s in seconds], pa.timestamp("us")),
        "vid": [vid] * len(seconds),
        "speed": [speed] * len(seconds),
    }


def all_of(run: md.Run) -> tuple[Any, ...]:
    return (
        run.positions(),
        run.explain(),
        run.taken("fast"),
        run.stats().drop_columns([*TIMED]).to_pylist(),
    )


class TestPush:
    def test_windows_close_when_the_boundary_reaches_their_end(self) -> None:
        with md.start(counting()) as run:
            run.push("cars", rows(1, 3, 11.9))
            assert run.take("per_vid").num_rows == 0
            run.push("cars", rows(12))
            got = numbers(run.take("per_vid"))
            assert got == [{"window_start": 0, "window_end": 10_000_000, "vid": 1, "n": 2, "top": 2.0}]

    def test_only_finish_closes_the_rest(self) -> None:
        run = md.start(counting())
        run.push("cars", rows(1))
        run.finish()
        assert run.take("per_vid").num_rows == 1
        run.close()
        run = md.start(counting())
        with run:
            run.push("cars", rows(1))
        with pytest.raises(md.StateError, match="closed"):
            run.take("per_vid")

    def test_a_take_gives_each_row_once_and_an_empty_table_with_the_columns(self) -> None:
        with md.start(counting()) as run:
            run.push("cars", rows(1, 2))
            first = run.take("fast")
            second = run.take("fast")
        assert first.num_rows == 2
        assert second.num_rows == 0
        assert second.schema == first.schema

    def test_take_changes_gives_numbered_trains_and_boundaries(self) -> None:
        with md.start(counting(slack=0)) as run:
            run.push("cars", rows(1, 2))
            run.push("cars", rows(3))
            elements = run.take("fast", changes=True)
        assert [type(e) for e in elements] == [Train, Boundary, Train, Boundary]
        assert [e.first_seq for e in elements if isinstance(e, Train)] == [0, 2]
        assert [e.time_us for e in elements if isinstance(e, Boundary)] == [2_000_000, 3_000_000]
        assert elements[2].times.to_pylist()[0].second == 3

    def test_rows_not_yet_taken_keep_their_numbers_in_a_checkpoint(self, tmp_path: Path) -> None:
        with md.start(counting(slack=0), checkpoint=tmp_path / "c") as run:
            run.push("cars", rows(1))
            assert run.take("fast").num_rows == 1
            run.push("cars", rows(2))
            run.push("cars", rows(3))
        with md.restore(tmp_path / "c") as run:
            assert run.taken("fast") == 1
            held = [e for e in run.take("fast", changes=True) if isinstance(e, Train)]
        assert [(e.first_seq, len(e)) for e in held] == [(1, 1), (2, 1)]

    def test_large_batches_are_cut_and_small_tables_joined(self) -> None:
        with md.start(counting()) as run:
            run.push("cars", rows(*range(100_000)))
            assert run.take("fast").num_rows == 100_000
            run.push("cars", pa.concat_tables([pa.table(rows(100_001)), pa.table(rows(100_002))]))
            assert run.take("fast").num_rows == 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("data", "match"),
        [
            ({"ts": [0], "vid": [1]}, "speed"),
            ({**rows(1), "x": [1]}, "'x'"),
            ({**rows(1), "speed": ["fast"]}, "speed"),
            ({**rows(1), "ts": pa.nulls(1, pa.timestamp("us"))}, "null"),
            ({**rows(1), "ts": pa.array([1 << 61], pa.timestamp("us"))}, "out of range"),
            (17, "int"),
        ],
    )
    def test_a_batch_that_does_not_fit_changes_nothing(self, data: Any, match: str) -> None:
        with md.start(counting()) as run:
            run.push("cars", rows(1, 30))
            before = all_of(run)
            with pytest.raises(md.DataError, match=match):
                run.push("cars", data)
            assert all_of(run) == before
            run.push("cars", rows(31))

    def test_a_null_time_in_a_later_batch_refuses_the_whole_push(self) -> None:
        good = pa.record_batch(rows(1, 2))
        bad = pa.record_batch({**rows(3), "ts": pa.nulls(1, pa.timestamp("us"))})
        with md.start(counting()) as run:
            before = all_of(run)
            with pytest.raises(md.DataError, match="null"):
                run.push("cars", pa.Table.from_batches([good, bad]))
            assert all_of(run) == before

    def test_extra_columns_can_be_ignored(self) -> None:
        with md.start(counting()) as run:
            run.push("cars", {**rows(1), "x": [1]}, extra="ignore")
            assert run.take("fast").schema.names == ["ts", "vid", "speed"]

    def test_unknown_names_come_with_a_hint(self) -> None:
        with md.start(counting()) as run:
            with pytest.raises(md.DataError, match="did you mean 'cars'"):
                run.push("car", rows(1))
            with pytest.raises(md.DataError, match="did you mean 'per_vid'"):
                run.take("per_vids")

    def test_a_boundary_may_not_decrease_and_has_to_be_a_time(self) -> None:
        with md.start(counting()) as run:
            run.boundary("cars", 5_000_000)
            before = all_of(run)
            for time in (4_999_999, "yesterday", 1.5, True, None, 1 << 62):
                with pytest.raises(md.DataError, match="boundary"):
                    run.boundary("cars", time)  # type: ignore[arg-type]
                assert all_of(run) == before
            run.boundary("cars", 5_000_000)

    def test_after_the_end_no_rows(self) -> None:
        with md.start(counting()) as run:
            run.finish()
            with pytest.raises(md.DataError, match="ended"):
                run.push("cars", rows(1))
            run.finish()

    def test_what_comes_later_is_refused(self) -> None:
        with pytest.raises(md.QueryError, match="threads"):
            md.start(counting(), threads=0)
        with pytest.raises(md.QueryError, match="on_error"):
            md.start(counting(), on_error="ignore")
        with pytest.raises(md.QueryError, match="memory"):
            md.start(counting(), memory="lots")
        with pytest.raises(md.QueryError, match="Query"):
            md.start("SELECT 1")  # type: ignore[arg-type]

    def test_every_call_after_close_says_so(self) -> None:
        run = md.start(counting())
        run.close()
        run.close()
        for call in (
            lambda: run.push("cars", rows(1)),
            lambda: run.take("fast"),
            lambda: run.boundary("cars", 1),
            run.finish,
            run.stats,
            run.explain,
            run.positions,
            run.dead,
            run.checkpoint,
            lambda: run.taken("fast"),
            run.__enter__,
        ):
            with pytest.raises(md.StateError, match="closed"):
                call()


class TestBackpressure:
    def test_output_not_taken_fills_the_memory_and_the_next_push_enters_nothing(self) -> None:
        with md.start(counting(), memory=1_000) as run:
            run.push("cars", rows(*range(100)))
            before = all_of(run)
            with pytest.raises(md.FullError, match="wait to be taken"):
                run.push("cars", rows(101))
            with pytest.raises(md.FullError):
                run.boundary("cars", 200_000_000)
            assert all_of(run) == before
            run.take("fast")
            run.take("per_vid")
            run.push("cars", rows(101))

    def test_exactly_the_memory_is_accepted_and_one_byte_more_is_not(self) -> None:
        with md.start(counting()) as run:
            run.push("cars", rows(1, 2, 3))
            held = run._fragment.held_bytes()
        assert held > 1
        with md.start(counting(), memory=held) as run:
            run.push("cars", rows(1, 2, 3))
            run.push("cars", rows(4))
            assert run.positions() == {"cars": 4}
            assert run.take("fast").num_rows == 4
        with md.start(counting(), memory=held - 1) as run:
            run.push("cars", rows(1, 2, 3))
            before = all_of(run)
            with pytest.raises(md.FullError):
                run.push("cars", rows(4))
            with pytest.raises(md.FullError):
                run.boundary("cars", 200_000_000)
            assert all_of(run) == before
            assert run.take("fast").num_rows == 3
            run.push("cars", rows(4))
            assert run.positions() == {"cars": 4}


class TestLateness:
    def test_the_first_late_row_warns_at_the_caller_and_all_are_counted(self) -> None:
        q = counting(slack="1s")
        with md.start(q) as run:
            run.push("cars", rows(10))
            with pytest.warns(md.LateWarning, match="slack='3s 500ms' would have kept it") as caught:
                run.push("cars", rows(6.5, 9.5))
            assert caught[0].filename == __file__
            run.push("cars", rows(7))  # warns once
            stats = {row["box"]: row for row in run.stats().to_pylist()}
            assert stats["cars"]["late"] == 2
            assert run.take("fast").num_rows == 4  # a plain filter never loses a row

    def test_no_slack_means_none_when_live(self) -> None:
        with md.start(counting(slack=None)) as run:
            run.push("cars", rows(10, 10))
            with pytest.warns(md.LateWarning):
                run.push("cars", rows(9.999999))

    def test_a_query_that_never_looks_at_time_does_not_warn(self) -> None:
        q = md.Query("q")
        q.sink("o", q.source("cars", CARS, time="ts").filter("speed > 1"))
        with md.start(q) as run:
            run.push("cars", rows(10, 1))
            assert run.take("o").num_rows == 2

    def test_an_explicit_boundary_makes_rows_late(self) -> None:
        with md.start(counting(slack="1h")) as run:
            run.boundary("cars", dt.datetime(1970, 1, 1, 0, 0, 20))
            run.boundary("cars", "1970-01-01 00:00:21")
            with pytest.warns(md.LateWarning):
                run.push("cars", rows(20, 21))
            run.finish()
            assert [row["n"] for row in numbers(run.take("per_vid"))] == [1]


class TestDead:
    def query(self) -> md.Query:
        q = md.Query("q")
        cars = q.source("cars", CARS, time="ts", slack="1s")
        q.sink("o", cars.with_columns(x="100 // vid", name="kept"))
        return q

    def mixed(self, count: int = 1) -> dict[str, Any]:
        return {
            "ts": pa.array(range(3 * count), pa.timestamp("us")),
            "vid": [5, 0, 7] * count,
            "speed": [1.0, 2.0, 3.0] * count,
        }

    def test_failed_rows_are_left_out_counted_and_kept(self) -> None:
        q = self.query()
        with md.start(q) as run:
            with pytest.warns(md.DeadRowWarning, match="kept") as caught:
                run.push("cars", self.mixed())
            assert len(caught) == 1
            assert caught[0].filename == __file__
            run.push("cars", self.mixed(150))
            assert run.take("o").column("vid").to_pylist() == [5, 7] * 151
            stats = {row["box"]: row for row in run.stats().to_pylist()}
            assert stats["kept"]["dead"] == 151
            kept = run.dead()
            assert len(kept) == 100
            assert kept[0].box == "kept"
            assert kept[0].row["vid"] == 0
            assert "'x'" in kept[0].error
            assert "dead" in run.explain()

    def test_stop_raises_at_the_push_and_the_run_takes_nothing_more(self) -> None:
        with md.start(self.query(), on_error="stop") as run:
            run.push("cars", {k: v[:1] for k, v in self.mixed().items()})
            with pytest.raises(md.DataError, match="kept"):
                run.push("cars", self.mixed())
            assert run.take("o").num_rows == 1
            with pytest.raises(md.DataError, match="stopped"):
                run.push("cars", {k: v[:1] for k, v in self.mixed().items()})
            with pytest.raises(md.DataError, match="stopped"):
                run.finish()

    def test_a_sum_that_does_not_fit_fails_its_group_only(self) -> None:
        q = md.Query("q")
        s = q.source("s", {"ts": "timestamp", "k": "int64", "x": "int64"}, time="ts")
        q.sink("o", s.window("1s").group_by("k").aggregate(n=md.count(), total=md.sum("x")))
        big = (1 << 63) - 1
        with pytest.warns(md.DeadRowWarning, match="total"):
            out = md.collect(
                q, s={"ts": pa.array([0, 1, 2], pa.timestamp("us")), "k": [1, 2, 1], "x": [big, 3, big]}
            )
        assert out.only.column("total").to_pylist() == [3]
        assert [row["dead"] for row in out.stats.to_pylist() if row["kind"] == "aggregate"] == [1]


class TestCallbacks:
    def test_rows_arrive_at_the_end_of_the_push(self) -> None:
        got: list[int] = []
        with md.start(counting()) as run:
            run.on("fast", lambda table: got.append(table.num_rows))
            run.push("cars", rows(1, 2))
            run.push("cars", rows(3, speed=0.5))
            assert got == [2]
            assert run.taken("fast") == 2
            assert run.take("fast").num_rows == 0

    def test_a_callback_that_fails_gets_its_rows_again(self) -> None:
        got: list[int] = []

        def fail_once(table: pa.Table) -> None:
            got.append(table.num_rows)
            if len(got) == 1:
                raise RuntimeError("disk on fire")

        with md.start(counting()) as run:
            run.on("fast", fail_once)
            with pytest.raises(RuntimeError, match="fire"):
                run.push("cars", rows(1))
            run.push("cars", rows(2))
        assert got == [1, 2]

    def test_a_callback_may_not_call_the_run(self) -> None:
        with md.start(counting()) as run:
            run.on("fast", lambda table: run.push("cars", rows(2)))
            with pytest.raises(md.StateError, match="at work"):
                run.push("cars", rows(1))


class TestThreads:
    def test_any_thread_may_ask_while_another_pushes(self) -> None:
        """Unguarded this reads windows that native code changes meanwhile, and crashes."""
        q = md.Query("q")
        a = q.source("a", {"t": "timestamp", "k": "int64"}, time="t", slack=0)
        window = a.window(1_000, advance=500).group_by("k")
        q.sink("o", window.aggregate(n=md.count(), d=md.count_distinct("k")))
        pushes, count = 60, 5_000
        errors: list[BaseException] = []
        with md.start(q) as run:

            def push_all() -> None:
                try:
                    for i in range(pushes):
                        times = pa.array(np.arange(count) + i * count, pa.timestamp("us"))
                        run.push("a", {"t": times, "k": np.arange(count) % 977})
                        run.take("o")
                except BaseException as error:
                    errors.append(error)

            pusher = threading.Thread(target=push_all, daemon=True)
            pusher.start()
            seen, dead, taken = [0], [], [0]
            while pusher.is_alive():
                seen += [run.positions()["a"], *run.stats().column("rows_in").to_pylist()[:1]]
                taken.append(run.taken("o"))
                dead += run.dead()
                assert "window" in run.explain()
            pusher.join(60)
            assert not errors
            assert run.positions() == {"a": pushes * count}
        assert not dead
        assert taken == sorted(taken)
        assert all(rows % count == 0 for rows in seen), "asked in the middle of a push"

    def test_a_callback_may_ask(self) -> None:
        asked: list[Any] = []
        with md.start(counting()) as run:
            run.on("fast", lambda table: asked.append((run.taken("fast"), run.positions(), run.dead())))
            run.on("fast", lambda table: asked.append((run.explain(), run.stats().num_rows)))
            run.push("cars", rows(1))
        assert asked[0] == (0, {"cars": 1}, [])
        assert "sink fast from" in asked[1][0]
        assert asked[1][1] == 5

    def test_a_second_thread_may_not_push_or_take_meanwhile(self) -> None:
        caught: list[md.StateError] = []

        def try_all(run: Any) -> None:
            for call in (
                lambda: run.push("cars", rows(2)),
                lambda: run.boundary("cars", 5),
                lambda: run.take("fast"),
                run.finish,
                run.close,
            ):
                try:
                    call()
                except md.StateError as error:
                    caught.append(error)

        def callback(table: pa.Table) -> None:
            other = threading.Thread(target=try_all, args=(run,), daemon=True)
            other.start()
            other.join(60)

        with md.start(counting()) as run:
            run.on("fast", callback)
            run.push("cars", rows(1))
            assert [error.code for error in caught] == ["run.busy"] * 5
            assert run.positions() == {"cars": 1}
            run.push("cars", rows(2, speed=0))
            assert run.positions() == {"cars": 2}


class TestPositions:
    def test_rows_held_already_are_dropped_and_gaps_refused(self) -> None:
        with md.start(counting()) as run:
            run.push("cars", rows(1, 2, 3), first=0)
            run.push("cars", rows(2, 3, 4), first=1)
            assert run.positions() == {"cars": 4}
            assert [t.second for t in run.take("fast").column("ts").to_pylist()] == [1, 2, 3, 4]
            for first in (5, -1, True, "0"):
                with pytest.raises(md.DataError):
                    run.push("cars", rows(5), first=first)  # type: ignore[arg-type]
            assert run.positions() == {"cars": 4}


class TestExplain:
    def test_it_says_which_input_holds_the_boundary_and_which_window_is_next(self) -> None:
        q = md.Query("q")
        a = q.source("a", CARS, time="ts", slack=0)
        b = q.source("b", CARS, time="ts", slack=0)
        q.sink("w", a.window("10s").aggregate(n=md.count(), name="per_10s"))
        q.sink("j", a.join(b, on="vid", within="1s", name="near"))
        with md.start(q) as run:
            run.push("a", rows(12))
            lines = {line.split()[1]: line for line in run.explain().splitlines()[1:]}
            assert "the window that ends 1970-01-01 00:00:20 UTC" in lines["per_10s"]
            assert "waits for b, which holds its boundary at nothing yet" in lines["near"]
            run.push("b", rows(11))
            lines = {line.split()[1]: line for line in run.explain().splitlines()[1:]}
            assert "waits for b, which holds its boundary at 1970-01-01 00:00:11 UTC" in lines["near"]


def test_a_warning_turned_into_an_error_leaves_a_whole_run() -> None:
    """``filterwarnings=error`` raises out of the push, whose rows have entered all the same."""
    with md.start(counting(slack=0)) as run, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(md.LateWarning):
            run.push("cars", rows(10, 1))
        assert run.positions() == {"cars": 2}
        run.push("cars", rows(11))
        assert run.take("fast").num_rows == 3
