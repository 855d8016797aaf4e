"""What fragments take before they have a row, and state that comes with them: too much of it is refused."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import medusa as md
from medusa.elements import Train
from medusa.engine.core.graph_size import compiled_bytes
from medusa.engine.fragment import Fragment
from medusa.engine.state import delta
from medusa.nodes.placement.placement import cut
from medusa.nodes.placement.repartition_plan import replan_split
from medusa.nodes.reports import FragmentFailed, Ran, Remade
from medusa.runtime.engine_host import openings
from medusa.runtime.engine_host.budgets import NEVER, OWNERS_MAX, Budgets, EngineBounds
from medusa.runtime.engine_host.fair_turns import RESTED_MAX, FairTurns
from medusa.runtime.machine.usage import process_usage
from medusa.wire.outbox import Owned, Persist, Regroup
from tests.runtime.engine_by_hand import SCHEMA, Desk, passing, rows, small
from tests.runtime.test_openings import large

__all__ = ["small"]  # a fixture

MIB = 1 << 20
TERMS = 20


def filters(count: int, name: str = "wide") -> md.Query:
    """Filters of many terms, each with constants of its own."""
    q = md.Query(name)
    made = q.source("rows", SCHEMA, time="ts", slack="0s")
    for number in range(count):
        made = made.filter(" and ".join(f"v != {-1 - number * TERMS - term}" for term in range(TERMS)))
    q.sink("out", made)
    return q


def grouping(name: str = "groups") -> md.Query:
    q = md.Query(name)
    source = q.source("rows", SCHEMA, time="ts", slack="1 s")
    q.sink("out", source.window("1 h").group_by("v").aggregate(n=md.count()))
    return q


def state(count: int) -> dict[str, bytes]:
    """Of ``grouping`` with so many groups, as it comes with a move."""
    fragment = Fragment(grouping().graph)
    fragment.feed("rows", rows(count))
    copying = fragment.copying()
    copying.finish()
    return {name: bytes(data) for name, data in copying.files().items()}


def failures(desk: Desk) -> list[tuple[str, str]]:
    return [(each.fragment, each.code) for each in desk.done if isinstance(each, FragmentFailed)]


# --- what a graph takes ---------------------------------------------------------------------------------


def test_what_a_graph_takes_is_foreseen() -> None:
    graph = filters(200).graph
    Fragment(filters(2).graph)  # what is loaded once
    gc.collect()
    before = process_usage().memory_bytes
    fragment = Fragment(graph)
    took = process_usage().memory_bytes - before
    fragment.feed("rows", rows(100))
    assert [len(each) for each in fragment.drain("out") if isinstance(each, Train)] == [100]
    assert took < compiled_bytes(graph) < 40 * MIB, f"{took:,} bytes"


@pytest.mark.parametrize("count", [2, 100], ids=["made at once", "made beside"])
def test_a_graph_over_its_budget_is_refused_before_it_is_made(
    small: None, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    graph = filters(count).graph
    desk = Desk(query_bytes=compiled_bytes(graph) - 1)
    with monkeypatch.context() as patch:
        patch.setattr(openings, "Fragment", None)  # so that making one fails
        desk.open(filters(count))
        desk.hands.beside()
        desk.work()
    [failed] = desk.of("wide")
    assert (failed.code, "query 'wide' holds" in failed.why) == ("E_MEMORY", True)
    desk.host.close("wide")
    desk.open(passing("light"))
    desk.feed("light", rows(3))
    desk.work()
    assert len(desk.rows("light")) == 3


def test_graphs_count_until_they_are_closed(small: None) -> None:
    nbytes = compiled_bytes(passing("a").graph)
    desk = Desk(owner_bytes=2 * nbytes + nbytes // 2)
    for name in "abc":
        desk.open(passing(name))
    assert failures(desk) == [("c", "E_MEMORY")], "who comes is refused, not who holds most"
    assert "with fragment 'c' the queries of 'o' would hold" in desk.of("c")[0].why
    desk.open(passing("d"), "other")
    desk.host.close("a")
    desk.host.close("c")
    desk.open(passing("e"))
    assert failures(desk) == [("c", "E_MEMORY")]


def test_graphs_that_are_being_made_count_too(small: None) -> None:
    nbytes = compiled_bytes(large("a").graph)
    desk = Desk(owner_bytes=nbytes + nbytes // 2)
    desk.open(large("a"))
    desk.open(large("b"))
    assert failures(desk) == [("b", "E_MEMORY")]
    desk.host.close("a")
    desk.host.close("b")
    desk.open(large("c"))
    assert failures(desk) == [("b", "E_MEMORY")]


# --- state that comes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.4, 0.9], ids=["by its files", "once it is restored"])
def test_state_over_the_budget_is_refused_before_its_checkpoint(
    small: None, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    graph, files = grouping().graph, state(50_000)
    held = compiled_bytes(graph) + Fragment.restore(graph, files).used_bytes()
    by_files = compiled_bytes(graph) + sum(map(len, files.values())) // 2
    assert 0.4 * held < by_files < 0.8 * held
    desk = Desk(query_bytes=int(share * held))
    desk.host.open("groups", graph, files)
    desk.host.persist(Persist(fragment="groups", token=7, files={}, keep=()))
    desk.work()
    failed, persisted = desk.done
    assert (failed.fragment, failed.code) == ("groups", "E_MEMORY")
    assert (persisted.token, persisted.ok) == (7, False), "so its owner keeps it"


@pytest.mark.parametrize("counts", [(300, 50_000), (25_000, 32_000, 40_000, 50_000), (50_000, 20_000)])
def test_state_that_comes_as_deltas_counts_as_what_they_make_of_it(
    small: None, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...]
) -> None:
    graph, states = grouping().graph, [state(count) for count in counts]
    made, deltas = delta.cut(states[0], {}, (3, 5)), []
    for token, files in enumerate(states[1:], 1):
        made = delta.cut(files, made.rows, (3, 5))
        deltas.append(delta.DeltaFiles(token, token - 1, made.plan(), made.files))
    wanted = sum(map(len, states[-1].values()))
    assert 0.95 * wanted < delta.whole_bytes(states[0], deltas) < 1.05 * wanted
    with monkeypatch.context() as patch:
        patch.setattr(openings, "Fragment", None)  # so that making one fails
        tight = Desk(query_bytes=compiled_bytes(graph) + int(0.4 * wanted))
        tight.host.open("groups", graph, states[0], deltas=tuple(deltas))
        tight.settle()
    assert failures(tight) == [("groups", "E_MEMORY")]
    held = compiled_bytes(graph) + Fragment.restore(graph, states[-1]).used_bytes()
    desk = Desk(query_bytes=int(1.1 * held))
    desk.host.open("groups", graph, states[0], deltas=tuple(deltas))
    desk.settle()
    assert failures(desk) == []


def test_state_that_fits_is_taken_and_counts_before_its_first_row(small: None) -> None:
    graph, files = grouping().graph, state(50_000)
    held = compiled_bytes(graph) + Fragment.restore(graph, files).used_bytes()
    desk = Desk(owner_bytes=int(1.5 * held))
    desk.host.owned(Owned(query="groups", owner="o"))
    desk.host.open("groups", graph, files)
    desk.work()
    assert failures(desk) == []
    desk.host.owned(Owned(query="more", owner="o"))
    desk.host.open("more", grouping("more").graph, files)
    desk.work()
    assert failures(desk) == [("more", "E_MEMORY")]


@pytest.mark.parametrize("limit", ["query_bytes", "owner_bytes"])
def test_what_was_found_at_the_start_stays_and_counts_before_its_first_row(small: None, limit: str) -> None:
    graph, files = grouping().graph, state(50_000)
    fragment = Fragment.restore(graph, files)
    held = compiled_bytes(graph) + fragment.used_bytes()
    desk = Desk(**{limit: held // 2})
    desk.host.resume("groups", fragment, {})
    desk.host.owned(Owned(query="groups", owner="o"))
    desk.feed("groups", rows(100))
    desk.work()
    assert [type(each) for each in desk.done] == [Ran]
    assert desk.host._budgets.owned("groups", "o") == [], "the warning was told, once"
    if limit == "owner_bytes":
        desk.open(passing("more"))
        assert failures(desk) == [("more", "E_MEMORY")], "who comes is refused"
    desk.clock.us += 10_000  # it is weighed again
    desk.feed("groups", rows(20_000, 50_000))
    desk.work()
    assert ("groups", "E_MEMORY") in failures(desk)


def test_a_part_of_what_was_found_is_bound_as_the_whole_was() -> None:
    counts = Budgets(EngineBounds(query_bytes=80, owner_bytes=160, piece_us=NEVER))
    counts.found("q/box", "q", 200)
    (of_query, of_owner) = counts.owned("q", "o")
    assert "(query_memory)" in of_query
    assert "ends beyond 210 B" in of_query
    assert "(owner_memory)" in of_owner
    assert counts.owned("q", "o") == []
    assert "(query_memory)" in counts.admit("q/other", "q", 1), "what comes beside it has the limits"
    for name in ("q/box.1", "q/box.2"):
        counts.follows(name, ["q/box"])
        assert counts.admit(name, "q", 103) == ""
    assert counts.forget("q/box", "q") == 200
    assert counts.held("q/box.1", "q", 107) is None
    over = counts.held("q/box.1", "q", 108)
    assert over is not None
    assert over.fragments == ["q/box.1", "q/box.2"]
    for name in over.fragments:
        counts.forget(name, "q")
    assert "(query_memory)" in counts.admit("q/box", "q", 81), "a new query of that name has the limits"


def test_queries_that_were_found_over_the_limit_of_their_owner_end_one_by_one_when_they_grow() -> None:
    counts = Budgets(EngineBounds(query_bytes=80, owner_bytes=80, piece_us=NEVER))
    for name, nbytes in (("a", 60), ("b", 70)):
        counts.found(name, name, nbytes)
    assert [*counts.owned("a", "o"), *counts.owned("c", "other")] == []
    (warning,) = counts.owned("b", "o")
    assert "the queries of 'o' were found with more" in warning
    assert counts.admit("c", "c", 1) == "", "of another owner"
    assert counts.owned("new", "o") == []
    assert "(owner_memory)" in counts.admit("new", "new", 1)
    assert counts.held("a", "a", 70) is None, "130 and an eighth of 80"
    over = counts.held("a", "a", 71)
    assert over is not None
    assert over.query == "a"
    counts.forget("a", "a")
    assert counts.held("b", "b", 80) is None


@pytest.mark.parametrize("other", ["", "a"])
def test_a_refused_fragment_that_was_counted_before_counts_as_before(other: str) -> None:
    counts = Budgets(EngineBounds(query_bytes=100, owner_bytes=NEVER, piece_us=NEVER))
    for name in ("f", other):
        if name:
            assert counts.admit(name, "q", 40) == ""
    assert "(query_memory)" in counts.admit("f", "q", 101)
    left = 60 if not other else 20
    assert "(query_memory)" in counts.admit("g", "q", left + 1)
    assert counts.admit("g", "q", left) == "", "a refusal of one that didn't count leaves nothing"
    assert counts.forget("f", "q") == 40


@pytest.mark.parametrize("aside", [False, True], ids=["at rest", "aside"])
def test_parts_that_do_not_fit_are_refused_and_the_whole_goes_on(small: None, aside: bool) -> None:
    q = md.Query("q")
    kept = q.source("rows", SCHEMA, time="ts", slack="0s").filter("v >= 0", name="box").filter("v < 90")
    q.sink("out", kept)
    [spec] = cut(q.graph, {"m": [box.id for box in q.graph.boxes]}).fragments
    plan = replan_split(spec, "box", 2, node="m", epoch=2, taken=())
    desk = Desk(query_bytes=compiled_bytes(spec.graph) + 10_000)
    desk.host.resume("", None, {})
    desk.host.open(spec.name, spec.graph)
    desk.work()
    effect = Regroup(
        token=9,
        box="box",
        merges=False,
        gone=(spec.name,),
        whole=plan.whole,
        opened={each.name: each.graph for each in plan.made},
        arcs=plan.arcs,
        aside=aside,
    )
    desk.host.regroup(effect)
    desk.hands.engine()
    desk.hands.beside()
    desk.hands.engine()
    [remade] = [each for each in desk.host.finished() if isinstance(each, Remade)]
    assert "query 'q' holds" in remade.why
    for each in plan.made:
        desk.host.close(each.name)
    desk.feed(spec.name, rows(3))
    desk.work()
    assert [row["v"] for row in desk.rows(spec.name)] == [0, 1, 2]


# --- small entries ----------------------------------------------------------------------------------------


def test_owners_and_turns_do_not_pile_up() -> None:
    counts, turns = Budgets(EngineBounds(query_bytes=NEVER, owner_bytes=NEVER, piece_us=NEVER)), FairTurns()
    counts.owned("stays", "o")
    assert counts.held("stays", "stays", 1) is None
    for number in range(3 * max(OWNERS_MAX, RESTED_MAX)):
        name = f"q{number}"
        counts.owned(name, f"owner{number}")
        assert counts.owner(name) == f"owner{number}"
        counts.held(name, name, 1)
        counts.forget(name, name)
        turns.enter(name, owner=f"owner{number}", query=name)
        turns.used(name, 1_000)
        turns.leave(name)
        turns.forget(name)
    assert counts.owner("stays") == "o"
    sizes: list[Any] = [counts._owners, counts._queries, turns._queries, turns._fragments, turns._shares]
    sizes += [turns._owners._ready, turns._owners._rested]
    assert max(map(len, sizes)) <= max(OWNERS_MAX, RESTED_MAX) + 2
    assert [len(each) for each in sizes[1:5]] == [1, 0, 0, 0]


def test_who_comes_back_still_owes_what_it_had() -> None:
    turns = FairTurns()
    turns.enter("a", owner="a", query="a")
    turns.enter("b", owner="b", query="b")
    assert turns.next() == "a"
    turns.used("a", 1_000)
    turns.forget("a")
    turns.enter("a", owner="a", query="a")
    for _ in range(3):
        assert turns.next() == "b"
        turns.used("b", 300)
