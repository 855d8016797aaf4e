"""Who was called hears that a connection broke: of which link, when, and what doesn't count as its end."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from medusa.runtime.keys.key_files import CurveKey
from medusa.runtime.transport.caller_ends import CLOSING_S, CallerEnds
from medusa.runtime.transport.callers import LAST_WORDS_S, Callers
from medusa.runtime.transport.connection import Connection
from medusa.runtime.transport.link_events import Arrival, LinkDown, LinkUp
from medusa.runtime.transport.zeromq import Transport
from tests.runtime import raw_peer
from tests.runtime.test_zeromq import payloads, until


class Ends:
    """What is told of the ends of connections, with a clock and wakes that are counted."""

    def __init__(self) -> None:
        self.now_s, self.wakes = 100.0, 0
        self.ends = CallerEnds(self._wake, lambda: self.now_s)

    def _wake(self) -> None:
        self.wakes += 1


class Open:
    """A connection that stands, and can be closed or lose its descriptor to another one."""

    def __init__(self) -> None:
        self.here, self._there = socket.socketpair()
        found = Connection.of(self.here.fileno())
        assert found is not None
        self.connection = found

    def take(self, number: int) -> Connection:
        """Close what has this descriptor and have it instead."""
        os.dup2(self.here.fileno(), number)
        found = Connection.of(number)
        assert found is not None
        return found

    def close(self) -> None:
        self.here.close()
        self._there.close()


@pytest.fixture
def one() -> Iterator[Open]:
    made = Open()
    yield made
    made.close()


@pytest.fixture
def other() -> Iterator[Open]:
    made = Open()
    yield made
    made.close()


def test_an_end_counts_once_its_descriptor_is_closed_and_only_once(one: Open) -> None:
    at = Ends()
    at.ends.accepted(one.connection)
    assert (at.ends.closed(), at.ends.waits, at.wakes) == ([], False, 0)
    at.ends.disconnected(one.connection.number)
    assert at.wakes == 1
    assert at.ends.closed() == [], "libzmq may still pass on what came by it"
    assert at.ends.waits
    one.close()
    assert at.ends.closed() == [one.connection]
    assert (at.ends.closed(), at.ends.waits) == ([], False)


def test_an_end_counts_though_another_connection_has_the_descriptor_by_now(one: Open, other: Open) -> None:
    at = Ends()
    at.ends.accepted(one.connection)
    at.ends.disconnected(one.connection.number)
    newer = other.take(one.connection.number)
    at.ends.accepted(newer)
    assert at.ends.closed() == [one.connection]
    at.ends.disconnected(newer.number)
    assert at.ends.closed() == []
    one.close()
    assert at.ends.closed() == [newer]


def test_an_end_told_of_a_connection_that_the_door_never_saw_harms_not_the_next(one: Open) -> None:
    """The first was accepted and gone before the door asked whose the descriptor was."""
    at = Ends()
    at.ends.accepted(one.connection)  # Told of the first; what is found is the second.
    at.ends.disconnected(one.connection.number)
    at.ends.accepted(one.connection)
    assert at.ends.closed() == []
    at.now_s += 2 * CLOSING_S
    assert at.ends.closed() == []
    assert not at.ends.waits, "it stands, and nobody asks any more"
    at.ends.disconnected(one.connection.number)
    one.close()
    assert at.ends.closed() == [one.connection]


def test_an_end_that_escaped_is_told_with_the_next_of_its_descriptor(one: Open, other: Open) -> None:
    at = Ends()
    at.ends.accepted(one.connection)
    at.ends.accepted(other.take(one.connection.number))
    assert at.wakes == 1
    assert at.ends.closed() == [one.connection]


def test_an_end_of_what_was_never_accepted_wakes_nobody() -> None:
    at = Ends()
    at.ends.disconnected(7)
    assert (at.wakes, at.ends.closed(), at.ends.waits) == (0, [], False)


def test_a_link_is_over_when_all_that_came_is_taken_or_was_looked_for_long_enough(one: Open) -> None:
    at = Ends()
    callers = Callers(at.ends)
    link, another = callers.begin(b"r1", one.connection), callers.begin(b"r2", None)
    at.ends.accepted(one.connection)
    assert not callers.some_end(10.0)
    assert callers.over(10.0, drained=True) == []
    at.ends.disconnected(one.connection.number)
    assert callers.some_end(10.0), "it closes in a moment"
    assert callers.over(10.0, drained=True) == []
    one.close()
    assert callers.some_end(11.0)
    assert callers.over(11.0, drained=False) == []
    assert callers.some_end(11.01), "and so until it is over"
    assert callers.over(11.01, drained=True) == [link]
    assert callers.over(11.0 + 2 * LAST_WORDS_S, drained=False) == [link]
    callers.forget(link)
    assert callers.over(12.0, drained=True) == []
    assert (link in callers, another in callers) == (False, True)
    assert callers.at(b"r1") is None


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "curve"])
def test_each_connection_of_a_caller_that_ends_is_told_unasked(open_transport, tmp_path, kind, keyed) -> None:
    listen = "tcp://127.0.0.1:*" if kind == "tcp" else f"ipc://{tmp_path}/s"
    ours, theirs = CurveKey.new(), CurveKey.new()
    server = open_transport(listen=listen, key=ours if keyed else None, trusted=[theirs.public])
    made = {"listen": None, "peers": {"server": server.endpoint}, "lanes": 2}
    if keyed:
        made |= {"key": theirs, "server_keys": {"server": [ours.public]}}
    client, stays = open_transport(**made), open_transport(**made)
    links = [introduced(server, each) for each in (client, stays)]
    client.close()
    gone = until(lambda s: {e.link for e in s if isinstance(e, LinkDown)} >= links[0], server)[0]
    assert {e.link for e in gone if isinstance(e, LinkDown)} == links[0], "nobody else"
    stays.send("server", [b"still here"])
    until(lambda s, c: payloads(s) == [(b"still here",)], server, stays)


def introduced(server: Transport, client: Transport) -> set[str]:
    """The links of a client with two lanes, once each has brought something."""
    until(lambda s, c: {LinkUp("server", lane) for lane in range(3)} <= set(c), server, client)
    client.send("server", [b"hello"])
    for lane in (1, 2):
        client.introduce("server", lane, [b"lane"])
    [came, _] = until(lambda s, c: len(payloads(s)) == 3, server, client)
    return {e.link for e in came if isinstance(e, Arrival)}


def test_the_last_words_of_a_caller_come_before_its_end(open_transport) -> None:
    server = open_transport(listen="tcp://127.0.0.1:*")
    sent = [b"%d" % n for n in range(500)]
    with raw_peer.connected(server.endpoint) as peer:
        peer.sendall(b"".join(raw_peer.part(each, more=False) for each in sent[:1]))
        until(lambda s: payloads(s), server)
        peer.sendall(b"".join(raw_peer.part(each, more=False) for each in sent[1:]))
    [events] = until(lambda s: any(isinstance(e, LinkDown) for e in s), server)
    assert [each for (each,) in payloads(events)] == sent[1:]
    assert isinstance(events[-1], LinkDown)


def test_the_end_of_a_link_that_was_cut_is_told_to_nobody(open_transport) -> None:
    server = open_transport(listen="tcp://127.0.0.1:*")
    peers = [raw_peer.connected(server.endpoint) for _ in range(2)]
    links = []
    for peer in peers:
        peer.sendall(raw_peer.part(b"hello", more=False))
        [came] = until(lambda s: payloads(s), server)
        links.append(came[0].link)
    server.cut(links[0])
    for peer in peers:
        peer.close()
    [events] = until(lambda s: LinkDown(links[1]) in s, server)
    assert LinkDown(links[0]) not in events


def test_an_end_counts_though_the_door_had_no_time_to_ask_whose_the_connection_was(
    one: Open, other: Open
) -> None:
    """It came, spoke and ended while the door was busy; another one that is told at last stands."""
    at = Ends()
    callers = Callers(at.ends)
    link, stands = callers.begin(b"1", one.connection), callers.begin(b"2", other.connection)
    one.close()
    for each in (one, other):
        at.ends.gone(each.connection.number)
    assert at.wakes == 2
    assert callers.some_end(at.now_s)
    assert callers.over(at.now_s, drained=True) == [link]
    callers.forget(link)
    assert not callers.some_end(at.now_s)
    assert stands in callers
