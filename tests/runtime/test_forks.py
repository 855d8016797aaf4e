"""A fragment and its fork give the same from the moment of the copy on, and nobody waits for the copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import START_US, Boundary, Silent, Train
from medusa.engine.state import background_copy
from medusa.nodes.reports import Forked, FragmentFailed, Ran, Stats
from medusa.query.boxes import Graph
from medusa.wire.fork_names import fork_name, forked_of
from tests.engine import kinds
from tests.engine.queries import SCHEMA, batch_of, inputs, queries
from tests.oracle.query import Promise, Push
from tests.runtime.forking import FORK, TOKEN, F, Fed, Forking, large, totals
from tests.runtime.test_pieces import KEYS, train

__all__ = ["large"]  # a fixture

KINDS = [kind for kind in kinds.BUILDS if kind != "connection_point"]
"""A node keeps no histories."""


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables are copied in pieces of a row."""
    monkeypatch.setattr(background_copy, "AT_ONCE", -1)
    monkeypatch.setattr(background_copy, "SLICE_ROWS", 1)


def shown(ran: Ran, promised: dict[str, int]) -> tuple[Any, ...]:
    """All that a reader could tell of it.

    Args:
        promised: by sink, what it has promised so far: a fork says that once more.
    """
    outputs: list[tuple[Any, ...]] = []
    for sink, each in ran.outputs:
        if isinstance(each, Boundary):
            if each.time_us > promised.get(sink, START_US):
                outputs.append((sink, each.time_us))
                promised[sink] = each.time_us
            continue
        assert isinstance(each, Train)
        columns = [each.batch, each.times, each.late]
        rows = [None if column is None else repr(column.to_pylist()) for column in columns]
        outputs.append((sink, each.first_seq, each.kind, *rows))
    return ran.refused, outputs


def goes_on_as_the_fragment(
    graph: Graph, fed: Sequence[Fed], at: int, steps: Iterator[int], *, whole: bool = False
) -> None:
    """Fork it after so many elements; feed both the others, with so many jobs in between; compare them.

    Args:
        whole: compare with a fragment that was never forked too.
    """
    made = Forking(graph)
    for each in fed[:at]:
        made.feed(each)
    made.fork()
    for each in fed[at:]:
        made.feed(each, FORK, F)
        made.work(next(steps))
    made.settle()
    assert made.forked == [Forked(TOKEN, FORK)]
    assert not made.of(F, FragmentFailed)
    stable, fork = made.of(F), made.of(FORK)
    assert len(stable) == len(fed)
    promised: dict[str, int] = {}
    before = [shown(each, promised) for each in stable[:at]]
    again = dict(promised)
    after = [shown(each, promised) for each in stable[at:]]
    assert [shown(each, again) for each in fork] == after
    if whole:
        alone = Forking(graph)
        for each in fed:
            alone.feed(each)
        alone.settle()
        promised = {}
        assert [*before, *after] == [shown(each, promised) for each in alone.of(F)]


def counting(step: int) -> Iterator[int]:
    while True:
        yield step


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_of_every_kind_of_box_goes_on_as_its_fragment(pieces: None, kind: str) -> None:
    fed: list[Fed] = [
        (source, Train(batch=kinds.rows(start, 15, source))) for start in range(0, 120, 15) for source in "ab"
    ]
    fed += [("a", Boundary(300)), ("b", Boundary(300))]
    goes_on_as_the_fragment(kinds.query(kind).graph, fed, 6, counting(3), whole=True)


