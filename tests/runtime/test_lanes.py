"""Connections for streams on real sockets: shares of a full one, what goes past it, what a break costs."""

from __future__ import annotations

import time
from collections import Counter

import pytest
import zmq

from medusa.runtime.keys.key_files import CurveKey
from medusa.runtime.transport.connection import Connection
from medusa.runtime.transport.link_events import Arrival, LinkDown, LinkUp
from medusa.runtime.transport.send_queue import WINDOW_BYTES
from medusa.runtime.transport.zeromq import BACKLOG_MAX, Transport
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.link.automaton import LinkEvent, LinkSettings
from medusa.wire.link.lanes import lane_of
from medusa.wire.link.receiver import ReceivedRows, Receiver
from medusa.wire.link.sender import Sender
from medusa.wire.messages.links import Heartbeat, Progress
from medusa.wire.outbox import Outbox, Send
from tests.runtime.test_zeromq import DEADLINE_S, payloads, until

HELLO = [b"hello, streams come here"]
MIB = 1 << 20
FRAME = bytes(64 << 10)
CREDIT = 8 * MIB
WEIGHTS = {"a": 1, "b": 2, "c": 4}


def introduced(server, client, lanes=1):
    """Bring up all connections of ``client``; what it heard."""
    wanted = {LinkUp("server", lane) for lane in range(lanes + 1)}
    _, heard = until(lambda s, c: wanted <= set(c), server, client)
    for lane in range(1, lanes + 1):
        client.introduce("server", lane, HELLO)
    until(lambda s, c: payloads(s).count(tuple(HELLO)) == lanes, server, client)
    return heard


def pair(open_transport, lanes=1, key=None, **kwargs):
    own = CurveKey.new() if key else None
    server = open_transport(listen="tcp://127.0.0.1:*", key=own)
    keys = {}
    if own is not None:
        mine = CurveKey.new()
        server.trust([mine.public], {})
        keys = {"key": mine, "server_keys": {"server": (own.public,)}}
    client = open_transport(listen=None, peers={"server": server.endpoint}, lanes=lanes, **keys, **kwargs)
    introduced(server, client, lanes)
    return server, client


class Full:
    """Streams of which each always has as much under way as its credit lets it."""

    def __init__(self, sender, receiver, link):
        self.sender, self.receiver, self.link = sender, receiver, link
        self.under_way, self.got = Counter(), Counter()

    def run(self, streams, volume):
        """Until so many bytes have come; the share of each stream in them."""
        self.got.clear()
        end = time.monotonic() + DEADLINE_S
        while self.got.total() < volume:
            assert time.monotonic() < end, (self.got, self.under_way)
            for stream in streams:
                while self.under_way[stream] + len(FRAME) <= CREDIT:
                    frames = [stream.encode(), FRAME]
                    self.sender.send(self.link, frames, stream=stream, weight=WEIGHTS[stream], frame=1)
                    self.under_way[stream] += len(FRAME)
            self.sender.wait(0)
            for event in self.receiver.wait(1):
                if isinstance(event, Arrival) and len(event.frames) == 2:
                    stream = bytes(event.frames[0]).decode()
                    self.under_way[stream] -= len(event.frames[1])
                    self.got[stream] += len(event.frames[1])
        return {stream: self.got[stream] / self.got.total() for stream in WEIGHTS}


def caller_of(server, client):
    client.send("server", [b"here I am"])
    got, _ = until(lambda s, c: (b"here I am",) in payloads(s), server, client)
    return next(e.link for e in got if isinstance(e, Arrival) and bytes(e.frames[0]) == b"here I am")


@pytest.mark.parametrize("way", ["plain", "curve", "to a caller"])
def test_a_full_link_is_shared_by_weight_and_an_idle_share_goes_to_the_others(open_transport, way):
    server, client = pair(open_transport, key=way == "curve")
    if way == "to a caller":
        full = Full(server, client, caller_of(server, client))
    else:
        full = Full(client, server, "server")
    full.run("abc", 24 * MIB)  # What was sent while nothing waited goes first.
    share = full.run("abc", 56 * MIB)
    assert share == pytest.approx({"a": 1 / 7, "b": 2 / 7, "c": 4 / 7}, rel=0.05)
    full.run("ab", 24 * MIB)
    share = full.run("ab", 30 * MIB)
    assert share == pytest.approx({"a": 1 / 3, "b": 2 / 3, "c": 0}, rel=0.05)


@pytest.fixture
def reader():
    """A socket that takes a message only when told."""
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    for option in (zmq.RCVHWM, zmq.SNDHWM):
        socket.setsockopt(option, 4)
    socket.setsockopt(zmq.RCVBUF, 64 << 10)
    socket.bind("tcp://127.0.0.1:*")
    yield socket
    socket.close(linger=0)
    context.term()


