"""A run drawn by its load: the slowest box is the darkest, and who waits for whom is marked."""

from __future__ import annotations

from typing import Any

import pytest

import medusa as md
from medusa.query.render.diagram_load import luminance
from tests.query.test_diagram_load import boxes_of, fill

SCHEMA = {"t": "int64", "k": "int64"}


def slow(clock: md.testing.ManualClock, us: int) -> Any:
    """A function that takes so long by the clock of the run."""

    def work(batch: Any) -> Any:
        clock.advance(us)
        return batch

    return work


@pytest.mark.parametrize("slowest", ["first", "second", "third"])
def test_the_slowest_box_is_the_darkest(slowest: str) -> None:
    clock = md.testing.ManualClock()
    q = md.Query("q")
    stream = q.source("a", SCHEMA, time="t", unit="s", slack="0s")
    for name in ("first", "second", "third"):
        us = 40_000 if name == slowest else 10_000
        stream = stream.apply(slow(clock, us), SCHEMA, name=name)
    q.sink("out", stream)
    with md.start(q, clock=clock) as run:
        for second in range(20):
            run.push("a", {"t": [second], "k": [1]})
        drawn = run.diagram()
        boxes = boxes_of(drawn.svg)
        assert min(boxes, key=lambda id: luminance(fill(boxes[id]))) == slowest
        assert boxes[slowest].attrib["data-load"] == "0.6667"
        assert "over the last 5s" in drawn.svg
        stats = {row["box"]: row for row in run.stats().to_pylist()}
        assert stats[slowest]["load"] == pytest.approx(4 / 6)
        assert stats[slowest]["cost_us"] == 40_000
        assert stats[slowest]["rows_in_per_s"] == pytest.approx(1 / 0.06)
        clock.advance("1h")
        drawn = run.diagram()  # nobody was busy of late
        assert "since the run began" in drawn.svg
        assert boxes_of(drawn.svg)[slowest].attrib["data-load"] == "0.6667"
        assert run.stats()["load"].to_pylist() == [0.0] * 5
        assert run.diagram(load=False).svg == q.diagram().svg
    with pytest.raises(md.StateError, match="closed"):
        run.diagram()


def test_who_waits_and_who_holds_is_marked() -> None:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="t", unit="s", slack="0s")
    b = q.source("b", SCHEMA, time="t", unit="s", slack="0s")
    q.sink("pairs", a.join(b, on="k", within="5s", name="near"))
    with md.start(q, clock=md.testing.ManualClock()) as run:
        run.push("b", {"t": [10], "k": [7]})
        run.push("a", {"t": [100, 103, 107], "k": [1, 2, 3]})
        stats = {row["box"]: row for row in run.stats().to_pylist()}
        assert stats["near"]["queue_rows"] == 4
        assert stats["near"]["lag_us"] == 97_000_000
        drawn = run.diagram()
        assert "4 rows wait, " in drawn.svg
        assert "held by b, 1 min 37s behind" in drawn.svg
        assert drawn.svg.count("stroke-dasharray") == 2  # the join, and the legend
        run.push("b", {"t": [107], "k": [7]})
        assert "held by" not in run.diagram().svg
        run.finish()
        assert [row["lag_us"] for row in run.stats().to_pylist()] == [0] * 4


def test_a_run_that_did_nothing_is_all_light() -> None:
    q = md.Query("q")
    q.sink("out", q.source("a", SCHEMA, time=None))
    with md.start(q) as run:
        assert {each.attrib["data-load"] for each in boxes_of(run.diagram().svg).values()} == {"0.0000"}
        assert run.stats()["lag_us"].to_pylist() == [None, None]
