"""An attached query is a run: what it has of one, what it refuses, streams, and its figures."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import medusa as md
from tests.runtime.test_attach import CARS, SINKS, batch_answer, cars, look, rows


def test_it_is_a_run() -> None:
    q = md.Query("look")
    source = q.source("recent", CARS, time="ts", unit="s")
    q.sink("all", source, qos=md.QoS(latency=[(0, 1), (60, 0)]))
    q.sink("fast", source.filter("speed > 5"))
    clock = md.testing.ManualClock()
    with md.start(cars(), clock=clock) as run:
        run.push("cars", rows(0, 60))
        attached = run.attach(q, at="recent", history="all", memory="1 MiB")
        assert isinstance(attached, md.AttachedRun)
        assert isinstance(attached, md.Run)
        assert isinstance(run, md.Run)
        first = attached.take("all", at_most=1)
        elements = attached.take("all", changes=True)
        assert isinstance(elements[-1], md.Boundary)
        assert attached.taken("all") == 55 == len(first) + sum(map(len, elements[:-1]))
        assert attached.taken("fast") == 0
        memory = attached.memory()
        assert memory.queues > 0
        assert set(memory.boxes) == {"fast"}
        assert attached.positions() == {"recent": 55}
        clock.advance("1s")
        [quality] = attached.qos().to_pylist()
        assert (quality["sink"], quality["rows"], quality["utility"]) == ("all", 55, 1.0)
        assert "recent" in attached.diagram().svg
        assert attached.shedding().num_rows == 0
        run.push("cars", rows(60, 20))
        assert attached.behind == 18
        attached.flush()
        assert attached.behind == 0
        run.push("cars", rows(80, 20))
        attached.tick()
        assert attached.behind == 0


def test_what_an_attached_run_cannot_do_is_refused() -> None:
    with md.start(cars()) as run:
        attached = run.attach(look(), at="recent")
        calls: list[Any] = [
            lambda: attached.push("recent", rows(0, 3)),
            lambda: asyncio.run(attached.push_async("recent", rows(0, 3))),
            lambda: attached.boundary("recent", 5),
            lambda: attached.finish(),
            lambda: attached.change(look()),
            lambda: attached.checkpoint(),
            lambda: attached.attach(look(), at="recent"),
            lambda: attached.record("recent", 0, 1, "incident"),
            lambda: attached.view("recent"),
            lambda: attached.history("recent"),
            lambda: attached.serve_metrics("127.0.0.1:0"),
            lambda: attached.on_shed("recent", print),
        ]
        for call in calls:
            with pytest.raises(md.StateError, match="of a query that is attached to 'recent'") as caught:
                call()
            assert caught.value.code == "run.attached"
            assert caught.value.hint
        run.push("cars", rows(0, 20))
        assert attached.take("fast").num_rows > 0


@pytest.mark.parametrize("options", [{}, {"queue": "1 MiB"}, {"threads": 2}])
def test_streams_of_an_attached_run(options: dict[str, Any]) -> None:
    async def read(attached: md.AttachedRun, sink: str) -> list[pa.Table]:
        return [table async for table in attached.stream(sink)]

    async def work() -> None:
        with md.start(cars(), **options) as run:
            await run.push_async("cars", rows(0, 100))
            run.flush()
            attached = run.attach(look(), at="recent", history="all", memory="4 KiB")
            readers = [asyncio.create_task(read(attached, sink)) for sink in SINKS]
            for start in range(100, 400, 60):
                await run.push_async("cars", rows(start, 60))
            run.finish()
            found = dict(zip(SINKS, await asyncio.gather(*readers), strict=True))
            expected = batch_answer(attached, run.view("recent"))
            for sink, tables in found.items():
                assert pa.concat_tables(tables).equals(expected[sink]), sink

    asyncio.run(work())


def test_streams_of_one_attached_run_wake_each_other_where_nothing_is_pushed() -> None:
    """Each fills the other's sink as it reads on, and waits for the room that the other makes."""
    q = md.Query("look")
    source = q.source("recent", CARS, time="ts", unit="s")
    q.sink("all", source)
    q.sink("again", source.filter("true"))

    async def read(attached: md.AttachedRun, sink: str) -> int:
        return sum([table.num_rows async for table in attached.stream(sink)])

    async def work() -> None:
        with md.start(cars(keep="100h")) as run:
            for start in range(0, 60_000, 20_000):
                run.push("cars", rows(start, 20_000))
            run.finish()
            attached = run.attach(q, at="recent", history="all", memory="64 KiB")
            found = await asyncio.wait_for(asyncio.gather(*(read(attached, sink) for sink in q.sinks)), 20)
            assert found == [run.history("recent").rows] * 2

    asyncio.run(work())


def test_a_stream_ends_when_the_attached_run_or_its_run_is_closed() -> None:
    async def read(attached: md.AttachedRun) -> int:
        return sum([table.num_rows async for table in attached.stream("fast")])

    async def work() -> None:
        with md.start(cars()) as run:
            one, other = (run.attach(look(), at="recent") for _ in range(2))
            readers = [asyncio.create_task(read(each)) for each in (one, other)]
            await run.push_async("cars", rows(0, 40))
            one.close()
            first = await readers[0]
            assert first > 0
        assert await readers[1] == first

    asyncio.run(work())


def test_figures_are_those_of_the_run_too_told_apart_by_a_label() -> None:
    with md.start(cars()) as run:
        one, other = (run.attach(look(), at="recent", history="all") for _ in range(2))
        assert (one.label, other.label) == ("recent-1", "recent-2")
        run.push("cars", rows(0, 55))
        one.take("fast")
        assert run.stats().num_rows == len(run.stats(attached=True).filter(pc.field("attached").is_null()))
        figures = {
            (row["attached"], row["query"], row["box"]): row["rows_in"]
            for row in run.stats(attached=True).to_pylist()
        }
        assert figures[None, "roads", "cars"] == 55
        assert figures["recent-1", "look", "recent"] == run.history("recent").rows
        assert figures["recent-2", "look", "recent"] == 0
        other.close()
        labels = run.stats(attached=True)["attached"].unique().to_pylist()
        assert labels == [None, "recent-1"]
        del one
        gc.collect()
        assert run.stats(attached=True)["attached"].unique().to_pylist() == [None]
