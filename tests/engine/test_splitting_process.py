"""Classes of users in parts: timers, the end of the input, several inputs, and links between parts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import END_US, Boundary, Element, Train
from medusa.engine.fragment import Fragment
from medusa.errors import QueryError
from medusa.nodes.placement.placement import cut
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Graph, KeyRouter, OrderedMerge, Process
from medusa.query.graph import check_graph
from medusa.query.rewrite.split import find_split, split
from medusa.query.types import schema_to_arrow
from tests.engine.queries import SCHEMA
from tests.engine.user_functions import OUT, STATE, Alarms, Restless

ROW = {"v": 0.5, "s": "", "n": 1}


def query(operator: type = Restless, slack: int = 100) -> md.Query:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", slack=slack)
    b = q.source("b", SCHEMA, time="ts", slack=slack)
    made = md.process(operator, {"a": a, "b": b}, OUT, by="k", state=STATE, name="x")
    q.sink("o", made.filter("n > -5"))
    return q


def several_inputs() -> md.Query:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts")
    streams = {"a": a, "b": a.filter("n > 0"), "c": a.filter("n < 0")}
    q.sink("o", md.process(Restless, streams, OUT, by="k", state=STATE, name="x"))
    return q


class Linked:
    """The fragments of a graph at several nodes, and the links between them, that bring what was held.

    As the output of a node, they bring of boundaries that follow each other the last one only.
    """

    def __init__(self, graph: Graph, at: dict[str, list[str]]) -> None:
        self.specs = cut(graph, at).fragments
        self.running = {spec.name: Fragment(spec.graph) for spec in self.specs}
        self.rows: list[dict[str, Any]] = []

    def feed(self, source: str, element: Element) -> None:
        (name,) = (spec.name for spec in self.specs if source in self.running[spec.name].sources)
        self.running[name].feed(source, element)
        self._bring()

    def finish(self, order: Sequence[str]) -> None:
        for source in order:
            self.feed(source, Boundary(END_US))

    def _bring(self) -> None:
        while any(self._drain(spec) for spec in self.specs):
            pass

    def _drain(self, spec: FragmentSpec) -> bool:
        moved = False
        for sink, stream in spec.streams.items():
            held = self.running[spec.name].drain(sink)
            for element, behind in pairwise([*held, None]):
                moved = True
                if isinstance(element, Boundary) and isinstance(behind, Boundary):
                    continue
                if stream == "q.o" and isinstance(element, Train):
                    self.rows += element.batch.to_pylist()
                for other in self.specs:
                    for feed in other.feeds:
                        if feed.stream == stream:
                            self.running[other.name].feed(feed.source, element)
        return moved


def batch_of(rows: list[tuple[int, int]]) -> Train:
    made = [{"ts": ts, "k": k, **ROW} for ts, k in rows]
    arrow = schema_to_arrow(query().graph.boxes[0].schema)
    return Train(batch=pa.RecordBatch.from_pylist(made, schema=arrow))


def answer(run: Linked, order: Sequence[str] = ("a", "b")) -> list[dict[str, Any]]:
    draw = random.Random(4)
    for number in range(12):
        rows = [(number * 9 + draw.randrange(30), draw.randrange(7)) for _ in range(6)]
        run.feed(draw.choice("ab"), batch_of(rows))
    run.feed("a", batch_of([(170, 99)]))  # The last row of all, in one part.
    run.finish(order)
    return run.rows


WHOLE = {"m": ["a", "b", "x"]}
PARTS = {"m": ["a", "b"], "n": ["x-1"], "o": ["x-2", "x"], "p": ["x-3"]}


@pytest.mark.parametrize("operator", [Restless, Alarms])
@pytest.mark.parametrize("slack", [3, 100])
def test_parts_at_several_nodes_give_what_one_box_gives(operator: type, slack: int) -> None:
    """At the end too: timers that set themselves again stop at the last row, which one part has seen."""
    graph = query(operator, slack).graph
    whole = answer(Linked(graph, WHOLE))
    assert sum(row["what"] == "alarm" for row in whole) > 20
    assert answer(Linked(split(graph, "x", 3), PARTS)) == whole


@pytest.mark.parametrize("parts", [1, 3])
def test_which_input_ends_first_does_not_show(parts: int) -> None:
    graph = query(slack=40).graph
    whole = answer(Linked(graph, WHOLE))
    run = Linked(graph, WHOLE) if parts == 1 else Linked(split(graph, "x", parts), PARTS)
    assert answer(run, ("b", "a")) == whole


def test_the_last_row_may_wait_when_the_box_is_split() -> None:
    """It was taken by the whole box, so no router has seen it."""
    made = []
    for at in (None, 0, 1):
        q = md.Query("q")
        a = q.source("a", SCHEMA, time="ts", slack=100)
        q.sink("o", a.process(Restless, OUT, by="k", state=STATE, name="x"))
        with md.start(q) as run:
            for number, rows in enumerate([[(3, 0), (4, 1), (2, 5)], [(60, 2)]]):
                run.push("a", batch_of(rows).batch)
                if number == at:
                    run.split("x", 4)
            run.finish()
            made.append(run.take("o").to_pylist())
    assert made[0] == made[1] == made[2]
    assert sum(row["what"] == "alarm" for row in made[0]) > 5


def test_timers_of_one_time_go_by_the_first_row_of_their_key_before_and_after_a_split() -> None:
    """Keys that began before the split come first, then those that begin behind it, in the order of rows."""
    outputs = []
    for turns in ((), (1,), (1, 2), (0, 1, 2, 3)):
        q = md.Query("q")
        a = q.source("a", SCHEMA, time="ts", slack=0)
        q.sink("o", a.process(Alarms, OUT, by="k", state=STATE, name="x"))
        with md.start(q) as run:
            parts = False
            for number in range(5):
                keys = [(number * 5 + at * 7) % 11 for at in range(6)]
                run.push("a", batch_of([(number, key) for key in keys]).batch)
                if number in turns:
                    _ = run.merge("x") if parts else run.split("x", 3)
                    parts = not parts
            run.finish()
            outputs.append(run.take("o").to_pylist())
    assert all(each == outputs[0] for each in outputs)
    assert [row["what"] for row in outputs[0]].count("alarm") > 20


def test_a_class_that_is_not_registered_splits_in_a_program() -> None:
    class Sums:
        def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int) -> dict[str, Any]:
            state.n = (state.n or 0) + batch.num_rows
            return {"k": [key], "n": [state.n], "columns": [batch.num_columns]}

    def make() -> md.Query:
        q = md.Query("q")
        a = q.source("a", SCHEMA, time="ts", slack=0)
        out = {"k": "int64", "n": "int64", "columns": "int64"}
        q.sink("o", a.process(Sums, out, by="k", state=STATE, name="x"))
        return q

    def rows(q: md.Query, turn: bool) -> list[dict[str, Any]]:
        with md.start(q) as run:
            for number in range(4):
                run.push("a", batch_of([(number, at % 5) for at in range(number, number + 9)]).batch)
                if turn and number == 1:
                    assert run.split("x", 2, ranges="weight") == ("x-1", "x-2")
                if turn and number == 2:
                    run.merge("x")
            run.finish()
            return run.take("o").to_pylist()

    whole = rows(make(), False)
    assert rows(make(), True) == whole == rows(make().split("x", 3), False)
    assert rows(make().split("x", 3).merge("x"), False) == whole
    assert {row["columns"] for row in whole} == {len(SCHEMA)}


def test_a_part_is_not_split_again() -> None:
    with pytest.raises(QueryError, match="it is a part already, whose rows a merge orders: merge it"):
        split(split(query().graph, "x", 2), "x-1", 2)


def test_the_row_that_tells_the_last_time_is_counted_by_no_part_and_seen_by_no_class() -> None:
    for graph in (query().graph, split(query().graph, "x", 3)):
        run = Linked(graph, WHOLE)
        answer(run)
        (fragment,) = run.running.values()
        assert fragment.boxes["a"].rows_out + fragment.boxes["b"].rows_out == 73
        parts = [box for id, box in fragment.boxes.items() if id.startswith("x-") and "router" not in id]
        assert sum(box.rows_in for box in parts or [fragment.boxes["x"]]) == 73


def test_a_promise_beyond_all_times_is_kept_in_a_checkpoint() -> None:
    """It was not read again."""
    fragment = Fragment(query().graph)
    for source in "ab":
        fragment.feed(source, Boundary(END_US - 1))
    again = Fragment(query().graph)
    again.boxes["x"].load(fragment.boxes["x"].save())


def test_parts_need_the_number_of_the_row_as_their_last_column() -> None:
    graph = split(query().graph, "x", 2)
    made = find_split(graph, "x")
    merge = made.merges[0]
    assert isinstance(merge, OrderedMerge)
    assert merge.release == "_position_released"
    assert all(isinstance(router, KeyRouter) and router.last_time for router in made.routers)
    assert [router.id for router in made.routers] == ["x-router-left", "x-router-right"]
    several = split(several_inputs().graph, "x", 2)
    assert [router.id for router in find_split(several, "x").routers] == [
        "x-router",
        "x-router-2",
        "x-router-3",
    ]
    part = made.parts[0]
    assert isinstance(part, Process)
    text = md.Query.from_graph(graph).to_json()
    with pytest.raises(QueryError, match="expected 'other' of type int64 as the last column"):
        md.Query.from_json(
            text.replace('"_position"\n', '"other"\n', 1).replace('"_position",', '"_position",')
        )
    assert check_graph(graph).graph == graph
