"""Rows of fragments that are lent, where nothing of one is here just now: what isn't known isn't paid."""

from __future__ import annotations

from typing import Any

import pytest

from medusa.nodes.abroad.abroad_moves import HandedOver, Lent, Lost, NotSent, Returned
from medusa.nodes.market.lent_fragments import LentFragments
from medusa.nodes.market.tasks_port import FragmentAway, TaskHandedOver


class Moves:
    """A fragment of ours is at h; the node was restarted, and isn't sent it yet."""

    def __init__(self) -> None:
        self.row: int | None = None
        self.is_ours = False
        """That row is of what our own disk has: the host has sent nothing yet."""
        self.at = "h"
        self.events: list[Any] = []

    def lent(self) -> tuple[Lent, ...]:
        return (Lent(fragment="q/kind", participant="bob", node="h", epoch=2),) if self.at == "h" else ()

    def inviting(self) -> tuple[str, ...]:
        return ("q/kind",) if self.at == "invited" else ()

    def progress(self, fragment: str) -> tuple[int, int] | None:
        return None if self.row is None else (self.row, 0)

    def row_of_host(self, fragment: str) -> int | None:
        return None if self.is_ours else self.row

    def send(self, now_us: int, fragment: str, node: str) -> None:
        """It isn't for us."""

    def take_events(self) -> list[Any]:
        found, self.events = self.events, []
        return found


@pytest.fixture
def moves() -> Moves:
    return Moves()


@pytest.fixture
def tasks(moves: Moves) -> LentFragments:
    return LentFragments(moves, None, {})  # type: ignore[arg-type]


def test_it_is_on_its_way_until_it_is_known_how_far_it_is(moves: Moves, tasks: LentFragments) -> None:
    assert (tasks.away(), tasks.going()) == ({}, ["q/kind"])
    assert not tasks.sending(), "its host may be silent for long: nobody is relieved by that"
    moves.row = 70
    assert tasks.away() == {"q/kind": FragmentAway(node="h", begin_row=70, row=70)}
    assert tasks.going() == []
    moves.row = None
    assert tasks.away() == {"q/kind": FragmentAway(node="h", begin_row=70, row=70)}
    moves.row = 80
    assert tasks.away() == {"q/kind": FragmentAway(node="h", begin_row=70, row=80)}


def test_what_our_own_disk_has_of_it_is_not_where_it_was_handed_over(
    moves: Moves, tasks: LentFragments
) -> None:
    """Seed 8 of ``trading``: who lent it died as it was handed over at row 86, came back with its checkpoint
    of row 85, and paid its host for a row that had come in at home."""
    moves.row, moves.is_ours = 85, True
    assert (tasks.away(), tasks.going()) == ({}, ["q/kind"])
    moves.row, moves.is_ours = 89, False
    assert tasks.away() == {"q/kind": FragmentAway(node="h", begin_row=89, row=89)}
    assert tasks.going() == []


def test_while_its_host_is_invited_nobody_knows_that_it_stays(moves: Moves, tasks: LentFragments) -> None:
    """What was decided while we were away we may not have heard yet."""
    moves.at = "invited"
    assert (tasks.away(), tasks.going()) == ({}, ["q/kind"])
    assert not tasks.sending(), "nothing was sent in this life"
    moves.at = "home"
    assert (tasks.away(), tasks.going()) == ({}, [])
    moves.at, moves.row = "h", 70
    assert (tasks.away(), tasks.going()) == ({"q/kind": FragmentAway(node="h", begin_row=70, row=70)}, [])


def test_handed_over_before_a_checkpoint_came_back_it_is_on_its_way_until_one_does(
    moves: Moves, tasks: LentFragments
) -> None:
    moves.events = [HandedOver(fragment="q/kind", node="h", rows_in=None)]
    assert tasks.take_events() == [TaskHandedOver(fragment="q/kind")]
    assert (tasks.away(), tasks.going()) == ({}, ["q/kind"])
    moves.row = 70
    assert tasks.away() == {"q/kind": FragmentAway(node="h", begin_row=70, row=70)}
    assert tasks.going() == []


def test_what_is_sent_is_until_it_is_there_or_stays(moves: Moves, tasks: LentFragments) -> None:
    for event in (
        HandedOver(fragment="q/kind", node="h", rows_in=None),
        NotSent(fragment="q/kind", code="E_DECLINED", text="no", hint=""),
    ):
        tasks.send(0, "q/kind", "h")
        assert [*tasks.sending()] == ["q/kind"]
        moves.events = [event]
        tasks.take_events()
        assert not tasks.sending()


@pytest.mark.parametrize("row", [None, 90])
def test_where_it_came_home_is_said_only_where_it_is_known(
    moves: Moves, tasks: LentFragments, row: int | None
) -> None:
    moves.row = 70
    assert tasks.away()
    moves.row = row
    moves.events = [Returned(fragment="q/kind", node="h", why="its owner wants it", rows_in=row)]
    assert len(tasks.take_events()) == 1
    assert tasks.home_row("q/kind") == row


@pytest.mark.parametrize(
    "event",
    [
        Returned(fragment="q/kind", node="h", why="the contract is over", rows_in=76),
        Lost(fragment="q/kind", node="h", rows_in=76),
    ],
)
def test_a_host_is_paid_for_no_row_that_came_in_at_home_before_anybody_looked(
    moves: Moves, tasks: LentFragments, event: Returned | Lost
) -> None:
    """Seed 10003 of ``trading``: eight rows that were fed at home within 60 ms were paid to the host."""
    moves.row = 70
    assert tasks.away()
    moves.at, moves.row, moves.events = "home", 84, [event]
    assert tasks.take_events()
    assert tasks.home_row("q/kind") == 76


def test_where_nothing_of_it_is_here_nobody_knows_how_far_it_was(moves: Moves, tasks: LentFragments) -> None:
    moves.at, moves.row = "home", 84
    moves.events = [Lost(fragment="q/kind", node="h", rows_in=None)]
    assert tasks.take_events()
    assert tasks.home_row("q/kind") is None
