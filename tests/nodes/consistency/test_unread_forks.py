"""What becomes of a fork that nobody reads any more."""

from __future__ import annotations

from medusa.nodes.consistency.delay_bound import UNREAD_US
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.links import OLDEST, Attach
from tests.nodes.consistency.test_fork_feeding import Forking, missing_b

GONE_US = 3_000_000


def unread() -> Forking:
    """b is missing, there is a fork, and its reader has gone."""
    life = missing_b()
    life.pass_to(2_800_000)
    life.there()
    life.now_us = GONE_US
    life.hosted.peer_event(life.now_us, "reader", LinkEvent.PEER_RESTARTED)
    life.pass_to(GONE_US)
    return life


def read(life: Forking) -> None:
    attach = Attach(
        stream="q.out", epoch=2, next_seq=OLDEST, durable=0, granted=1 << 20, plain=True, tentative=True
    )
    life.hosted.from_reader(life.now_us, "out", "reader", attach, owner="", others=0)
    life.settle()


def test_a_fork_that_nobody_reads_any_more_goes_after_a_while_and_comes_again_with_a_reader() -> None:
    life = unread()
    assert life.hosted.wake_at_us() <= GONE_US + UNREAD_US  # type: ignore[operator]
    life.pass_to(GONE_US + UNREAD_US - 1)
    assert life.closed == []
    life.pass_to(GONE_US + UNREAD_US)
    assert life.closed == ["q/a#1"]
    assert life.bound.status(life.now_us, "out").state == "up_failure"
    life.pass_to(GONE_US + 3 * UNREAD_US)
    assert life.forks == ["q/a#1"]
    read(life)
    assert life.forks == ["q/a#1", "q/a#2"]
    assert life.states()[-1] == ("up_failure", 2)


def test_a_reader_that_comes_again_soon_finds_the_same_fork() -> None:
    life = unread()
    life.pass_to(GONE_US + UNREAD_US - 1)
    read(life)
    life.pass_to(GONE_US + 3 * UNREAD_US)
    assert (life.forks, life.closed) == (["q/a#1"], [])
