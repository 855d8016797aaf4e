"""The tentative lane of one stream: for who asked, bounded, never in the way of the rows that count."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from medusa.elements import END_US, START_US
from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.wire import limits
from medusa.wire.codec import encode_frame
from medusa.wire.link.automaton import LinkEvent, LinkSettings, ReceiverState
from medusa.wire.link.lanes import way_of
from medusa.wire.link.receiver import Receiver
from medusa.wire.link.sender import Sender
from medusa.wire.link.tentative_receiver import (
    FAILURE,
    StateChanged,
    TentativePromise,
    TentativeRowsCame,
)
from medusa.wire.messages.links import Attach, Attached
from medusa.wire.messages.tentative import (
    STREAM_STATES,
    StreamState,
    TentativeBoundary,
    TentativeRows,
    TentativeTaken,
)
from medusa.wire.outbox import Outbox
from tests.wire.pair import SCHEMA, SMALL, Pair, sends

ENTRY = limits.ENTRY_BYTES
NARROW = LinkSettings(
    window_bytes=2000,
    frame_bytes_max=1000,
    retained_bytes_max=10_000,
    keep_bytes=3000,
    tentative_bytes_max=4 * (ENTRY + 10),
)


def failing(settings=SMALL, *, fork=1):
    """A receiver of the lane, and a stream of which an input is missing."""
    pair = Pair(settings, tentative=True).up()
    pair.sender.tentative.state(0, "up_failure", fork)
    pair.settle()
    return pair


def guess(pair, text):
    """Rows of the fork, one for each character."""
    pair.sender.tentative.train(pair.now_us, text.encode(), len(text))


def guessed(pair):
    """The tentative rows delivered."""
    return "".join(bytes(g.payload).decode() for g in pair.guesses if isinstance(g, TentativeRowsCame))


def states(pair):
    return [(g.state, g.fork) for g in pair.guesses if isinstance(g, StateChanged)]


def test_who_asked_hears_how_the_stream_is_and_gets_the_rows_of_its_fork():
    pair = failing()
    guess(pair, "ab")
    pair.sender.tentative.boundary(0, 7)
    guess(pair, "c")
    pair.settle()
    changed, first, promise, second = pair.guesses
    assert changed == StateChanged(state="up_failure", fork=1)
    assert (bytes(first.payload), first.fork, first.message.seq, first.boundary_us) == (b"ab", 1, 0, START_US)
    assert promise == TentativePromise(fork=1, time_us=7, cost=ENTRY)
    assert (bytes(second.payload), second.message.seq, second.boundary_us) == (b"c", 2, 7)
    pair.sender.tentative.state(0, "stabilization", 1)
    guess(pair, "d")
    pair.sender.tentative.state(0, "stable", 0)
    pair.settle()
    assert guessed(pair) == "abcd"
    assert states(pair) == [("up_failure", 1), ("stabilization", 1), ("stable", 0)]
    assert (pair.sender.tentative.rows, pair.sender.tentative.sent_rows) == (4, 4)
    assert (pair.got, pair.receiver.next_seq) == ([], 0), "none of it counts"


def test_who_did_not_ask_gets_nothing_and_says_what_it_said_before_there_was_a_lane():
    pair = Pair().up()
    assert not pair.sender.tentative.wanted
    pair.sender.tentative.state(0, "up_failure", 1)
    guess(pair, "ab")
    pair.sender.tentative.boundary(0, 7)
    assert sends(pair.source_box) == []
    assert (pair.sender.tentative.rows, pair.sender.tentative.dropped_rows) == (2, 0)
    pair.train("xy")
    pair.settle()
    assert (pair.text, pair.guesses) == ("xy", [])
    assert pair.sender.wake_at_us() is None or pair.sender.wake_at_us() >= SMALL.progress_us
    for message in (
        Attach(stream="s", epoch=1, next_seq=0, durable=0, granted=9),
        Attached(stream="s", epoch=1, next_seq=0, boundary_us=0, schema=SCHEMA, timed=True),
    ):
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
        header = bytes(encode_frame(message)[0])
        assert header == msgspec.msgpack.encode(fields[: -len(message.TAIL)])


def test_a_sender_of_a_release_without_the_lane_is_stable_once_it_attaches():
    pair = failing()
    pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    [(attach, _)] = [each for each in sends(pair.target_box) if isinstance(each[0], Attach)]
    assert attach.tentative
    pair.bring(Attached(stream="s", epoch=attach.epoch, next_seq=0, boundary_us=0, schema=SCHEMA, timed=True))
    assert states(pair)[-1] == ("stable", 0)
    assert pair.receiver.backlog_over


def test_a_backlog_is_not_over_before_the_sender_has_said_how_the_stream_is():
    pair = failing()
    pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    [(attach, _)] = [each for each in sends(pair.target_box) if isinstance(each[0], Attach)]
    about = {"stream": "s", "epoch": attach.epoch}
    start = {"next_seq": 0, "boundary_us": 0, "tentative": (0, 0)}
    pair.bring(Attached(**about, **start, schema=SCHEMA, timed=True))
    assert not pair.receiver.backlog_over
    pair.bring(StreamState(**about, frame=0, state="stable", fork=0, seq=0))
    assert pair.receiver.backlog_over


def test_who_attaches_hears_the_state_at_once_and_the_promise_of_the_fork():
    pair = Pair(tentative=True)
    pair.sender.tentative.state(0, "up_failure", 3)
    guess(pair, "ab")
    pair.sender.tentative.boundary(0, 7)
    pair.up()
    assert pair.guesses == [
        StateChanged(state="up_failure", fork=1),
        TentativePromise(fork=1, time_us=7, cost=ENTRY),
    ]
    assert pair.receiver.tentative.missed_rows == 2, "they were put out before"


def test_beyond_the_window_rows_are_dropped_and_counted_and_the_stream_itself_goes_on():
    pair = failing(NARROW)
    pair.take_guesses = False
    for text in "0123456789" * 8:
        guess(pair, text * 10)
        pair.train("s")
        pair.settle()
    assert pair.text == "s" * 80
    lane = pair.sender.tentative
    assert (len(guessed(pair)), lane.sent_rows, lane.dropped_rows) == (40, 40, 760)
    assert pair.receiver.tentative.held_bytes <= NARROW.tentative_bytes_max
    for each in pair.guesses:
        pair.receiver.tentative.taken(pair.now_us, each.cost)
    pair.wait(NARROW.progress_us * 2)
    pair.take_guesses = True
    guess(pair, "again")
    pair.settle()
    assert guessed(pair).endswith("again")
    assert pair.receiver.tentative.missed_rows == 760
    assert lane.rows == 805


def test_readers_that_are_slow_take_nothing_from_others():
    pair = failing(NARROW)
    attach = Attach(stream="s", epoch=9, next_seq=0, durable=0, granted=2000, tentative=True)
    pair.sender.receive(0, "slow", attach)
    for _ in range(20):
        guess(pair, "0123456789")
        for message, payload in sends(pair.source_box):
            if message.epoch != attach.epoch:
                pair.bring(message, payload)
        for message, _ in sends(pair.target_box):
            pair.sender.receive(0, "target", message)
    assert len(guessed(pair)) == 200
    assert pair.sender.tentative.dropped_rows == 160


def test_any_one_train_fits_into_an_empty_window():
    pair = failing(NARROW)
    pair.take_guesses = False
    guess(pair, "x" * 900)
    guess(pair, "y")
    pair.settle()
    assert guessed(pair) == "x" * 900
    assert pair.sender.tentative.dropped_rows == 1


def test_a_promise_that_had_no_room_comes_once_there_is_and_only_the_last_one():
    pair = failing(NARROW)
    pair.take_guesses = False
    guess(pair, "x" * 900)
    for time_us in (5, 6, 7):
        pair.sender.tentative.boundary(0, time_us)
    pair.settle()
    assert not any(isinstance(each, TentativePromise) for each in pair.guesses)
    pair.receiver.tentative.taken(0, pair.guesses[-1].cost)
    pair.settle()
    assert pair.guesses[-1] == TentativePromise(fork=1, time_us=7, cost=ENTRY)


def test_a_state_that_is_lost_is_said_again_until_it_is_heard():
    pair = failing()
    pair.sender.tentative.state(0, "stable", 0)
    pair.collect()
    assert [type(message) for message, _ in pair.to_receiver] == [StreamState]
    pair.to_receiver.clear()
    assert pair.sender.wake_at_us() == SMALL.progress_us
    pair.wait(SMALL.progress_us)
    assert states(pair) == [("up_failure", 1)]
    pair.wait(SMALL.progress_us * 2)
    assert states(pair) == [("up_failure", 1), ("stable", 0)]
    pair.collect()
    assert pair.sender.tentative.wake_at_us() is None, "it was heard"


def test_a_state_is_said_once_and_one_that_is_as_before_not_at_all():
    pair = failing()
    pair.sender.tentative.state(5, "up_failure", 1)
    assert sends(pair.source_box) == []
    assert pair.sender.tentative.wake_at_us() is None


def test_what_is_stable_behind_a_row_is_so_once_that_has_come():
    """Words overtake rows where these go round over several connections, and where some are lost."""
    pair = failing()
    pair.train("abc")
    pair.sender.tentative.state(0, "stable", 0)
    pair.collect()
    pair.to_receiver.reverse()
    message, payload = pair.to_receiver.pop(0)
    assert message.seq == 3
    pair.bring(message, payload)
    assert states(pair) == [("up_failure", 1)]
    pair.settle()
    assert (pair.text, states(pair)[-1]) == ("abc", ("stable", 0))


def test_what_is_stable_behind_a_promise_is_so_once_that_has_come():
    """Found by seed 1991 of ``delay``: the rows were there, and the window that they complete was open."""
    pair = failing()
    pair.train("abc")
    pair.sender.boundary(0, 7)
    pair.sender.tentative.state(0, "stable", 0)
    pair.sender.boundary(0, 9)
    pair.collect()
    rows, promise, said, later = pair.to_receiver
    assert (said[0].seq, said[0].boundary_us) == (3, 7), "what comes later isn't waited for"
    pair.to_receiver = []
    for message, payload in (rows, said):
        pair.bring(message, payload)
    assert states(pair) == [("up_failure", 1)]
    for message, payload in (promise, later):
        pair.bring(message, payload)
    assert states(pair)[-1] == ("stable", 0)


def test_a_later_promise_is_enough_for_what_is_stable():
    """Of two that wait the first is left out."""
    pair = failing()
    pair.sender.boundary(0, 7)
    pair.sender.tentative.state(0, "stable", 0)
    pair.collect()
    promise, said = pair.to_receiver
    pair.to_receiver = []
    pair.bring(*said)
    assert states(pair) == [("up_failure", 1)]
    pair.bring(replace(promise[0], time_us=8), promise[1])
    assert states(pair)[-1] == ("stable", 0)


def test_a_stream_that_has_promised_nothing_says_that_it_is_stable_as_before_there_were_promises():
    said = StreamState(stream="s", epoch=1, frame=2, state="stable", fork=0, seq=3)
    header = bytes(encode_frame(said)[0])
    assert header == msgspec.msgpack.encode(msgspec.msgpack.decode(msgspec.msgpack.encode(said))[:-1])


def promises(pair):
    return [each.time_us for each in pair.guesses if isinstance(each, TentativePromise)]


def behind_its_rows():
    """A stream that has the rows itself, and more of them than there is credit for; the fork's promises
    follow the third and the last of four."""
    pair = failing()
    pair.consume = False
    for place, text in enumerate("abcd"):
        pair.train(text * 800)
        if place >= 2:
            pair.sender.tentative.boundary(0, 10 * place, follows=True)
    pair.settle()
    return pair


def test_what_the_fork_promises_of_rows_that_the_stream_itself_has_comes_behind_these():
    pair = behind_its_rows()
    assert len(pair.text) == 1600
    assert promises(pair) == [], "the rows below it wait for credit"
    seen = []
    for _ in range(2):
        pair.receiver.consumed(0, pair.got[len(seen)].cost)
        pair.settle()
        seen.append((len(pair.text), promises(pair)))
    assert seen == [(2400, [20]), (3200, [20, 30])], (
        "one after the other: else a stream that lags shows nothing"
    )


def test_a_promise_that_waits_for_rows_goes_with_its_fork():
    pair = behind_its_rows()
    pair.sender.tentative.state(0, "up_failure", 2)
    for got in list(pair.got):
        pair.receiver.consumed(0, got.cost)
    pair.settle()
    assert (len(pair.text), promises(pair)) == (3200, [])


def test_a_promise_that_waits_for_rows_is_said_again_with_the_next_attachment():
    pair = behind_its_rows()
    pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)
    for got in list(pair.got):
        pair.receiver.consumed(0, got.cost)
    pair.consume = True
    pair.up()
    assert (len(pair.text), promises(pair)[-1:]) == (3200, [30])


def test_what_would_have_been_stable_is_not_once_the_attachment_ends():
    pair = failing()
    pair.train("abc")
    pair.sender.tentative.state(0, "stable", 0)
    pair.collect()
    pair.bring(*pair.to_receiver.pop())
    pair.to_receiver.clear()
    pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)
    pair.take_tentative()
    assert states(pair)[-1] == (FAILURE, 1)
    pair.sender.tentative.state(0, "up_failure", 2)
    pair.up()
    assert pair.text == "abc"
    assert states(pair)[-1] == ("up_failure", 2)
    assert ("stable", 0) not in states(pair)


def test_a_silent_sender_is_a_failure_whose_fork_goes_on_when_it_is_heard():
    pair = failing()
    guess(pair, "ab")
    pair.settle()
    pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)
    pair.sender.peer(0, "target", LinkEvent.PEER_DOWN)
    pair.take_tentative()
    assert pair.receiver.tentative.state == FAILURE
    guess(pair, "cd")
    pair.sender.peer(0, "target", LinkEvent.PEER_UP)
    pair.up()
    guess(pair, "ef")
    pair.settle()
    assert guessed(pair) == "abef"
    assert states(pair) == [("up_failure", 1), (FAILURE, 1), ("up_failure", 1)]
    assert (pair.sender.tentative.dropped_rows, pair.receiver.tentative.missed_rows) == (2, 2)


def test_what_was_under_way_to_who_fell_silent_makes_room_and_its_promise_is_said_again():
    """The receiver noticed nothing: no attachment begins anew."""
    pair = failing(NARROW)
    for _ in range(3):
        guess(pair, "lost")
    pair.sender.tentative.boundary(0, 7)
    pair.sender.peer(0, "target", LinkEvent.PEER_DOWN)
    assert len(sends(pair.source_box)) == 4, "and all of that is lost"
    pair.sender.peer(0, "target", LinkEvent.PEER_UP)
    guess(pair, "x" * 100)
    pair.settle()
    assert (guessed(pair), pair.receiver.attachments) == ("x" * 100, 1)
    assert [each.time_us for each in pair.guesses if isinstance(each, TentativePromise)] == [7]


def test_a_fork_under_a_number_that_was_there_before_is_another_one():
    """Where a fragment is made anew in the place of another its forks are counted anew, and the word that the
    first one went may be lost."""
    pair = failing()
    guess(pair, "abc")
    pair.settle()
    pair.sender.tentative.state(0, "up_failure", 0)
    sends(pair.source_box)
    pair.sender.tentative.state(0, "up_failure", 1)
    guess(pair, "xy")
    pair.settle()
    assert (guessed(pair), states(pair)) == ("abcxy", [("up_failure", 1), ("up_failure", 2)])
    assert pair.receiver.tentative.missed_rows == 0


def test_a_sender_that_restarts_has_other_forks_under_the_same_numbers():
    pair = failing()
    guess(pair, "ab")
    pair.settle()
    pair.sender = Sender("s", SCHEMA, timed=True, outbox=pair.source_box, settings=SMALL)
    pair.receiver.peer_event(0, LinkEvent.PEER_RESTARTED)
    pair.sender.tentative.state(0, "up_failure", 1)
    pair.settle()
    guess(pair, "xy")
    pair.settle()
    assert guessed(pair) == "abxy"
    assert states(pair) == [("up_failure", 1), (FAILURE, 1), ("up_failure", 2)]


def made_anew(pair, before, *, stream_version=1):
    """Another sender has the stream at the same node, which didn't restart: a query was deployed again, a
    fragment was split and merged. It has the fork of the same number, and nothing that we were sent."""
    pair.sender = Sender("s", SCHEMA, timed=True, outbox=pair.source_box, settings=SMALL)
    pair.sender.stream_version = stream_version
    pair.sender.tentative.state(0, "up_failure", 1)
    guess(pair, before)


@pytest.mark.parametrize("how", ["it knows us no more", "its rows go back", "another version"])
def test_a_sender_that_was_made_anew_has_other_forks_under_the_same_numbers(how):
    pair = failing()
    guess(pair, "abc")
    pair.settle()
    goes_back = how == "its rows go back"
    made_anew(pair, "a" if goes_back else "abcd", stream_version=2 if how == "another version" else 1)
    if how == "it knows us no more":
        pair.wait(2 * SMALL.probe_us)
    else:
        pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)
        pair.up()
    guess(pair, "xy")
    pair.train("stable")
    pair.settle()
    assert (guessed(pair), pair.text) == ("abcxy", "stable")
    assert {fork for state, fork in states(pair) if state == "up_failure"} == {1, 2}
    assert pair.receiver.tentative.fork == 2


@pytest.mark.parametrize("other", ["restarted", "elsewhere"])
def test_a_stable_sender_in_the_place_of_a_failing_one_voids_its_rows(other):
    pair = failing()
    if other == "restarted":
        pair.receiver.peer_event(0, LinkEvent.PEER_RESTARTED)
    else:
        pair.receiver.redirect("elsewhere")
        pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    pair.sender.tentative.state(0, "stable", 0)
    pair.settle()
    assert states(pair) == [("up_failure", 1), (FAILURE, 1), ("stable", 0)]


def test_another_fork_of_the_same_sender_begins_with_row_0_and_no_promise():
    pair = failing()
    guess(pair, "ab")
    pair.sender.tentative.boundary(0, 9)
    pair.sender.tentative.state(0, "up_failure", 2)
    guess(pair, "c")
    pair.sender.tentative.boundary(0, 4)
    pair.settle()
    assert pair.guesses[-3:-1][0] == StateChanged(state="up_failure", fork=2)
    assert (pair.guesses[-2].message.seq, pair.guesses[-2].boundary_us) == (0, START_US)
    assert pair.guesses[-1].time_us == 4
    assert pair.receiver.tentative.missed_rows == 0


def test_without_a_fork_an_input_may_be_missing():
    """A fork that can't be made: the state stands without rows."""
    pair = failing(fork=0)
    assert states(pair) == [("up_failure", 0)]
    with pytest.raises(LocalProtocolError, match="there is none"):
        guess(pair, "a")


