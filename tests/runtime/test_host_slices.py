"""The engine's thread gives turns and keeps budgets: driven by hand, in time that only pieces take."""

from __future__ import annotations

import gc
import weakref

import pytest

from medusa.elements import END_US, Boundary, Train
from medusa.engine.core import graph_size
from medusa.engine.fragment import Fragment
from medusa.engine.state.checkpoint import unseal
from medusa.nodes.reports import FragmentFailed, Persisted
from medusa.runtime.engine_host import host as hosts
from medusa.runtime.engine_host import hosted
from medusa.runtime.engine_host.budgets import NEVER, Budgets, EngineBounds
from medusa.runtime.engine_host.group_names import group_name
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.machine import garbage
from medusa.wire.outbox import Owned, Persist, RunFragment
from tests.runtime.engine_by_hand import (
    PIECE_US,
    Desk,
    EngineWorker,
    desk,
    joins,
    made,
    passing,
    rows,
    small,
    timed,
    whole,
)

__all__ = ["desk", "small"]  # fixtures


def test_an_element_in_slices_gives_what_it_gives_whole(desk: Desk) -> None:
    q = joins("heavy")
    desk.open(q)
    elements = [rows(30), Boundary(END_US)]
    desk.feed("heavy", *elements)
    assert desk.work() > 5
    assert desk.rows("heavy") == whole(q.graph, *elements)


def test_a_light_query_waits_for_a_slice_and_not_for_an_element(desk: Desk) -> None:
    desk.open(joins("heavy"), "mallory")
    desk.open(passing("light"), "alice")
    desk.feed("heavy", rows(100), Boundary(END_US))
    desk.work(4)
    assert len(desk.of("heavy")) == 1, "the boundary is under way"
    for number in range(5):
        desk.feed("light", rows(1, number))
        desk.work(2)  # it is put into the line, and the slice ends that is in the thread
        desk.work(1)
        assert len(desk.of("light")) == number + 1
    assert len(desk.of("heavy")) == 1
    desk.work()
    assert len(desk.of("heavy")) == 2


def test_owners_share_the_thread_however_many_queries_they_have(desk: Desk) -> None:
    """Ten of one owner, one of another: while all have something to do each owner gets half of the time."""
    desk.open(joins("alone"))
    desk.feed("alone", rows(60), Boundary(END_US))
    desk.work()
    alone_us, desk.clock.us = desk.clock.us, 0
    for number in range(10):
        desk.open(joins(f"many{number}"), "mallory")
    desk.open(joins("one"), "alice")
    for name in (*(f"many{number}" for number in range(10)), "one"):
        desk.feed(name, rows(60), Boundary(END_US))
    while not desk.rows("one"):
        assert desk.work(1)
    assert desk.clock.us < 3 * alone_us, "not eleven times as long"


def test_queries_of_an_owner_share_what_it_gets(desk: Desk) -> None:
    for name in ("a", "b"):
        desk.open(joins(name))
    desk.feed("a", rows(100), Boundary(END_US))
    desk.feed("b", rows(20), Boundary(END_US))
    while not desk.rows("b"):
        assert desk.work(1)
    assert not desk.rows("a")


