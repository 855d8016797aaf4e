"""Keys on real sockets: who gets in, as whom, what strangers get, and what a revocation does.

The rows of the study on CURVE and ZAP (who connects how, and what both sides see), and of the threat
table those about the door: 1, 2, 5 and 28.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time

import pytest
import zmq

from medusa.errors import LinkError
from medusa.nodes.config.settings import Limits
from medusa.runtime.keys.key_files import CurveKey
from medusa.runtime.transport import refusals as refusals_module
from medusa.runtime.transport import sockets, zap
from medusa.runtime.transport.link_events import Arrival, LinkDown, LinkRefused, LinkUp, Refused
from medusa.runtime.transport.sockets import FRAME_BYTES_MAX
from medusa.runtime.transport.zeromq import Transport
from tests.runtime.test_zeromq import DEADLINE_S, payloads, until
from tests.system.nodes import until as asked_until

SERVER, ALICE, BOB, EVE = (CurveKey.new() for _ in range(4))


@pytest.fixture(params=["tcp", "ipc"])
def listen(request, tmp_path_factory):
    return "tcp://127.0.0.1:*" if request.param == "tcp" else f"ipc://{tmp_path_factory.mktemp('z')}/s"


@pytest.fixture
def hasty(monkeypatch):
    """Handshakes end sooner."""
    assert sockets.HANDSHAKE_MS == 2000
    monkeypatch.setattr(sockets, "HANDSHAKE_MS", 200)


@pytest.fixture
def server(open_transport, listen):
    made = open_transport(listen=listen, key=SERVER)
    made.trust([ALICE.public, BOB.public], {})
    return made


@pytest.fixture
def call(open_transport, server):
    def make(key=ALICE, server_key=SERVER.public):
        keys = {} if key is None else {"key": key, "server_keys": {"server": (server_key,)}}
        return open_transport(listen=None, peers={"server": server.endpoint}, **keys)

    return make


def connected(call, server, key=ALICE):
    client = call(key)
    until(lambda s, c: LinkUp("server") in c, server, client)
    return client


def said(server, client, body=b"hello"):
    """The arrival of one message."""
    client.send("server", [body])
    got, _ = until(lambda s, c: payloads(s), server, client)
    return next(each for each in got if isinstance(each, Arrival))


def refusals(events):
    return [each for each in events if isinstance(each, LinkRefused)]


def test_a_known_key_comes_in_and_each_message_has_it(call, server):
    alice, bob = connected(call, server), connected(call, server, BOB)
    for body in (b"one", b"two"):
        assert said(server, alice, body).key == ALICE.public
        assert said(server, bob, body).key == BOB.public
    link = said(server, alice).link
    server.send(link, [b"answer"])
    _, got = until(lambda s, c: payloads(c), server, alice)
    assert [each.key for each in got if isinstance(each, Arrival)] == [SERVER.public]


def test_nobody_comes_in_until_somebody_is_trusted(open_transport):
    server = open_transport(listen="tcp://127.0.0.1:*", key=SERVER)
    client = open_transport(
        listen=None, peers={"server": server.endpoint}, key=ALICE, server_keys={"server": (SERVER.public,)}
    )
    until(lambda s, c: refusals(c), server, client)
    server.trust([ALICE.public], {})
    until(lambda s, c: LinkUp("server") in c, server, client)


def test_an_unknown_key_is_refused_and_counted_and_told(call, server):
    eve = call(EVE)
    eve.send("server", [b"let me in"])
    heard, got = until(lambda s, c: refusals(c) and any(isinstance(e, Refused) for e in s), server, eve)
    assert refusals(got)[0].code == "link.not_admitted"
    assert LinkUp("server") not in got
    assert not payloads(heard)
    assert server.door()["unknown key"] >= 1
    assert server.door()["let in"] == 0
    told = next(each for each in heard if isinstance(each, Refused))
    assert (told.why, told.key) == ("unknown key", EVE.public)
    assert said(server, connected(call, server)).key == ALICE.public


def test_a_wrong_server_key_is_no_endless_silence(call, server):
    client = call(ALICE, EVE.public)
    client.send("server", [b"hello"])
    # The door counts a connection when it has seen its end, which may be after the client has.
    heard, got = until(
        lambda s, c: len(refusals(c)) >= 2 and server.door().get("no handshake", 0) >= 2, server, client
    )
    assert {each.code for each in refusals(got)} == {"link.server_key"}
    assert "another than the server key" in refusals(got)[0].hint
    assert LinkUp("server") not in got
    assert not payloads(heard)


def test_who_has_no_key_is_told_that_one_is_needed(call, server):
    client = call(None)
    client.send("server", [b"hello"])
    heard, got = until(lambda s, c: len(refusals(c)) >= 2, server, client)
    # Which of both depends on whether the server's greeting comes before the end of the connection.
    assert {each.code for each in refusals(got)} <= {"link.keys", "link.handshake"}
    assert all("give key= and server_key=" in each.hint for each in refusals(got))
    assert LinkUp("server") not in got
    assert not payloads(heard)
    assert server.door()["let in"] == 0


def test_a_node_without_keys_is_not_spoken_with_by_who_has_one(open_transport):
    server = open_transport(listen="tcp://127.0.0.1:*")
    keys = {"server": (SERVER.public,)}
    client = open_transport(listen=None, peers={"server": server.endpoint}, key=ALICE, server_keys=keys)
    _, got = until(lambda s, c: len(refusals(c)) >= 2, server, client)
    assert {each.code for each in refusals(got)} <= {"link.keys", "link.server_key"}
    assert LinkUp("server") not in got


def stranger(server) -> socket.socket:
    kind, _, where = server.endpoint.partition("://")
    if kind == "ipc":
        made = socket.socket(socket.AF_UNIX)
        made.connect(where)
    else:
        made = socket.create_connection(("127.0.0.1", int(where.rsplit(":", 1)[1])))
    made.settimeout(DEADLINE_S)
    return made


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "noise": b"\xff" * 200,
    "curve greeting": b"\xff\0\0\0\0\0\0\0\1\x7f\3\1CURVE" + bytes(47),
    "null greeting": b"\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL" + bytes(48),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_strangers_get_a_greeting_at_most_and_nothing_comes_in(hasty, call, server, garbage):
    """Row 1 of the threat table; one who stays silent is below."""
    with stranger(server) as made:
        made.sendall(garbage + b"\4\x26\5READY" + bytes(31))
        heard = b""
        try:
            while more := made.recv(4096):
                heard += more
        except ConnectionError:
            pass
    assert len(heard) <= 64
    assert said(server, connected(call, server)).frames[0] == b"hello"
    counts = server.door()
    # On a busy machine who has a key may be too late as well, and calls again.
    assert counts["let in"] == 1
    assert counts["accepted"] > 1, "the stranger is counted"


def test_who_stays_silent_is_put_out(hasty, call, server):
    with stranger(server) as made:
        assert len(made.recv(4096)) <= 64
        assert made.recv(4096) == b"", "closed at the limit of a handshake"
    assert said(server, connected(call, server)).frames[0] == b"hello"


def test_a_frame_beyond_the_limit_ends_the_connection_and_reaches_nobody(call, server):
    client = connected(call, server)
    client.send("server", [bytes(FRAME_BYTES_MAX + 1)])
    got, _ = until(lambda s, c: LinkDown("server") in c, server, client)
    assert not payloads(got)
    until(lambda s, c: LinkUp("server") in c, server, client)
    assert said(server, client).frames[0] == b"hello"


# --- routing ids ----------------------------------------------------------------------------------


@pytest.fixture
def raw(server):
    """DEALERs that choose their routing id."""
    context = zmq.Context()
    made = []

    def make(key, routing_id):
        dealer = context.socket(zmq.DEALER)
        made.append(dealer)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.ROUTING_ID, routing_id)
        key.lock(dealer, server_key=SERVER.public)
        dealer.connect(server.endpoint)
        return dealer

    yield make
    for each in made:
        each.close(linger=0)
    context.term()


def arrivals(server, *bodies):
    found = []
    end = time.monotonic() + DEADLINE_S
    while {bytes(each.frames[0]) for each in found} != set(bodies):
        assert time.monotonic() < end, found
        found += [each for each in server.wait(5) if isinstance(each, Arrival)]
    return found


def test_a_forged_routing_id_changes_nothing_about_who_it_is(server, raw):
    """Row 2 of the threat table: the key tells the truth, whatever the routing id."""
    raw(BOB, b"alice").send(b"from bob")
    assert arrivals(server, b"from bob")[0].key == BOB.public


def test_a_second_connection_with_the_same_routing_id_is_not_heard(server, raw):
    raw(ALICE, b"same").send(b"first")
    link = arrivals(server, b"first")[0].link
    second, honest = raw(BOB, b"same"), raw(BOB, b"other")
    second.send(b"second")
    honest.send(b"honest")
    found = arrivals(server, b"honest")
    assert [(each.key, each.link != link) for each in found] == [(BOB.public, True)]


def test_a_routing_id_that_somebody_else_had_before_begins_a_link_of_its_own(server, raw):
    before = raw(ALICE, b"same")
    before.send(b"first")
    first = arrivals(server, b"first")[0]
    before.close(linger=0)
    found, events, end = [], [], time.monotonic() + DEADLINE_S
    after = raw(BOB, b"same")
    while not found:  # Until libzmq has forgotten the first one it doesn't hear the second.
        assert time.monotonic() < end
        after.close(linger=0)
        after = raw(BOB, b"same")
        after.send(b"second")
        events += server.wait(100)
        found = [each for each in events if isinstance(each, Arrival)]
    events += server.wait(0)
    assert found[0].key == BOB.public
    assert found[0].link != first.link, "what is known of the first link says nothing of the second"
    assert LinkDown(first.link) in events


# --- revocation -----------------------------------------------------------------------------------


def test_a_key_that_counts_no_more_loses_its_open_connection_and_gets_no_other(call, server):
    """Row 5 of the threat table, at the socket: what the brain then answers is tested with it."""
    alice, bob = connected(call, server), connected(call, server, BOB)
    said(server, alice)
    link = said(server, bob).link
    server.trust([ALICE.public], {})
    events, gone = until(lambda s, c: LinkDown("server") in c and refusals(c), server, bob)
    assert refusals(gone)[0].code == "link.not_admitted"
    server.send(link, [b"gone"])
    end = time.monotonic() + DEADLINE_S
    while LinkDown(link) not in events:
        assert time.monotonic() < end, events
        events += server.wait(10)
    assert said(server, alice, b"still here").key == ALICE.public
    assert not any(isinstance(each, LinkDown) for each in alice.wait(0)), "nobody else is cut"
    server.trust([ALICE.public, BOB.public], {})
    until(lambda s, c: LinkUp("server") in c, server, bob)


def test_who_was_never_heard_is_cut_with_its_first_word(call, server):
    bob = connected(call, server, BOB)
    server.trust([ALICE.public], {})
    arrival = said(server, bob)  # It says which key: the brain refuses it and cuts the link.
    assert arrival.key == BOB.public
    server.cut(arrival.link)
    until(lambda s, c: LinkDown("server") in c, server, bob)


def test_what_was_said_before_a_cut_arrives(call, server):
    alice = connected(call, server)
    link = said(server, alice).link
    server.send(link, [b"you are revoked"])
    server.cut(link)
    _, got = until(lambda s, c: LinkDown("server") in c, server, alice)
    assert payloads(got) == [(b"you are revoked",)]


def test_a_peer_is_called_under_its_other_key_when_the_first_is_wrong(open_transport, server):
    keys = {"server": (EVE.public, SERVER.public)}
    client = open_transport(listen=None, peers={"server": server.endpoint}, key=ALICE, server_keys=keys)
    _, got = until(lambda s, c: LinkUp("server") in c, server, client)
    assert refusals(got)[0].code == "link.server_key"
    assert said(server, client).key == ALICE.public
    client.trust([], {"server": ()})
    _, got = until(lambda s, c: LinkDown("server") in c, server, client)
    assert client.calls("server")
    client.trust([], {"server": (SERVER.public,)})
    until(lambda s, c: LinkUp("server") in c, server, client)


# --- the door -------------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", ["tcp"], indirect=True)
@pytest.mark.parametrize("limit", ["connections_per_address", "calls_at_once"])
def test_a_flood_from_one_address_is_shut_out_and_ends(call, server, monkeypatch, limit):
    """Row 28 of the threat table. (ipc has no addresses: who may use the socket is its owner.)"""
    door = server._keyring._door
    monkeypatch.setattr(door, "_limits", Limits(**{"calls_per_s": 0, limit: 3}))
    monkeypatch.setattr(refusals_module, "TELL_EVERY_S", 3600.0)
    alice = connected(call, server)
    flood = [stranger(server) for _ in range(20)]
    try:
        why = "too many connections" if limit == "connections_per_address" else "too many calls"
        events, _ = until(
            lambda s, c: server.door().get(why, 0) >= 10 and any(isinstance(e, Refused) for e in s),
            server,
            alice,
        )
        told = [each for each in events if isinstance(each, Refused) and each.why == why]
        assert told[0].address == "127.0.0.1"
        assert len(told) == 1, "one line in a while, not one for each"
        assert said(server, alice).key == ALICE.public, "who is in isn't harmed"
        asked_until(lambda: sum(_ends_at_once(each) for each in flood) >= 10, what="they end")
    finally:
        for each in flood:
            each.close()
    monkeypatch.setattr(door, "_limits", Limits(calls_per_s=1_000_000))
    assert said(server, connected(call, server, BOB)).key == BOB.public


@pytest.mark.parametrize("listen", ["tcp"], indirect=True)
def test_silent_connections_of_many_addresses_have_one_bound_and_the_oldest_ends(call, server, monkeypatch):
    """Row 28: each address stays below its own bound, and callers with a key still get in."""
    monkeypatch.setattr(server._keyring._door, "_limits", Limits(connections_unheard=8))
    alice = connected(call, server)
    assert said(server, alice).key == ALICE.public
    port = int(server.endpoint.rsplit(":", 1)[1])
    flood = [
        socket.create_connection(("127.0.0.1", port), source_address=(f"127.0.1.{at}", 0))
        for at in range(1, 41)
    ]
    try:
        why = "too many unheard connections"
        until(lambda s, c: server.door().get(why, 0) >= 32, server, alice)
        assert not {"too many connections", "too many calls"} & set(server.door())
        bob = connected(call, server, BOB)
        assert said(server, bob).key == BOB.public, "who has a key gets in while the rest stands"
        assert said(server, alice).key == ALICE.public, "who has spoken is never ended"
        flood[0].settimeout(DEADLINE_S)
        with contextlib.suppress(ConnectionError):
            while flood[0].recv(4096):  # The greeting, then the end.
                pass
    finally:
        for each in flood:
            each.close()


def _ends_at_once(made) -> bool:
    made.settimeout(0.05)
    try:
        while made.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("bound", [True, False])
def test_without_the_thread_at_the_door_nobody_comes_in(hasty, call, server, bound):
    door = server._keyring._door
    door._stop_out.send(b"\0")
    door._thread.join(DEADLINE_S)
    if not bound:
        door._answers.close(linger=0)
    alice = call(ALICE)
    alice.send("server", [b"hello"])
    heard, got = until(lambda s, c: refusals(c), server, alice)
    assert LinkUp("server") not in got
    assert not payloads(heard)


def test_the_door_answers_for_its_own_domain_and_for_keys_alone(server):
    door = server._keyring._door
    key = zmq.utils.z85.decode(ALICE.public.encode())
    good = [b"1.0", b"7", zap.DOMAIN, b"127.0.0.1", b"", b"CURVE", key]
    assert door._answer(good)[1:5] == [b"7", b"200", b"OK", ALICE.public.encode()]
    for at, value in [
        (0, b"2.0"),
        (2, b""),
        (2, b"*"),
        (2, b"other"),
        (5, b"NULL"),
        (5, b"PLAIN"),
        (6, b"short"),
    ]:
        asked = [*good[:at], value, *good[at + 1 :]]
        assert door._answer(asked)[2:5] == [b"400", b"not admitted", b""]
    for length in range(7):
        assert door._answer(good[:length])[2:] == [b"400", b"not admitted", b"", b""]
    assert door._answer([*good, b"more"])[2] == b"400"


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:*", "tcp://*:*", "tcp://192.0.2.1:5555"])
def test_without_keys_only_this_machine_is_listened_to(address):
    with pytest.raises(LinkError, match="not an address of this machine alone") as caught:
        Transport(listen=address)
    assert caught.value.code == "link.listen"


def test_with_keys_any_address_is_listened_to(open_transport):
    assert open_transport(listen="tcp://0.0.0.0:*", key=SERVER).endpoint.startswith("tcp://0.0.0.0:")


@pytest.mark.parametrize("key", [None, SERVER], ids=["plain", "keyed"])
def test_a_socket_in_a_folder_is_its_owners_alone(open_transport, tmp_path_factory, key):
    path = tmp_path_factory.mktemp("z") / "s"
    before = os.umask(0)
    try:
        open_transport(listen=f"ipc://{path}", key=key)
        assert os.umask(0) == 0, "what others in this process write is as before"
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_transport_without_keys_trusts_nobody(open_transport):
    with pytest.raises(LinkError, match="without keys"):
        open_transport(listen=None).trust([], {})
    assert open_transport(listen=None).door() == {}
