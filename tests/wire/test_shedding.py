"""A stream that sheds at its bound: what is missing is counted at both ends, exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.errors import LocalProtocolError
from medusa.wire import limits
from medusa.wire.link.automaton import LinkEvent, LinkSettings, ReceiverState, SenderState
from medusa.wire.link.output_log import OutputLog
from medusa.wire.link.receiver import LostRows, ReceivedPromise, ReceivedRows
from medusa.wire.messages.links import Attach, Refuse
from medusa.wire.outbox import Outbox, ReportLine
from medusa.wire.retention import Retention
from tests.wire.pair import SMALL, Pair

SHEDS = replace(SMALL, at_limit="shed")
COST = 100 + limits.ENTRY_BYTES


def stalled(trains, *, plain=False, settings=SHEDS):
    """A receiver that took its window and no more, and a sender that went on."""
    pair = Pair(settings, plain=plain)
    pair.consume = False
    pair.up()
    for number in range(trains):
        pair.train(chr(97 + number % 26) * 100)
        pair.settle()
    return pair


def go_on(pair):
    """The owner takes what it has, and all that comes."""
    pair.consume = True
    for each in list(pair.got):
        pair.receiver.consumed(pair.now_us, each.cost)
    pair.settle()
    pair.wait(10 * pair.settings.probe_us)


def test_a_stream_is_slowed_unless_it_is_said_to_shed():
    with pytest.raises(LocalProtocolError, match="slow or spill or shed"):
        LinkSettings(at_limit="drop")
    pair = stalled(100, settings=SMALL)
    assert pair.sender.full
    assert pair.sender.retention.shed_rows == 0
    assert pair.sender.log.start_seq == 0


def test_beyond_the_bound_the_oldest_go_and_the_source_is_not_slowed():
    pair = stalled(100)
    log = pair.sender.log
    assert not pair.sender.full_with(10 * SHEDS.retained_bytes_max)
    assert pair.sender.pressed
    assert SHEDS.retained_bytes_max - COST < log.nbytes <= SHEDS.retained_bytes_max
    assert log.next_seq == 10_000
    # Nothing was durable, so all that went is counted.
    assert pair.sender.retention.shed_rows == log.start_seq > 0


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"plain": True}, ("info", "rows not kept")),
        ({"plain": True, "resumed": True}, ("error", "rows lost")),
        ({}, ("error", "rows lost")),
    ],
)
def test_who_begins_at_rows_that_are_not_kept_has_lost_none(more, says):
    pair = stalled(100)
    pair.source_box.take()
    pair.sender.receive(0, "new", Attach(stream="s", epoch=1, next_seq=0, durable=0, granted=2000, **more))
    [report] = [each for each in pair.source_box.take() if isinstance(each, ReportLine)]
    assert (report.level, report.what) == says
    assert report.fields["rows"] == pair.sender.receivers["new"].lost_rows == pair.sender.log.start_seq


def test_both_ends_count_the_same_rows_as_lost():
    pair = stalled(100)
    window = SHEDS.window_bytes // COST * 100
    start = pair.sender.log.start_seq
    go_on(pair)
    assert [each for each in pair.got if isinstance(each, LostRows)] == [
        LostRows(from_seq=window, to_seq=start)
    ]
    assert pair.receiver.lost_rows == pair.sender.receivers["target"].lost_rows == start - window
    assert len(pair.text) + pair.receiver.lost_rows == 10_000
    assert pair.receiver.attachments == 2  # not one for each train that was shed


def test_rows_that_had_arrived_are_shed_and_not_lost():
    """All that is shed had been sent: only a crash of the receiver would miss it."""
    pair = Pair(SHEDS).up()
    for _ in range(60):
        pair.train("x" * 100)
        pair.settle()
    pair.wait(SHEDS.probe_us)
    assert pair.sender.retention.shed_rows > 0
    assert pair.receiver.lost_rows == pair.sender.receivers["target"].lost_rows == 0
    assert len(pair.text) == 6000


def test_a_receiver_that_comes_back_counts_what_was_shed_meanwhile():
    pair = Pair(SHEDS).up()
    pair.train("ab")
    pair.settle()
    pair.sender.peer(0, "target", LinkEvent.PEER_DOWN)
    for _ in range(100):
        pair.train("x" * 100)
    pair.source_box.take()
    pair.receiver = pair.new_receiver(2)  # nothing was durable
    pair.up()
    start = pair.sender.log.start_seq
    assert pair.receiver.lost_rows == pair.sender.receivers["target"].lost_rows == start
    assert pair.receiver.next_seq == 10_002


def test_a_lost_answer_is_not_a_second_loss():
    pair = stalled(100)
    pair.receiver.consumed(0, pair.receiver.held_bytes)
    pair.wait(SHEDS.ack_us)  # the sender is granted more, and tells that it was overtaken
    pair.receiver.peer_event(pair.now_us, LinkEvent.PEER_RESTARTED)  # attaches once more from the same row
    pair.settle()
    go_on_lost = pair.sender.receivers["target"].lost_rows
    pair.collect()
    assert go_on_lost == pair.receiver.lost_rows > 0
    # Attachments whose answers never came.
    before = pair.sender.receivers["target"].lost_rows
    behind = pair.new_receiver(9, next_seq=0)
    for event in (LinkEvent.PEER_UP, LinkEvent.PEER_RESTARTED, LinkEvent.PEER_RESTARTED):
        behind.peer_event(pair.now_us, event)
    pair.settle()
    assert pair.sender.receivers["target"].lost_rows == before


def test_the_promise_in_force_comes_with_the_first_row_that_is_left():
    pair = Pair(SHEDS)
    pair.consume = False
    pair.up()
    for number in range(100):
        pair.train("x" * 100)
        pair.sender.boundary(0, 1000 + number)
        pair.settle()
    log = pair.sender.log
    promised = log.promise(log.base)
    assert promised == 1000 + log.start_seq // 100 - 1
    go_on(pair)
    lost = [place for place, each in enumerate(pair.got) if isinstance(each, LostRows)]
    after = pair.got[lost[-1] + 1]
    assert isinstance(after, ReceivedPromise)
    assert after.time_us == promised
    assert pair.receiver.boundary_us == 1099


def test_one_that_keeps_up_loses_nothing_beside_one_that_does_not():
    pair = Pair(SHEDS)
    pair.sender.expect("other")
    pair.up()
    for number in range(100):
        pair.train(chr(97 + number % 26) * 100)
        pair.settle()
        pair.receiver.durable(0, pair.receiver.next_seq)
        pair.settle()
    assert len(pair.text) == 10_000
    assert pair.receiver.lost_rows == 0
    assert pair.sender.retention.shed_rows == pair.sender.log.start_seq > 0
    assert pair.sender.receivers["other"].lost_rows == 0  # it has not asked yet


def test_an_entry_larger_than_the_bound_is_kept():
    pair = Pair(replace(SHEDS, retained_bytes_max=300))
    pair.train("x" * 800)
    assert pair.sender.log.nbytes > 300
    pair.up()
    assert pair.text == "x" * 800
    assert pair.sender.retention.shed_rows == 0


def test_a_plain_subscriber_that_reads_slowly_misses_rows_and_one_that_does_not_is_cut_off():
    pair = stalled(100, plain=True)
    assert pair.sender.receivers
    go_on(pair)
    view = pair.sender.receivers["target"]
    assert pair.receiver.lost_rows == view.lost_rows > 0
    pair = stalled(100, plain=True)
    pair.wait(2 * SHEDS.idle_us)
    assert pair.sender.receivers == {}
    assert pair.receiver.state is ReceiverState.REFUSED


def test_shedding_is_told_now_and_then_not_each_time():
    pair = Pair(SHEDS)
    told = []
    for second in range(21):
        for _ in range(10):
            pair.sender.train(second * 1_000_000, b"x" * 100, 100)
        told += [e for e in pair.source_box.take() if isinstance(e, ReportLine) and "shed" in e.what]
    assert [each.level for each in told] == ["warning"] * 2
    assert told[-1].fields["rows"] <= pair.sender.retention.shed_rows


def test_the_word_may_overtake_the_answer_it_is_about():
    """``Attached`` is still under way when the receiver hears that what was to follow is gone."""
    pair = stalled(100)
    pair.receiver.consumed(0, pair.receiver.held_bytes)
    pair.receiver.peer_event(0, LinkEvent.PEER_RESTARTED)
    assert pair.receiver.state is ReceiverState.ATTACHING
    word = Refuse(code="E_DETACHED", text="shed", stream="s", epoch=pair.receiver._epoch)
    pair.bring(word)
    assert pair.receiver.state is ReceiverState.ATTACHING
    pair.consume = True
    pair.settle()
    pair.wait(SHEDS.probe_us * 3)
    assert len(pair.text) + pair.receiver.lost_rows == 10_000


# --- whatever happens ---------------------------------------------------------------------------------

ROW = "abcdefghijklmnopqrstuvwxyz0123456789_"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("train"), st.integers(1, 700)),
        st.tuples(st.just("boundary"), st.integers(1, 50)),
        st.tuples(st.sampled_from(["consume", "durable", "wait"]), st.integers(0, 100)),
        st.tuples(st.sampled_from(["lose", "down", "again", "crash", "settle"]), st.just(0)),
    ),
    max_size=60,
)


class Story:
    """A receiver with a disk over a bad network, and its deliveries, of which a crash takes some back."""

    def __init__(self, most):
        self.pair = Pair(replace(SHEDS, retained_bytes_max=most))
        self.pair.consume = False
        self.pair.up()
        self.life = 1
        self.crashed = False
        self.time_us = 0
        self.durable = []
        self.pending = 0

    def step(self, what, amount):
        pair = self.pair
        match what:
            case "train":
                at = pair.sender.log.next_seq
                pair.train("".join(ROW[seq % len(ROW)] for seq in range(at, at + amount)))
            case "boundary":
                self.time_us += amount
                pair.sender.boundary(pair.now_us, self.time_us)
            case "consume":
                self.consume(amount)
            case "durable":
                self.durable = list(pair.got)
                pair.receiver.durable(pair.now_us, pair.receiver.next_seq)
            case "wait":
                pair.wait(amount * 10_000)
            case "lose":
                pair.collect()
                del pair.to_receiver[-1:], pair.to_sender[-1:]
            case "down":
                for event in (LinkEvent.PEER_DOWN, LinkEvent.PEER_UP):
                    pair.sender.peer(pair.now_us, "target", event)
            case "again":
                pair.receiver.peer_event(pair.now_us, LinkEvent.PEER_RESTARTED)
            case "crash":
                self.crash()
            case "settle":
                pair.settle()
        log, most = pair.sender.log, pair.settings.retained_bytes_max
        assert log.nbytes <= max(most, 700 + limits.ENTRY_BYTES)
        assert log.nbytes == sum(entry.cost for entry in log.entries())

    def consume(self, percent):
        count = self.pending + (len(self.pair.got) - self.pending) * percent // 100
        for each in self.pair.got[self.pending : count]:
            self.pair.receiver.consumed(self.pair.now_us, each.cost)
        self.pending = count

    def crash(self):
        pair = self.pair
        self.crashed = True
        self.life += 1
        pair.target_box.take()
        pair.to_receiver.clear()
        pair.got = list(self.durable)
        self.pending = len(pair.got)
        boundary_us = max(
            (each.time_us for each in pair.got if isinstance(each, ReceivedPromise)), default=None
        )
        durable = pair.receiver.durable_seq
        pair.receiver = pair.new_receiver(self.life, next_seq=durable)
        if boundary_us is not None:
            pair.receiver.boundary_us = boundary_us
        pair.sender.peer(pair.now_us, "target", LinkEvent.PEER_RESTARTED)
        pair.receiver.peer_event(pair.now_us, LinkEvent.PEER_UP)

    def end(self):
        pair = self.pair
        for _ in range(200):
            self.consume(100)
            pair.settle()
            pair.wait(pair.settings.progress_us)
            log, receiver = pair.sender.log, pair.receiver
            same = (receiver.next_seq, receiver.boundary_us) == (log.next_seq, log.boundary_us)
            flows = pair.sender.receivers["target"].state is SenderState.FLOWING
            if same and flows and self.pending == len(pair.got):
                return
        raise AssertionError("it doesn't come to an end")

    def check(self):
        """Each row came once, in order, or lies in a gap that was told."""
        position, promised, lost = 0, None, 0
        for each in self.pair.got:
            match each:
                case LostRows():
                    assert each.from_seq == position
                    position, lost = each.to_seq, lost + each.to_seq - each.from_seq
                case ReceivedRows():
                    assert each.seq == position
                    text = bytes(each.payload).decode()[each.skip :]
                    assert text == "".join(ROW[(position + i) % len(ROW)] for i in range(len(text)))
                    position += len(text)
                case ReceivedPromise():
                    assert promised is None or each.time_us > promised
                    promised = each.time_us
        assert position == self.pair.sender.log.next_seq
        view = self.pair.sender.receivers["target"]
        if not self.crashed:
            assert lost == self.pair.receiver.lost_rows == view.lost_rows
        assert lost <= view.lost_rows <= self.pair.sender.retention.shed_rows
        assert promised == (self.time_us or None)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([900, 2500, 6000]))
def test_what_came_and_what_was_told_lost_is_what_was_sent(steps, most):
    story = Story(most)
    for what, amount in steps:
        story.step(what, amount)
    story.end()
    story.check()


def test_of_a_train_that_is_shed_only_the_rows_count_that_somebody_may_miss():
    outbox, log = Outbox(), OutputLog()
    for _ in range(3):
        log.append_train(b"x" * 100, 10)
    retention = Retention("s", replace(SHEDS, retained_bytes_max=COST), outbox)
    retention.shed(0, log, durable=15)
    assert log.start_seq == 20
    assert retention.shed_rows == 5
