"""Unfinished messages: what the meter makes of counts, and real peers that never send the last part."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
import zmq

from medusa.runtime.keys.key_files import CurveKey
from medusa.runtime.transport import multipart_receive
from medusa.runtime.transport.caller_ends import CallerEnds
from medusa.runtime.transport.caller_rounds import MESSAGES_MIN
from medusa.runtime.transport.connection import Connection
from medusa.runtime.transport.link_events import LinkDown, LinkUp
from medusa.runtime.transport.receive_meter import (
    ALL_UNFINISHED_BYTES_MAX,
    ALL_UNTAKEN_BYTES_MAX,
    SLOW_BYTES_MAX,
    SLOW_CPU_S,
    UNFINISHED_BYTES_MAX,
    UNTAKEN_BYTES_MAX,
    ReceiveMeter,
)
from medusa.runtime.transport.refusals import Refused
from medusa.runtime.transport.sockets import FRAME_BYTES_MAX
from tests.runtime import raw_peer
from tests.runtime.test_zeromq import DEADLINE_S, payloads, until

MIB = 1 << 20
SERVER, ALICE, EVE = (CurveKey.new() for _ in range(3))


# --- what it makes of counts ------------------------------------------------------------------------


class Scripted:
    """A meter whose bytes a test says; each ``look`` is a check that is due."""

    def __init__(self, monkeypatch, *numbers, keyed=True, called=()):
        self.cut = []
        monkeypatch.setattr(Connection, "cut", lambda each, reset: self.cut.append(each.number))
        self.now_s, self.cpu_s, self.woken = 0.0, 0.0, 0
        self.bytes = dict.fromkeys(numbers, 0)
        self.meter = ReceiveMeter(
            self._wake,
            keyed=keyed,
            bytes_read=lambda each: self.bytes[each.number],
            cpu_s=lambda: self.cpu_s,
        )
        for number in numbers:
            self.now_s += 1
            self.meter.opened(self.now_s, Connection(number, number, "10.0.0.1"), called=number in called)

    def _wake(self):
        self.woken += 1

    def look(self, *, drain=True):
        self.now_s += 1
        self.meter.check(self.now_s)
        self.meter.turned(self.now_s + 0.5, drained=drain)
        return self.cut


def test_bytes_of_no_message_end_their_connection_after_a_drain(monkeypatch):
    seen = Scripted(monkeypatch, 7, 8)
    seen.bytes[7] = UNFINISHED_BYTES_MAX + 1
    assert seen.look() == [], "it may be a message that the loop hasn't taken yet"
    assert seen.woken == 1
    assert seen.look() == [7]
    assert [each.connection.number for each in seen.meter.ended()] == [7]
    assert seen.meter.ended() == []


def test_the_largest_message_of_a_slow_link_may_come(monkeypatch):
    seen = Scripted(monkeypatch, 7)
    for nbytes in range(0, FRAME_BYTES_MAX + 1, FRAME_BYTES_MAX // 50):
        seen.bytes[7] = nbytes
        assert seen.look() == []


def test_what_the_loop_has_not_had_time_to_take_is_not_unfinished(monkeypatch):
    seen = Scripted(monkeypatch, 7)
    seen.bytes[7] = UNTAKEN_BYTES_MAX
    for _ in range(5):
        assert seen.look(drain=False) == []
    seen.meter.took(7)
    assert seen.look() == []
    assert seen.look() == []
    assert seen.look() == []


def test_what_comes_while_the_loop_is_held_up_is_bounded_too(monkeypatch):
    seen = Scripted(monkeypatch, 7)
    seen.bytes[7] = UNTAKEN_BYTES_MAX + 1
    assert seen.look(drain=False) == [7]


def test_a_drain_that_began_before_the_sample_shows_nothing(monkeypatch):
    seen = Scripted(monkeypatch, 7)
    seen.bytes[7] = UNFINISHED_BYTES_MAX + 1
    seen.look(drain=False)
    seen.meter.turned(seen.now_s - 0.5, drained=True)
    assert seen.look(drain=False) == []


def test_who_brings_nothing_in_several_rounds_has_no_whole_message(monkeypatch):
    """The loop never drains the socket: others bring more than it takes."""
    seen = Scripted(monkeypatch, 7, 8, 9)
    seen.bytes[7] = UNFINISHED_BYTES_MAX + 1
    assert seen.look(drain=False) == []
    for _ in range(MESSAGES_MIN // 2):
        seen.meter.took(8)
        seen.meter.took(9)
    assert seen.look(drain=False) == [7]


def test_a_round_is_over_when_somebody_brings_a_second_message(monkeypatch):
    """Many may come before one's turn is: nobody's messages are unfinished for that."""
    seen = Scripted(monkeypatch, 7)
    seen.bytes[7] = UNFINISHED_BYTES_MAX + 1
    assert seen.look(drain=False) == []
    for number in range(100, 100 + 10 * MESSAGES_MIN):
        seen.meter.took(number)
    assert seen.look(drain=False) == []
    assert seen.look(drain=False) == []


def test_rounds_before_a_sample_show_nothing_of_it(monkeypatch):
    seen = Scripted(monkeypatch, 7)
    for _ in range(MESSAGES_MIN):
        seen.meter.took(8)
    seen.bytes[7] = UNFINISHED_BYTES_MAX + 1
    assert seen.look(drain=False) == []
    assert seen.look(drain=False) == []


def test_a_flood_of_callers_hides_no_unfinished_message_of_a_node_that_we_called(monkeypatch):
    seen = Scripted(monkeypatch, 7, called=(7,))
    seen.bytes[7] = UNFINISHED_BYTES_MAX + 1
    assert seen.look(drain=False) == []
    assert seen.look(drain=False) == [7]
    assert [each.called for each in seen.meter.ended()] == [True]


def test_all_that_comes_while_the_loop_is_held_up_is_bounded(monkeypatch):
    numbers = range(10, 40)
    seen = Scripted(monkeypatch, *numbers)
    for number in numbers:
        seen.bytes[number] = UNTAKEN_BYTES_MAX // 2
    seen.bytes[17] += 1
    ended = seen.look(drain=False)
    assert ended[0] == 17, "the one with the most goes first"
    assert sum(seen.bytes[number] for number in numbers if number not in ended) == ALL_UNTAKEN_BYTES_MAX


def test_slow_messages_without_encryption_have_one_frame_together(monkeypatch):
    """Parts of no byte take 30 times their size: what takes us long may be of such parts."""
    seen = Scripted(monkeypatch, 7, 8, 9, keyed=False)
    seen.bytes.update({7: SLOW_BYTES_MAX // 2, 8: SLOW_BYTES_MAX // 2, 9: 1000})
    assert seen.look() == []
    seen.cpu_s += SLOW_CPU_S / 2
    assert seen.look() == [], "a large frame of an honest peer comes as fast as we read"
    seen.cpu_s += SLOW_CPU_S
    seen.woken = 0
    assert seen.look() == [7]
    assert seen.woken == 0, "nothing is left to be judged soon"
    assert seen.look() == [7]


def test_a_single_slow_frame_may_come_without_encryption_too(monkeypatch):
    seen = Scripted(monkeypatch, 7, 8, keyed=False)
    for nbytes in range(0, FRAME_BYTES_MAX + 1, FRAME_BYTES_MAX // 50):
        seen.bytes[7] = nbytes
        seen.cpu_s += SLOW_CPU_S
        seen.meter.took(8)
        seen.bytes[8] += 1000
        assert seen.look() == []


def test_slow_links_with_keys_have_their_time(monkeypatch):
    seen = Scripted(monkeypatch, *range(10, 17))
    for nbytes in range(0, FRAME_BYTES_MAX + 1, FRAME_BYTES_MAX // 50):
        seen.bytes.update(dict.fromkeys(seen.bytes, nbytes))
        seen.cpu_s += 1
        assert seen.look() == []


def test_small_messages_in_between_do_not_hide_a_large_unfinished_one(monkeypatch):
    seen = Scripted(monkeypatch, 7)
    seen.meter.took(7)
    for step in range(1, 4):
        seen.bytes[7] = step
        assert seen.look() == []
    seen.meter.took(7)  # Ends what came before; what comes now is counted from here.
    assert seen.look() == []
    seen.bytes[7] += UNFINISHED_BYTES_MAX + 1
    seen.look()
    assert seen.look() == [7]


def test_of_many_the_one_that_waits_longest_ends_first(monkeypatch):
    numbers = range(10, 30)
    seen = Scripted(monkeypatch, *numbers)
    each = ALL_UNFINISHED_BYTES_MAX // 16
    for number in numbers:
        seen.bytes[number] = each
    seen.look()
    assert seen.look() == [10, 11, 12, 13]
    assert seen.look() == [10, 11, 12, 13]


def test_a_descriptor_that_is_used_again_begins_anew(monkeypatch):
    seen = Scripted(monkeypatch, 7)
    seen.meter.took(7)
    seen.bytes[7] = 100 * MIB
    seen.look()
    seen.meter.closed(7)
    assert not seen.meter.has_spoken(7)
    seen.bytes[7] = 0
    seen.meter.opened(seen.now_s, Connection(7, 8, ""))
    seen.bytes[7] = UNFINISHED_BYTES_MAX + 1
    seen.look()
    assert seen.look() == [7]


def test_who_is_gone_is_forgotten(monkeypatch):
    seen = Scripted(monkeypatch, 7)
    seen.bytes[7] = None
    seen.look()
    assert seen.meter.wait_s(seen.now_s) is None


# --- real peers -------------------------------------------------------------------------------------


@pytest.fixture
def server(open_transport):
    return open_transport(listen="tcp://127.0.0.1:*")


@pytest.mark.parametrize(("body", "count"), [(bytes(MIB), 4_000), (b"x", 30_000_000)], ids=["1MiB", "1B"])
def test_a_message_without_a_last_part_costs_its_sender_the_connection(open_transport, server, body, count):
    """Row 9 of the threat table; the last part never comes."""
    client = open_transport(listen=None, peers={"server": server.endpoint})
    until(lambda s, c: LinkUp("server") in c, server, client)
    attacker, sent = raw_peer.connected(server.endpoint), []
    thread = threading.Thread(target=lambda: sent.append(raw_peer.send_parts(attacker, body, count)))
    thread.start()
    answered, heard = 0, []
    end = time.monotonic() + 3 * DEADLINE_S
    while thread.is_alive() or not any(isinstance(each, Refused) for each in heard):
        assert time.monotonic() < end, f"it still sends; {answered} answers"
        client.send("server", [b"ping"])
        got, _ = until(lambda s, c: payloads(s), server, client)
        heard += got
        answered += 1
    thread.join(timeout=DEADLINE_S)
    told = [each for each in heard if isinstance(each, Refused)]
    assert [(each.why, each.what) for each in told] == [("unfinished message", "connection ended")]
    assert server.door() == {"unfinished message": 1}
    # What was under way in the kernel on both sides counts as sent too.
    assert sent[0] * len(raw_peer.part(body, more=True)) <= 256 * MIB
    assert sent[0] < count
    assert raw_peer.ended(attacker)
    attacker.close()


def test_a_flood_hides_no_unfinished_message(open_transport, server, monkeypatch):
    """As where the loop takes less than comes, and so never finds its socket empty."""
    turned = ReceiveMeter.turned
    monkeypatch.setattr(
        ReceiveMeter, "turned", lambda self, since_s, *, drained: turned(self, since_s, drained=False)
    )
    block = raw_peer.part(b"x", more=False) * 2_000
    with contextlib.ExitStack() as ending:
        for _ in range(4):
            flooder = ending.enter_context(raw_peer.connected(server.endpoint))
            thread = threading.Thread(target=raw_peer.send_until_cut, args=(flooder, block))
            thread.start()
            ending.callback(thread.join, timeout=DEADLINE_S)
            ending.callback(flooder.shutdown, socket.SHUT_RDWR)  # Wakes who waits to send.
        until(lambda s: len(payloads(s)) > 1_000, server)
        holder = ending.enter_context(raw_peer.connected(server.endpoint))
        thread = threading.Thread(target=raw_peer.send_parts, args=(holder, bytes(MIB), 60))
        thread.start()
        ending.callback(thread.join, timeout=DEADLINE_S)
        (heard,) = until(lambda s: any(map(is_ended, s)), server)
        assert payloads(heard), "the flood goes on"
        assert server.door() == {"unfinished message": 1}
        assert raw_peer.ended(holder)


def test_a_descriptor_of_another_before_ends_no_link_of_that_one(open_transport, server, monkeypatch):
    numbers = []
    opened = ReceiveMeter.opened

    def noted(self, now_s, connection, **kwargs):
        numbers.append(connection.number)
        opened(self, now_s, connection, **kwargs)

    monkeypatch.setattr(ReceiveMeter, "opened", noted)
    gone = threading.Event()
    closed = ReceiveMeter.closed
    monkeypatch.setattr(ReceiveMeter, "closed", lambda self, number: (closed(self, number), gone.set()))
    # Else the victim's link is over before the attacker comes, and nothing could end it.
    monkeypatch.setattr(CallerEnds, "disconnected", lambda self, number: None)
    victim = raw_peer.connected(server.endpoint)
    victim.sendall(raw_peer.part(b"hello", more=False))
    # A door that comes late would never learn whose connection it was.
    (heard,) = until(lambda s: payloads(s) and numbers, server)
    link = heard[0].link
    victim.close()
    until(lambda s: gone.is_set(), server)
    attacker = raw_peer.connected(server.endpoint)
    until(lambda s: len(numbers) > 1, server)
    assert numbers[0] == numbers[1], "the attacker has the victim's descriptor"
    thread = threading.Thread(target=raw_peer.send_parts, args=(attacker, bytes(MIB), 60))
    thread.start()
    (heard,) = until(lambda s: any(map(is_ended, s)), server)
    heard += server.wait(0)
    assert LinkDown(link) not in heard
    thread.join(timeout=DEADLINE_S)
    attacker.close()


def test_a_connection_that_is_cut_brings_nothing_more():
    """What lies in the kernel is a mebibyte; of parts of one byte libzmq made 20 of it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sender = socket.create_connection(listening.getsockname())
        receiver, _ = listening.accept()
    with sender, receiver:
        sender.sendall(bytes(100_000))
        assert receiver.recv(1, socket.MSG_PEEK) == b"\0"
        assert Connection.of(receiver.fileno()).cut(reset=True)
        with pytest.raises(ConnectionResetError):
            receiver.recv(1)
        with pytest.raises(ConnectionResetError):
            sender.recv(1)