def test_many_small_elements_do_not_hold_up_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-four elements are given to the engine at once; none of them is long enough for a slice."""
    run = EngineHost._run

    def slow(host: EngineHost, effect: RunFragment) -> None:
        desk.clock.us += 1_000
        run(host, effect)

    monkeypatch.setattr(EngineHost, "_run", slow)
    desk.open(passing("bulk"), "mallory")
    desk.open(passing("light"), "alice")
    desk.feed("bulk", *(rows(1, number) for number in range(64)))
    desk.work(65)  # all are in the line, and one is done
    desk.feed("light", rows(1))
    desk.work(3)
    assert len(desk.of("light")) == 1
    assert len(desk.of("bulk")) < 5
    desk.work()
    assert [row["v"] for row in desk.rows("bulk")] == list(range(64)), "in order"


def test_a_removed_query_gives_up_its_element_and_what_waits(desk: Desk) -> None:
    desk.open(joins("heavy", 3))
    desk.feed("heavy", rows(100), Boundary(END_US))
    desk.work(10)
    desk.host.persist(Persist(token=1, fragment="heavy"))
    desk.host.close("heavy")
    began_us = desk.clock.us
    desk.work()
    assert desk.clock.us - began_us <= PIECE_US, "what is under way ends with its piece"
    desk.hands.disk()
    assert desk.store.names() == []
    assert [each.ok for each in desk.done if isinstance(each, Persisted)] == [False]
    desk.open(joins("heavy"))
    desk.feed("heavy", rows(3), Boundary(END_US))
    desk.work()
    assert len(desk.rows("heavy")) == 9, "another of that name begins with nothing"


def test_a_checkpoint_is_between_two_elements(desk: Desk) -> None:
    q = joins("heavy")
    desk.open(q)
    desk.feed("heavy", rows(40), Boundary(30))
    desk.host.persist(Persist(token=1, fragment="heavy"))
    desk.feed("heavy", Boundary(END_US))
    desk.work()
    desk.hands.disk()
    _, files = unseal(desk.store.read(group_name("heavy", 1)))
    restored = Fragment.restore(q.graph, files)
    restored.feed("rows", Boundary(END_US))
    rest = [row for e in restored.drain("out") if isinstance(e, Train) for row in e.batch.to_pylist()]
    first, second = filter(None, map(made, desk.of("heavy")))
    assert rest == second
    assert first + second == whole(q.graph, rows(40), Boundary(30), Boundary(END_US))


def test_a_host_that_stops_finishes_what_it_was_given(desk: Desk) -> None:
    desk.open(joins("heavy"))
    desk.feed("heavy", rows(40), Boundary(END_US))
    desk.work(4)
    desk.host.persist(Persist(token=1, fragment="heavy"))
    assert desk.host.stop()
    desk.work()
    assert len(desk.rows("heavy")) == 1600
    assert [each.ok for each in desk.done if isinstance(each, Persisted)] == [True]


# --- budgets ----------------------------------------------------------------------------------------


def bounded(monkeypatch: pytest.MonkeyPatch, **bounds: int) -> Desk:
    monkeypatch.setattr(hosts, "WEIGH_EVERY_US", 0)
    monkeypatch.setattr(hosts, "WEIGH_SHARE", 0)
    for module in (graph_size, hosted):  # what rows take is asked here
        monkeypatch.setattr(module, "compiled_bytes", lambda graph: 0)
    return timed(Desk(**bounds), monkeypatch)


def test_a_query_over_its_budget_ends_alone(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = bounded(monkeypatch, query_bytes=200_000)
    desk.open(joins("heavy", 3), "mallory")
    desk.open(passing("light"), "alice")
    desk.feed("heavy", rows(100), Boundary(END_US))
    desk.feed("light", rows(3))
    desk.work()
    failed = [each for each in desk.of("heavy") if isinstance(each, FragmentFailed)]
    assert [each.code for each in failed] == ["E_MEMORY"]
    assert "query 'heavy' holds" in failed[0].why
    assert "allowed are 195.3 KiB (query_memory)" in failed[0].why
    assert desk.host._running["heavy"].fragment is None, "it gave back what it held"
    desk.feed("heavy", rows(1))
    desk.feed("light", rows(3, 3))
    desk.host.persist(Persist(token=1, fragment="heavy"))
    desk.work()
    assert [each for each in desk.of("heavy") if isinstance(each, FragmentFailed)] == failed
    assert [row["v"] for row in desk.rows("light")] == list(range(6))
    assert [each.ok for each in desk.done if isinstance(each, Persisted)] == [False]


def test_fragments_of_one_query_share_its_budget(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = bounded(monkeypatch, query_bytes=80_000)
    q = joins("heavy")
    desk.host.owned(Owned(query="heavy", owner="o"))
    for name in ("heavy/a", "heavy/b"):
        desk.host.open(name, q.graph)
    desk.work()
    desk.feed("heavy/a", rows(400))
    desk.work()
    assert not [each for each in desk.done if isinstance(each, FragmentFailed)], "one fits"
    desk.feed("heavy/b", rows(400))
    desk.work()
    assert sorted(each.fragment for each in desk.done if isinstance(each, FragmentFailed)) == [
        "heavy/a",
        "heavy/b",
    ]


def test_of_an_owner_that_has_too_much_the_largest_query_ends(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = bounded(monkeypatch, query_bytes=100_000, owner_bytes=120_000)
    for name, owner in (("large", "mallory"), ("small", "mallory"), ("other", "alice")):
        desk.open(joins(name), owner)
    desk.feed("large", rows(800))
    desk.feed("other", rows(800))
    desk.feed("small", rows(400))
    desk.work()
    failed = [each for each in desk.done if isinstance(each, FragmentFailed)]
    assert [(each.fragment, each.code) for each in failed] == [("large", "E_MEMORY")]
    assert "the queries of 'mallory' hold" in failed[0].why
    for name in ("small", "other"):
        desk.feed(name, rows(1, 800))
    desk.work()
    assert [len(desk.of(name)) for name in ("large", "small", "other")] == [2, 2, 2]


def test_what_is_gone_counts_no_more(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = bounded(monkeypatch, query_bytes=100_000, owner_bytes=100_000)
    for number in range(5):
        desk.open(joins(f"q{number}"))
        desk.feed(f"q{number}", rows(800))
        desk.work()
        desk.host.close(f"q{number}")
        desk.work()
    assert not [each for each in desk.done if isinstance(each, FragmentFailed)]


def test_a_piece_that_holds_the_thread_too_long_ends_its_query(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = bounded(monkeypatch, piece_us=5_000_000)
    desk.open(joins("heavy"), "mallory")
    desk.open(passing("light"), "alice")
    desk.clock.step_us = 4_900_000
    desk.feed("heavy", rows(20), Boundary(10))
    desk.work()
    assert not [each for each in desk.done if isinstance(each, FragmentFailed)], "long, but allowed"
    desk.clock.step_us = 5_100_000
    desk.feed("heavy", Boundary(END_US))
    desk.feed("light", rows(2))
    desk.work()
    (failed,) = [each for each in desk.done if isinstance(each, FragmentFailed)]
    assert (failed.fragment, failed.code) == ("heavy", "E_BUSY")
    assert (
        failed.why == "query 'heavy' held the engine for 5.1 s without a pause, allowed are 5s (piece_time)"
    )
    assert len(desk.rows("light")) == 2


def test_a_process_that_was_stopped_for_a_while_ends_nobody(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock went on; its thread had no time."""
    desk = bounded(monkeypatch, piece_us=5_000_000)
    monkeypatch.setattr(EngineWorker, "cpu_us", lambda worker: 0)
    desk.open(joins("heavy"))
    desk.clock.step_us = 60_000_000
    desk.feed("heavy", rows(10), Boundary(END_US))
    desk.work()
    assert len(desk.rows("heavy")) == 100


