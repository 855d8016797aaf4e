"""What a driver tells a node that is no message: it is taken, and what follows comes by the outbox."""

from __future__ import annotations

import pytest

from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.nodes.config.settings import Settings
from medusa.nodes.node import NodeMind
from medusa.nodes.reports import (
    LaneChanged,
    Listening,
    NotLetIn,
    RulesRead,
    SentToItself,
    Started,
    Stats,
    StopRequested,
    Surroundings,
)
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Install
from medusa.wire.messages.links import Hello
from medusa.wire.outbox import Introduce, Send, Stopped, Trust
from tests.nodes.keyed import SECURITY, Keyed, curve


def started():
    brain = NodeMind(Settings(name="n", listen="ipc:///n", data="d", peers={"m": "ipc:///m"}), incarnation=3)
    brain.report(0, Started())
    return brain


def taken(brain, kind):
    return [each for each in brain.outbox.take() if isinstance(each, kind)]


def test_a_lane_is_introduced_before_anything_is_sent_by_it():
    brain = started()
    brain.outbox.take()
    brain.report(1, LaneChanged("m", 2, up=True))
    first, *_ = brain.outbox.take()
    assert isinstance(first, Introduce)
    assert (first.peer, first.lane, first.hello.lane, first.hello.node) == ("m", 2, 2, "n")
    brain.report(2, LaneChanged("m", 2, up=False))
    assert taken(brain, Introduce) == []


def test_a_node_says_once_that_it_has_stopped():
    brain = started()
    assert taken(brain, Stopped) == [], "nobody asked for it"
    brain.report(1, StopRequested())
    assert taken(brain, Stopped) == [Stopped(fragments=0, rows_in=0)]
    brain.tick(2)
    assert taken(brain, Stopped) == []


def test_the_status_has_what_only_a_driver_sees():
    brain = started()
    brain.report(1, Surroundings(0, {"callers": 4}))
    brain.report(1, NotLetIn("m", "refuses our key"))
    status = brain.status(2)
    assert status["door"] == {"callers": 4}
    assert status["away"]["m"]["refusal"] == "refuses our key"


def test_peers_hear_where_the_node_listens():
    brain = NodeMind(Settings(name="n", listen="ipc:///n", data="d", peers={"m": "ipc:///m"}), incarnation=3)
    brain.report(0, Listening("tcp://n:7", ""))
    brain.report(0, Started())
    [hello] = [e.message for e in taken(brain, Send) if isinstance(e.message, Hello)]
    assert hello.address == "tcp://n:7"


def test_counts_of_a_fragment_that_is_not_here_wake_nobody():
    brain = started()
    before_us = brain.wake_at_us(0)
    brain.report(1, Stats("q/f", {"boxes": {}}))
    assert brain.wake_at_us(10 * before_us) == before_us


def test_rules_are_for_nodes_with_keys():
    with pytest.raises(LocalProtocolError, match="when it starts, or never"):
        started().report(1, RulesRead(SECURITY))


def test_a_node_refuses_its_own_broken_word_and_goes_on():
    brain = Keyed().brain
    with pytest.raises(RemoteProtocolError):
        brain.report(1, SentToItself(Install(request=1, query="q", fragment="q/f"), None))
    brain.tick(2)


def test_who_is_let_in_comes_with_the_keys_of_those_that_are_called():
    node = Keyed()
    [trust] = [each for each in node.effects if isinstance(each, Trust)]
    assert set(trust.server_keys) == {"near", "core"}
    assert trust.server_keys["near"] == (curve("near"),)


def test_a_connection_of_an_earlier_life_is_known_and_told_so_once():
    node = Keyed()
    node.hello("near", incarnation=5)
    node.brain.outbox.take()
    earlier = Hello(version=PROTOCOL_VERSION, node="near", incarnation=4)
    now = Hello(version=PROTOCOL_VERSION, node="near", incarnation=5)
    assert node.brain.earlier(1, now, key=curve("near")) == (False, None)
    assert node.brain.earlier(1, earlier, key=curve("near")) == (True, None), "the later life is there"
