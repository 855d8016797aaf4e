"""Trains that wait for a receiver go as one; what it is brought is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.elements import Train
from medusa.wire import limits
from medusa.wire.codec import TrainCodec
from medusa.wire.link.automaton import LinkEvent, LinkSettings, ReceiverState
from medusa.wire.link.receiver import ReceivedPromise, ReceivedRows
from medusa.wire.link.sender import GATHERED_BYTES
from medusa.wire.messages.links import Boundary, Data
from tests.wire.pair import SMALL, Pair
from tests.wire.trains import same, trains

LARGE = LinkSettings(
    window_bytes=4 << 20, frame_bytes_max=1 << 20, retained_bytes_max=8 << 20, keep_bytes=8 << 20
)


def pair_of(settings=LARGE, *, over_boundaries=True):
    pair = Pair(settings)
    pair.sender.gathers_by(b"".join, over_boundaries=over_boundaries)
    return pair


def sent(pair):
    """What was sent since, in short; it comes."""
    pair.collect()
    found = []
    while pair.to_sender or pair.to_receiver:
        found += [
            bytes(payload).decode() if isinstance(message, Data) else message.time_us
            for message, payload in pair.to_receiver
            if isinstance(message, Data | Boundary)
        ]
        for message, payload in pair._take(pair.to_receiver):
            pair.bring(message, payload)
        pair.collect()
        for message, _ in pair._take(pair.to_sender):
            pair.sender.receive(pair.now_us, "target", message)
        pair.collect()
    return found


def up(pair):
    pair.receiver.peer_event(pair.now_us, LinkEvent.PEER_UP)
    return pair


def test_what_waits_goes_as_one():
    pair = pair_of()
    for text in ("ab", "c", "def"):
        pair.train(text)
    assert sent(up(pair)) == ["abcdef"]
    assert pair.text == "abcdef"
    assert pair.sender.receivers["target"].frames == 2
    pair.train("g")
    assert sent(pair) == ["g"]


def test_a_boundary_that_waits_says_nothing_beside_the_next_one():
    pair = pair_of()
    for number, text in enumerate(("ab", "c", "def"), 1):
        pair.train(text)
        pair.sender.boundary(0, number)
    assert sent(up(pair)) == ["abcdef", 3]


def test_the_last_boundary_comes_though_rows_stand_behind_it():
    """A reviewer found that it never came: windows behind it stayed open."""
    pair = pair_of()
    pair.train("ab")
    pair.sender.boundary(0, 6)
    pair.train("c")
    pair.sender.boundary(0, 7)
    pair.train("def")
    assert sent(up(pair)) == ["abc", 7, "def"]
    assert pair.receiver.boundary_us == 7


def test_where_rows_may_lie_below_a_boundary_it_is_passed_on():
    pair = pair_of(over_boundaries=False)
    pair.train("ab")
    pair.train("c")
    pair.sender.boundary(0, 1)
    pair.train("def")
    assert sent(up(pair)) == ["abc", 1, "def"]


@pytest.mark.parametrize("said", [{"late": True}, {"tentative": True}, {"note": b"n"}])
def test_a_train_of_which_more_is_said_goes_alone(said):
    pair = pair_of()
    pair.train("a")
    pair.train("b")
    pair.sender.train(0, b"c", 1, **said)
    pair.train("d")
    pair.train("e")
    assert sent(up(pair)) == ["ab", "c", "de"]


def test_a_boundary_with_a_note_is_passed_on():
    pair = pair_of()
    pair.train("a")
    pair.sender.boundary(0, 1, b"n")
    pair.train("b")
    assert sent(up(pair)) == ["a", 1, "b"]
    assert pair.receiver.note == b"n"


def test_rows_on_both_sides_of_numbers_that_no_row_has_stay_apart():
    pair = pair_of()
    pair.train("ab")
    up(pair)
    pair.settle()
    pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)
    pair.train("c")
    pair.sender.skip(0, 5)
    pair.train("d")
    assert {*sent(up(pair))} == {"c", "d"}
    assert (pair.text, pair.receiver.next_seq) == ("abcd", 9)


def test_one_frame_has_no_more_than_its_bound():
    piece = "x" * 1000
    pair = pair_of(LARGE)
    for _ in range(200):
        pair.train(piece)
    frames = sent(up(pair))
    assert "".join(frames) == piece * 200
    assert max(map(len, frames)) <= GATHERED_BYTES
    assert len(frames) == -(-200 // (GATHERED_BYTES // (1000 + limits.ENTRY_BYTES)))


def test_it_stays_within_the_credit():
    """The receiver refuses what is beyond what it has granted."""
    narrow = replace(LARGE, window_bytes=2000, frame_bytes_max=1000)
    pair = pair_of(narrow)
    pair.consume = False
    for _ in range(20):
        pair.train("x" * 100)
    frames = sent(up(pair))
    assert max(map(len, frames)) > 100
    assert sum(map(len, frames)) // 100 < 20
    assert pair.receiver.held_bytes <= narrow.window_bytes


def test_it_stays_within_a_part_of_what_is_kept() -> None:
    pair = pair_of(replace(LARGE, retained_bytes_max=32_000))
    for _ in range(20):
        pair.train("x" * 100)
    assert {len(frame) for frame in sent(up(pair))} == {400}


@pytest.mark.parametrize("lost", range(3))
def test_a_lost_frame_of_several_trains_comes_again(lost):
    pair = pair_of(LARGE)
    for _ in range(120):
        pair.train("x" * 1000)
    up(pair)
    pair.collect()
    for message, _ in pair._take(pair.to_sender):
        pair.sender.receive(0, "target", message)
    pair.collect()
    del pair.to_receiver[lost]
    pair.settle()
    pair.wait(LARGE.retry_us * 2)
    assert pair.text == "x" * 120_000


@given(
    st.lists(
        st.one_of(
            st.text("abcdefgh", min_size=1, max_size=40).map(lambda text: ("train", text)),
            st.text("ABCDEFGH", min_size=1, max_size=9).map(lambda text: ("late", text)),
            st.integers(1, 5).map(lambda more: ("boundary", more)),
            st.just(("down", 0)),
            st.just(("up", 0)),
        ),
        max_size=60,
    ),
    st.booleans(),
)
def test_rows_come_as_without_it_and_no_boundary_too_early(acts, over_boundaries):
    pair = pair_of(replace(SMALL, retained_bytes_max=32_000), over_boundaries=over_boundaries)
    text, time_us, promised = "", 0, {}
    for act, what in acts:
        if act in ("train", "late"):
            if not pair.sender.full:
                text += what
                pair.sender.train(pair.now_us, what.encode(), len(what), late=act == "late")
        elif act == "boundary":
            time_us += what
            promised[time_us] = len(text)
            pair.sender.boundary(pair.now_us, time_us)
        else:
            event = LinkEvent.PEER_UP if act == "up" else LinkEvent.PEER_DOWN
            pair.receiver.peer_event(pair.now_us, event)
            pair.sender.peer(pair.now_us, "target", event)
        pair.settle()
    if pair.receiver.state is ReceiverState.FLOWING:
        assert (pair.text, pair.receiver.boundary_us) == (text, time_us or pair.receiver.boundary_us)
    pair.receiver.peer_event(pair.now_us, LinkEvent.PEER_DOWN)
    pair.sender.peer(pair.now_us, "target", LinkEvent.PEER_DOWN)
    pair.sender.peer(pair.now_us, "target", LinkEvent.PEER_UP)
    pair.up()
    pair.wait(SMALL.retry_us * 4)
    assert pair.text == text
    assert pair.receiver.boundary_us == (time_us or pair.receiver.boundary_us)
    rows = 0
    for each in pair.got:
        if isinstance(each, ReceivedRows):
            rows = each.seq + each.message.rows - each.skip
        elif isinstance(each, ReceivedPromise):
            assert rows >= promised[each.time_us], (
                "rows that came before it in the stream come before it here"
            )


@given(trains(), st.lists(st.integers(1, 11), max_size=4), st.booleans())
def test_the_codec_gathers_what_it_has_encoded(drawn, cuts, clean):
    schema, timed, train = drawn
    train = Train(batch=train.batch, times=train.times, first_seq=train.first_seq)
    codec = TrainCodec(schema, timed=timed, clean=clean)
    ends = sorted({cut for cut in cuts if cut < len(train)} | {len(train)})
    parts = [train.part(begin, end - begin) for begin, end in zip([0, *ends], ends, strict=False)]
    pieces = [bytes(payload) for part in parts for payload, *_ in codec.encode(part)]
    unaligned = [memoryview(b"x" + piece)[1:] for piece in pieces]
    message = Data(stream="s", epoch=1, frame=1, seq=train.first_seq, rows=len(train))
    for payloads in (pieces, unaligned):
        same(codec.decode(message, codec.gathered(payloads)), train)
