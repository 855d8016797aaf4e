"""``run.attach``: history and what comes after it are one batch, and the run isn't disturbed."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import medusa as md

CARS = {"ts": "int64", "vid": "int64", "speed": "float64"}
SECOND = 1_000_000


def cars(keep: str = "10h", keep_bytes: str | None = None, slack: str = "5s") -> md.Query:
    q = md.Query("roads")
    source = q.source("cars", CARS, time="ts", unit="s", slack=slack)
    recent = q.connection_point("recent", source.filter("vid >= 0"), keep=keep, keep_bytes=keep_bytes)
    q.sink("counts", recent.window("10s").group_by("vid").aggregate(n=md.count(), t="sum(speed)"))
    return q


def rows(first: int, count: int, late: bool = False) -> pa.RecordBatch:
    """Times wander about by 4 s; now and then a row is late, if told so."""
    turns = range(first, first + count)
    return pa.record_batch(
        {
            "ts": pa.array([max(0, n + n * 7 % 5 - (40 if late and n % 31 == 30 else 0)) for n in turns]),
            "vid": pa.array([-1 if n % 11 == 10 else n % 3 for n in turns]),
            "speed": pa.array([None if n % 13 == 0 else n * 7 % 29 / 3 for n in turns], pa.float64()),
        }
    )


def look() -> md.Query:
    q = md.Query("look")
    source = q.source("recent", CARS, time="ts", unit="s")
    sums = source.window("20s", advance="5s").group_by("vid").aggregate(n=md.count(), t="sum(speed)")
    q.sink("sums", sums)
    q.sink("sessions", source.filter("speed > 4").session("3s").group_by("vid").aggregate(n=md.count()))
    q.sink("fast", source.filter("speed > 5").with_columns(twice="speed * 2"))
    q.sink("pairs", source.join(source.filter("speed < 1"), on="vid", within="4s"))
    q.sink("busy", sums.select("vid", "n").window("40s").group_by("vid").top(1, by="n"))
    return q


WINDOWS = {"sums": 0, "sessions": 0, "busy": 20 * SECOND - 1}
"""What is a window, and how much later those that are given begin: by the length of the windows within."""


def batch_answer(attached: Any, table: pa.Table) -> dict[str, pa.Table]:
    """What the attached query gives: over the rows from ``first_seq``, windows from ``from_time``."""
    given = {}
    for sink, answer in md.collect(look(), recent=table).items():
        if sink in WINDOWS and attached.from_us is not None:
            begin = answer["window_start"].cast(pa.int64())
            answer = answer.filter(pc.greater_equal(begin, attached.from_us + WINDOWS[sink]))
        given[sink] = answer
    return given


SINKS = ("sums", "sessions", "fast", "pairs", "busy")


def taken(attached: Any, got: dict[str, list[pa.Table]], sinks: Sequence[str] = SINKS) -> None:
    for sink in sinks:
        got.setdefault(sink, []).append(attached.take(sink))


@pytest.mark.parametrize("step", [1, 7, 60, 400])
def test_history_and_live_are_one_batch(tmp_path: Path, step: int) -> None:
    draw = random.Random(step)
    total = {1: 80, 7: 150, 60: 400}.get(step, 600)
    moments = sorted(draw.randrange(total) for _ in range(25))
    attached: list[tuple[Any, dict[str, list[pa.Table]]]] = []
    with md.start(cars(), history=tmp_path / "h" if step == 7 else None) as run, md.start(cars()) as alone:
        at = 0
        while at < total:
            while moments and moments[0] <= at:
                moments.pop(0)
                back = draw.choice([None, "all", "30s", "2 min"])
                attached.append((run.attach(look(), at="recent", history=back), {}))
            count = draw.randint(1, step)
            for each in (run, alone):
                each.push("cars", rows(at, count))
            at += count
            for query, got in attached:
                if draw.random() < min(0.2, step / 60):
                    taken(query, got, draw.sample(SINKS, 2))
        attached += [(run.attach(look(), at="recent", history=f"{moment}s"), {}) for moment in moments]
        for each in (run, alone):
            each.finish()
        assert run.take("counts").equals(alone.take("counts"))
        whole = run.view("recent")
        assert len(attached) == 25
        for query, got in attached:
            taken(query, got)
            assert query.behind == 0
            assert query.ended
            expected = batch_answer(query, whole.slice(query.first_seq))
            for sink, answer in expected.items():
                assert pa.concat_tables(got[sink]).equals(answer.select(got[sink][0].column_names)), sink
            if query.from_time is not None:  # no row of its windows came before the first that it read
                before = whole.slice(0, query.first_seq)["ts"]
                assert not len(before) or pc.max(before).as_py() * SECOND < query.from_us
        assert {query.first_seq for query, _ in attached} > {0}


def test_while_another_thread_pushes_as_fast_as_it_can() -> None:
    total = 4_000
    queries: list[tuple[Any, dict[str, list[pa.Table]]]] = []
    with md.start(cars(), threads=2) as run:

        def push() -> None:
            for at in range(0, total, 50):
                run.push("cars", rows(at, 50))
            run.finish()

        thread = threading.Thread(target=push)
        thread.start()
        while thread.is_alive() and len(queries) < 12:
            queries.append((run.attach(look(), at="recent", history="10 min"), {}))
            for query, got in queries:
                taken(query, got, ["fast"])
            run.take("counts")
        thread.join()
        whole = run.view("recent")
        assert queries
        for query, got in queries:
            taken(query, got)
            expected = batch_answer(query, whole.slice(query.first_seq))
            for sink, answer in expected.items():
                assert pa.concat_tables(got[sink]).equals(answer), sink


@pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")
def test_late_rows_are_those_that_were_late_in_the_run() -> None:
    q = md.Query("look")
    source = q.source("recent", CARS, time="ts", unit="s")
    q.sink("counts", source.window("10s").group_by("vid").aggregate(n=md.count(), t="sum(speed)"))
    q.sink("all", source)
    with md.start(cars()) as run:
        run.push("cars", rows(0, 200, late=True))
        with run.attach(q, at="recent", history="all") as attached:
            for start in range(200, 400, 33):
                run.push("cars", rows(start, 33, late=True))
            run.finish()
            assert attached.from_time is None
            assert attached.take("counts").equals(run.take("counts"))
            assert attached.take("all").equals(run.view("recent"))
            stats = {row["box"]: row for row in attached.stats().to_pylist()}
            assert stats["recent"]["late"] > 5
            assert "recent" in attached.explain()


def test_a_history_of_another_life(tmp_path: Path) -> None:
    places = {"history": tmp_path / "h"}
    with md.start(cars(), checkpoint=tmp_path / "s", **places) as run:
        run.push("cars", rows(0, 300))
    with md.restore(tmp_path / "s", **places) as run:
        attached = run.attach(look(), at="recent", history="1 min")
        run.push("cars", rows(300, 100))
        run.finish()
        got: dict[str, list[pa.Table]] = {}
        taken(attached, got)
        answer = batch_answer(attached, run.view("recent").slice(attached.first_seq))
        assert 0 < attached.first_seq < 273
        assert got["fast"][0].equals(answer["fast"])
        assert got["sums"][0].equals(answer["sums"])


def test_output_is_bounded_and_comes_by_and_by() -> None:
    q = md.Query("look")
    q.sink("all", q.source("recent", CARS, time="ts", unit="s"))
    with md.start(cars(keep="100h")) as run:
        for start in range(0, 200_000, 20_000):
            run.push("cars", rows(start, 20_000))
        run.take("counts")
        attached = run.attach(q, at="recent", history="all", memory="256 KiB")
        tables = [attached.take("all")]
        assert attached.behind > 100_000
        while attached.behind:
            tables.append(attached.take("all"))
        assert max(table.nbytes for table in tables) < 1 << 20
        assert pa.concat_tables(tables).equals(run.view("recent"))


def test_one_that_reads_too_late_fails_and_the_run_goes_on() -> None:
    with md.start(cars(keep="10h", keep_bytes="64 KiB")) as run:
        run.push("cars", rows(0, 1000))
        attached = run.attach(look(), at="recent", history="all")
        for start in range(1000, 20_000, 1000):
            run.push("cars", rows(start, 1000))
        for _ in range(2):
            with pytest.raises(md.StateError, match="row 0 was trimmed"):
                attached.take("fast")
        assert attached.ended
        run.push("cars", rows(20_000, 10))
        assert run.take("counts").num_rows > 1000


def test_callbacks_see_history_and_what_comes() -> None:
    seen: list[int] = []
    q = md.Query("look")
    q.sink("all", q.source("recent", CARS, time="ts", unit="s"))
    with md.start(cars()) as run:
        run.push("cars", rows(0, 50))
        attached = run.attach(q, at="recent", history="all")
        attached.on("all", lambda table: seen.append(table.num_rows))
        run.push("cars", rows(50, 10))
        run.push("cars", rows(60, 4))
        assert seen == [46, 9, 4]
        attached.close()
        run.push("cars", rows(64, 4))
        assert seen == [46, 9, 4]
        with pytest.raises(md.StateError, match="reads no more"):
            attached.take("all")


def test_a_callback_that_raises_harms_nobody_else() -> None:
    seen: list[int] = []
    with md.start(cars()) as run:
        bad, good = (run.attach(look(), at="recent") for _ in range(2))

        def fail(table: pa.Table) -> None:
            raise ZeroDivisionError("oh")

        bad.on("fast", fail)
        good.on("fast", lambda table: seen.append(table.num_rows))
        with pytest.warns(
            RuntimeWarning, match=r"attached to 'recent' has failed: ZeroDivisionError\('oh'\)"
        ):
            run.push("cars", rows(0, 20))
        run.push("cars", rows(20, 20))
        assert len(seen) == 2
        assert run.positions() == {"cars": 40}
        with pytest.raises(ZeroDivisionError):
            bad.take("fast")


def test_a_query_that_stops_at_a_failed_row_stops_alone() -> None:
    q = md.Query("look")
    q.sink("bad", q.source("recent", CARS, time="ts", unit="s").select(x="ts * 9000000000000000000"))
    with md.start(cars()) as run:
        attached = run.attach(q, at="recent", on_error="stop")
        counted = run.attach(q, at="recent")
        run.push("cars", rows(0, 20))
        with pytest.raises(md.DataError, match="overflow"):
            attached.take("bad")
        with pytest.warns(md.DeadRowWarning):
            assert counted.take("bad").num_rows == 1
        assert len(counted.dead()) == 18
        run.push("cars", rows(20, 20))


def test_where_it_begins() -> None:
    with md.start(cars()) as run:
        assert run.attach(look(), at="recent", history="1h").first_seq == 0
        for start, count, back in ((0, 60, 30), (60, 200, 7), (260, 3, 60), (263, 40, 0)):
            run.push("cars", rows(start, count))
            # Asked first: nothing has looked at the rows that wait to be written.
            attached = run.attach(look(), at="recent", history=f"{back}s" if back else "1us")
            times = run.view("recent")["ts"].to_pylist()
            expected = next(n for n, time in enumerate(times) if time >= max(times) - back)
            assert attached.first_seq == expected
            assert attached.from_us == (max(times[:expected]) * SECOND + 1 if expected else None)
            assert attached.behind == len(times) - expected
            assert run.attach(look(), at="recent").behind == 0
            assert run.attach(look(), at="recent", history="all").from_time is None


def test_streams_without_time() -> None:
    q = md.Query("plain")
    q.sink("all", q.connection_point("recent", q.source("a", {"n": "int64"}, time=None), keep_bytes="1 MiB"))
    other = md.Query("look")
    other.sink("big", other.source("x", {"n": "int64"}, time=None).filter("n > 2"))
    timed = md.Query("look")
    timed.sink("all", timed.source("x", {"n": "int64"}, time="n", unit="s"))
    with md.start(q) as run:
        run.push("a", {"n": [1, 2, 3]})
        attached = run.attach(other, at="recent", history="all")
        late = run.attach(other, at="recent")
        run.push("a", {"n": [4]})
        run.finish()
        assert attached.take("big")["n"].to_pylist() == [3, 4]
        assert late.take("big")["n"].to_pylist() == [4]
        assert attached.from_time is None
        assert attached.ended
        with pytest.raises(md.QueryError, match="the stream at connection_point 'recent' has none"):
            run.attach(timed, at="recent")
        with pytest.raises(md.QueryError, match="has no time, so no row is an hour old"):
            run.attach(other, at="recent", history="1h")


def test_queries_that_dont_fit_are_refused() -> None:
    def one(**options: Any) -> md.Query:
        q = md.Query("look")
        q.sink("all", q.source("x", options.pop("schema", CARS), **{"time": "ts", "unit": "s"} | options))
        return q

    with md.start(cars()) as run:
        run.push("cars", rows(0, 20))
        with pytest.raises(md.DataError, match="no connection point 'recnt'"):
            run.attach(one(), at="recnt")
        with pytest.raises(md.QueryError, match=r"has slack=, but how late rows are was judged"):
            run.attach(one(slack="5s"), at="recent")
        late = one()
        late.sink("late", late.stream("x").late)
        with pytest.raises(md.QueryError, match=r"is read by \.late, but"):
            run.attach(late, at="recent")
        with pytest.raises(
            md.QueryError,
            match="vid: int64; those of connection_point 'recent' are ts: int64",
        ):
            run.attach(one(schema={"ts": "int64", "vid": "int64"}), at="recent")
        two = one()
        two.sink("more", two.source("y", CARS, time="ts", unit="s"))
        with pytest.raises(md.QueryError, match="2 sources: 'x', 'y'"):
            run.attach(two, at="recent")
        with pytest.raises(md.QueryError, match="expected a md.Query"):
            run.attach("look", at="recent")  # type: ignore[arg-type]
        wrong = run.attach(one(time="vid"), at="recent", history="all")
        with pytest.raises(md.DataError, match="its column 'vid' isn't the time of the stream"):
            wrong.take("all")
        assert "attached to 'recent' from row 0 on" in repr(wrong)


def test_it_ends_with_its_run_and_with_its_connection_point() -> None:
    q = md.Query("look")
    q.sink("all", q.source("recent", CARS, time="ts", unit="s"))
    plain = md.Query("roads")
    plain.sink("all", plain.source("cars", CARS, time="ts", unit="s", slack="5s"))
    run = md.start(cars())
    attached = run.attach(q, at="recent")
    run.push("cars", rows(0, 9))
    run.take("counts")
    run.change(plain)
    run.push("cars", rows(9, 9))
    assert not attached.ended
    assert attached.take("all").num_rows == 9  # what came before the connection point went
    assert attached.take("all").num_rows == 0
    assert attached.ended
    run.close()
    assert attached.ended
    with pytest.raises(md.StateError, match="is closed"):
        attached.take("all")
    attached.close()


def test_it_ends_where_its_connection_point_begins_anew() -> None:
    q = md.Query("look")
    q.sink("all", q.source("recent", CARS, time="ts", unit="s"))
    with md.start(cars()) as run:
        before = run.attach(q, at="recent")
        run.push("cars", rows(0, 9))
        assert before.take("all").num_rows == 9
        run.change(cars())
        assert not before.ended
        run.change(cars(), reset=["recent"])
        run.push("cars", rows(9, 9))
        assert before.ended
        assert before.take("all").num_rows == 0
        with run.attach(q, at="recent", history="all") as after:
            assert after.take("all").num_rows == run.history("recent").rows == 8
            assert not after.ended
