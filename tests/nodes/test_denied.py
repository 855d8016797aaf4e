"""Another owner is cut off while the node runs, and let in again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medusa.errors import ConfigError, RemoteProtocolError
from medusa.nodes.config.settings import parse
from medusa.nodes.config.settings_security import ClientRules
from medusa.nodes.reports import RulesRead
from medusa.runtime.node.reloading import rules_again
from medusa.wire.messages.commands import Declare
from medusa.wire.messages.links import Heartbeat, Refuse
from medusa.wire.outbox import Send
from medusa.wire.statement import client_name
from tests.nodes.keyed import SECURITY, Keyed, certificate, curve
from tests.nodes.test_settings_security import GOOD

BOBS = {**SECURITY.clients, "reader": ClientRules(key=curve("reader"), status=True, participant="bob")}
BEFORE = replace(SECURITY, clients=BOBS)


def test_all_links_of_a_denied_participant_end_at_once_and_come_back_when_it_is_let_in():
    node = Keyed(BEFORE)
    for name in ("core", "near", "reader", "maker"):
        node.hello(name)
    node.declare("core", certificate())
    assert {curve("core"), curve("core-2"), curve("reader")} <= set(node.trusted())
    before = node.trusted()
    node.effects.clear()
    node.brain.report(node.now_us, RulesRead(replace(BEFORE, denied=("bob",))))
    node.settle()
    gone = {each.peer for each in node.cuts()}
    assert gone == {"core", client_name(curve("reader"), "1")}
    told = [e.message.code for e in node.effects if isinstance(e, Send) and isinstance(e.message, Refuse)]
    assert told == ["E_DENIED", "E_DENIED"]
    assert node.brain.refusals == {"E_DENIED": 2}
    assert set(before) - set(node.trusted()) == {curve("core"), curve("core-2"), curve("reader")}
    assert node.brain.diverting.participant_of("core") is None
    with pytest.raises(RemoteProtocolError, match="'bob' is cut off here") as refused:
        node.say("core", Heartbeat(incarnation=1))
    assert refused.value.code == "E_DENIED"
    assert node.answer("near", Declare(request=2, statement=certificate(sequence=9))) != ""
    node.brain.report(node.now_us, RulesRead(BEFORE))
    node.settle()
    assert set(node.trusted()) == set(before)
    node.hello("core", incarnation=2)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[participants.bob]", "[participants.bob]\ndeny = 1", "expected true or false"),
        (
            "[participants.bob]",
            f'[participants.alice]\ndeny = true\nkey = "ed25519:{"0a" * 32}"\n[participants.bob]',
            "own participant",
        ),
        ("[clients.reporting]", '[clients.reporting]\nparticipant = "bbo"', "no participant 'bbo'"),
    ],
)
def test_what_says_no_participant_to_deny_is_refused(old, new, says):
    with pytest.raises(ConfigError, match=says):
        parse(GOOD.replace(old, new))


def test_it_is_read_while_the_node_runs(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(GOOD)
    before = parse(GOOD, folder=str(tmp_path))
    file.write_text(GOOD.replace("[participants.bob]", "[participants.bob]\ndeny = true"))
    after = rules_again(file, before).security
    assert after is not None
    assert after.denied == ("bob",)


def test_a_peer_that_went_is_named_and_not_the_catalog_that_joins_all_peers(tmp_path):
    file = tmp_path / "a.toml"
    text = GOOD + f'[participants.alice]\nkey = "ed25519:{"0a" * 32}"\n[dht]\n'
    before = parse(text, folder=str(tmp_path))
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith("core =")))
    with pytest.raises(ConfigError, match=r": peers changed too") as refused:
        rules_again(file, before)
    assert "deny = true" in refused.value.hint