@pytest.fixture
def hostile():
    """Makes sockets of ZeroMQ itself; libzmq sends a message once its last part was given to it."""
    context, made = zmq.Context(), []

    def make(kind):
        made.append(context.socket(kind))
        made[-1].setsockopt(zmq.LINGER, 0)
        return made[-1]

    yield make
    for each in made:
        each.close(linger=0)
    context.term()


def send_many(attacker, parts=150):
    for _ in range(parts):
        attacker.send(bytes(MIB), zmq.SNDMORE)
    attacker.send(b"last")


def is_ended(event):
    return isinstance(event, Refused) and event.why in ("unfinished message", "too many parts")


def test_a_key_that_is_let_in_sends_no_message_of_many_parts(open_transport, hostile):
    server = open_transport(listen="tcp://127.0.0.1:*", key=SERVER)
    server.trust([ALICE.public, EVE.public], {})
    alice = open_transport(
        listen=None, peers={"server": server.endpoint}, key=ALICE, server_keys={"server": (SERVER.public,)}
    )
    until(lambda s, c: LinkUp("server") in c, server, alice)
    attacker = hostile(zmq.DEALER)
    EVE.lock(attacker, server_key=SERVER.public)
    attacker.connect(server.endpoint)
    attacker.send(b"hello")
    heard, _ = until(lambda s, c: payloads(s), server, alice)
    send_many(attacker)
    alice.send("server", [b"ping"])
    heard, _ = until(lambda s, c: payloads(s) and any(map(is_ended, s)), server, alice)
    assert payloads(heard) == [(b"ping",)]
    told = next(filter(is_ended, heard))
    assert (told.what, told.key, told.address) == ("connection ended", EVE.public, "127.0.0.1")
    assert any(isinstance(each, LinkDown) for each in heard), "whoever had the link hears that it is over"


