"""State of every kind of box: back and forth, in another form of the query, from an earlier version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

import medusa as md
from medusa.elements import Train
from medusa.engine.fragment import Fragment
from medusa.engine.state import background_copy
from medusa.engine.state.delta import read_table
from medusa.engine.state.evolve import plan
from medusa.engine.state.fragment_state import box_sums
from medusa.ports import Buffer
from medusa.query.boxes import Filter, Graph, Input
from medusa.query.expressions.expression import Column
from medusa.query.graph import check_graph
from medusa.query.signature import differences, signatures
from medusa.runtime.machine.native_workers import ThreadWorkers
from tests.engine import kinds

KINDS = list(kinds.BUILDS)


def test_every_kind_of_box_has_a_query_here() -> None:
    assert kinds.missing() == set()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_round_trip_in_the_middle_changes_nothing(kind: str) -> None:
    graph = kinds.query(kind).graph
    whole = Fragment(graph)
    for start in range(0, 90, 15):
        kinds.push(whole, start, 15)
    expected = kinds.answer(whole)
    assert expected
    workers = ThreadWorkers(2)
    try:
        first: Any = workers
        fragment = Fragment(graph, workers=first)
        for turn, start in enumerate(range(0, 90, 15)):
            kinds.push(fragment, start, 15)
            files = kinds.state_of(fragment)
            fragment = Fragment.restore(graph, files, workers=first if turn % 2 else None)
            assert fragment.positions() == {"a": start + 15, "b": start + 15}
        assert kinds.answer(fragment) == expected
    finally:
        workers.close()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_tables_that_become_files_later_hold_what_was_there_then(kind: str) -> None:
    """A node writes them in its disk's thread, while the fragment goes on."""
    fragment = Fragment(kinds.query(kind).graph)
    kinds.push(fragment, 0, 45)
    expected = kinds.state_of(fragment)
    copying = fragment.copying()
    assert copying.done, "few rows are copied at once"
    kinds.push(fragment, 45, 45)
    kinds.answer(fragment)
    assert {name: bytes(data) for name, data in copying.files().items()} == expected


