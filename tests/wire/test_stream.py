"""One stream over a network that loses, repeats and reorders; both ends looked at in every test."""

from __future__ import annotations

import pytest

from medusa.elements import END_US
from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.wire import limits
from medusa.wire.link.automaton import LinkEvent, LinkSettings, ReceiverState, SenderState
from medusa.wire.link.receiver import LostRows, ReceivedPromise
from medusa.wire.messages.links import NOW, OLDEST, Ack, Attach, Boundary, Refuse
from tests.wire.pair import SMALL, Pair, sends


def test_rows_come_once_and_in_order():
    pair = Pair().up()
    for text in ("abc", "d", "efgh"):
        pair.train(text)
        pair.settle()
    assert pair.text == "abcdefgh"
    assert pair.receiver.next_seq == pair.sender.log.next_seq == 8


def test_what_was_there_before_the_attachment_comes_too():
    pair = Pair()
    pair.train("abc")
    pair.sender.boundary(0, 7)
    pair.up()
    assert pair.text == "abc"
    assert pair.got[-1] == ReceivedPromise(time_us=7, cost=limits.ENTRY_BYTES)


@pytest.mark.parametrize("lost", range(4))
def test_any_lost_frame_is_asked_for_again(lost):
    """Frame 0 is Attached, frames 1 to 3 are trains; each in turn is lost."""
    pair = Pair()
    for text in ("ab", "cd", "ef"):
        pair.train(text)
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    pair.collect()
    for message, _ in pair.to_sender:
        pair.sender.receive(0, "target", message)
    pair.to_sender.clear()
    pair.collect()
    assert len(pair.to_receiver) == 4
    del pair.to_receiver[lost]
    pair.settle()
    pair.wait(SMALL.retry_us * 2)
    assert pair.text == "abcdef"
    assert pair.receiver.attachments == 2


def test_an_answer_that_is_long_in_coming_is_asked_for_less_and_less_often():
    """Each answer brings all that is kept: on a busy machine a stream never came back, as none of its answers
    came before the next question made it stale."""
    pair = Pair()
    pair.train("ab")
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    asked = []
    for turn in range(40):
        pair.receiver.tick(turn * SMALL.retry_us)
        asked += [turn for effect, _ in sends(pair.target_box)]
    assert asked == [0, 1, 3, 7, 15, 23, 31, 39]
    pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)
    pair.up()
    assert pair.text == "ab"
    pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    assert pair.receiver.wake_at_us() == SMALL.retry_us, "it was answered meanwhile"


def test_frames_that_overtake_an_attachment_do_not_end_it():
    """Found by seed 1 of chaos: asking anew at each would cut off every burst by its own next one."""
    pair = Pair()
    for text in ("ab", "cd", "ef"):
        pair.train(text)
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    pair.collect()
    for message, _ in pair.to_sender:
        pair.sender.receive(0, "target", message)
    pair.to_sender.clear()
    pair.collect()
    pair.to_receiver.insert(0, pair.to_receiver.pop())
    pair.settle()
    pair.wait(SMALL.progress_us * 2)
    assert pair.text == "abcdef"
    assert pair.receiver.attachments == 2


def test_repeated_and_overtaken_frames_change_nothing():
    pair = Pair().up()
    pair.train("ab")
    pair.train("cd")
    pair.collect()
    pair.to_receiver = [pair.to_receiver[0], *reversed(pair.to_receiver), pair.to_receiver[1]]
    pair.settle()
    pair.wait(SMALL.progress_us)
    assert pair.text == "abcd"
    assert pair.receiver.duplicates + pair.receiver.stale >= 2


def test_a_frame_of_an_earlier_epoch_is_dropped_and_counted():
    pair = Pair().up()
    pair.train("ab")
    pair.collect()
    old = list(pair.to_receiver)
    pair.to_receiver.clear()
    pair.receiver.peer_event(0, LinkEvent.PEER_RESTARTED)
    pair.settle()
    assert pair.text == "ab"
    for message, payload in old:
        pair.bring(message, payload)
    assert pair.text == "ab"
    assert pair.receiver.stale == len(old)


def test_a_resent_train_that_straddles_the_position_loses_its_first_rows():
    pair = Pair(next_seq=2)
    pair.train("abcde")
    pair.up()
    assert pair.text == "cde"
    assert pair.got[0].skip == 2
    assert pair.got[0].seq == 2


def test_nothing_is_sent_beyond_the_credit_and_all_of_it_comes_as_the_owner_consumes():
    pair = Pair()
    pair.consume = False
    pair.up()
    for _ in range(20):
        pair.train("x" * 300)
    pair.settle()
    view = pair.sender.receivers["target"]
    cost = 300 + limits.ENTRY_BYTES
    assert view.sent_bytes == SMALL.window_bytes // cost * cost <= view.granted == SMALL.window_bytes
    assert pair.receiver.held_bytes == view.sent_bytes
    pair.wait(5 * SMALL.probe_us)
    assert len(pair.got) == SMALL.window_bytes // cost
    taken = 0
    while taken < len(pair.got):
        pair.receiver.consumed(pair.now_us, pair.got[taken].cost)
        taken += 1
        pair.settle()
        pair.wait(SMALL.ack_us)
    assert pair.text == "x" * 6000


