"""A run among asyncio's tasks, and time that passes while nobody pushes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.testing import ManualClock

SCHEMA = {"ts": "int64", "v": "int64"}


def query(**given: Any) -> md.Query:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", unit="s")
    b = q.source("b", SCHEMA, time="ts", unit="s", **given)
    q.sink("sums", a.window("10s").aggregate(total=md.sum("v")))
    q.sink("both", a.select("v").union(b.select("v")).window("10s").aggregate(n=md.count()))
    return q


def rows(*times: int) -> dict[str, list[int]]:
    return {"ts": list(times), "v": list(times)}


def test_rows_come_as_they_are_made_and_the_end_ends_it() -> None:
    async def main() -> list[list[int]]:
        seen: list[list[int]] = []
        with md.start(query()) as run:

            async def follow() -> None:
                seen.extend([table["total"].to_pylist() async for table in run.stream("sums")])

            task = asyncio.create_task(follow())
            for second in (5, 15, 16, 25):
                await run.push_async("a", rows(second))
            run.finish()
            await task
        return seen

    assert asyncio.run(main()) == [[5], [31], [25]]


def test_changes_come_with_boundaries_and_closing_ends_it() -> None:
    async def main() -> list[Any]:
        seen: list[Any] = []
        run = md.start(query())

        async def follow() -> None:
            async for elements in run.stream("sums", changes=True):
                seen.extend(type(each).__name__ for each in elements)

        task = asyncio.create_task(follow())
        await run.push_async("a", rows(5))
        await run.push_async("a", rows(15))
        run.close()
        await task
        with pytest.raises(md.StateError):
            await run.push_async("a", rows(20))
        return seen

    assert asyncio.run(main()) == ["Train", "Boundary"]


def test_a_push_waits_for_room() -> None:
    async def main() -> int:
        q = md.Query("q")
        q.sink("out", q.source("a", SCHEMA, time="ts", unit="s"))
        with md.start(q, memory=1_000) as run:
            pushing = asyncio.create_task(push_all(run))
            taken = sum([table.num_rows async for table in run.stream("out")])
            await pushing
        return taken

    async def push_all(run: Any) -> None:
        for second in range(20):
            run.push("a", {"ts": [second] * 50, "v": [0] * 50})  # the memory is full now
            await run.push_async("a", {"ts": [second] * 50, "v": [0] * 50})
        run.finish()

    assert asyncio.run(main()) == 2_000


def test_an_unknown_sink_is_refused_at_the_first_step() -> None:
    async def main() -> None:
        with md.start(query()) as run:
            await anext(run.stream("summs"))

    with pytest.raises(md.DataError, match="did you mean 'sums'"):
        asyncio.run(main())


def test_rows_pushed_by_another_thread_wake_the_stream() -> None:
    async def main() -> list[int]:
        with md.start(query()) as run:
            pushing = threading.Thread(target=lambda: [run.push("a", rows(5)), run.push("a", rows(15))])
            stream = run.stream("sums")
            first = asyncio.ensure_future(anext(stream))
            pushing.start()
            table = await first
            pushing.join()
            await stream.aclose()
            return list(table["total"].to_pylist())

    assert asyncio.run(main()) == [5]


def test_time_passes_at_pushes_takes_and_ticks() -> None:
    clock = ManualClock()
    with md.start(query(idle="10s"), clock=clock) as run:
        run.push("a", rows(5, 25))
        assert run.take("both").num_rows == 0
        clock.advance("9s")
        run.tick()
        assert run.take("both").num_rows == 0
        assert "because of source b" in run.explain()
        clock.advance("1s")
        assert run.take("both")["n"].to_pylist() == [1]
        run.push("a", rows(35))
        assert run.take("both")["n"].to_pylist() == [1]
        with pytest.warns(md.LateWarning, match="source 'b': a row came 5s too late"):
            run.push("b", rows(30))
        text = run.explain()
    assert "source b: holds its boundary at 1970-01-01 00:00:35 UTC" in text


def test_an_idle_source_of_a_stream_is_seen_though_nobody_calls() -> None:
    async def main() -> list[int]:
        clock = ManualClock()
        with md.start(query(idle="10s"), clock=clock) as run:
            run.push("a", rows(5, 25))
            stream = run.stream("both")
            first = asyncio.ensure_future(anext(stream))
            await asyncio.wait({first}, timeout=0)
            clock.advance("10s")
            table = await first
            await stream.aclose()
            return list(table["n"].to_pylist())

    assert asyncio.run(main()) == [1]


def test_arrival_is_said_at_the_push() -> None:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", unit="s", ahead="1s")
    q.sink("ahead", cars.ahead)
    called: list[pa.Table] = []
    with md.start(q) as run:
        run.on("ahead", called.append)
        run.push("cars", rows(5, 7), arrival=6_000_000)
        run.push("cars", rows(7, 8), arrival="1970-01-01 00:00:06.5")
        assert [table["ts"].to_pylist() for table in called] == [[8]]
        for wrong, says in ((None, "must be known"), (True, "is no time for an arrival")):
            with pytest.raises(md.DataError, match=says):
                run.push("cars", rows(9), arrival=wrong)
        assert run.positions() == {"cars": 4}


def _quick() -> md.Query:
    q = md.Query("roads")
    cars = q.source("cars", {"ts": "int64"}, time="ts", unit="s")
    q.sink("out", q.connection_point("recent", cars, keep="1h"))
    return q


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda run: run.on("out", 5), "on('out', ...): expected a function that takes a table, got 5"),
        (
            lambda run: run.attach(_quick(), at="recent").on("out", None),
            "on('out', ...): expected a function",
        ),
        (
            lambda run: run.change(_quick(), reset="out"),
            "reset: expected a list of boxes, got 'out' (reset=['out'])",
        ),
        (
            lambda run: run.record("recent", 0, 2_000_000, 7),
            "path: expected a folder as text or a path, got 7",
        ),
        (lambda run: md.replay("x", on=print), "replay: on: expected a dict, got <built-in function print>"),
        (lambda run: md.replay("x", on={"out": 1}), "replay: on: 'out': expected a function"),
        (lambda run: md.start(_quick(), history=5), "history: expected a folder as text or a path, got 5"),
        (lambda run: md.start(_quick(), spill=""), "spill: expected a folder as text or a path, got ''"),
        (
            lambda run: md.start(_quick(), checkpoint=5),
            "checkpoint: expected a folder as text or a path, got 5",
        ),
        (lambda run: md.restore(5), "path: expected a folder as text or a path, got 5"),
        (lambda run: md.start(_quick(), threads="2"), "threads='2': expected a whole number of 1 to 64"),
        (
            lambda run: md.start(_quick(), clock=min),
            "clock: expected an object with now_us() and monotonic_us()",
        ),
        (lambda run: md.read_history(5, "recent"), "path: expected a folder as text or a path, got 5"),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(call: Callable[[Any], object], told: str) -> None:
    with md.start(_quick()) as run:
        run.push("cars", {"ts": [1]})
        with pytest.raises(md.QueryError) as error:
            call(run)
        assert str(error.value).startswith(told)
        run.push("cars", {"ts": [2]})
        assert run.take("out").num_rows == 2


@pytest.mark.parametrize("argument", ["checkpoint", "history", "spill"])
def test_a_folder_in_no_folder_says_what_is_missing(tmp_path: Path, argument: str) -> None:
    with pytest.raises(md.StateError, match=r"no/such .*No such file.*\(.*/no isn't there: make it first\)"):
        md.start(_quick(), **{argument: tmp_path / "no" / "such"})
