"""The test kit: replays, update streams as tables, and whether cuts are noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Boundary, Undo

testing = md.testing

SCHEMA = {"ts": "timestamp", "k": "utf8", "v": "float64"}
ARROW = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("v", pa.float64())])
SECOND = 1_000_000


def table(count: int, step_us: int = SECOND) -> pa.Table:
    columns = [
        [n * step_us for n in range(count)],
        ["ab"[n % 2] for n in range(count)],
        [n / 4 for n in range(count)],
    ]
    return pa.table([pa.array(c, t) for c, t in zip(columns, ARROW.types, strict=True)], schema=ARROW)


def counting(**given: Any) -> md.Query:
    q = md.Query("counting")
    cars = q.source("cars", SCHEMA, **given)
    q.sink("counts", cars.window("10s").group_by("k").aggregate(n=md.count(), early="4s"))
    q.sink("all", cars)
    return q


# -- show ---------------------------------------------------------------------------------------------


def test_an_update_stream_as_a_table() -> None:
    with md.start(counting()) as run:
        run.push("cars", table(6))
        run.push("cars", table(11).slice(6))
        run.finish()
        assert (
            testing.show(run.take("counts", changes=True))
            == """\
  # window_start        window_end          k n
~   1970-01-01 00:00:00 1970-01-01 00:00:10 a 3
~   1970-01-01 00:00:00 1970-01-01 00:00:10 b 3
-   boundary 1970-01-01 00:00:09.999999 UTC
+ 0 1970-01-01 00:00:00 1970-01-01 00:00:10 a 5
+ 1 1970-01-01 00:00:00 1970-01-01 00:00:10 b 5
~   1970-01-01 00:00:10 1970-01-01 00:00:20 a 1
-   boundary 1970-01-01 00:00:19.999999 UTC
+ 2 1970-01-01 00:00:10 1970-01-01 00:00:20 a 1
-   the end"""
        )


def test_values_as_people_read_them() -> None:
    mixed = pa.table({"t": ["x\ny", None], "f": [0.5, float("nan")], "b": [True, None], "z": [b"\0", b""]})
    assert testing.show(mixed) == "  # t    f   b    z\n+ 0 x\\ny 0.5 true b'\\x00'\n+ 1      nan      b''"
    pieces = pa.concat_tables([mixed.slice(1), mixed.slice(1)]).select(["f"])
    assert testing.show(pieces) == "  # f\n+ 0 nan\n+ 1 nan"
    assert testing.show([]) == ""
    assert testing.show([Boundary(0), Undo(3)]) == "-   boundary 1970-01-01 00:00:00 UTC\n?   Undo"
    assert testing.show(table(1_000), limit=2).splitlines()[-1] == "... 998 more"
    assert len(testing.show([Boundary(n) for n in range(9)], limit=4).splitlines()) == 5


# -- replay -------------------------------------------------------------------------------------------


def test_simulated_time_goes_at_the_chosen_speed() -> None:
    clock = testing.ManualClock(500)
    with md.start(counting(idle="1s"), clock=clock) as run:
        pushes = testing.Replay("cars", table(7), rows=2).into(run, speed=2, clock=clock)
        assert pushes == 4
        assert clock.monotonic_us() == 500 + 5 * SECOND // 2  # from the end of the first push to the last row
        assert run.take("all").equals(table(7))
        clock.advance("2s")
        assert "it is idle" not in run.explain()
        run.tick()
        assert "it is idle" in run.explain()


def test_several_sources_are_merged_by_time() -> None:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA) for name in ("a", "b"))
    q.sink("out", a.select("v", s="'a'").union(b.select("v", s="'b'")))
    with md.start(q) as run:
        testing.replay(
            run,
            testing.Replay("a", table(3, 2 * SECOND), rows=1),
            testing.Replay("b", table(4), rows=1),
        )
        assert run.take("out")["s"].to_pylist() == list("abbabba")
        assert run.positions() == {"a": 3, "b": 4}


def test_stop_abort_repeat_and_go_on(tmp_path: Path) -> None:
    whole = testing.Replay("cars", table(20), rows=3, repeat=4)
    with md.start(counting(), checkpoint=tmp_path / "state", checkpoint_every=None) as run:
        testing.Replay("cars", table(20), rows=3, stop_after=5).into(run)
        assert run.positions() == {"cars": 5}
        after_five = run.checkpoint()
        with pytest.raises(testing.Aborted, match="source 'cars' broke off after 13 rows"):
            testing.Replay("cars", table(20), rows=3, repeat=2, abort_after=13).into(run)
        assert run.positions() == {"cars": 13}
        assert run.take("all").num_rows == 13
    with md.restore(tmp_path / "state", checkpoint=after_five) as run:
        assert run.positions() == {"cars": 5}
        whole.into(run)
        assert run.take("all").equals(table(20))
        assert whole.into(run) == 0


def test_repeats_without_numbers_count_twice() -> None:
    with md.start(counting(slack="1h")) as run:
        testing.Replay("cars", table(6), rows=3, repeat=2, numbered=False).into(run)
        assert run.take("all")["v"].to_pylist() == [0, 0.25, 0.5, 0.25, 0.5, 0.75, 1, 1.25]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda run: testing.Replay("cars", table(1), rows=0), "rows must be at least 1"),
        (lambda run: testing.Replay("cars", table(1), by="when"), "there is no column 'when'"),
        (lambda run: testing.Replay("vans", table(1)).into(run), "the run has no source 'vans'"),
        (lambda run: testing.Replay("cars", table(1)).into(run, speed=0), "speed must be more than 0"),
    ],
)
def test_what_is_refused(wrong: Any, says: str) -> None:
    with md.start(counting()) as run, pytest.raises(md.DataError, match=says):
        wrong(run)


# -- cuts ---------------------------------------------------------------------------------------------


def test_a_query_of_ours_notices_no_cuts() -> None:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA)
    counts = cars.window("7s", advance="2s").group_by("k").aggregate(n=md.count(), v=md.avg("v"))
    q.sink("counts", counts)
    q.sink("pairs", cars.join(cars.filter("v > 1"), on="k", within="3s"))
    shuffled = table(40).take(pa.array([(n * 7) % 40 for n in range(40)]))
    found = testing.check_cuts(q, {"cars": shuffled}, runs=8)
    assert found["counts"].equals(md.collect(q, cars=shuffled)["counts"])


def test_a_function_that_notices_cuts_is_found() -> None:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA)

    def share(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([batch.num_rows] * batch.num_rows)], ["rows"])

    q.sink("out", cars.apply(share, {"rows": "int64"}))
    with pytest.raises(
        AssertionError, match=r"sink 'out', row 0: uncut .*'rows': 40.*; run 0 of seed 5, in \d+ pushes"
    ):
        testing.check_cuts(q, {"cars": table(40)}, seed=5)


def test_rows_are_compared_without_order_below_a_union() -> None:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA) for name in ("a", "b"))
    q.sink("out", a.union(a.filter("v > 1"), b))
    testing.check_cuts(q, {"a": table(30), "b": table(20)}, runs=4)
    with pytest.raises(md.DataError, match="no rows for source 'b'"):
        testing.check_cuts(q, {"a": table(30)})
