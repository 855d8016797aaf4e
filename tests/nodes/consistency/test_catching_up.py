"""When a fragment is done with all that its inputs had brought at a moment."""

from __future__ import annotations

from medusa.nodes.consistency.catching_up import CatchingUp
from tests.nodes.consistency.test_fork_feeding import Forking, query

ROWS = 300
"""More than the engine is given at once."""


def behind() -> Forking:
    """Of two senders one's rows were fed, and of the other's some wait."""
    life = Forking(query(), judged=True)
    for peer in "ef":
        life.comes(peer)
    life.brings("e", 100)
    for place in range(ROWS):
        life.brings("f", 200 + place)
    assert life.input("e").fed
    assert not life.input("f").fed
    return life


def runs_all(life: Forking) -> None:
    while life.hosted.under_way:
        life.ran()
    assert life.input("f").fed


def test_it_is_over_once_all_that_had_come_is_run() -> None:
    life = behind()
    catching = CatchingUp(life.hosted.inputs.values())
    assert not catching.is_over(life.hosted)
    runs_all(life)
    assert catching.is_over(life.hosted)


def test_rows_of_a_stream_that_began_anew_are_waited_for_no_more() -> None:
    """Its sender has lost it: what comes from now on has lower numbers than the last that came."""
    life = behind()
    catching = CatchingUp(life.hosted.inputs.values())
    assert not catching.is_over(life.hosted)
    life.input("e").receiver.detach(life.now_us)
    life.input("e").begin_anew(0)
    runs_all(life)
    assert catching.is_over(life.hosted)
