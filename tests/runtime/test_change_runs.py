"""``run.change`` of runs that have a queue, a shedder, a decision log, or calls under way."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from tests.runtime.changed_query import STAYS, query, rows, taken
from tests.runtime.test_change import CARS, batch, cuts, undisturbed

pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")


def test_a_run_with_an_input_queue_changes_behind_what_waits() -> None:
    pushes = cuts(random.Random(8), 300)
    got: dict[str, list[Any]] = {}
    fresh = 0
    with md.start(query([], 0), queue="1 MiB") as run:
        for number, (source, start, count) in enumerate(pushes):
            run.push(source, rows(start, count, source), first=start)
            if number % 8 == 3:
                changed = query(["few", "other"], number) if number % 16 == 3 else query([], 0)
                for sink in ("o_few", "o_other") if "o_few" in run._fragment.sinks else ():
                    fresh += run.take(sink).num_rows
                assert "fast" in run.change(changed).kept
                assert {*run.positions()} == ({"a", "b", "c"} if number % 16 == 3 else {"a", "b"})
            if "c" in run.positions():
                run.push("c", rows(run.positions()["c"], 5, "c"))
                run.flush()
        run.finish()
        taken(run, STAYS, got)
        with pytest.raises(md.QueryError, match="expected a md.Query"):
            run.change(None)  # type: ignore[arg-type]
        with pytest.raises(md.DataError, match="no source 'c'"):
            run.push("c", rows(0, 1, "c"))
    assert got == undisturbed(pushes)
    assert fresh > 0


def test_rows_that_wait_of_a_source_that_goes_arent_lost() -> None:
    def of(*names: str) -> md.Query:
        q = md.Query("q")
        for name in names:
            q.sink(f"o_{name}", q.source(name, CARS, time="ts", unit="s"))
        return q

    with md.start(of("a", "b"), queue="1 MiB") as run:
        run.on("o_a", lambda table: run.push("b", batch(1, 2)))
        with run._intake._belt.changed:  # the thread hasn't begun: the callback pushes behind the change
            run.push("a", batch(1))
            with pytest.raises(md.StateError, match="source 'b' goes, and rows of it wait"):
                run.change(of("a"))
        run.flush()
        assert run.take("o_b").num_rows == 2
        assert run.change(of("a")).dropped == ("b", "o_b")
        assert run.positions() == {"a": 1}


def both(*, union: bool) -> md.Query:
    q = md.Query("q")
    a, b = (q.source(each, CARS, time="ts", unit="s") for each in "ab")
    if union:
        q.sink("out", a.union(b, name="both"))
    q.sink("a_only", a)
    q.sink("b_only", b)
    return q


def test_decisions_after_a_change_are_those_of_the_new_query(tmp_path: Path) -> None:
    run = md.start(both(union=False), checkpoint=tmp_path / "s", checkpoint_every=None)
    run.push("a", batch(1))
    run.change(both(union=True))
    for source, time in (("b", 2), ("b", 3), ("a", 4), ("b", 5)):
        run.push(source, batch(time))
    assert run.take("out")["ts"].to_pylist() == [2, 3, 4, 5]
    shutil.copytree(tmp_path / "s", tmp_path / "copy")  # as if it had been killed now
    run.close()
    with md.restore(tmp_path / "copy") as run:
        assert run.positions() == {"a": 1, "b": 0}
        run.push("a", batch(4, 6))  # it is b's turn
        with pytest.raises(md.StateError, match="has not been done again"):
            run.change(both(union=False))
        run.push("b", batch(2, 3, 5))
        assert run.take("out")["ts"].to_pylist() == [2, 3, 4, 5, 6]
        assert run.change(both(union=False)).dropped == ("both", "out")
        run.push("b", batch(7))
    with md.restore(tmp_path / "copy") as run:
        assert run.take("a_only")["ts"].to_pylist() == [1, 4, 6]
        assert run.take("b_only")["ts"].to_pylist() == [2, 3, 5, 7]


def test_calls_of_async_functions_end_before_a_change() -> None:
    async def slow(batch: Any) -> Any:
        return batch

    def of(sink: str) -> md.Query:
        q = md.Query("q")
        asked = q.source("a", CARS, time="ts", unit="s").apply(slow, CARS, name="asked")
        q.sink("all", asked)
        q.sink(sink, asked.filter("vid > 0", name=f"f_{sink}"))
        return q

    with md.start(of("one")) as run:
        for time in range(30):
            run.push("a", batch(time))
            if time % 10 == 5:
                run._fragment.wait()
                run.take("one" if time < 10 else f"s{time - 10}")
                made = run.change(of(f"s{time}"))
                assert {"a", "asked", "all"} <= {*made.kept}
        run.finish()
        assert run.take("all")["ts"].to_pylist() == list(range(30))


def test_what_may_be_shed_follows_the_query() -> None:
    def of(qos: md.QoS | None, *more: str) -> md.Query:
        q = md.Query("q")
        a = q.source("a", CARS, time="ts", unit="s")
        q.sink("all", a.filter("vid >= 0", name="some"), qos=qos)
        for sink in more:
            q.sink(sink, a.filter("vid > 1", name=f"only_{sink}"), qos=qos)
        return q

    qos = md.QoS(latency=[(0, 1), ("5s", 0)], loss=[(0, 0), (100, 1)])
    with md.start(of(None), queue="1 MiB") as run:
        assert run.shedding().num_rows == 0
        run.change(of(qos))
        run.push("a", batch(1, 2, 3))
        run.flush()
        assert {*run.shedding()["box"].to_pylist()} >= {"a"}
        run.change(of(qos, "more"))
        run.push("a", batch(4, 5))
        run.flush()
        assert {sink for sinks in run.shedding()["sinks"].to_pylist() for sink in sinks} == {"all", "more"}
        run.take("more")
        run.change(of(None))
        run.push("a", batch(6))
        run.flush()
        assert run.shedding().num_rows == 0
        assert run.take("all")["ts"].to_pylist() == [1, 2, 3, 4, 5, 6]