def test_a_long_backlog_is_sent_in_bursts_between_which_others_have_their_turn():
    pair = Pair(settings=LinkSettings())
    for _ in range(1000):
        pair.train("a")
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    pair.collect()
    [(attach, _)] = pair.to_sender
    pair.sender.receive(7, "target", attach)
    bursts = [len(sends(pair.source_box))]
    while pair.sender.wake_at_us() == 7:
        pair.sender.tick(7)
        bursts.append(len(sends(pair.source_box)))
    assert bursts == [257, 256, 256, 232], "the answer to Attach comes with the first"


def test_credit_starts_anew_with_each_attachment_less_what_is_still_held():
    pair = Pair()
    pair.consume = False
    pair.up()
    for _ in range(20):
        pair.train("x" * 300)
    pair.settle()
    held = pair.receiver.held_bytes
    pair.receiver.peer_event(0, LinkEvent.PEER_RESTARTED)
    asked = [m for m, _ in sends(pair.target_box) if isinstance(m, Attach)]
    assert asked[0].granted == SMALL.window_bytes - held


def test_acks_are_batched():
    pair = Pair(LinkSettings())
    pair.up()
    pair.wait(SMALL.ack_us * 2)
    for _ in range(50):
        pair.train("abc")
    pair.collect()
    for message, payload in pair.to_receiver:
        pair.bring(message, payload)
    pair.to_receiver.clear()
    assert sends(pair.target_box) == []
    pair.now_us += SMALL.ack_us
    pair.receiver.tick(pair.now_us)
    [(ack, _)] = sends(pair.target_box)
    assert isinstance(ack, Ack)
    assert ack.received == 150


# --- retention --------------------------------------------------------------------------------


def test_rows_are_kept_until_durable_not_only_until_received():
    pair = Pair().up()
    pair.train("abc")
    pair.train("def")
    pair.settle()
    pair.wait(SMALL.ack_us + 1)
    assert pair.sender.receivers["target"].acked == 6
    assert pair.sender.log.start_seq == 0
    pair.receiver.durable(pair.now_us, 4)
    pair.settle()
    assert pair.sender.log.start_seq == 3  # the train in which row 4 lies stays whole
    pair.receiver.durable(pair.now_us, 6)
    pair.settle()
    assert (pair.sender.log.start_seq, pair.sender.log.nbytes) == (6, 0)


def test_rows_are_kept_until_the_slowest_receiver_has_them():
    pair = Pair()
    pair.sender.expect("other")
    pair.up()
    pair.train("abc")
    pair.settle()
    pair.receiver.durable(0, 3)
    pair.settle()
    assert pair.sender.log.start_seq == 0
    pair.sender.forget(0, "other")
    assert pair.sender.log.start_seq == 3


def test_full_says_so_and_nothing_is_dropped():
    pair = Pair().up()
    while not pair.sender.full:
        pair.train("x" * 900)
        pair.settle()
    assert pair.sender.log.nbytes >= SMALL.retained_bytes_max
    assert pair.sender.pressed
    assert pair.sender.log.start_seq == 0
    pair.wait(SMALL.progress_us * 2)
    assert pair.receiver.pressed
    pair.receiver.durable(pair.now_us, pair.receiver.next_seq)
    pair.settle()
    assert not pair.sender.full


def test_without_receivers_the_end_is_kept_and_it_is_never_full():
    pair = Pair(expect=False)
    for _ in range(100):
        pair.train("x" * 100)
    assert not pair.sender.full
    assert SMALL.keep_bytes - 300 < pair.sender.log.nbytes <= SMALL.keep_bytes
    assert pair.sender.log.start_seq > 0


def test_the_receiver_hears_exactly_which_rows_are_lost():
    pair = Pair(expect=False)
    for _ in range(100):
        pair.train("x" * 100)
    start = pair.sender.log.start_seq
    pair.up()
    assert pair.got[0] == LostRows(from_seq=0, to_seq=start)
    assert pair.receiver.lost_rows == start
    assert len(pair.text) == 10_000 - start


# --- crashes ----------------------------------------------------------------------------------


def test_a_receiver_that_restarts_gets_what_its_checkpoint_lacks():
    pair = Pair().up()
    pair.train("abc")
    pair.train("def")
    pair.settle()
    pair.receiver.durable(0, 3)
    pair.settle()
    pair.sender.peer(0, "target", LinkEvent.PEER_RESTARTED)
    pair.got.clear()
    pair.receiver = pair.new_receiver(2, next_seq=3)
    pair.up()
    assert pair.text == "def"
    assert pair.receiver.lost_rows == 0


