"""Certificates and revocations (reliability D 3 to 5, 26, 29): signed, once, in time, on disk, at once."""

from __future__ import annotations

import dataclasses

import pytest

from medusa.errors import RemoteProtocolError
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_security import ClientRules, PeerKey
from medusa.nodes.node import NodeMind
from medusa.nodes.reports import PeerLost, Persisted, RulesRead, Started
from medusa.nodes.security.registry import STATEMENTS_MAX
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Declare, StatusRequest
from medusa.wire.messages.links import Hello
from medusa.wire.outbox import Send
from medusa.wire.statement import client_name
from tests.nodes.keyed import (
    ALICE,
    BOB,
    EVE,
    SECURITY,
    STATEMENT,
    WALL_US,
    Keyed,
    certificate,
    curve,
    revocation,
)
from tests.nodes.test_security import ATTACH, running


def test_a_revoked_key_counts_no_more_at_once_and_its_link_is_cut():
    """D 5, the part of the mind."""
    node = running()
    assert curve("core") in node.trusted()
    assert node.declare("maker", revocation()) == ""
    assert curve("core") not in node.trusted()
    assert [(cut.peer, cut.shun) for cut in node.cuts()] == [("core", True)]
    for call in (
        lambda: node.say("core", ATTACH),
        lambda: node.brain.admit(
            Hello(version=PROTOCOL_VERSION, node="core", incarnation=2), key=curve("core")
        ),
    ):
        with pytest.raises(RemoteProtocolError) as caught:
            call()
        assert caught.value.code == "E_REVOKED"
    assert node.brain.guard.registry.keys_of("core") == ()


def test_a_revoked_client_is_forgotten():
    node = running()
    called = client_name(curve("reader"), "1")
    assert called in node.brain.clients
    data = revocation(ALICE, participant="alice", key=curve("reader"))
    assert node.declare("near", data) == ""
    assert called not in node.brain.clients
    assert [cut.peer for cut in node.cuts()] == [called]


def test_a_revocation_bites_while_the_disk_fails_but_is_confirmed_only_when_it_is_there():
    node = running()
    said = node.say("maker", Declare(request=1, statement=revocation()), disk=False)
    assert [type(each).__name__ for each in said] == ["Reply"], "the driver holds it back for the token"
    send = next(e for e in reversed(node.effects) if isinstance(e, Send) and e.message == said[0])
    assert send.after is not None
    with pytest.raises(RemoteProtocolError) as caught:
        node.say("core", ATTACH)
    assert caught.value.code == "E_REVOKED"


def test_a_revocation_survives_a_restart():
    node = running()
    node.declare("maker", revocation())
    again = Keyed(catalog=node.on_disk())
    assert curve("core") not in again.trusted()
    with pytest.raises(RemoteProtocolError) as caught:
        again.hello("core")
    assert caught.value.code == "E_REVOKED"


def test_a_new_key_counts_once_its_certificate_is_on_disk_and_the_old_one_goes_on():
    node = running()
    node.say("core", Declare(request=1, statement=certificate()), disk=False)
    assert curve("core-2") not in node.trusted()
    token = node.brain.guard._token
    node.brain.report(0, Persisted(token, True))
    node.settle()
    assert {curve("core"), curve("core-2")} <= set(node.trusted())
    assert node.brain.guard.registry.keys_of("core") == (curve("core-2"), curve("core"))
    hello = Hello(version=PROTOCOL_VERSION, node="core", incarnation=2)
    node.brain.admit(hello, key=curve("core-2"))
    assert curve("core-2") in Keyed(catalog=node.on_disk()).trusted()


def test_a_certificate_that_could_not_be_written_does_not_count():
    node = running()
    node.say("core", Declare(request=1, statement=certificate()), disk=False)
    node.brain.report(0, Persisted(node.brain.guard._token, False, "disk full"))
    node.settle(disk=False)
    assert curve("core-2") not in node.trusted()
    node.now_us = 1_000_000
    node.brain.tick(node.now_us)
    node.settle()
    assert curve("core-2") in node.trusted(), "written again"