def read(files: Mapping[str, Buffer]) -> dict[str, Any]:
    """What is in them, without the bytes between the values."""
    return {
        name: repr((read_table(data).schema, read_table(data).to_pydict()))
        if name.endswith(".arrow")
        else json.loads(bytes(data))
        for name, data in files.items()
    }


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_state_that_is_copied_piece_by_piece_is_that_of_when_it_began(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come and windows close between the pieces; the fragment goes on as if nobody had asked."""
    monkeypatch.setattr(background_copy, "AT_ONCE", -1)
    fragment, other = Fragment(kinds.query(kind).graph), Fragment(kinds.query(kind).graph)
    for start in (0, 45, 90):
        for each in (fragment, other):
            kinds.push(each, start, 45)
        expected = kinds.state_of(other)
        copying = fragment.copying()
        for turn in range(start + 45, start + 75, 5):
            copying.step(3)
            for each in (fragment, other):
                kinds.push(each, turn, 5)
        copying.finish()
        assert read(copying.files()) == read(expected)
        for each in (fragment, other):
            kinds.push(each, start + 75, 15)
    assert kinds.answer(fragment) == kinds.answer(other)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_boxes_added_beside_and_below_leave_the_others_their_state(kind: str) -> None:
    """Rows of the old sink are the same; the new boxes see what comes from now on."""
    before, after = kinds.query(kind), kinds.query(kind)
    b = md.Stream(after, Input("b"))
    after.sink("late", b.late)
    after.sink("counts", b.window(10).group_by("k").aggregate(c=md.count(), name="added"))
    after.sink("many", b.filter("n > 2"))
    running = Fragment(before.graph)
    kinds.push(running, 0, 45)
    files = kinds.state_of(running)
    made = plan(after.graph, files, before=before.graph, raw=None)
    assert made.dropped == ()
    assert set(made.kept) == {box.id for box in before.graph.boxes}
    assert {"late", "counts", "added", "many"} <= set(made.fresh)
    grown = Fragment.restore(after.graph, files, plan=made)
    assert grown.positions() == running.positions()
    assert grown.boxes["added"].inputs_us == [running.boxes["b"].boundary_us]
    for fragment in (running, grown):
        kinds.push(fragment, 45, 30)
    fresh = Fragment(after.graph)
    kinds.push(fresh, 0, 75)
    assert kinds.answer(grown) == kinds.answer(running)
    rows, every = (
        [repr(row) for t in f.drain("many") if isinstance(t, Train) for row in t.batch.to_pylist()]
        for f in (grown, fresh)
    )
    assert rows
    assert rows == [row for row in every if row in rows][-len(rows) :]


def _evolved(before: md.Query, after: md.Query, **options: Any) -> Fragment:
    fragment = Fragment(before.graph)
    kinds.push(fragment, 0, 40)
    files = kinds.state_of(fragment)
    made = plan(after.graph, files, before=before.graph, raw=None, **options)
    return Fragment.restore(after.graph, files, plan=made)


def _windowed(size: int, aggregate: str = "sum(v)", name: str | None = "w") -> md.Query:
    q = md.Query("q")
    a, b = (q.source(source, kinds.SCHEMA, time="ts", slack=5) for source in "ab")
    q.sink("o", a.window(size).group_by("k").aggregate(t=aggregate, name=name))
    q.sink("p", b)
    return q


def test_a_changed_box_is_refused_by_name_with_what_changed() -> None:
    with pytest.raises(md.StateError, match=r"'w' \(size_us: 10 -> 20; advance_us: 10 -> 20\)") as error:
        _evolved(_windowed(10), _windowed(20))
    assert error.value.code == "state.changed"
    assert "reset=" in str(error.value.hint)
    with pytest.raises(md.StateError, match=r"sink 'o' \(input, column t: \"float64\" -> \"int64\"\)"):
        _evolved(_windowed(10), _windowed(10, "sum(n)"), reset=["w"])
    fragment = _evolved(_windowed(10), _windowed(10, "sum(n)"), reset=["w", "o"])
    assert fragment.boxes["w"].rows_in == 0
    assert fragment.positions() == {"a": 40, "b": 40}
    with pytest.raises(md.QueryError, match="no box 'ww'"):
        _evolved(_windowed(10), _windowed(20), reset=["ww"])


def test_a_box_with_state_below_one_that_promises_less_is_refused() -> None:
    """The sink was told that nothing before the end of a window of 50 comes; windows of 5 can't say that."""
    with pytest.raises(md.StateError, match="sink 'o' was promised") as error:
        _evolved(_windowed(50, name=None), _windowed(5, name=None))
    assert error.value.code == "state.boundary"
    fragment = _evolved(_windowed(50, name=None), _windowed(5, name=None), reset=["o"])
    assert fragment.sinks["o"].next_seq == 0
    # And one that promises more tells what stands below it at once.
    grown = _evolved(_windowed(5, name=None), _windowed(50, name=None))
    assert grown.sinks["o"].inputs_us == [grown.boxes["o"].boundary_us]


def test_an_ended_source_ends_what_is_new() -> None:
    before, after = _windowed(10), _windowed(10)
    stream = md.Stream(after, Input("a"))
    after.sink("tail", stream.window(5).aggregate(c=md.count()))
    after.sink("late", stream.late)
    fragment = Fragment(before.graph)
    fragment.finish()
    files = kinds.state_of(fragment)
    grown = Fragment.restore(after.graph, files, plan=plan(after.graph, files, before=before.graph, raw=None))
    assert all(box.input_us >= 1 << 62 for box in grown.boxes.values())


def test_a_signature_knows_what_state_depends_on() -> None:
    """Neither names of functions' defaults nor where rows come from; but every parameter and column."""
    base = Filter(id="f", inputs=(Input("a"),), predicate=Column("ok"))
    assert signatures(check_graph(_graph(base)))["f"]["parameters"] == {
        "kind": "filter",
        "predicate": {"node": "column", "name": "ok"},
    }
    sums = {
        json.dumps(box_sums(check_graph(graph))["f"])
        for graph in (
            _graph(base),
            _graph(msgspec.structs.replace(base, predicate=Column("no"))),
            _graph(base, {"ok": "bool", "no": "bool", "z": "int64"}),
            _graph(base, {"no": "bool", "ok": "bool"}),
        )
    }
    assert len(sums) == 4
    one, other = (
        signatures(check_graph(_graph(base, columns)))["f"]
        for columns in ({"ok": "bool", "no": "bool"}, {"no": "bool", "ok": "bool"})
    )
    assert differences(one, other) == ["input, order of the columns"]


LONG = " + ".join(f"v * {n}" for n in range(30))


@pytest.mark.parametrize(
    ("box", "changes", "told"),
    [
        ("f", {"where": "v > 2"}, "predicate: v > 1 -> v > 2"),
        (
            "f",
            {"where": f"{LONG} > 2"},
            "predicate: v > 1 -> ((v * 0) + (v * 1) + (v * 2) + (v * 3) + (v * 4) + (v * 5) +...",
        ),
        ("cars", {"columns": {"v": "int64", "w": "utf8", "z": "bool"}}, "schema: none -> z bool"),
        ("cars", {"columns": {"v": "int32", "w": "utf8"}}, "schema: v int64 -> v int32"),
        ("cars", {"columns": {"w": "utf8", "v": "int64"}}, "schema: v int64, w utf8 -> w utf8, v int64"),
        ("a", {"total": "sum(v + 1)"}, "aggregates: s = sum(v) -> s = sum(v + 1)"),
        ("a", {"key": "v"}, "keys: w -> v"),
        ("a", {"size": 20}, "size: 10 -> 20"),
    ],
)
def test_what_differs_is_told_as_people_write_it(box: str, changes: dict[str, Any], told: str) -> None:
    assert _told(box, {}, changes)[0] == told


def test_long_texts_are_shown_from_where_they_part() -> None:
    told = _told("f", {"where": f"{LONG} > 1"}, {"where": f"{LONG} > 2"})
    assert told == ["predicate: ...+ (v * 19) + ...) > 1 -> ...+ (v * 19) + ...) > 2"]
    deep = _told("f", {"where": f"{LONG} + v > 1"}, {"where": f"{LONG} + v + 9 > 1"})[0].split(" -> ")
    assert deep[0].removeprefix("predicate: ") != deep[1]
    assert all("..." in text and len(text) < 80 for text in deep)


def _told(box: str, before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    one, other = (signatures(check_graph(_counted(**changes).graph))[box] for changes in (before, now))
    return differences(one, other)


def _counted(
    where: str = "v > 1",
    total: str = "sum(v)",
    key: str = "w",
    size: int = 10,
    columns: dict[str, str] | None = None,
) -> md.Query:
    q = md.Query("counted")
    cars = q.source("cars", columns or {"v": "int64", "w": "utf8"}, time=None).filter(where, name="f")
    q.sink("o", cars.group_by(key).window_rows(size).aggregate(s=total, name="a"))
    return q


def _graph(box: Filter, columns: dict[str, str] | None = None) -> Graph:
    q = md.Query("q")
    q.source("a", columns or {"ok": "bool", "no": "bool"}, time=None)
    return Graph(name="q", boxes=(*q.graph.boxes, box))


@pytest.mark.parametrize("change", ["version", "format"])
def test_a_higher_version_is_refused_by_number(change: str) -> None:
    q = _windowed(10)
    files = kinds.state_of(Fragment(q.graph))
    document = json.loads(files["fragment.json"])
    if change == "version":
        document["version"] = 3
    else:
        document["boxes"]["w"]["format"] = 2
    with pytest.raises(md.StateError, match=rf"{change} \d, this program reads up to") as error:
        Fragment.restore(q.graph, {**files, "fragment.json": json.dumps(document).encode()})
    assert error.value.code == "state.version"