def test_what_the_lane_says_of_a_backlog():
    pair = Pair(tentative=True)
    for text in ("ab", "cd", "ef"):
        pair.train(text * 400)
    pair.consume = False
    assert not pair.receiver.backlog_over
    pair.up()
    pair.sender.tentative.state(0, "up_failure", 1)
    assert not pair.receiver.backlog_over, "credit is over before it has all"
    for each in list(pair.got):
        pair.receiver.consumed(0, each.cost)
    pair.settle()
    assert pair.receiver.backlog_over
    pair.train("later")
    assert pair.receiver.backlog_over
    pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)
    assert not pair.receiver.backlog_over


def test_a_muted_sender_says_nothing_and_is_woken_no_more_often_than_to_ask():
    pair = failing()
    pair.sender.tentative.state(0, "stabilization", 1)
    sends(pair.source_box)
    pair.sender.muted = True
    pair.sender.tick(SMALL.progress_us)
    assert sends(pair.source_box) == []
    assert pair.sender.wake_at_us() == 2 * SMALL.progress_us
    pair.sender.muted = False
    pair.now_us = 2 * SMALL.progress_us
    pair.sender.tick(pair.now_us)
    pair.settle()
    assert states(pair)[-1] == ("stabilization", 1)


def test_of_one_fork_all_frames_go_by_one_connection_in_their_order():
    frames = [
        StreamState(stream="s", epoch=1, frame=0, state="stable", fork=0, seq=0),
        TentativeRows(stream="s", epoch=1, frame=1, fork=1, seq=0, rows=1),
        TentativeBoundary(stream="s", epoch=1, frame=2, fork=1, seq=1, time_us=0),
    ]
    assert {way_of(frame) for frame in frames} == {("s", 1)}, "0 would end what waits of the stream"
    assert way_of(TentativeTaken(stream="s", epoch=1, frames=0, said=0)) == ("", None)


