"""Functions of users in a run: what they may return, what becomes of their errors, async calls, restores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import medusa as md
from medusa.engine.udf.calls import read_output
from medusa.query.boxes import Field
from medusa.runtime.machine.event_loop import LoopTasks

SCHEMA = {"ts": "timestamp", "k": "int64"}
SECOND = 1_000_000

pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.DeadRowWarning")


class Turn:
    """Awaited: lets other coroutines run."""

    def __await__(self) -> Iterator[None]:
        yield


def rows(*pairs: tuple[int, int]) -> pa.Table:
    """(seconds, key)."""
    return pa.table(
        {
            "ts": pa.array([second * SECOND for second, _ in pairs], pa.timestamp("us")),
            "k": pa.array([key for _, key in pairs], pa.int64()),
        }
    )


def query(build: Any) -> md.Query:
    q = md.Query("q")
    q.sink("out", build(q.source("a", SCHEMA, slack=0)))
    return q


def dead(build: Any, table: pa.Table) -> tuple[list[dict[str, Any]], list[str]]:
    with md.start(query(build)) as run:
        run.push("a", table)
        run.finish()
        return run.take("out").to_pylist(), [each.error for each in run.dead()]


class TestApply:
    @pytest.mark.parametrize(
        ("made", "error"),
        [
            (3, "returned int, expected a record batch"),
            ({"m": [1, 2]}, "column 'n' is missing"),
            ({"n": ["a", "b"]}, "expected int64"),
            ({"n": [1], "_row": [2]}, "_row names rows from 0 to 1"),
            ({"n": [1, 2], "_row": [1, 0]}, "_row must not decrease"),
            ({"n": [1], "_row": [None]}, "_row has nulls"),
        ],
    )
    def test_what_it_may_not_return(self, made: Any, error: str) -> None:
        with pytest.raises(md.DataError, match=error):
            read_output(made, (Field("n", "int64"),), rows=2)

    def test_only_the_rows_that_fail_are_dead(self) -> None:
        def odd(batch: pa.RecordBatch) -> dict[str, Any]:
            keys = batch.column("k").to_pylist()
            if any(key % 2 == 0 for key in keys):
                raise ValueError("even")
            return {"n": keys}

        table = rows(*((i, i) for i in range(9)))
        out, errors = dead(lambda a: a.apply(odd, {"n": "int64"}), table)
        assert [row["n"] for row in out] == [1, 3, 5, 7]
        assert errors == ["ValueError: even"] * 5

    def test_a_wrong_count_kills_every_row(self) -> None:
        out, errors = dead(lambda a: a.apply(lambda batch: {"n": []}, {"n": "int64"}), rows((1, 1), (2, 2)))
        assert not out
        assert all("returned 0 rows for 1" in error for error in errors)
        assert len(errors) == 2

    def test_stop(self) -> None:
        q = query(lambda a: a.apply(lambda batch: 1 / 0, {"n": "int64"}, name="mine"))
        with md.start(q, on_error="stop") as run, pytest.raises(md.DataError, match="box 'mine': Zero"):
            run.push("a", rows((1, 1)))


class TestAsync:
    def test_output_keeps_the_order_and_boundaries_wait(self) -> None:
        ended: list[int] = []
        gate = asyncio.Event()

        async def slow(batch: pa.RecordBatch) -> dict[str, Any]:
            key = batch.column("k")[0].as_py()
            if key == 0:
                await gate.wait()
            elif key == 2:
                gate.set()  # the first call ends after the third has begun
            ended.append(key)
            return {"ts": batch.column("ts"), "k": batch.column("k")}

        def build(a: md.Stream) -> md.Stream:
            return a.apply(slow, SCHEMA).window("1s").aggregate(n=md.count(), k=md.sum("k"))

        with md.start(query(build)) as run:
            for key in range(3):
                run.push("a", rows((key, key)))
            run.finish()
            assert run.take("out")["k"].to_pylist() == [0, 1, 2]
        assert set(ended) == {0, 1, 2}
        assert ended.index(2) < ended.index(0) or ended.index(1) < ended.index(0)

    def test_no_more_calls_than_allowed(self) -> None:
        now, most = 0, 0

        async def call(batch: pa.RecordBatch) -> dict[str, Any]:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await Turn()
            now -= 1
            return {"n": batch.column("k")}

        with md.start(query(lambda a: a.apply(call, {"n": "int64"}, in_flight=2))) as run:
            for key in range(20):
                run.push("a", rows((key, key)))
            run.finish()
            assert run.take("out")["n"].to_pylist() == list(range(20))
        assert 1 <= most <= 2

    def test_collect_failures_and_chains(self) -> None:
        async def odd(batch: pa.RecordBatch) -> dict[str, Any]:
            await Turn()
            if any(key % 2 == 0 for key in batch.column("k").to_pylist()):
                raise ValueError("even")
            return {"k": batch.column("k")}

        q = query(lambda a: a.apply(odd, {"k": "int64"}).filter("k > 1").apply(odd, {"k": "int64"}))
        got = md.collect(q, a=rows(*((i, i) for i in range(6))))
        assert got.only["k"].to_pylist() == [3, 5]
        assert got.stats["dead"].to_pylist()[1] == 3

    def test_close_waits_and_calls_back(self) -> None:
        async def call(batch: pa.RecordBatch) -> dict[str, Any]:
            await Turn()
            return {"n": batch.column("k")}

        seen: list[int] = []
        with md.start(query(lambda a: a.apply(call, {"n": "int64"}))) as run:
            run.on("out", lambda table: seen.extend(table["n"].to_pylist()))
            run.push("a", rows((1, 1), (2, 2)))
        assert seen == [1, 2]

    def test_closing_cancels_what_still_runs(self) -> None:
        tasks = LoopTasks()
        cancelled = tasks.start(asyncio.Event().wait())
        tasks.close()
        assert cancelled.cancelled()
        tasks.close()


class Ticker:
    """Wakes itself for ever."""

    def rows(self, key: Any, batch: Any, state: Any, now: int) -> None:
        state.wake_at(now + SECOND)

    def boundary(self, key: Any, time: int, state: Any) -> dict[str, Any]:
        state.wake_at(time + SECOND)
        return {"at": [time // SECOND]}


@md.register("test.Totals")
class Totals:
    def rows(self, key: Any, batch: Any, state: Any, now: int) -> dict[str, Any]:
        state.n = (state.n or 0) + batch.num_rows
        return {"k": [key], "n": [state.n]}


class TestProcess:
    def test_a_timer_that_sets_itself_ends_with_the_input(self) -> None:
        q = query(lambda a: a.process(Ticker, {"at": "int64"}, by="k"))
        got = md.collect(q, a=rows((0, 1), (4, 2)))
        # At 4 the timer of key 1 comes before the row; 5 and 5 are the first after the last row.
        assert got.only["at"].to_pylist() == [1, 2, 3, 4, 5, 5]
        with md.start(q) as run:
            run.push("a", rows((0, 1)))
            run.boundary("a", 3 * SECOND)
            run.finish()
            assert run.take("out")["at"].to_pylist() == [1, 2, 3, 4]

    def test_the_state_checks_what_it_holds(self) -> None:
        class Wrong:
            def rows(self, key: Any, batch: Any, state: Any, now: int) -> dict[str, Any]:
                state.n = 5
                if key == 1:
                    state.n = "five"
                if key == 2:
                    state.n = 1 << 7
                if key == 3:
                    state.m = 1
                if key == 4:
                    state.wake_at(now)
                if key == 5:
                    state.clear()
                    state.n = 1
                return {"n": [state.n]}

        out, errors = dead(
            lambda a: a.process(Wrong, {"n": "int64"}, by="k", state={"n": "int8"}),
            rows(*((key, key) for key in range(6))),
        )
        assert [row["n"] for row in out] == [5]
        assert [error.split(":")[0] for error in errors] == [
            "TypeError",
            "TypeError",
            "AttributeError",
            "ValueError",
            "ValueError",
        ]

    def test_a_failed_call_leaves_no_trace_in_the_state(self) -> None:
        class Fails:
            def rows(self, key: Any, batch: Any, state: Any, now: int) -> dict[str, Any]:
                state.n = (state.n or 0) + batch.num_rows
                if now == 2 * SECOND:
                    raise ValueError("two")
                return {"n": [state.n]}

        q = query(lambda a: a.process(Fails, {"n": "int64"}, by="k", state={"n": "int64"}))
        with md.start(q) as run:
            for second in range(5):
                run.push("a", rows((second, 1)))
            run.finish()
            assert run.take("out")["n"].to_pylist() == [1, 2, 3, 4]

    def test_dead_rows_come_in_order_wherever_batches_are_cut(self) -> None:
        class Fails:
            def rows(self, key: Any, batch: Any, state: Any, now: int) -> None:
                raise ValueError(f"{key} at {now // SECOND}")

        table = rows(*((i, i % 3) for i in range(7)))
        for size in (1, 2, 7):
            q = md.Query("q")
            made = q.source("a", SCHEMA, slack="2s").process(Fails, SCHEMA, by="k")
            q.sink("dead", made.dead)
            with md.start(q) as run:
                for batch in table.to_batches(max_chunksize=size):
                    run.push("a", batch)
                run.finish()
                errors = run.take("dead")["error"].to_pylist()
            assert errors == [f"ValueError: {i % 3} at {i}" for i in range(7)]

    def test_lists_and_batches_and_tables_are_the_same(self) -> None:
        def made(give: Any) -> list[dict[str, Any]]:
            class Each:
                wake_after = "3s"

                def rows(self, key: Any, batch: Any, state: Any, now: int) -> Any:
                    state.wake_at(now + 4 * SECOND)
                    return give({"k": [key] * key, "what": ["row"] * key})

                def boundary(self, key: Any, time: int, state: Any) -> Any:
                    return give({"k": [key], "what": ["timer"]})

            q = md.Query("q")
            schema = {"k": "int64", "what": "utf8"}
            made = q.source("a", SCHEMA, slack="20s").process(Each, schema, by="k")
            q.sink("out", made.with_columns(at="tuple_time"))
            table = rows((1, 2), (1, 0), (1, 1), (3, 1), (2, 0), (4, 2), (6, 1), (6, 3), (6, 1))
            found = md.collect(q, a=table).only.to_pylist()
            assert isinstance(found, list)
            return found

        arrow = pa.schema([("k", pa.int64()), ("what", pa.string())])
        turn = iter(range(1000))
        lists = made(lambda columns: columns)
        assert len(lists) > 12
        assert made(lambda columns: pa.record_batch(columns, schema=arrow)) == lists
        assert made(lambda columns: pa.table(columns)) == lists
        mixed = [lambda columns: columns, lambda columns: pa.record_batch(columns, schema=arrow)]
        assert made(lambda columns: mixed[next(turn) % 2](columns)) == lists

    def test_a_timer_comes_before_a_row_of_its_time_that_arrived_earlier(self) -> None:
        class Both:
            def rows(self, key: Any, batch: Any, state: Any, now: int) -> dict[str, Any]:
                if key == 2:
                    state.wake_at(10 * SECOND)
                return {"what": [f"row of {key}"]}

            def boundary(self, key: Any, time: int, state: Any) -> dict[str, Any]:
                return {"what": [f"timer of {key}"]}

        q = md.Query("q")
        q.sink("out", q.source("a", SCHEMA, slack="20s").process(Both, {"what": "utf8"}, by="k"))
        out = md.collect(q, a=rows((10, 1), (5, 2))).only["what"].to_pylist()
        assert out == ["row of 2", "timer of 2", "row of 1"]

    def test_times_of_output(self) -> None:
        class Times:
            def rows(self, key: Any, batch: Any, state: Any, now: int) -> dict[str, Any]:
                later = now + (SECOND if key else -1)
                return {"n": [key], "_time": pa.array([later], pa.timestamp("us", "UTC"))}

        def build(a: md.Stream) -> md.Stream:
            made = a.process(Times, {"n": "int64"}, by="k")
            return made.select("n", at="epoch_us(tuple_time)")

        out, errors = dead(build, rows((1, 0), (2, 1)))
        assert out == [{"n": 1, "at": 3 * SECOND}]
        assert errors == ["_time is below the time of its call"]

    def test_a_class_that_cant_be_made(self) -> None:
        class Needs:
            def __init__(self, what: int) -> None: ...

            def rows(self, key: Any, batch: Any, state: Any, now: int) -> None: ...

        with pytest.raises(md.QueryError, match="made without arguments"):
            md.start(query(lambda a: a.process(Needs, SCHEMA, by="k")))


class TestCheckpoints:
    def test_a_registered_class_goes_on(self, tmp_path: Path) -> None:
        q = query(lambda a: a.process(Totals, {"k": "int64", "n": "int64"}, by="k", state={"n": "int64"}))
        with md.start(q, checkpoint=tmp_path / "c") as run:
            run.push("a", rows((1, 1), (2, 1), (3, 2)))
        with md.restore(tmp_path / "c", functions=[Totals]) as run:
            run.push("a", rows((4, 1)))
            run.finish()
            assert run.take("out").to_pylist() == [{"k": 1, "n": 2}, {"k": 2, "n": 1}, {"k": 1, "n": 3}]

    def test_unregistered_ones_have_none(self, tmp_path: Path) -> None:
        q = query(lambda a: a.process(Ticker, {"at": "int64"}, by="k", name="tick"))
        with pytest.raises(md.QueryError, match="process 'tick': its function is not registered"):
            md.start(q, checkpoint=tmp_path / "c")

    def test_what_nobody_registered_is_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from medusa.query import user_registry

        q = query(lambda a: a.process(Totals, {"k": "int64", "n": "int64"}, by="k", state={"n": "int64"}))
        with md.start(q, checkpoint=tmp_path / "c"):
            pass
        monkeypatch.setattr(user_registry, "_known", {})
        with pytest.raises(md.QueryError, match=r"nobody registered: 'test\.Totals' version 1 of process"):
            md.restore(tmp_path / "c")
        monkeypatch.undo()
        with pytest.raises(md.QueryError, match="Ticker is not registered"):
            md.restore(tmp_path / "c", functions=[Ticker])
        md.restore(tmp_path / "c").close()


def test_async_functions_run_where_a_loop_runs_already() -> None:
    async def twice(batch: pa.RecordBatch) -> dict[str, Any]:
        await Turn()
        return {"v": pc.multiply(batch["v"], 2)}

    async def main() -> list[list[int]]:
        q = md.Query("q")
        q.sink("out", q.source("a", {"v": "int64"}, time=None).apply(twice, {"v": "int64"}))
        found = [md.collect(q, a={"v": [1, 2]})["out"]["v"].to_pylist()]
        for queue in (None, "1 MiB"):
            with md.start(q, queue=queue) as run:
                await run.push_async("a", {"v": [3]})
                run.finish()
                found.append(run.take("out")["v"].to_pylist())
        return found

    assert asyncio.run(main()) == [[2, 4], [6], [6]]
