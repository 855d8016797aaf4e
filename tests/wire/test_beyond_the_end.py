"""Receivers that want a row which the stream doesn't have yet: who may, and who is told."""

from __future__ import annotations

import pytest

from medusa.wire.link.automaton import LinkEvent, SenderState
from medusa.wire.messages.links import Attach, Attached, Data
from medusa.wire.outbox import ReportLine, Send
from tests.wire.pair import SMALL, Pair, sends


def ask(**changes):
    values = {"stream": "s", "epoch": 1, "next_seq": 9, "durable": 0, "granted": 2000}
    return Attach(**values | changes)


def test_a_reader_that_begins_beyond_the_end_is_refused_and_nothing_is_kept_for_it():
    pair = Pair()
    pair.train("abc")
    pair.sender.receive(0, "reader", ask(plain=True))
    [(refusal, _)] = sends(pair.sender._outbox)
    assert (refusal.code, refusal.stream, refusal.epoch) == ("E_SEQ", "s", 1)
    assert "the next row is 3" in refusal.text
    assert "from 3 on" in refusal.hint
    assert "reader" not in pair.sender.receivers
    pair.sender.receive(0, "reader", ask(plain=True, epoch=2, next_seq=3))
    assert pair.sender.receivers["reader"].state is SenderState.FLOWING


@pytest.mark.parametrize("how", [{"plain": True, "resumed": True}, {"plain": False}])
def test_a_receiver_ahead_of_a_sender_that_fell_back_is_served_and_reported(how):
    pair = Pair()
    pair.train("abc")
    pair.sender.receive(0, "reader", ask(**how))
    pair.sender.train(0, b"defghij", 7)
    out = pair.sender._outbox.take()
    [report] = [each for each in out if isinstance(each, ReportLine)]
    assert (report.level, report.what) == ("warning", "receiver ahead")
    assert (report.fields["wants"], report.fields["at"]) == (9, 3)
    frames = [each.message for each in out if isinstance(each, Send)]
    assert [type(each) for each in frames] == [Attached, Data]
    assert (frames[1].seq, frames[1].rows) == (3, 7)


def test_a_reader_says_that_it_was_attached_before():
    pair = Pair(plain=True)
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    [(first, _)] = sends(pair.target_box)
    assert not first.resumed
    pair.receiver.tick(SMALL.retry_us)
    [(second, _)] = sends(pair.target_box)
    assert not second.resumed
    pair.sender.receive(0, "target", second)
    pair.settle()
    pair.receiver.peer_event(0, LinkEvent.PEER_RESTARTED)
    [(third, _)] = sends(pair.target_box)
    assert third.resumed
