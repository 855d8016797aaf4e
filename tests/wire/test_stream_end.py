"""The end of a stream, and what was promised before it: both come, however and whenever a receiver does."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from medusa.elements import END_US, START_US
from medusa.wire.link.automaton import LinkEvent, LinkSettings
from medusa.wire.link.receiver import ReceivedPromise
from medusa.wire.link.sender import Sender
from medusa.wire.link.tentative_receiver import TentativePromise
from medusa.wire.outbox import Outbox
from tests.wire.pair import SCHEMA, SMALL, Pair
from tests.wire.test_tentative import NARROW, failing, guess


def heard(pair: Pair) -> list[int]:
    """The promises that came, in order."""
    return [each.time_us for each in pair.got if isinstance(each, ReceivedPromise)]


def ended(settings: LinkSettings = SMALL, **more: bool) -> Pair:
    """Rows, promises and the end wait for a receiver that hasn't come yet."""
    pair = Pair(settings, **more)
    pair.train("ab")
    for time_us in (3, 5, END_US):
        pair.sender.boundary(0, time_us)
    return pair


def restarted(pair: Pair, *, next_seq: int, boundary_us: int, life: int = 2) -> None:
    """The receiver comes back from a checkpoint."""
    pair.receiver = pair.new_receiver(life, next_seq=next_seq)
    pair.receiver.boundary_us = boundary_us
    pair.got.clear()
    pair.sender.peer(pair.now_us, "target", LinkEvent.PEER_RESTARTED)
    pair.up()


def test_both_come_where_both_wait() -> None:
    assert heard(ended().up()) == [5, END_US]


def test_both_come_to_who_has_all_rows_durably_and_comes_back() -> None:
    """Its checkpoint was taken before: it has what followed from the rows, and not from the promise."""
    pair = ended().up()
    pair.receiver.durable(0, 2)
    pair.settle()
    assert pair.sender.receivers["target"].durable == 2
    restarted(pair, next_seq=2, boundary_us=3)
    assert heard(pair) == [5, END_US]


def test_a_checkpoint_of_the_sender_has_both() -> None:
    pair = ended().up()
    pair.receiver.durable(0, 2)
    pair.settle()
    log = pair.sender.log
    loaded = Sender(
        "s",
        SCHEMA,
        timed=True,
        outbox=Outbox(),
        first_seq=log.start_seq,
        boundary_us=log.promise(log.base),
    )
    loaded.load(log.entries(), {"target": 2})
    assert loaded.log.promise(loaded.log.find(2)) == 5
    assert [entry.time_us for entry in loaded.log.entries()] == [END_US]


def test_who_only_looks_at_what_is_kept_sees_both() -> None:
    pair = ended(plain=True)
    pair.sender.tick(0)
    pair.sender.log.trim_to(0)
    pair.receiver = pair.new_receiver(1, next_seq=2, plain=True)
    assert heard(pair.up()) == [5, END_US]


def test_who_stands_before_numbers_that_no_row_has_hears_the_end() -> None:
    pair = ended().up()
    pair.receiver.durable(0, 2)
    pair.settle()
    pair.sender.skip(0, 7)
    restarted(pair, next_seq=2, boundary_us=3)
    assert heard(pair) == [5, END_US]
    restarted(pair, next_seq=9, boundary_us=3, life=3)
    assert heard(pair) == [5, END_US]