def test_a_node_that_is_called_and_sends_too_much_is_called_anew(open_transport, hostile):
    server = hostile(zmq.ROUTER)
    port = server.bind_to_random_port("tcp://127.0.0.1")
    client = open_transport(listen=None, peers={"server": f"tcp://127.0.0.1:{port}"})
    until(lambda c: LinkUp("server") in c, client)
    client.send("server", [b"hello"])
    until(lambda c: server.poll(0), client)
    server.send(server.recv_multipart()[0], zmq.SNDMORE)
    send_many(server)
    (heard,) = until(lambda c: any(map(is_ended, c)) and c[-1] == LinkUp("server"), client)
    assert not payloads(heard)
    assert LinkDown("server") in heard


def test_a_message_of_many_parts_is_dropped_in_turns_and_ends_its_connection(
    open_transport, server, monkeypatch
):
    """It is whole, so the loop has to take it: part by part, and not all of them in one turn."""
    monkeypatch.setattr(multipart_receive, "DROPPED_AT_ONCE", 1_000)
    monkeypatch.setattr(multipart_receive, "DROP_S", 0.0)
    client = open_transport(listen=None, peers={"server": server.endpoint})
    until(lambda s, c: LinkUp("server") in c, server, client)
    attacker = raw_peer.connected(server.endpoint)
    raw_peer.send_parts(attacker, b"x", 20_000)
    attacker.sendall(raw_peer.part(b"x", more=False))
    until(lambda s: server.refused == 1, server)
    client.send("server", [b"ping"])
    turns, heard, end = 0, [], time.monotonic() + DEADLINE_S
    while payloads(heard) != [(b"ping",)]:
        assert time.monotonic() < end
        heard += server.wait(100)
        turns += 1
    assert turns >= 19
    assert server.refused == 1
    assert raw_peer.ended(attacker)
    attacker.close()


