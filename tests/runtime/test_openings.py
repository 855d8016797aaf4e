"""Fragments that take long to make are made beside the engine's thread."""

from __future__ import annotations

import threading

import pytest

import medusa as md
from medusa.engine.fragment import Fragment
from medusa.nodes.reports import FragmentFailed, Persisted, Ran, Remade
from medusa.query.boxes import Graph
from medusa.runtime.engine_host import openings
from medusa.wire.outbox import Owned, Persist, Regroup
from tests.runtime.engine_by_hand import (
    SCHEMA,
    Desk,
    desk,
    passing,
    rows,
    small,
)

__all__ = ["desk", "small"]  # fixtures


def large(name: str) -> md.Query:
    q = md.Query(name)
    made = q.source("rows", SCHEMA, time="ts", slack="0s")
    for _ in range(openings.BOXES_MAX):
        made = made.filter("v >= 0")
    q.sink("out", made)
    return q


@pytest.fixture
def opening(desk: Desk) -> Desk:
    """A large fragment is being made, and has been given rows."""
    desk.open(passing("light"))
    desk.open(large("large"))
    desk.feed("large", rows(3), rows(3, 3))
    desk.work()
    return desk


def test_rows_of_others_do_not_wait_for_a_fragment_that_takes_long_to_make(opening: Desk) -> None:
    opening.feed("light", rows(2))
    opening.work()
    assert len(opening.rows("light")) == 2
    assert opening.of("large") == []
    opening.hands.beside()
    opening.feed("large", rows(3, 6))
    opening.work()
    assert [row["v"] for row in opening.rows("large")] == list(range(9))


def test_one_that_is_closed_while_it_is_made_answers_nothing_but_checkpoints(opening: Desk) -> None:
    opening.host.persist(Persist(fragment="large", token=7, files={}, keep=()))
    opening.host.close("large")
    opening.open(large("large"))
    opening.feed("large", rows(1, 50))
    opening.settle()
    assert [row["v"] for row in opening.rows("large")] == [50]
    [persisted] = [each for each in opening.done if isinstance(each, Persisted)]
    assert (persisted.token, persisted.ok) == (7, False)


def test_what_cannot_be_made_beside_says_why(desk: Desk) -> None:
    desk.host.open("large", large("large").graph, {"fragment.json": b"?"})
    desk.feed("large", rows(1))
    desk.work()
    desk.hands.beside()
    desk.work()
    [failed] = desk.of("large")
    assert isinstance(failed, FragmentFailed)
    assert "fragment.json" in failed.why


def test_parts_are_made_of_one_that_is_still_being_made_once_it_is(opening: Desk) -> None:
    merging = Regroup(
        token=9, box="b", merges=True, gone=("large",), whole=large("large").graph, opened={}, arcs={}
    )
    opening.host.regroup(merging)
    opening.hands.engine()
    assert not [each for each in opening.host.finished() if isinstance(each, Remade)]
    opening.hands.beside()
    opening.hands.engine()
    told = [each for each in opening.host.finished() if isinstance(each, Ran | Remade)]
    assert [type(each).__name__ for each in told] == ["Ran", "Ran", "Remade"]


def test_a_host_that_stops_makes_what_is_not_made_yet(opening: Desk) -> None:
    opening.host.stop()
    opening.done += [each for each in opening.host.finished() if isinstance(each, Ran)]
    assert len(opening.rows("large")) == 6


def test_one_that_is_given_up_is_not_made(opening: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    opening.host.close("large")
    opening.work()
    made: list[object] = []
    monkeypatch.setattr(openings, "Fragment", lambda *graph, **more: made.append(graph))
    opening.settle()
    assert made == []


def test_owners_take_turns_at_what_is_made_beside(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(graph: Graph, **more: object) -> Fragment:
        made.append(graph.name)
        return Fragment(graph)

    monkeypatch.setattr(openings, "Fragment", make)
    for name, owner in (("m1", "mallory"), ("m2", "mallory"), ("m3", "mallory"), ("a1", "alice")):
        desk.host.owned(Owned(query=name, owner=owner))
        desk.host.open(name, large(name).graph)
    desk.settle()
    assert made == ["m1", "a1", "m2", "m3"]
    desk.feed("m3", rows(2))
    desk.work()
    assert len(desk.rows("m3")) == 2


def test_one_that_is_being_made_when_the_host_stops_is_made_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    made: list[str] = []

    def make(graph: Graph, **more: object) -> Fragment:
        made.append(graph.name)
        begun.set()
        assert may_end.wait(60)
        return Fragment(graph)

    monkeypatch.setattr(openings, "Fragment", make)
    desk.open(large("large"))
    desk.feed("large", rows(3))
    desk.work()
    beside = threading.Thread(target=desk.hands.beside)
    beside.start()
    assert begun.wait(60)
    threading.Timer(0.01, may_end.set).start()  # the host waits for it meanwhile, or has yet to begin
    desk.host.stop()
    beside.join(60)
    assert made == ["large"]
    desk.done += [each for each in desk.host.finished() if isinstance(each, Ran)]
    assert len(desk.rows("large")) == 3


def test_a_merge_of_a_part_that_is_gone_is_refused_with_a_sentence(desk: Desk) -> None:
    desk.host.resume("", None, {})
    desk.host.open("q/1", large("q").graph)
    desk.host.open("q/2", large("q").graph)
    for aside in (False, True):
        merging = Regroup(
            token=9,
            box="b",
            merges=True,
            gone=("q/1", "q/2"),
            whole=large("q").graph,
            opened={},
            arcs={},
            aside=aside,
        )
        desk.host.regroup(merging)
    desk.host.close("q/2")
    while desk.hands.engine() + desk.hands.beside():
        pass
    told = [each.why for each in desk.host.finished() if isinstance(each, Remade)]
    assert told == ["fragment 'q/2' was removed"] * 2