def test_a_sender_that_restarts_behind_its_receiver_repeats_nothing_to_it():
    pair = Pair().up()
    pair.train("abcdef")
    pair.sender.boundary(0, 50)
    pair.settle()
    fresh = Pair()
    fresh.receiver, fresh.target_box = pair.receiver, pair.target_box
    fresh.receiver.peer_event(0, LinkEvent.PEER_RESTARTED)
    fresh.settle()
    fresh.train("abc")
    fresh.sender.boundary(0, 40)  # below the promise the receiver has: it adds nothing
    fresh.settle()
    assert fresh.got == []
    fresh.train("defgh")
    fresh.sender.boundary(0, 60)
    fresh.settle()
    assert fresh.text == "gh"
    assert fresh.got[-1].time_us == 60
    assert fresh.receiver.state is ReceiverState.FLOWING


def test_a_sender_forgotten_by_its_owner_tells_who_still_believes_in_it():
    pair = Pair().up()
    pair.sender.forget(0, "target")
    pair.train("abc")
    pair.wait(SMALL.probe_us + 1)
    assert pair.text == "abc"
    assert pair.receiver.attachments == 2


def test_an_epoch_below_a_known_one_is_refused_and_the_receiver_goes_beyond_it():
    """The receiver's disk is gone and with it the count of its lives."""
    pair = Pair()
    pair.receiver = pair.new_receiver(9)
    pair.up()
    pair.receiver = pair.new_receiver(1)
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    pair.settle()
    assert pair.receiver.state is ReceiverState.FLOWING
    pair.train("abc")
    pair.settle()
    assert pair.text == "abc"


def test_silence_pauses_and_progress_reveals_what_was_lost_meanwhile():
    pair = Pair().up()
    pair.train("ab")
    pair.collect()
    pair.to_receiver.clear()  # lost in a cut that only the sender notices
    pair.sender.peer(0, "target", LinkEvent.PEER_DOWN)
    pair.train("cd")
    pair.settle()
    assert pair.text == ""
    assert pair.sender.receivers["target"].state is SenderState.PAUSED
    pair.sender.peer(0, "target", LinkEvent.PEER_UP)
    pair.settle()
    assert pair.text == "abcd"


# --- boundaries -------------------------------------------------------------------------------


def test_boundaries_stand_where_they_stood_and_never_outnumber_trains():
    pair = Pair()
    for time_us in range(1, 1000):
        pair.sender.boundary(0, time_us)
    pair.train("ab")
    for time_us in range(1000, 2000):
        pair.sender.boundary(0, time_us)
    assert pair.sender.log.end - pair.sender.log.base == 2  # the first was trimmed: no row is before it
    pair.up()
    # The first two lines are one: Attached carries what stands at the row wanted.
    assert [getattr(each, "time_us", "rows") for each in pair.got] == [999, "rows", 1999]


def test_a_boundary_that_goes_back_is_refused_on_either_side():
    pair = Pair().up()
    pair.sender.boundary(0, 5)
    with pytest.raises(LocalProtocolError) as error:
        pair.sender.boundary(0, 4)
    assert error.value.code == "E_BOUNDARY"
    pair.settle()
    lower = Boundary(stream="s", epoch=pair.receiver._epoch, frame=pair.receiver._frames, seq=0, time_us=4)
    with pytest.raises(RemoteProtocolError) as remote:
        pair.receiver.receive(0, lower)
    assert remote.value.code == "E_BOUNDARY"
    assert pair.receiver.boundary_us == 5


def test_a_stream_ends_and_says_so_once():
    pair = Pair().up()
    pair.sender.boundary(0, END_US)
    pair.sender.boundary(0, END_US)
    pair.settle()
    assert [each.time_us for each in pair.got] == [END_US]


# --- plain subscribers --------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "comes"), [(OLDEST, "abcdef"), (NOW, "ef"), (3, "def")])
def test_a_subscriber_says_from_where(start, comes):
    pair = Pair(plain=True, next_seq=start)
    pair.train("ab")
    pair.train("cd")
    pair.up()
    pair.train("ef")
    pair.settle()
    assert pair.text == comes
    assert pair.receiver.lost_rows == 0


def test_a_receiver_with_a_disk_must_name_its_row():
    pair = Pair()
    with pytest.raises(LocalProtocolError, match="plain"):
        pair.new_receiver(1, next_seq=NOW)
    ask = Attach(stream="s", epoch=1, next_seq=NOW, durable=0, granted=2000)
    with pytest.raises(RemoteProtocolError, match="names the row"):
        pair.sender.receive(0, "target", ask)


def test_a_subscriber_that_takes_nothing_is_cut_off_and_told():
    pair = Pair(plain=True)
    pair.up()
    pair.sender.train(0, b"abc", 3)
    pair.source_box.take()  # nothing arrives any more
    pair.sender.tick(SMALL.idle_us + 1)
    refusals = [m for m, _ in sends(pair.source_box) if isinstance(m, Refuse)]
    assert [refusal.code for refusal in refusals] == ["E_CUT_OFF"]
    assert pair.sender.receivers == {}
    assert pair.sender.wake_at_us() is None


def test_a_subscriber_that_is_gone_is_cut_off():
    pair = Pair(plain=True)
    pair.up()
    pair.sender.peer(0, "target", LinkEvent.PEER_DOWN)
    assert pair.sender.wake_at_us() == SMALL.idle_us
    pair.sender.tick(SMALL.idle_us)
    assert pair.sender.receivers == {}