def next_of(reader, client):
    """One message that the reader takes, while the client goes on."""
    end = time.monotonic() + DEADLINE_S
    while not reader.poll(0):
        assert time.monotonic() < end
        client.wait(1)
    return reader.recv_multipart(copy=False)[1:]


def called(open_transport, reader, lanes):
    """A client of the reader, its lanes introduced."""
    address = reader.getsockopt_string(zmq.LAST_ENDPOINT)
    client = open_transport(listen=None, peers={"server": address}, lanes=lanes)
    wanted = {LinkUp("server", lane) for lane in range(lanes + 1)}
    until(lambda c: wanted <= set(c), client)
    for lane in range(1, lanes + 1):
        client.introduce("server", lane, HELLO)
    for _ in range(lanes):
        assert [part.bytes for part in next_of(reader, client)] == HELLO
    return client


FRAMES = 800


def fill(client, stream="a"):
    for number in range(FRAMES):
        client.send("server", [b"%d" % number, FRAME], stream=stream, frame=number + 1)
    client.wait(0)


def test_a_full_connection_for_streams_holds_up_no_heartbeat(open_transport, reader):
    client = called(open_transport, reader, lanes=1)
    fill(client)
    client.send("server", [b"heartbeat"])
    came = 0
    while (parts := next_of(reader, client))[0].bytes != b"heartbeat":
        came += 1
        assert len(parts) == 2
    assert came < FRAMES / 4, "what waits on the other connection came first"
    for number in range(came, FRAMES):
        assert next_of(reader, client)[0].bytes == b"%d" % number


def test_where_there_is_one_connection_what_is_urgent_goes_before_what_waits(open_transport, reader):
    client = called(open_transport, reader, lanes=0)
    large = bytes(8 * len(FRAME))
    for number in range(100):
        client.send("server", [b"row", large], stream="a", frame=number + 1)
    client.send("server", [b"heartbeat"])
    came = 0
    while next_of(reader, client)[0].bytes != b"heartbeat":
        came += 1
    # So much was with ZeroMQ and under way; its queue of 64 messages would hold far more.
    assert came * len(large) < WINDOW_BYTES + 6 * MIB


def test_what_waits_of_an_attachment_that_a_new_one_replaces_is_not_sent(open_transport, reader):
    client = called(open_transport, reader, lanes=1)
    fill(client)
    client.send("server", [b"other"], stream="b", frame=1)
    client.send("server", [b"attached"], stream="a", frame=0)
    came = Counter()
    while not {b"attached", b"other"} <= set(came):
        parts = next_of(reader, client)
        came[parts[0].bytes if len(parts) == 1 else "old"] += 1
    assert came["old"] < FRAMES / 4


def test_a_lane_that_breaks_takes_along_what_is_on_it_and_nothing_else(open_transport, reader):
    client = called(open_transport, reader, lanes=2)
    names = {lane_of(f"s{n}", 2): f"s{n}" for n in range(20)}
    fill(client, names[1])
    connection = Connection.that_brought(next_of(reader, client)[-1])
    assert connection.cut()
    client.send("server", [b"other"], stream=names[2], frame=1)
    heard = []
    end = time.monotonic() + DEADLINE_S
    old = other = 0
    while LinkUp("server", 1) not in heard:
        assert time.monotonic() < end
        heard += client.wait(1)
        while reader.poll(0):
            parts = reader.recv_multipart()[1:]
            other += parts == [b"other"]
            old += len(parts) == 2
    assert [each for each in heard if not isinstance(each, Arrival)] == [
        LinkDown("server", 1),
        LinkUp("server", 1),
    ]
    assert old < FRAMES / 4
    # What comes now waits until the connection is introduced; then it follows the introduction.
    client.send("server", [b"new"], stream=names[1], frame=1)
    client.send("server", [b"control"])
    while (parts := [part.bytes for part in next_of(reader, client)]) != [b"control"]:
        other += parts == [b"other"]
        old += len(parts) == 2
    client.introduce("server", 1, HELLO)
    rest = []
    while [b"new"] not in rest:
        rest.append([part.bytes for part in next_of(reader, client)])
    assert [parts for parts in rest if parts != [b"other"] and len(parts) == 1] == [HELLO, [b"new"]]
    assert other + rest.count([b"other"]) == 1
    assert old < FRAMES / 4


def test_lanes_end_with_the_link(open_transport):
    server, client = pair(open_transport, lanes=2)
    client.cut("server")
    client.send("server", [b"x"], stream="a", frame=1)
    _, heard = until(lambda s, c: LinkUp("server", 2) in c and LinkUp("server", 1) in c, server, client)
    ups = [each for each in heard if isinstance(each, LinkUp)]
    assert ups[0] == LinkUp("server")
    assert len(ups) == 3


