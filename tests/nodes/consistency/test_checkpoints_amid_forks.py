"""The engine copies one state of a fragment at a time: a checkpoint waits for a fork, and gives way to it."""

from __future__ import annotations

from medusa.nodes.fragment.host import FORKED_US
from medusa.wire.outbox import GAVE_WAY
from tests.nodes.consistency.test_fork_feeding import Forking, missing_b

EVERY_US = 1_000_000_000
AT_US = 2_800_000
DUE_US = AT_US + EVERY_US
"""When the first checkpoint is due: so long after the first tick."""


def forking() -> Forking:
    """b is missing, and the fork is being copied."""
    life = missing_b()
    life.pass_to(AT_US)
    assert len(life.forks) == 1
    while life.hosted.under_way:
        life.ran()
    return life


def test_a_checkpoint_that_is_due_waits_until_the_fork_is_there() -> None:
    life = forking()
    life.pass_to(DUE_US)
    assert life.hosted.checkpoints == 0
    life.there()
    wake_us = life.hosted.wake_at_us()
    assert wake_us is not None
    assert wake_us <= DUE_US + FORKED_US
    life.pass_to(DUE_US + FORKED_US)
    assert life.hosted.checkpoints == 1


def test_it_does_not_wait_for_copies_without_end() -> None:
    life = forking()
    life.pass_to(DUE_US)
    life.pass_to(2 * EVERY_US)
    assert life.hosted.checkpoints == 1


def test_a_fork_that_could_not_be_made_is_waited_for_no_more() -> None:
    life = forking()
    life.bound.forked(life.now_us, life.forks[-1], "no room")
    life.pass_to(DUE_US)
    assert life.hosted.checkpoints == 1


def test_one_that_gave_way_to_a_fork_is_no_failure_and_is_taken_soon() -> None:
    life = missing_b()
    while life.hosted.under_way:
        life.ran()
    life.pass_to(AT_US - 1)
    life.holds_checkpoints = True
    life.hosted.changed(life.now_us, True)
    life.settle()
    [token] = life.held
    life.pass_to(AT_US)
    assert len(life.forks) == 1
    life.hosted.persisted(life.now_us, token, False, GAVE_WAY)
    life.settle()
    assert (life.hosted.checkpoint_failures, life.hosted.disk_error) == (0, "")
    assert "checkpoint failed" not in life.reports
    life.holds_checkpoints = False
    life.pass_to(AT_US + FORKED_US)
    assert life.hosted.checkpoints == 0, "the fork is being copied"
    life.there()
    life.pass_to(AT_US + 3 * FORKED_US)
    assert life.hosted.checkpoints == 1