# --- what breaks rules ------------------------------------------------------------------------------


def epoch_of(pair):
    return pair.receiver._epoch


def lane_state(pair):
    lane = pair.receiver.tentative
    counts = (lane.held_bytes, lane.missed_rows, lane.duplicates, lane.stale)
    return (lane.state, lane.fork, lane.boundary_us, *counts)


BROKEN = {
    "stable with a fork": ("E_FORK", StreamState, {"state": "stable", "fork": 2, "seq": 0}, None),
    "rows without payload": ("E_FRAME", TentativeRows, {"fork": 1, "seq": 2, "rows": 1}, None),
    "rows that go back": ("E_SEQ", TentativeRows, {"fork": 1, "seq": 1, "rows": 1}, b"x"),
    "rows beyond the last": ("E_SEQ", TentativeRows, {"fork": 1, "seq": limits.SEQ_MAX, "rows": 1}, b"x"),
    "a promise at a row that came": ("E_SEQ", TentativeBoundary, {"fork": 1, "seq": 1, "time_us": 9}, None),
    "a promise that goes back": ("E_BOUNDARY", TentativeBoundary, {"fork": 1, "seq": 2, "time_us": 4}, None),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_breaks_a_rule_changes_nothing_and_ends_the_attachment(what):
    code, kind, fields, payload = BROKEN[what]
    pair = failing()
    guess(pair, "ab")
    pair.sender.tentative.boundary(0, 5)
    pair.settle()
    before, count = lane_state(pair), len(pair.guesses)
    message = kind(stream="s", epoch=epoch_of(pair), frame=50, **fields)
    with pytest.raises(RemoteProtocolError) as caught:
        pair.receiver.receive(0, message, payload)
    assert caught.value.code == code
    assert (lane_state(pair), pair.receiver.tentative.take()) == (before, [])
    with pytest.raises(RemoteProtocolError):
        pair.bring(message, payload)
    pair.take_tentative()
    assert pair.receiver.state is ReceiverState.REFUSED
    assert pair.guesses[count:] == [StateChanged(state=FAILURE, fork=1)]


LEFT_OVER = {
    "of another epoch": (TentativeRows, {"epoch": 1, "frame": 9, "fork": 1, "seq": 2, "rows": 1}),
    "of an earlier fork": (TentativeRows, {"frame": 9, "fork": 7, "seq": 2, "rows": 1}),
    "a promise of another fork": (TentativeBoundary, {"frame": 9, "fork": 7, "seq": 2, "time_us": 9}),
    "a frame again": (TentativeRows, {"frame": 1, "fork": 1, "seq": 0, "rows": 2}),
    "a state again": (StreamState, {"frame": 0, "state": "stable", "fork": 0, "seq": 0}),
}


@pytest.mark.parametrize("what", LEFT_OVER)
def test_what_is_left_over_is_dropped_and_counted(what):
    kind, fields = LEFT_OVER[what]
    pair = failing()
    guess(pair, "ab")
    pair.settle()
    lane, count = pair.receiver.tentative, len(pair.guesses)
    before = pair.receiver.stale + lane.stale + lane.duplicates
    pair.bring(kind(**{"stream": "s", "epoch": epoch_of(pair), **fields}), b"xy")
    assert pair.guesses[count:] == []
    assert pair.receiver.stale + lane.stale + lane.duplicates == before + 1
    assert pair.receiver.state is ReceiverState.FLOWING


def test_a_receiver_that_asked_for_no_lane_drops_and_counts_what_comes_of_one():
    pair = Pair().up()
    message = StreamState(stream="s", epoch=epoch_of(pair), frame=0, state="up_failure", fork=1, seq=0)
    pair.bring(message)
    assert (pair.guesses, pair.receiver.tentative.stale) == ([], 1)
    pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)
    assert pair.receiver.tentative.take() == [], "nobody asked how it is"