def test_too_many_streams_that_wait_end_the_link(open_transport, reader):
    client = called(open_transport, reader, lanes=1)
    fill(client)
    for number in range(2 * BACKLOG_MAX):
        client.send("server", [b"x"], stream=f"s{number}", frame=1)
    until(lambda c: LinkDown("server") in c, client)


def test_a_lane_is_the_same_in_every_process():
    assert [lane_of(name, 4) for name in ("netmon.flows", "q.out", "a", "")] == [4, 1, 4, 1]
    assert {lane_of(f"q.{n}", 3) for n in range(50)} == {1, 2, 3}
    assert lane_of("anything", 1) == 1


# --- the ends of streams over it ------------------------------------------------------------------

NEVER_US = 3_600_000_000
QUIET = LinkSettings(progress_us=NEVER_US, probe_us=NEVER_US, retry_us=NEVER_US, idle_us=NEVER_US)
"""Nothing is said again because time has passed."""


class Ends:
    """Senders at one transport, receivers at another; what each mind wants done is done."""

    def __init__(self, server, client, streams):
        self.server, self.client = server, client
        self.there, self.here = Outbox(), Outbox()
        self.link = caller_of(server, client)
        self.senders = {s: Sender(s, (), timed=False, outbox=self.here, settings=QUIET) for s in streams}
        self.receivers = {
            s: Receiver(s, "client", incarnation=1, outbox=self.there, settings=QUIET) for s in streams
        }
        self.rows = Counter()
        self.stalled = set()
        for sender, receiver in zip(self.senders.values(), self.receivers.values(), strict=True):
            sender.expect("server")
            receiver.peer_event(0, LinkEvent.PEER_UP)

    def turn(self):
        for effect in self.there.take():
            if isinstance(effect, Send):
                self.server.send(self.link, encode_frame(effect.message, effect.payload))
        for event in self.client.wait(1):
            match event:
                case Arrival():
                    message, _ = decode_frame(event.frames)
                    self.senders[message.stream].receive(0, "server", message)
                case LinkDown(lane=1) | LinkUp(lane=1):
                    if isinstance(event, LinkUp):
                        self.client.introduce("server", 1, encode_frame(Heartbeat(incarnation=1)))
                    for sender in self.senders.values():
                        sender.peer(0, "server", LinkEvent.PEER_DOWN)
                        if isinstance(event, LinkUp):
                            sender.peer(0, "server", LinkEvent.PEER_UP)
        for effect in self.here.take():
            if isinstance(effect, Send):
                message = effect.message
                frame = None if isinstance(message, Progress) else getattr(message, "frame", 0)
                frames = encode_frame(message, effect.payload)
                self.client.send("server", frames, stream=message.stream, frame=frame)
        for event in self.server.wait(1):
            if isinstance(event, Arrival):
                message, payload = decode_frame(event.frames)
                if not isinstance(message, Heartbeat):
                    self._take(message, payload)

    def _take(self, message, payload):
        receiver = self.receivers[message.stream]
        for delivery in receiver.receive(0, message, payload):
            if isinstance(delivery, ReceivedRows):
                assert delivery.seq == self.rows[message.stream]
                self.rows[message.stream] += 1
            if message.stream not in self.stalled:
                receiver.consumed(0, delivery.cost)
                receiver.durable(0, receiver.next_seq)

    def until(self, condition):
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end, self.rows
            self.turn()


def test_a_slow_consumer_of_one_stream_stalls_no_other(open_transport):
    ends = Ends(*pair(open_transport), ("slow", "fast"))
    ends.stalled.add("slow")
    for _ in range(400):
        for sender in ends.senders.values():
            sender.train(0, FRAME, 1)
    ends.until(lambda: ends.rows["fast"] == 400)
    window = QUIET.window_bytes // len(FRAME)
    assert window - 2 <= ends.rows["slow"] <= window
    ends.stalled.clear()
    slow = ends.receivers["slow"]
    slow.consumed(0, slow.held_bytes)
    slow.durable(0, slow.next_seq)
    ends.until(lambda: ends.rows["slow"] == 400)


def test_streams_of_a_connection_that_broke_go_on_without_waiting_for_time_to_pass(
    open_transport, monkeypatch
):
    brought = Counter()
    caller = Transport._caller

    def spy(transport, route, key, frame):
        brought[Connection.that_brought(frame)] += 1
        return caller(transport, route, key, frame)

    monkeypatch.setattr(Transport, "_caller", spy)
    ends = Ends(*pair(open_transport), ("s",))
    for _ in range(300):
        ends.senders["s"].train(0, FRAME, 1)
    ends.until(lambda: ends.rows["s"] >= 20)
    assert max(brought, key=lambda each: brought[each]).cut()
    ends.until(lambda: ends.rows["s"] == 300)
    assert ends.receivers["s"].attachments >= 2