def test_one_who_comes_again_with_many_parts_keeps_nobody_waiting(open_transport, server, monkeypatch):
    """Python's hands are on no part but the first ones of each message."""
    handled = []
    recv = zmq.Socket.recv

    def counted(self, *args, **kwargs):
        handled.append(self)
        return recv(self, *args, **kwargs)

    monkeypatch.setattr(zmq.Socket, "recv", counted)
    client = open_transport(listen=None, peers={"server": server.endpoint})
    until(lambda s, c: LinkUp("server") in c, server, client)
    handled.clear()
    times, parts = 3, 200_000
    turns = 0
    for each in range(times):
        attacker = raw_peer.connected(server.endpoint)
        raw_peer.send_parts(attacker, b"", parts)
        attacker.sendall(raw_peer.part(b"", more=False))
        client.send("server", [b"ping"])

        def answered(heard, _, before=each):
            nonlocal turns
            turns += 1
            return payloads(heard) and server.refused > before

        until(answered, server, client)
        assert raw_peer.ended(attacker)
        attacker.close()
    assert server.refused == times
    assert len(handled) < 20 * times + 10 * turns
    assert len(handled) < parts


def test_large_frames_of_a_peer_of_ours_all_come(open_transport, server):
    client = open_transport(listen=None, peers={"server": server.endpoint})
    until(lambda s, c: LinkUp("server") in c, server, client)
    for _ in range(16):
        client.send("server", [b"h" * 60_000, bytes(4 * MIB)])
    got, _ = until(lambda s, c: len(payloads(s)) == 16, server, client)
    assert all(len(each[1]) == 4 * MIB for each in payloads(got))
    assert server.door() == {}
