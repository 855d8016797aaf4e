"""Windows below what is shed, sliding ones and windows of windows: exact, or absent with all their keys."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.engine.fragment import Fragment
from medusa.engine.overload.drop_set import DropSet
from medusa.engine.overload.drop_sites import find_places
from medusa.query.graph import check_graph
from tests.engine.test_shedding import LOSS, batch, out, pushed, start


@st.composite
def queries(draw: st.DrawFn) -> md.Query:
    """One to three ways with windows, each perhaps with windows of its results below, some of which meet."""
    q, s = start()
    ways = []
    for n in range(draw(st.integers(1, 3))):
        stream = s.filter(f"k < {draw(st.integers(1, 3))}", name=f"f{n}") if draw(st.booleans()) else s
        for depth in range(draw(st.integers(1, 3))):
            size = draw(st.integers(1, 24))
            advance = size if draw(st.booleans()) else draw(st.integers(1, size))
            keyed = stream.window(size, advance=advance).group_by("k")
            value = "sum(v)" if depth == 0 else "sum(x)"
            stream = keyed.aggregate(
                n=md.count(), x=value, y=md.first("x" if depth else "v"), name=f"w{n}{depth}"
            )
            if draw(st.booleans()):
                stream = stream.filter("n > 1", name=f"g{n}{depth}")
            ways.append(stream)
            q.sink(f"o{n}{depth}", stream, qos=LOSS)
    if len(ways) > 1 and draw(st.booleans()):
        both = (
            ways[0]
            .select("window_start", "window_end", "k", "x", name="a")
            .union(ways[-1].select("window_start", "window_end", "k", "x", name="b"), name="both")
        )
        q.sink("met", both.window(draw(st.integers(1, 30))).aggregate(n=md.count(), name="last"), qos=LOSS)
    return q


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_window_is_exact_or_absent(data: st.DataObject) -> None:
    q = data.draw(queries())
    whole, thinned = Fragment(q.graph), Fragment(q.graph)
    drops = DropSet(thinned.checked, thinned.boxes)
    assert drops.valves[0].place.box == "s"
    shed: list[Any] = []
    drops.tap("s", lambda table: shed.extend(map(tuple, zip(*table.to_pydict().values(), strict=True))))
    came: list[Any] = []
    reached: list[Any] = []
    first = drops.valves[0]
    first._targets.append((reached, 0))  # type: ignore[arg-type]
    at = 0
    for _ in range(data.draw(st.integers(1, 8))):
        shares = [data.draw(st.sampled_from([0.0, 0.2, 0.5, 1.0])) for _ in drops.valves]
        windows = [valve.place.how == "windows" for valve in drops.valves]  # results go one by one
        drops.decide([share * goes for share, goes in zip(shares, windows, strict=True)])
        rows = []
        for _ in range(data.draw(st.integers(1, 30))):
            at += data.draw(st.sampled_from([0, 1, 2, 9]))
            rows.append(
                (max(0, at - data.draw(st.integers(0, 8))), data.draw(st.integers(0, 2)), float(at % 7))
            )
        made = batch(rows)
        came += map(tuple, zip(*(made.to_pydict().values()), strict=True))
        pushed(whole, made)
        pushed(thinned, made)
        drops.tell()
        if data.draw(st.booleans()):  # memory that is given back takes nothing with it
            for box in thinned.boxes.values():
                box.trim()
    for fragment in (whole, thinned):
        fragment.finish()
    for sink in q.sinks:
        exact = Counter(map(repr, (tuple(row.values()) for row in out(whole, sink))))
        left = [tuple(row.values()) for row in out(thinned, sink)]
        assert not Counter(map(repr, left)) - exact, sink
        if sink != "met":  # absent windows are absent with all their keys, and rows keep their order
            bounds = {row[:2] for row in left}
            again = [row for row in undisturbed(q, came, sink) if row[:2] in bounds]
            assert again == left
    kept = [
        tuple(row.values()) for _, each in reached if hasattr(each, "batch") for row in each.batch.to_pylist()
    ]
    assert Counter(kept) + Counter(shed) == Counter(came)
    assert len(shed) == first.shed == {each["box"]: each for each in thinned.figures()}["s"]["shed"]
    assert all(screen.save() == [] for screen in drops.screens.values()), "what has closed is forgotten"


def undisturbed(q: md.Query, came: list[Any], sink: str) -> list[Any]:
    """What leaves a sink where nothing is shed."""
    again = Fragment(q.graph)
    pushed(again, batch(came))
    again.finish()
    return [tuple(row.values()) for row in out(again, sink)]


@pytest.mark.parametrize(
    ("make", "stretch"),
    [
        (lambda s: s.window(10, advance=5), 40),
        (lambda s: s.window(10, advance=3), 42),
        (lambda s: s.window(10, advance=10), 10),
    ],
)
def test_what_is_dropped_at_a_time_is_longer_than_windows_that_slide(make: Any, stretch: int) -> None:
    q, s = start()
    q.sink("o", make(s).aggregate(n=md.count()), qos=LOSS)
    [place] = find_places(check_graph(q.graph))
    assert (place.how, place.window_us) == ("windows", stretch)


def test_windows_that_share_no_short_length_are_dropped_by_a_longer_stretch() -> None:
    q, s = start()
    q.sink("a", s.window(1009).aggregate(n=md.count(), name="a1"), qos=LOSS)
    q.sink("b", s.window(1013).aggregate(n=md.count(), name="b1"), qos=LOSS)
    assert [place.window_us for place in find_places(check_graph(q.graph))] == [4 * 1013, 1009, 1013]


@pytest.mark.parametrize(
    ("size", "advance", "share"), [(20, 5, 0.25), (20, 5, 0.5), (12, 1, 0.5), (8, 8, 0.5)]
)
def test_as_many_windows_are_lost_as_was_thought(size: int, advance: int, share: float) -> None:
    q, s = start()
    q.sink("o", s.window(size, advance=advance).aggregate(n=md.count()), qos=LOSS)
    whole, thinned = Fragment(q.graph), Fragment(q.graph)
    drops = DropSet(thinned.checked, thinned.boxes)
    drops.decide([share])
    rows = batch([(n, 0, 1.0) for n in range(20_000)])
    for fragment in (whole, thinned):
        for first in range(0, 20_000, 37):
            pushed(fragment, rows.slice(first, 37))
        fragment.finish()
    assert drops.valves[0].shed == pytest.approx(share * 20_000, rel=0.01)
    some, all_of_them = out(thinned, "o"), out(whole, "o")
    assert {row["n"] for row in some[size:-size]} == {size}, "none lacks a row"
    left, every = len(some), len(all_of_them)
    assert 1 - left / every == pytest.approx(float(drops.valves[0].look().at(share)), abs=0.02)
    figures = {each["kind"]: each for each in thinned.figures()}
    assert figures["sink"]["rows_in"] == figures["aggregate"]["rows_out"] == left
    assert (figures["aggregate"]["dropped"] > 0) == (size != advance)


def test_a_changed_query_gives_no_window_that_lacks_rows() -> None:
    """A sink more makes other places: what they decide anew doesn't bring half a window."""
    q, s = start()
    w = s.window(100).aggregate(n=md.count(), name="w")
    q.sink("o", w, qos=LOSS)
    run = md.start(q, queue="1 MiB", clock=md.testing.ManualClock())
    drops = run._fragment.drops  # type: ignore[attr-defined]
    run.push("s", batch([(n, 0, 1.0) for n in range(250)]))
    run.flush()
    drops.decide([1.0])
    run.push("s", batch([(n, 0, 1.0) for n in range(250, 350)]))  # 300 and on are dropped
    run.flush()
    q.sink("p", w.filter("n > 0", name="f"))  # without quality of service: no rows may be shed any more
    run.change(q)
    assert run.shedding()["box"].to_pylist() == ["o"]
    run.push("s", batch([(n, 0, 1.0) for n in range(350, 500)]))
    run.finish()
    assert run.take("o")["n"].to_pylist() == [100, 100, 100, 100]
    run.close()