# --- what ends -----------------------------------------------------------------------------------


def test_fragments_of_one_query_end_together_in_the_middle_of_elements(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine has nothing left to do for one of them, and goes on with what others have."""
    monkeypatch.setattr(hosts, "WEIGH_EVERY_US", 0)
    monkeypatch.setattr(hosts, "WEIGH_SHARE", 0)
    desk = timed(Desk(query_bytes=400_000), monkeypatch)
    q = joins("heavy")
    for name in ("heavy/a", "heavy/b"):
        desk.host.open(name, q.graph)
    desk.open(passing("light"), "alice")
    for name in ("heavy/a", "heavy/b"):
        desk.feed(name, rows(200), Boundary(END_US))
    desk.work()
    failed = {each.fragment: each.code for each in desk.done if isinstance(each, FragmentFailed)}
    assert failed == {"heavy/a": "E_MEMORY", "heavy/b": "E_MEMORY"}
    desk.feed("light", rows(1))
    desk.work()
    assert len(desk.rows("light")) == 1


def test_a_large_fragment_is_collected_when_it_is_gone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "WEIGH_EVERY_US", 0)
    monkeypatch.setattr(garbage, "LARGE_BYTES", 1)
    desk.open(joins("heavy"))
    desk.feed("heavy", rows(20))
    desk.work()
    boxes = [weakref.ref(box) for box in desk.host._running["heavy"].fragment.boxes.values()]
    gc.disable()
    try:
        desk.host.close("heavy")
        desk.work()
        assert any(box() is not None for box in boxes), "they don't refer to each other: no need to collect"
        desk.hands.beside()
        assert all(box() is None for box in boxes)
    finally:
        gc.enable()


def test_a_state_that_is_there_twice_while_a_box_is_split_counts_once() -> None:
    counts = Budgets(EngineBounds(query_bytes=100, owner_bytes=150, piece_us=NEVER))
    counts.owned("q", "o")
    assert counts.held("q/box", "q", 90) is None
    for name in ("q/box.1", "q/box.2"):
        counts.follows(name, ["q/box"])
        assert counts.held(name, "q", 45) is None
    assert counts.held("q/box.2", "q", 56) is not None, "the parts alone hold too much"
    assert counts.held("q/box.2", "q", 45) is None
    assert counts.held("q/last", "q", 11) is not None, "others count beside them"
    assert counts.forget("q/last", "q") == 11
    assert counts.forget("q/box", "q") == 90
    assert counts.held("q/box.1", "q", 50) is None
    assert counts.held("q/box.1", "q", 56) is not None
