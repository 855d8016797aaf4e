"""When a fragment is done with all that its inputs had brought at a moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from medusa.nodes.consistency.catching_up import CatchingUp, CatchingUpInRounds
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


class Line:
    """Rounds of lengths that the test says: an instance that has run each round's last work after so long."""

    def __init__(self, *took_us: int) -> None:
        self.rounds = 0
        self.over_us = 0
        self._took_us = took_us
        self.newest = None

    def has_left(self, work: Any) -> bool:
        raise AssertionError("nothing was given")

    def run(self, moment_us: int) -> int:
        """How many rounds there were, and when the last one was over."""
        catching = CatchingUpInRounds(0, _Awaited(self), moment_us)
        for now_us in range(0, 100_000, 10):
            self.now_us = now_us
            if catching.is_over(now_us, self):
                return now_us
        raise AssertionError("it never was over")


class _Awaited:
    """What is iterated at the beginning of each round: one input that is fed once the round is over."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def __iter__(self) -> Any:
        line = self._line
        line.over_us += line._took_us[line.rounds]
        line.rounds += 1
        yield _Input(line, line.over_us)


class _Input:
    def __init__(self, line: Line, over_us: int) -> None:
        self._line, self._over_us = line, over_us
        self.fed_us = 0
        self.receiver = SimpleNamespace(next_seq=over_us, boundary_us=0)

    @property
    def fed_seq(self) -> int:
        return self._over_us if self._line.now_us >= self._over_us else 0


def test_what_came_meanwhile_is_waited_for_too_until_a_round_is_short() -> None:
    line = Line(5_000, 1_000, 200, 40)
    assert (line.run(100), line.rounds) == (6_240, 4)


def test_one_that_gets_no_nearer_is_waited_for_no_longer() -> None:
    line = Line(5_000, 4_000, 3_500, 3_400)
    assert (line.run(100), line.rounds) == (9_000, 2)
