"""The transport on real sockets: what arrives, what a break does, what strangers get."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
import zmq

from medusa.errors import LinkError
from medusa.runtime.transport import sockets
from medusa.runtime.transport.first_use import Introduction
from medusa.runtime.transport.refusals import Refused
from medusa.runtime.transport.round_size import MESSAGES_MAX, MESSAGES_MIN, RoundSize
from medusa.runtime.transport.zeromq import PARTS_MAX, Arrival, LinkDown, LinkUp, Transport

DEADLINE_S = 60.0


def until(condition, *transports, deadline_s=DEADLINE_S):
    """Turn the transports until ``condition(events)``; the events of each."""
    events = {id(each): [] for each in transports}
    end = time.monotonic() + deadline_s
    while not condition(*(events[id(each)] for each in transports)):
        assert time.monotonic() < end, f"not in time: {events}"
        for each in transports:
            events[id(each)] += each.wait(5)
    return [events[id(each)] for each in transports]


def payloads(events):
    return [tuple(bytes(f) for f in e.frames) for e in events if isinstance(e, Arrival)]


def pair(open_transport, listen="tcp://127.0.0.1:*"):
    server = open_transport(listen=listen)
    client = open_transport(listen=None, peers={"server": server.endpoint})
    until(lambda s, c: LinkUp("server") in c, server, client)
    return server, client


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
def test_messages_go_both_ways_in_order(open_transport, tmp_path, kind):
    listen = "tcp://127.0.0.1:*" if kind == "tcp" else f"ipc://{tmp_path}/s"
    server, client = pair(open_transport, listen)
    sent = [(b"%d" % n, b"x" * n) for n in range(300)]
    for frames in sent:
        client.send("server", frames)
    got, _ = until(lambda s, c: len(payloads(s)) == 300, server, client)
    assert payloads(got) == sent
    link = got[0].link
    for frames in sent:
        server.send(link, frames)
    _, got = until(lambda s, c: len(payloads(c)) == 300, server, client)
    assert payloads(got) == sent
    assert {e.link for e in got} == {"server"}


def test_a_large_message_is_not_copied_wrong(open_transport):
    server, client = pair(open_transport)
    body = bytearray(range(256)) * 8192
    client.send("server", [b"head", body])
    got, _ = until(lambda s, c: payloads(s), server, client)
    assert payloads(got) == [(b"head", bytes(body))]


def test_a_server_that_dies_is_called_again(open_transport):
    server, client = pair(open_transport)
    endpoint = server.endpoint
    server.close()
    until(lambda c: LinkDown("server") in c, client)
    client.send("server", [b"into the void"])
    again = open_transport(listen=endpoint)
    until(lambda s, c: LinkUp("server") in c, again, client)
    client.send("server", [b"hello"])
    got, _ = until(lambda s, c: payloads(s), again, client)
    assert payloads(got) == [(b"hello",)], "nothing of the old connection comes through the new one"


def test_a_caller_that_is_gone_is_reported(open_transport):
    server, client = pair(open_transport)
    client.send("server", [b"hello"])
    got, _ = until(lambda s, c: payloads(s), server, client)
    link = got[0].link
    client.close()
    end = time.monotonic() + DEADLINE_S
    events = []
    while LinkDown(link) not in events:
        assert time.monotonic() < end
        server.send(link, [b"are you there"])
        events += server.wait(20)
    server.send(link, [b"nobody"])  # A link that is gone swallows what is sent.


def test_a_caller_that_was_cut_is_not_heard(open_transport):
    server, client = pair(open_transport)
    client.send("server", [b"one"])
    got, _ = until(lambda s, c: payloads(s), server, client)
    server.cut(got[0].link)
    other = open_transport(listen=None, peers={"server": server.endpoint})
    until(lambda s, o: LinkUp("server") in o, server, other)
    client.send("server", [b"two"])
    other.send("server", [b"three"])
    end = time.monotonic() + DEADLINE_S
    heard = []
    while server.refused == 0 or not heard:
        assert time.monotonic() < end
        heard += payloads(server.wait(5))
    assert heard == [(b"three",)]
    client.cut("server")  # The peer was told by other means; it calls anew and is heard again.
    until(lambda s, c: LinkUp("server") in c, server, client)
    client.send("server", [b"four"])
    got, _ = until(lambda s, c: payloads(s), server, client)
    assert payloads(got) == [(b"four",)]


def test_too_many_frames_are_refused_and_counted(open_transport):
    server, client = pair(open_transport)
    client.send("server", [b"x"] * (PARTS_MAX + 1))
    heard, got = until(lambda s, c: c.count(LinkUp("server")) == 1, server, client)
    client.send("server", [b"ok"])
    more, _ = until(lambda s, c: payloads(s), server, client)
    assert payloads(heard) == []
    assert payloads(more) == [(b"ok",)]
    assert server.refused == 1
    assert LinkDown("server") in got, "its connection ended"
    told = [each for each in heard + more if isinstance(each, Refused)]
    assert [(each.why, each.what, each.address) for each in told] == [
        ("too many parts", "connection ended", "127.0.0.1")
    ]
    assert server.door() == {"too many parts": 1}


def test_where_messages_take_long_few_are_taken_at_once_and_others_have_their_turn(
    open_transport, monkeypatch
):
    """A peer that asks without a rest for what takes long to answer."""
    server = open_transport(listen="tcp://127.0.0.1:*")
    asking, honest = (open_transport(listen=None, peers={"server": server.endpoint}) for _ in range(2))
    until(lambda s, a, h: LinkUp("server") in a and LinkUp("server") in h, server, asking, honest)
    handled = RoundSize.handled
    monkeypatch.setattr(RoundSize, "handled", lambda self, now_s: handled(self, now_s + 10.0))
    for _ in range(10 * MESSAGES_MAX):
        asking.send("server", [b"status"])
    rounds, end = [], time.monotonic() + DEADLINE_S
    while sum(rounds) < 4 * MESSAGES_MAX:
        assert time.monotonic() < end
        asking.wait(0)
        rounds.append(len(payloads(server.wait(5))))
    full = [each for each in rounds if each]
    assert max(full[1:]) <= MESSAGES_MIN, "the first one took too long"
    honest.send("server", [b"row"])
    heard = []
    while (b"row",) not in heard:
        assert time.monotonic() < end
        asking.wait(0)
        honest.wait(0)
        heard += payloads(server.wait(5))
    assert heard.count((b"status",)) < 10 * MESSAGES_MAX - sum(rounds), "it didn't wait for all of them"


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 200, b"\xff\0\0\0\0\0\0\0\1\x7f\3\1CURVE", b""]
)
def test_strangers_reach_nothing_and_harm_nothing(open_transport, garbage):
    server, client = pair(open_transport)
    port = int(server.endpoint.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as stranger:
        stranger.sendall(garbage)
        client.send("server", [b"ok"])
        got, _ = until(lambda s, c: payloads(s), server, client)
        assert payloads(got) == [(b"ok",)]


def test_a_taken_port_and_a_missing_folder_say_so(open_transport, tmp_path):
    server = open_transport(listen="tcp://127.0.0.1:*")
    with pytest.raises(
        LinkError, match=r"can't listen on tcp://127.0.0.1:\d+: Address already in use"
    ) as caught:
        Transport(listen=server.endpoint)
    assert "another process listens there" in caught.value.hint
    with pytest.raises(LinkError, match="No such file or directory"):
        Transport(listen=f"ipc://{tmp_path}/none/s")


@pytest.mark.parametrize("kind", ["node", "introduction"])
def test_an_address_that_becomes_free_is_taken(open_transport, monkeypatch, kind):
    """Who had it may be ending just now."""
    first = socket.create_server(("127.0.0.1", 0))
    address = f"tcp://127.0.0.1:{first.getsockname()[1]}"
    rests = []

    def rest(seconds):
        rests.append(seconds)
        first.close()

    monkeypatch.setattr(sockets.time, "sleep", rest)
    if kind == "node":
        assert open_transport(listen=address).endpoint == address
    else:
        with contextlib.closing(Introduction(address, "k" * 40)) as introduced:
            assert introduced.address == address
    assert rests


def test_a_reader_that_sleeps_fills_a_bounded_queue_then_is_cut(open_transport):
    server = open_transport(listen="tcp://127.0.0.1:*")
    context = zmq.Context()
    sleeper = context.socket(zmq.DEALER)
    sleeper.setsockopt(zmq.RCVHWM, 1)
    sleeper.setsockopt(zmq.RCVBUF, 4096)
    try:
        sleeper.connect(server.endpoint)
        sleeper.send(b"hello")
        (got,) = until(payloads, server)
        link = got[0].link
        body = bytes(4096)
        for _ in range(6000):
            server.send(link, [body])
        until(lambda s: LinkDown(link) in s, server)
    finally:
        sleeper.close(linger=0)
        context.term()


def test_wake_ends_a_wait(open_transport):
    server = open_transport(listen="tcp://127.0.0.1:*")
    server.wake()
    assert server.wait(60_000) == []


def test_events_have_a_reader_until_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that found none would block libzmq's thread for ever, and closing with it."""
    readers: list[bool] = []
    honest = zmq.Socket.disable_monitor

    def disable(dealer: zmq.Socket[bytes]) -> None:
        reader = dealer._monitor_socket
        assert reader is not None
        readers.append(reader.closed)
        honest(dealer)

    monkeypatch.setattr(zmq.Socket, "disable_monitor", disable)
    made = Transport(listen=None, peers={"a": "tcp://127.0.0.1:9", "b": "tcp://127.0.0.1:9"})
    made.cut("a")
    made.close()
    assert readers == [False, False]
