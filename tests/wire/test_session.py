"""Is the peer there, and is it the same one."""

from __future__ import annotations

import pytest

from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.session import PeerSession, PeerState, SessionSettings
from medusa.wire.messages.commands import StatusRequest
from medusa.wire.messages.links import Heartbeat, Hello
from medusa.wire.outbox import Outbox
from tests.wire.pair import sends

KNOBS = SessionSettings()


def hello(node="b", incarnation=1, **changes):
    return Hello(**{"version": PROTOCOL_VERSION, "node": node, "incarnation": incarnation} | changes)


def session(calls=True):
    outbox = Outbox()
    return PeerSession(hello("a"), "b", outbox=outbox, calls=calls), outbox


def said(outbox):
    return [message for message, _ in sends(outbox)]


def test_a_caller_repeats_its_hello_until_it_is_answered():
    caller, outbox = session()
    for now_us in (0, KNOBS.hello_us, 2 * KNOBS.hello_us):
        assert caller.wake_at_us(now_us) == now_us
        assert caller.tick(now_us) is None
        assert said(outbox) == [hello("a", answer=True)]
    assert caller.receive(500_000, hello()) is LinkEvent.PEER_UP
    assert caller.state is PeerState.UP


def test_who_is_called_waits_and_answers():
    called, outbox = session(calls=False)
    called.tick(0)
    assert said(outbox) == []
    assert called.wake_at_us(0) is None
    assert called.receive(5, hello(answer=True)) is LinkEvent.PEER_UP
    assert said(outbox) == [hello("a")]


def test_silence_is_noticed_after_the_timeout_and_any_word_ends_it():
    one, outbox = session()
    one.receive(0, hello())
    for now_us in range(0, KNOBS.timeout_us, KNOBS.heartbeat_us):
        assert one.tick(now_us) is None
    assert said(outbox) == [Heartbeat(incarnation=1)] * 3
    assert one.tick(KNOBS.timeout_us) is LinkEvent.PEER_DOWN
    assert one.receive(400_000, StatusRequest(request=1)) is LinkEvent.PEER_UP
    assert one.receive(400_000, StatusRequest(request=1)) is None


def test_who_stood_still_itself_learns_of_the_silence_before_it_takes_what_came_meanwhile():
    one, outbox = session()
    one.receive(0, hello())
    said(outbox)
    assert one.look(KNOBS.timeout_us - 1) is None
    assert one.look(KNOBS.timeout_us) is LinkEvent.PEER_DOWN
    assert one.look(KNOBS.timeout_us) is None
    assert one.broken_since_us == 0
    assert said(outbox) == [], "it only looks"
    assert one.receive(KNOBS.timeout_us, Heartbeat(incarnation=1)) is LinkEvent.PEER_UP
    assert one.broken_since_us is None


def test_a_new_incarnation_is_a_restart_and_an_old_one_is_left_over():
    one, _ = session()
    one.receive(0, hello(incarnation=5))
    assert one.receive(1, hello(incarnation=5)) is None
    assert one.receive(2, hello(incarnation=6)) is LinkEvent.PEER_RESTARTED
    assert one.receive(3, hello(incarnation=5)) is None
    assert one.incarnation == 6


def test_a_heartbeat_of_somebody_else_makes_us_ask():
    one, outbox = session()
    one.receive(0, hello(incarnation=5))
    assert one.receive(1, Heartbeat(incarnation=6)) is None
    assert said(outbox) == [hello("a", answer=True)]
    # Not at each heartbeat.
    assert one.receive(2, Heartbeat(incarnation=6)) is None
    assert said(outbox) == []


def test_a_broken_connection_is_silence_at_once():
    one, _ = session()
    assert one.lost() is None
    one.receive(0, hello())
    assert one.lost() is LinkEvent.PEER_DOWN
    assert one.receive(1, hello()) is LinkEvent.PEER_UP


@pytest.mark.parametrize(
    ("message", "code"), [(hello(version=99), "E_VERSION"), (hello("eve"), "E_IDENTITY")]
)
def test_another_version_or_name_is_refused_and_changes_nothing(message, code):
    one, outbox = session()
    with pytest.raises(RemoteProtocolError) as error:
        one.receive(0, message)
    assert error.value.code == code
    assert one.state is PeerState.SILENT
    assert said(outbox) == []


def test_knobs_are_checked():
    with pytest.raises(LocalProtocolError, match="timeout"):
        SessionSettings(heartbeat_us=300_000, timeout_us=300_000)


def test_an_earlier_life_that_calls_when_the_later_one_is_gone_is_told_once():
    one, outbox = session()
    one.receive(0, hello(incarnation=5))
    outbox.take()
    one.receive(1, hello(incarnation=4))
    assert outbox.take() == [], "was under way"
    one.lost()
    for now_us in range(2, 5):
        assert one.receive(now_us, hello(incarnation=4)) is None
    (told, report) = outbox.take()
    assert (told.peer, told.message) == ("b", one.told_earlier)
    assert told.message.code == "E_EARLIER"
    assert "life 4, and was in life 5" in told.message.text
    assert (report.level, report.fields["peer"], report.fields["incarnation"]) == ("warning", "b", 4)
    assert "clock" in report.fields["hint"]
    assert one.receive(9, hello(incarnation=5)) is LinkEvent.PEER_UP


def test_an_earlier_life_that_calls_us_is_told_by_who_knows_its_connection():
    one, outbox = session(calls=False)
    one.receive(0, hello(incarnation=5))
    one.lost()
    outbox.take()
    one.receive(2, hello(incarnation=4))
    assert said(outbox) == []
    assert one.told_earlier.code == "E_EARLIER"