def test_a_receiver_holds_no_more_than_its_window_whatever_its_sender_has():
    pair = failing()
    narrow = Receiver("s", "source", incarnation=2, outbox=Outbox(), settings=NARROW, tentative=True)
    pair.receiver, pair.target_box = narrow, narrow._outbox
    pair.take_guesses = False
    pair.up()
    for _ in range(20):
        guess(pair, "0123456789")
        pair.settle()
    assert len(guessed(pair)) == 40
    assert pair.receiver.tentative.missed_rows == 160
    assert pair.receiver.state is ReceiverState.FLOWING


@pytest.mark.parametrize("field", ["frames", "said"])
def test_who_says_to_have_what_was_never_sent_breaks_a_rule(field):
    pair = failing()
    taken = TentativeTaken(stream="s", epoch=epoch_of(pair), frames=0, said=0)
    with pytest.raises(RemoteProtocolError) as caught:
        pair.sender.receive(0, "target", replace(taken, **{field: 40}))
    assert caught.value.code == "E_SEQ"
    pair.sender.receive(0, "target", taken)
    pair.sender.receive(0, "nobody", replace(taken, frames=40))
    stale = pair.sender.receivers["target"].stale
    pair.sender.receive(0, "target", replace(taken, epoch=1, frames=40))
    assert pair.sender.receivers["target"].stale == stale + 1


