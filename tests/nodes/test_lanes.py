"""Connections for streams in a brain with keys: who may say how the streams of a node come."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from medusa.errors import RemoteProtocolError
from medusa.nodes.config.settings import parse
from medusa.nodes.lanes import Lanes
from medusa.wire import limits
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.lanes import lane_of
from medusa.wire.messages.links import Attached, Data, Hello
from medusa.wire.messages.tentative import TentativeBoundary
from tests.nodes.keyed import Keyed, curve

CONFIG = 'name = "a"\nlisten = "ipc:///tmp/a"\ndata = "d"\n[peers]\nb = "ipc:///tmp/b"\n'


def test_nobody_says_for_another_how_its_streams_come():
    brain = Keyed().brain
    hello = Hello(version=limits.PROTOCOL_VERSION, node="core", incarnation=1, lane=1, striped=4)
    for key in (curve("reader"), curve("near"), ""):
        with pytest.raises(RemoteProtocolError):
            brain.admit(hello, key=key)
        assert brain.lanes._striped == {}
    brain.admit(hello, key=curve("core"))
    assert brain.lanes._striped == {"core": 4}
    brain.admit(Hello(version=limits.PROTOCOL_VERSION, node="core", incarnation=2, lane=1), key=curve("core"))
    assert brain.lanes._striped == {}


class Fragment:
    """Its outputs keep what happened to the peer, its inputs what came."""

    def __init__(self, *streams):
        self.events, self.came = {stream: [] for stream in streams}, []
        self.outputs = {
            stream: SimpleNamespace(stream=stream, sender=SimpleNamespace(peer=self._peer(stream)))
            for stream in streams
        }

    def _peer(self, stream):
        return lambda now_us, peer, event: self.events[stream].append(event)

    def input_of(self, stream, peer):
        return "input"

    def receive(self, now_us, input, message, payload):
        self.came.append(getattr(message, "frame", 0))


def lanes(fragment, *, connections=2, striped=False):
    kind = "striped" if striped else "pinned"
    config = parse(CONFIG + f'[links]\nconnections = {connections}\nspread = "{kind}"\n')
    me = Hello(version=limits.PROTOCOL_VERSION, node="a", incarnation=1)
    return Lanes(me, config, {"f": fragment})


DOWN, UP = LinkEvent.PEER_DOWN, LinkEvent.PEER_UP


@pytest.mark.parametrize("striped", [False, True])
def test_streams_rest_while_their_connection_is_away_and_then_ask_what_came(striped):
    here, there = (next(s for s in "abcdefgh" if lane_of(s, 2) == lane) for lane in (1, 2))
    fragment = Fragment(here, there)
    made = lanes(fragment, striped=striped)
    made.changed(0, "b", 1, flowing=False)
    made.changed(0, "b", 1, flowing=True)
    assert fragment.events == {here: [DOWN, DOWN, UP], there: [DOWN, DOWN, UP] if striped else []}


def test_a_peer_that_came_back_with_other_connections_is_put_in_order_anew():
    fragment = Fragment()
    made = lanes(fragment)
    hello = Hello(version=limits.PROTOCOL_VERSION, node="b", incarnation=1, lane=1, striped=2)
    attached = Attached(stream="s", epoch=1, next_seq=0, boundary_us=0, schema=(), timed=False)
    made.admit(hello)
    made.receive(0, "b", 1, attached, None)
    with pytest.raises(RemoteProtocolError, match="connection 4 of 2"):
        made.receive(0, "b", 4, Data(stream="s", epoch=1, frame=1, seq=0, rows=1), b"x")
    made.admit(Hello(version=limits.PROTOCOL_VERSION, node="b", incarnation=2, lane=1, striped=4))
    made.receive(0, "b", 4, Data(stream="s", epoch=1, frame=1, seq=0, rows=1), b"x")
    made.receive(0, "b", 1, attached, None)
    assert fragment.came == [0, 0, 1]


def test_the_tentative_lane_waits_for_no_frame_of_the_stream():
    """It goes by one connection, and has numbers of its own: held with the others it would come too late."""
    fragment = Fragment()
    made = lanes(fragment)
    made.admit(Hello(version=limits.PROTOCOL_VERSION, node="b", incarnation=1, lane=1, striped=2))
    made.receive(0, "b", 2, Data(stream="s", epoch=1, frame=1, seq=0, rows=1), b"x")
    assert fragment.came == [], "its first frame hasn't come"
    guess = TentativeBoundary(stream="s", epoch=1, frame=7, fork=1, seq=0, time_us=0)
    made.receive_tentative(0, "b", guess, None)
    made.receive(
        0, "b", 1, Attached(stream="s", epoch=1, next_seq=0, boundary_us=0, schema=(), timed=False), None
    )
    assert fragment.came == [7, 0, 1]