def test_a_certificate_expires_by_elapsed_time_and_its_link_is_cut():
    """D 29: once the time was told only what elapsed counts; 60 s of skew are allowed."""
    node = running()
    node.declare("core", certificate(expiry_us=WALL_US + 10_000_000))
    node.brain.admit(Hello(version=PROTOCOL_VERSION, node="core", incarnation=2), key=curve("core-2"))
    node.say("core", Hello(version=PROTOCOL_VERSION, node="core", incarnation=2), key=curve("core-2"))
    node.now_us = 69_000_000
    node.brain.tick(node.now_us)
    node.settle()
    assert curve("core-2") in node.trusted()
    node.now_us = 71_000_000
    node.brain.tick(node.now_us)
    node.settle()
    assert curve("core-2") not in node.trusted()
    assert [cut.peer for cut in node.cuts()] == ["core"]
    assert curve("core") in node.trusted(), "the one in the configuration has no expiry"


def test_before_the_time_was_told_no_statement_counts():
    node = Keyed()
    node.brain.guard._wall = WallClock()
    node.hello("near")
    assert node.declare("near", revocation()) == "E_EXPIRED"


def test_a_statement_said_again_has_no_second_effect():
    """D 3: idempotent, also after a restart; an older one about the same is a replay."""
    node = running()
    first, second = certificate(), certificate(sequence=2, key=curve("core-3"))
    assert node.declare("core", first) == ""
    assert node.declare("core", second) == ""
    for each in (node, Keyed(catalog=node.on_disk())):
        each.hello("near", incarnation=5)
        before = each.state(), each.trusted()
        assert each.declare("near", first) == ""
        assert each.declare("near", second) == ""
        assert each.declare("near", certificate(sequence=2)) == "E_REPLAY"
        assert each.declare("near", certificate(epoch=0, sequence=99)) == "E_REPLAY"
        assert (each.state(), each.trusted()) == before
    assert node.declare("core", certificate(epoch=2, sequence=0, key=curve("core-4"))) == ""
    before = node.state(), node.trusted()
    assert node.declare("core", first) == "E_REPLAY", "no longer one of the last two"
    assert (node.state(), node.trusted()) == before


def test_the_last_number_is_on_disk_before_the_new_key_counts():
    """D 3: persisted before the effect."""
    node = running()
    node.say("core", Declare(request=1, statement=certificate()), disk=False)
    assert node.on_disk().statements == node.brain.catalog.statements
    assert curve("core-2") not in node.trusted()


OTHERS = {
    "federation": ({"federation": "other"}, "E_AUDIENCE"),
    "recipient": ({"recipient": "m"}, "E_AUDIENCE"),
    "signer": ({"signer": EVE}, "E_IDENTITY"),
    "participant": ({"signer": EVE, "participant": "eve"}, "E_IDENTITY"),
    "another's name": ({"signer": ALICE}, "E_IDENTITY"),
    "expired": ({"expiry_us": WALL_US - 61_000_000}, "E_EXPIRED"),
}


@pytest.mark.parametrize(("changes", "code"), OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("make", [certificate, revocation])
def test_a_statement_that_is_not_for_us_here_and_now_changes_nothing(make, changes, code):
    """D 4 and 26."""
    node = running()
    before = node.state(), node.trusted()
    assert node.declare("maker", make(**changes)) == code
    assert (node.state(), node.trusted()) == before


def test_a_statement_for_this_node_alone_counts():
    node = running()
    assert node.declare("maker", revocation(recipient="n")) == ""


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (certificate, {"node": "near"}),
        (certificate, {"node": "n"}),
        (certificate, {"node": "nowhere"}),
        (certificate, {"key": curve("near")}),
        (certificate, {"key": curve("maker")}),
        (revocation, {"key": curve("near")}),
        (revocation, {"key": curve("maker")}),
    ],
)
def test_a_participant_speaks_only_of_its_own(make, changes):
    """D 26: an entry for another's name."""
    node = running()
    before = node.state(), node.trusted()
    assert node.declare("core", make(**changes)) == "E_IDENTITY"
    assert (node.state(), node.trusted()) == before


def test_whose_node_it_is_revokes_any_key():
    node = running()
    assert node.declare("near", revocation(ALICE, participant="alice")) == ""
    assert curve("core") not in node.trusted()


def test_a_key_revoked_before_it_came_never_counts():
    node = running()
    assert node.declare("core", revocation(key=curve("core-2"))) == ""
    assert node.declare("core", certificate()) == "E_REVOKED"
    assert curve("core-2") not in node.trusted()