def test_who_takes_of_a_lane_that_it_did_not_ask_for_is_only_counted():
    pair = Pair().up()
    pair.sender.receive(0, "target", TentativeTaken(stream="s", epoch=epoch_of(pair), frames=9, said=9))
    assert pair.sender.receivers["target"].stale == 1


def test_a_named_subscription_has_no_tentative_rows():
    pair = Pair()
    attach = Attach(stream="s", epoch=1, next_seq=0, durable=0, granted=9, name="n", tentative=True)
    with pytest.raises(RemoteProtocolError) as caught:
        pair.sender.receive(0, "target", attach)
    assert caught.value.code == "E_READER"
    with pytest.raises(LocalProtocolError, match="named"):
        Receiver("s", "source", incarnation=1, outbox=Outbox(), name="n", tentative=True)


@pytest.mark.parametrize(
    ("state", "fork"), [("stable", 1), ("up_failure", -1), ("failure", -1), ("healthy", 0)]
)
def test_a_state_that_cannot_be_is_refused_and_changes_nothing(state, fork):
    pair = failing()
    with pytest.raises(LocalProtocolError, match="state"):
        pair.sender.tentative.state(0, state, fork)
    assert (pair.sender.tentative.is_in, pair.sender.tentative.fork) == ("up_failure", 1)
    assert sends(pair.source_box) == []
    assert set(STREAM_STATES) == {"stable", "up_failure", "stabilization", "failure"}


def test_a_train_or_promise_that_cannot_be_is_refused_and_changes_nothing():
    pair = failing()
    lane = pair.sender.tentative
    for rows, payload in ((0, b""), (limits.ROWS_MAX + 1, b"x"), (1, bytes(limits.PAYLOAD_BYTES_MAX + 1))):
        with pytest.raises(LocalProtocolError, match="rows"):
            lane.train(0, payload, rows)
    for time_us in (START_US - 1, END_US + 1):
        with pytest.raises(LocalProtocolError, match="boundary"):
            lane.boundary(0, time_us)
    assert (lane.rows, lane.dropped_rows, sends(pair.source_box)) == (0, 0, [])


def test_a_setting_of_the_window_is_at_least_a_byte():
    with pytest.raises(LocalProtocolError, match="tentative_bytes_max"):
        LinkSettings(tentative_bytes_max=0)
