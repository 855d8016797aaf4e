"""Forks that are closed, can't be made or hold too much: their fragment is as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from medusa.engine.fragment import Fragment
from medusa.engine.state.background_copy import BackgroundCopy
from medusa.nodes.reports import Forked, FragmentFailed, Persisted, Stats
from medusa.runtime.engine_host import forks
from medusa.runtime.engine_host.budgets import NEVER
from medusa.runtime.engine_host.host import EngineHost
from medusa.wire.fork_names import fork_name
from medusa.wire.outbox import GAVE_WAY, Fork, Persist
from tests.runtime.forking import FORK, TOKEN, F, Fed, Forking, large, totals
from tests.runtime.test_pieces import KEYS, query, train

__all__ = ["large"]  # a fixture

# --- it ends ----------------------------------------------------------------------------------------------


def ending(made: Forking) -> None:
    """Nothing of the fork is left, and the fragment goes on."""
    made.said.clear()
    made.feed(("rows", train([5], 10)))
    made.feed(("rows", train([5], 10)), FORK)
    made.settle()
    assert totals(made.of(F)) == {5: 11}
    assert not made.of(FORK)
    assert set(made.host._lives) == {"", F}
    assert set(made.host._running) == {"", F}


@pytest.mark.parametrize("when", ["asked for", "copied", "being made", "made", "there"])
def test_a_fork_is_closed(large: Forking, when: str) -> None:
    large.feed(("rows", train([7], 1)))
    large.fork()
    large.feed(("rows", train([7], 1)), FORK)
    if when == "copied":
        large.work(7)
        assert large.host._running[F].pieces._under_way is not None
    elif when in ("being made", "made"):
        large.work()
        assert large.hands.jobs["medusa-beside"]
        if when == "made":
            large.hands.beside()
    elif when == "there":
        large.settle()
        assert large.forked
    large.host.close(FORK)
    large.work(3)
    assert large.host._running[F].pieces._under_way is None, "nobody wants the copy any more"
    if when != "there":
        large.settle()
        assert not large.forked, "nothing is said of what was closed"
    ending(large)


def test_a_fork_that_is_given_up_is_not_made(large: Forking, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(Fragment, "restore", lambda *state, **more: made.append(state))
    large.fork()
    large.work()
    large.host.close(FORK)
    large.work()
    assert large.hands.beside()
    assert made == []


def test_a_fork_is_closed_while_it_is_made(large: Forking, monkeypatch: pytest.MonkeyPatch) -> None:
    restore = Fragment.restore

    def closing(*state: Any, **more: Any) -> Fragment:
        large.host.close(FORK)
        return restore(*state, **more)

    large.fork()
    large.feed(("rows", train([7], 1)), FORK)
    with monkeypatch.context() as patched:
        patched.setattr(Fragment, "restore", closing)
        large.settle()
    assert not large.forked
    ending(large)


def test_a_fork_that_is_closed_while_a_checkpoint_is_copied_leaves_that_alone(large: Forking) -> None:
    large.copying()
    large.persist()
    large.work(5)
    assert large.host._running[F].pieces._under_way is not None
    large.host.close(FORK)
    large.work(2)
    assert FORK not in large.host._running
    assert large.host._running[F].pieces._under_way is not None
    large.settle()
    large.hands.disk()
    large.work()
    assert [each for each in large.said if isinstance(each, Persisted)] == [Persisted(1, True)]
    ending(large)


@pytest.mark.parametrize("when", ["asked for", "copied"])
def test_a_fragment_is_closed_while_its_fork_is_being_made(large: Forking, when: str) -> None:
    large.feed(("rows", train([7], 1)))
    large.fork()
    large.feed(("rows", train([7], 1)), FORK)
    large.work(7 if when == "copied" else 0)
    large.host.close(F)
    large.settle()
    [forked] = large.forked
    assert forked.why
    assert not large.of(FORK)
    assert set(large.host._lives) == {""}


def test_a_fork_outlives_its_fragment(large: Forking) -> None:
    """Whoever has both closes both; which first is one."""
    large.fork()
    large.settle()
    large.host.close(F)
    large.feed(("rows", train([7], 1)), FORK)
    large.settle()
    assert totals(large.of(FORK)) == {7: 2}
    large.host.close(FORK)
    large.settle()
    assert set(large.host._running) == {""}


def test_a_host_that_stops_makes_no_forks(large: Forking) -> None:
    large.copying()
    large.persist()
    large.host.stop()
    large.said += large.host.finished()
    assert not large.forked


# --- it can't be made -------------------------------------------------------------------------------------


def test_a_fork_for_which_there_is_no_memory_is_refused_before_anything_is_copied() -> None:
    made = Forking(query().graph)
    made.feed(("rows", train(np.arange(KEYS), 1)))
    made.settle()
    held = made.host._budgets._queries["q"][F]
    bounded = Forking(query().graph, query_bytes=held + held // 2)
    bounded.feed(("rows", train(np.arange(KEYS), 1)))
    bounded.fork()
    bounded.feed(("rows", train([5], 1)), FORK)
    bounded.work()
    [forked] = bounded.forked
    assert "query 'q' holds" in forked.why
    assert not bounded.hands.jobs.get("medusa-beside")
    ending(bounded)
    bounded.fork()
    bounded.settle()
    assert len(bounded.forked) == 1, "it is refused again, as it was"


def test_a_fork_that_is_larger_than_its_fragment_was_is_refused_when_it_is_there(
    large: Forking, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = EngineHost._used_bytes
    monkeypatch.setattr(
        EngineHost, "_used_bytes", lambda host, each: used(host, each) + (NEVER if each.is_fork else 0)
    )
    large.fork()
    large.feed(("rows", train([5], 1)), FORK)
    large.settle()
    [forked] = large.forked
    assert "query 'q' holds" in forked.why
    ending(large)


def test_a_fork_that_cannot_be_restored_says_why(large: Forking, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **more: Any) -> Fragment:
        raise ValueError("can't be restored")

    large.fork()
    large.feed(("rows", train([5], 1)), FORK)
    with monkeypatch.context() as patched:
        patched.setattr(Fragment, "restore", broken)
        large.settle()
    assert large.forked == [Forked(TOKEN, FORK, "ValueError: can't be restored")]
    ending(large)


def test_a_fork_whose_state_cannot_be_copied_says_why(
    large: Forking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(copying: BackgroundCopy) -> bool:
        raise MemoryError("no memory for a copy")

    large.fork()
    large.feed(("rows", train([5], 1)), FORK)
    with monkeypatch.context() as patched:
        patched.setattr(BackgroundCopy, "step", full)
        large.settle()
    assert large.forked == [Forked(TOKEN, FORK, "no memory for a copy")]
    ending(large)


def test_what_is_not_there_is_not_forked(large: Forking) -> None:
    large.fork("nobody")
    large.feed(("rows", train([5], 1)), FORK)
    large.settle()
    assert large.forked == [Forked(TOKEN, FORK, "fragment 'nobody' was removed")]
    ending(large)


def test_what_has_failed_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **more: Any) -> Fragment:
        raise ValueError("can't be made")

    with monkeypatch.context() as patched:
        patched.setattr("medusa.runtime.engine_host.openings.Fragment", broken)
        made = Forking(query().graph)
    made.fork()
    made.settle()
    assert made.forked == [Forked(TOKEN, FORK, "fragment 'f' has failed")]


# --- what it takes ----------------------------------------------------------------------------------------


FEW, ROOM = 20_000, 1 << 19
"""Keys, and room for less than half as many more."""


def more(count: int) -> Fed:
    return "rows", train(np.arange(FEW, FEW + count), 1)


def bounded(room: int = ROOM) -> Forking:
    """A fragment and its fork with few keys, and so much room for more."""

    def forked(**bounds: int) -> Forking:
        made = Forking(query().graph, **bounds)
        made.feed(("rows", train(np.arange(FEW), 1)))
        made.settle()
        made.fork()
        made.settle()
        assert made.forked == [Forked(TOKEN, FORK)]
        made.said.clear()
        return made

    held = sum(forked().host._budgets._queries["q"].values())
    return forked(query_bytes=held + room)


@pytest.mark.parametrize("grows", [F, FORK])
def test_a_fork_ends_before_its_query_does(grows: str) -> None:
    made = bounded()
    made.feed(more(FEW // 2), grows)
    made.settle()
    [failed] = made.of(FORK, FragmentFailed)
    assert (failed.code, "query 'q' holds" in failed.why) == ("E_MEMORY", True)
    assert not made.of(F, FragmentFailed)
    made.said.clear()
    made.feed(("rows", train([5], 1)), FORK, F)
    made.settle()
    assert (len(made.of(F)), len(made.of(FORK))) == (1, 0)


def test_a_fork_that_is_being_made_ends_before_its_query_does() -> None:
    made = bounded()
    made.host.close(FORK)
    made.fork()
    made.work()
    assert made.hands.jobs["medusa-beside"]
    made.feed(more(FEW // 2))
    made.work()
    assert made.hands.jobs["medusa-beside"], "and isn't made any more"
    [forked] = made.forked
    assert "query 'q' holds" in forked.why
    made.settle()
    assert (len(made.forked), made.of(F, FragmentFailed), made.of(FORK, FragmentFailed)) == (1, [], [])


def test_a_query_that_is_too_large_without_its_fork_ends() -> None:
    made = bounded()
    made.feed(more(5 * FEW))
    made.settle()
    made.feed(("rows", train([5], 1)))
    made.settle()
    assert [each.code for each in made.of(F, FragmentFailed)] == ["E_MEMORY"]


def test_a_fork_counts_until_it_is_closed(large: Forking) -> None:
    large.fork()
    large.work()
    assert large.hands.jobs["medusa-beside"]
    assert large.host._budgets._queries["q"][FORK] > KEYS, "as much as its fragment holds"
    large.settle()
    assert set(large.host._budgets._queries["q"]) == {F, FORK}
    large.host.close(FORK)
    large.settle()
    assert set(large.host._budgets._queries["q"]) == {F}
    assert not large.host._budgets._forks


def test_nothing_of_a_fork_is_on_disk_and_its_counts_are_not_told(large: Forking) -> None:
    before = large.disk.changes
    large.said.clear()
    large.fork()
    large.feed(("rows", train([5], 1)), FORK)
    large.settle()
    large.feed(("rows", train([5], 1)), FORK)
    large.settle()
    large.host.close(FORK)
    large.fork()
    large.settle()
    large.host.close(FORK)
    large.host.close(FORK)
    large.settle()
    assert not large.hands.jobs["medusa-disk"]
    assert (large.disk.changes, large.of(FORK, Stats)) == (before, [])
    assert len(large.of(FORK)) == 2


@pytest.mark.parametrize(
    ("most", "waits"), [(0, False), (1 << 20, True)], ids=["much is left", "little is left"]
)
def test_a_checkpoint_that_is_copied_when_a_fork_is_asked_for(
    large: Forking, monkeypatch: pytest.MonkeyPatch, most: int, waits: bool
) -> None:
    """It is finished first, or given up: with much state the fragment would rest for that, and X goes by."""
    monkeypatch.setattr(forks, "AT_ONCE_ROWS", most)
    large.persist()
    large.work(3)
    assert large.host._running[F].pieces._under_way is not None
    large.fork()
    large.settle()
    large.hands.disk()
    large.settle()
    assert [each.why for each in large.forked] == [""]
    told = [each for each in large.said if isinstance(each, Persisted)]
    assert told == [Persisted(1, True) if waits else Persisted(1, False, GAVE_WAY)]
    large.host.persist(Persist(token=2, fragment=F))
    large.work()
    large.hands.disk()
    large.work()
    assert large.said[-1] == Persisted(2, True)


def test_a_fork_that_is_being_copied_gives_way_to_nobody(
    large: Forking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "AT_ONCE_ROWS", 0)
    large.copying()
    large.host.fork(Fork(token=TOKEN + 1, fragment=F, fork=fork_name(F, 2)))
    large.settle()
    assert [each.why for each in large.forked] == ["", ""]