def test_a_changed_byte_anywhere_is_no_statement():
    node = running()
    before = node.state(), node.trusted()
    data = certificate()
    for place in range(len(data)):
        for bit in (1, 0x80):
            wounded = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
            code = node.declare("core", wounded)
            assert code in ("E_MESSAGE", "E_IDENTITY", "E_AUDIENCE", "E_EXPIRED"), (place, code)
    for cut_ in (data[:-1], data + b"\0", b"", b"\xc0"):
        assert node.declare("core", cut_) == "E_MESSAGE"
    assert (node.state(), node.trusted()) == before


def test_a_flood_of_statements_ends_at_a_quota():
    """D 26: a flood of entries; others' statements still count."""
    node = running()
    for number in range(STATEMENTS_MAX):
        data = revocation(key=curve(f"k{number}"))
        node.brain.guard.registry.take(data, WALL_US)
    assert node.declare("core", revocation(key=curve("one more"))) == "E_LIMIT"
    assert node.declare("near", revocation(ALICE, participant="alice")) == ""


def test_what_was_declared_is_passed_on_once_and_to_who_comes_later():
    node = running()
    node.effects.clear()
    node.declare("near", revocation(BOB, key=curve("core-2")))
    sent = [e for e in node.effects if isinstance(e, Send) and isinstance(e.message, Declare)]
    assert [e.peer for e in sent] == ["core"], "not back to who brought it"
    node.effects.clear()
    node.declare("core", revocation(BOB, key=curve("core-2")))
    node.declare("core", revocation(BOB, key=curve("core-3"), recipient="n"))
    assert [e for e in node.effects if isinstance(e, Send) and isinstance(e.message, Declare)] == []
    node.brain.report(1, PeerLost("near"))
    node.settle()
    node.effects.clear()
    node.hello("near", incarnation=2)
    sent = [e for e in node.effects if isinstance(e, Send) and isinstance(e.message, Declare)]
    assert [(e.peer, e.message.request) for e in sent] == [("near", 0)]


def test_our_own_certificate_is_said_to_peers_that_come_up():
    own = certificate(ALICE, participant="alice", node="n", key=curve("n"))
    node = Keyed(own=own)
    node.hello("core")
    assert Declare(request=0, statement=own) in [e.message for e in node.effects if isinstance(e, Send)]


def test_a_bad_statement_that_wants_no_answer_gets_none():
    node = running()
    assert node.say("core", Declare(request=0, statement=b"junk")) == []
    assert node.brain.refusals == {"E_MESSAGE": 1}


def test_a_configuration_that_changed_decides():
    node = running()
    node.declare("core", certificate())
    peers = {"near": SECURITY.peers["near"], "core": PeerKey(participant="alice", key=curve("core"))}
    moved = dataclasses.replace(SECURITY, peers=peers)
    assert curve("core-2") not in Keyed(moved, catalog=node.on_disk()).trusted()
    forgot = dataclasses.replace(SECURITY, participants={"alice": ALICE.key})
    assert curve("core-2") not in Keyed(forgot, catalog=node.on_disk()).trusted()
    clients = {"maker": ClientRules(key=curve("maker"))}
    fewer = dataclasses.replace(SECURITY, clients=clients)
    again = Keyed(fewer, catalog=node.on_disk())
    again.hello("maker")
    assert again.answer("maker", StatusRequest(request=1)) == "E_ROLE"


def test_a_configuration_read_anew_hurries_no_certificate():
    node = running()
    node.say("core", Declare(request=1, statement=certificate()), disk=False)
    node.brain.report(0, RulesRead(SECURITY))
    node.settle(disk=False)
    assert curve("core-2") not in node.trusted()
    node.brain.report(0, Persisted(node.brain.guard._token, True))
    node.settle()
    assert curve("core-2") in node.trusted()


def test_without_keys_nobody_declares_anything():
    brain = NodeMind(Settings(name="n", listen="ipc:///n", data="d", peers={"m": "ipc:///m"}), incarnation=1)
    brain.report(0, Started())
    with pytest.raises(RemoteProtocolError) as caught:
        brain.receive(0, "m", Declare(request=1, statement=certificate()))
    assert caught.value.code == "E_ROLE"
    assert STATEMENT["federation"] == "fed"