@given(
    st.lists(
        st.sampled_from(["rows", "promise", "cut", "back", "durable", "restart"]), min_size=4, max_size=40
    ),
    st.integers(0, 3),
)
def test_whatever_happens_the_last_two_promises_come_one_by_one(acts: list[str], late: int) -> None:
    """What the receiver has fed by the end is what it was promised last, and then the end."""
    pair, time_us, life = Pair(replace(SMALL, retained_bytes_max=32_000)).up(), int(START_US), 1
    saved, began_us = (0, int(START_US)), int(START_US)
    end_at = len(acts) - 1 - late
    for place, act in enumerate(acts):
        match act:
            case "rows" if place < end_at and not pair.sender.full:
                pair.train("abc")
            case "promise" if place < end_at:
                time_us = max(time_us, 0) + 1
                pair.sender.boundary(pair.now_us, time_us)
            case "cut" | "back":
                event = LinkEvent.PEER_UP if act == "back" else LinkEvent.PEER_DOWN
                pair.receiver.peer_event(pair.now_us, event)
                pair.sender.peer(pair.now_us, "target", event)
            case "durable":
                pair.receiver.durable(pair.now_us, pair.receiver.next_seq)
                saved = pair.receiver.next_seq, pair.receiver.boundary_us
            case "restart" if saved[1] < END_US:
                life += 1
                pair.receiver = pair.new_receiver(life, next_seq=saved[0])
                pair.receiver.boundary_us = began_us = saved[1]
                pair.got.clear()
                pair.sender.peer(pair.now_us, "target", LinkEvent.PEER_RESTARTED)
                pair.receiver.peer_event(pair.now_us, LinkEvent.PEER_UP)
        if place == end_at:
            pair.sender.boundary(pair.now_us, END_US)
        pair.settle()
    pair.receiver.peer_event(pair.now_us, LinkEvent.PEER_DOWN)
    pair.sender.peer(pair.now_us, "target", LinkEvent.PEER_DOWN)
    pair.sender.peer(pair.now_us, "target", LinkEvent.PEER_UP)
    pair.up()
    pair.wait(SMALL.retry_us * 4)
    assert heard(pair)[-1] == END_US
    assert max([began_us, *heard(pair)[:-1]]) == time_us


# --- the tentative lane ---------------------------------------------------------------------------------


def promised(pair: Pair) -> list[int]:
    return [each.time_us for each in pair.guesses if isinstance(each, TentativePromise)]


def test_a_fork_that_ends_while_there_is_no_room_says_both_later() -> None:
    pair = failing(NARROW)
    pair.take_guesses = False
    pair.sender.tentative.boundary(0, 1)
    for _ in range(8):
        guess(pair, "x" * 10)
    pair.settle()
    for time_us in (3, 5, END_US):
        pair.sender.tentative.boundary(0, time_us)
    pair.settle()
    assert END_US not in promised(pair)
    pair.take_guesses = True
    for each in list(pair.guesses):
        pair.receiver.tentative.taken(0, each.cost)
    pair.wait(SMALL.ack_us * 4)
    assert promised(pair)[-2:] == [5, END_US]


def test_both_hold_once_the_rows_before_them_have_come() -> None:
    """The stream itself has the rows of the fork, and they are under way."""
    pair = failing()
    pair.receiver.tentative.reached(0, 0, 0)
    pair.sender.train(0, b"ab", 2)
    pair.collect()
    rows, pair.to_receiver = pair.to_receiver, []
    for time_us in (1, 3, 5, END_US):
        pair.sender.tentative.boundary(0, time_us, follows=True)
    pair.settle()
    assert promised(pair) == []
    pair.to_receiver += rows
    pair.settle()
    assert promised(pair) == [1, 5, END_US]


def test_who_comes_after_a_fork_has_ended_hears_no_lower_promise_again() -> None:
    pair = failing()
    for time_us in (3, END_US):
        pair.sender.tentative.boundary(0, time_us)
    pair.settle()
    pair.sender.peer(0, "target", LinkEvent.PEER_DOWN)
    pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)
    pair.sender.peer(0, "target", LinkEvent.PEER_UP)
    pair.up()
    pair.wait(SMALL.retry_us * 4)
    pair.sender.tentative.state(pair.now_us, "stabilization", 1)
    pair.settle()
    pair.wait(SMALL.progress_us * 2)
    assert promised(pair)[:2] == [3, END_US]
    assert {*promised(pair)[2:]} <= {END_US}
