"""Where output waits for a secondary's word, that one says so once it has a decision: its engine feeds it
later, and before anything else once it takes over."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from medusa.nodes.migration.standby import StandbyFragment
from medusa.nodes.migration.state_receiver import AHEAD_MAX, StateReceiver
from medusa.wire.codec import decode_frame
from medusa.wire.messages.move import Got
from tests.nodes.taken_over import PIECE, ROWS, Run
from tests.nodes.test_taken_over import (
    CUT,
    UNITED,
    check_union,
    counting,
    run_of,
    shown,
    two_sources,
    uniting,
)

pytestmark = pytest.mark.usefixtures("trains_apart")

STEP_US = 20_000
"""What the secondary's engine takes for an element: longer than the owner, its disk and the network do."""


@dataclass
class Words:
    """What a secondary said, and how far its engine was then.

    Attributes:
        ahead: of each acknowledgement, how many elements it took for fed that the engine had not fed yet.
        unopened: the same, before what it began with was on its disk.
    """

    run: Run
    fragment: str
    ahead: list[int] = field(default_factory=list)
    unopened: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run.fed.network.observe(self._sent)

    @property
    def taking(self) -> StateReceiver:
        followings = self.run.recovery("s1").followings
        return followings._followed[self.fragment]

    @property
    def shadow(self) -> StandbyFragment:
        assert self.taking.shadow is not None
        return self.taking.shadow

    def _sent(self, tag: str, frames: list) -> None:
        message, _ = decode_frame(frames, peer="s1")
        if isinstance(message, Got) and self.fragment in self.run.recovery("s1").followings._followed:
            running = self.taking._running
            ahead = sum(frame < message.frames for frame in running)
            (self.ahead if message.opened else self.unopened).append(ahead)

    def engine_takes(self, step_us: int) -> None:
        self.run.fed.nodes["s1"]._workers["medusa-engine"]._job_us = step_us


@pytest.fixture
def united() -> tuple[Run, Words]:
    run, fragment = run_of(uniting(), UNITED, {"m": ["s1"]}, tables=two_sources(), witnesses=("w", "x"))
    run.until_guarded(fragment)
    return run, Words(run, fragment)


@pytest.mark.parametrize("pieces", [1, 3, AHEAD_MAX // 2])
def test_rows_are_shown_that_the_engine_of_no_secondary_has_fed_and_who_takes_over_feeds_them_first(
    united: tuple[Run, Words], pieces: int
) -> None:
    run, words = united
    run.publish(0, 10 * PIECE)
    run.until(lambda: shown(run) == 20 * PIECE and not words.shadow.behind, "all of that is fed everywhere")
    words.engine_takes(STEP_US)
    end = (10 + pieces) * PIECE
    run.publish(10 * PIECE, end)
    run.until(lambda: shown(run) == 2 * end, "rows are shown")
    made = next(each for each in words.shadow.outputs.values() if each.stream.endswith("both")).rows
    assert made < shown(run), "its engine is behind what was shown"
    run.lose("m")
    run.until_owned(words.fragment, "s1")
    run.publish(end, ROWS)
    check_union(run)


def test_no_more_is_acknowledged_than_a_few_elements_ahead_of_the_engine(united: tuple[Run, Words]) -> None:
    run, words = united
    words.engine_takes(STEP_US)
    run.publish()
    check_union(run)
    assert max(words.ahead) == AHEAD_MAX


def test_what_is_fed_is_acknowledged_once(united: tuple[Run, Words]) -> None:
    """Each costs the owner a turn: what was said as it came isn't said again as it is fed."""
    run, words = united
    run.publish(0, 10 * PIECE)
    run.until(lambda: shown(run) == 20 * PIECE and not words.shadow.behind, "all of that is fed everywhere")
    before, frames = len(words.ahead), words.taking._frames
    run.publish(10 * PIECE, 20 * PIECE)
    run.until(lambda: shown(run) == 40 * PIECE and not words.shadow.behind, "the rest too")
    assert len(words.ahead) - before <= words.taking._frames - frames


def test_until_what_it_began_with_is_on_its_disk_it_acknowledges_what_was_fed(
    united: tuple[Run, Words],
) -> None:
    run, words = united
    words.engine_takes(STEP_US)
    run.publish(0, ROWS // 2)
    run.until(lambda: shown(run) > 0, "rows flow")
    run.fed.nodes["m"].crash()
    run.fed.restart("m")
    run.until_guarded(words.fragment)
    run.publish(ROWS // 2, ROWS)
    check_union(run)
    assert not any(words.unopened)


def test_where_no_output_waits_it_acknowledges_what_was_fed() -> None:
    run, fragment = run_of(counting(), CUT, {"m": ["s1"]})
    run.until_guarded(fragment)
    words = Words(run, fragment)
    words.engine_takes(STEP_US)
    run.publish()
    run.check()
    run.until(lambda: not words.shadow.behind, "the secondary has fed all")
    run.fed.run(for_us=1_000_000)
    assert words.ahead
    assert not any(words.ahead)