def others(q: md.Query, kind: str) -> md.Stream:
    a, b = (q.source(name, SCHEMA, time="ts", slack=3) for name in "ab")
    match kind:
        case "sunion":
            return a.sunion(b, bucket=7)
        case "session":
            return a.sunion(b, bucket=4).session(5).group_by("k").aggregate(c=md.count(), t="sum(n)")
        case "running":
            return a.union(b).group_by("k").running(c=md.count(), t="sum(n)", before=md.lag("s"))
        case _:
            return a.union(b).window(10).group_by("s").aggregate(c=md.count(), early=3)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Windows, joins and unions of them, or what the others show."""
    kind = draw(st.sampled_from(["", "", "sunion", "session", "running", "early"]))
    if not kind:
        return draw(queries()).graph
    q = md.Query("q")
    q.sink("out", others(q, kind))
    return q.graph


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_fork_goes_on_as_its_fragment(pieces: None, data: st.DataObject) -> None:
    graph = data.draw(graphs())
    sources = [box.id for box in graph.boxes if not box.inputs]
    fed: list[Fed] = []
    for event in data.draw(inputs(sources)):
        match event:
            case Push():
                fed.append((event.source, Train(batch=batch_of(event.rows))))
            case Promise():
                fed.append((event.source, Boundary(event.time)))
    at = data.draw(st.integers(0, len(fed)))
    steps = data.draw(st.lists(st.integers(0, 12), min_size=len(fed), max_size=len(fed)))
    goes_on_as_the_fragment(graph, fed, at, iter(steps))


# --- 100,000 keys -----------------------------------------------------------------------------------------


def test_a_fragment_is_fed_while_its_many_keys_are_copied(large: Forking) -> None:
    large.fork()
    for _ in range(5):
        large.feed(("rows", train(range(0, KEYS, 7), 10)))
    given, taken, copied = 6, 7, 4
    large.work(given + taken + copied)
    assert len(large.of(F)) == 5, "fed before the state was copied"
    assert large.hands.jobs["medusa-engine"], "and it isn't copied yet"
    large.settle()
    assert large.forked == [Forked(TOKEN, FORK)]
    large.feed(("rows", train(np.arange(KEYS), 100)), FORK)
    large.settle()
    assert totals(large.of(FORK)) == dict.fromkeys(range(KEYS), 101), "as it was when the fork was asked for"


def test_a_fragment_is_fed_while_its_fork_is_made_beside(large: Forking) -> None:
    large.fork()
    large.work()
    assert large.hands.jobs["medusa-beside"]
    large.feed(("rows", train([1, 2], 10)))
    large.work()
    assert totals(large.of(F)) == {1: 11, 2: 11}
    assert not large.forked


def test_what_is_given_to_a_fork_before_it_is_there_comes_in_order(large: Forking) -> None:
    large.fork()
    for value in (1, 2, 3):
        large.feed(("rows", train([5], value)), FORK)
        large.work(2)
    assert not large.of(FORK)
    large.settle()
    large.feed(("rows", train([5], 4)), FORK)
    large.settle()
    assert [totals([each]) for each in large.of(FORK)] == [{5: 2}, {5: 4}, {5: 7}, {5: 11}]
    assert isinstance(next(each for each in large.said if not isinstance(each, Stats)), Forked)
    assert not large.of(F)


def test_a_fork_has_all_that_its_fragment_was_given_before(large: Forking) -> None:
    """The engine hadn't come to it when the fork was asked for."""
    large.feed(("rows", train([5], 10)))
    large.fork()
    large.feed(("rows", train([5], 100)))
    large.feed(("rows", train([5], 1000)), FORK)
    large.settle()
    assert (totals(large.of(F)), totals(large.of(FORK))) == ({5: 111}, {5: 1011})


# --- missing sources --------------------------------------------------------------------------------------


def test_a_fork_is_asked_about_any_source_and_its_fragment_about_those_with_idle() -> None:
    q = md.Query("q")
    one, two = (q.source(name, SCHEMA, time="ts") for name in ("one", "two"))
    q.sink("all", one.sunion(two, bucket=5))
    made = Forking(q.graph)
    made.fork()
    made.feed(("one", Boundary(40)), FORK, F)
    made.feed(("", Silent(("two",))), FORK, F)
    made.settle()
    assert made.of(FORK)[-1] == Ran(FORK, [("two", Boundary(40))])
    assert made.of(F)[-1] == Ran(F, [])
    made.feed(("two", Boundary(40)), FORK)
    made.settle()
    assert made.of(FORK)[-1].outputs == [("all", Boundary(40))]


# --- names ------------------------------------------------------------------------------------------------


def test_the_name_of_a_fork_says_whose_it_is() -> None:
    assert forked_of(fork_name("q/box-1", 12)) == "q/box-1"
    assert fork_name("q/box", 1) != fork_name("q/box", 2)
    assert forked_of("q/box-1") is None
