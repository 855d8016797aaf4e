"""The version of a stream is said with each attachment, and whoever was told another one attaches anew."""

from __future__ import annotations

import pytest

from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.links import Refuse
from tests.wire.pair import Pair


def raised(pair, version=2):
    pair.sender.stream_version = version
    pair.sender.settle(pair.now_us)


@pytest.mark.parametrize("plain", [False, True])
def test_who_reads_hears_of_a_new_version_and_no_row_is_lost_or_comes_twice(plain):
    pair = Pair(plain=plain)
    assert pair.receiver.stream_version == 0
    pair.up()
    pair.train("abc")
    pair.settle()
    assert pair.receiver.stream_version == 1
    pair.train("def")  # Under way, while the version changes.
    raised(pair)
    pair.train("gh")
    pair.settle()
    pair.wait(10 * pair.settings.probe_us)
    assert pair.receiver.stream_version == 2
    assert (pair.text, pair.receiver.lost_rows) == ("abcdefgh", 0)
    assert pair.receiver.attachments == 2, "once for each version"


def test_a_word_that_is_lost_holds_the_new_version_up_only_for_a_while():
    pair = Pair().up()
    pair.train("abc")
    pair.settle()
    raised(pair)
    pair.collect()
    assert [message.code for message, _ in pair.to_receiver if isinstance(message, Refuse)] == ["E_DETACHED"]
    pair.to_receiver.clear()
    pair.train("def")
    pair.wait(20 * pair.settings.probe_us)
    assert (pair.receiver.stream_version, pair.text) == (2, "abcdef")


def test_who_was_away_or_is_told_nothing_just_now_hears_it_later():
    pair = Pair().up()
    pair.sender.peer(0, "target", LinkEvent.PEER_DOWN)
    raised(pair)
    assert pair.receiver.stream_version == 1
    pair.sender.peer(0, "target", LinkEvent.PEER_UP)
    pair.settle()
    assert pair.receiver.stream_version == 2
    pair.sender.muted = True
    raised(pair, 3)
    pair.settle()
    assert pair.receiver.stream_version == 2
    pair.sender.muted = False
    pair.sender.settle(0)
    pair.settle()
    assert pair.receiver.stream_version == 3
