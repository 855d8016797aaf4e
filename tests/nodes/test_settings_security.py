"""Keys and rules in a node's configuration: what is read, and how each slip is answered."""

from __future__ import annotations

import pytest

from medusa.errors import ConfigError
from medusa.nodes.config.settings import parse
from medusa.nodes.config.settings_security import ClientRules, PeerKey

A, B, C = (letter * 40 for letter in "abc")
BOB = "ed25519:" + "0b" * 32
GOOD = f"""
name = "edge-1"
participant = "alice"
federation = "netmon"
listen = "tcp://*:5555"
data = "state"

[keys]
node = "edge-1.key"
certificate = "/etc/edge-1.cert"

[participants.bob]
key = "{BOB}"

[peers]
near = {{address = "tcp://10.0.0.6:5557", key = "{A}"}}
core = {{address = "tcp://example.org:5557", participant = "bob", key = "{B}"}}

[clients.reporting]
key = "{C}"
subscribe = ["netmon.*"]
status = true
"""


def test_a_full_configuration():
    settings = parse(GOOD, folder="/conf")
    assert settings.listen == "tcp://*:5555"
    assert settings.peers == {"near": "tcp://10.0.0.6:5557", "core": "tcp://example.org:5557"}
    security = settings.security
    assert security is not None
    assert (security.node_key, security.certificate) == ("/conf/edge-1.key", "/etc/edge-1.cert")
    assert security.federation == "netmon"
    assert security.participants == {"bob": BOB}
    assert security.peers == {
        "near": PeerKey(participant="alice", key=A),
        "core": PeerKey(participant="bob", key=B),
    }
    assert security.clients == {"reporting": ClientRules(key=C, subscribe=("netmon.*",), status=True)}


def test_without_keys_there_is_no_security_and_an_address_may_be_a_table():
    settings = parse(
        'name = "a"\nlisten = "ipc:///a"\ndata = "d"\npeers = {b = {address = "ipc:///b"}, c = "ipc:///c"}'
    )
    assert settings.security is None
    assert settings.peers == {"b": "ipc:///b", "c": "ipc:///c"}


def test_a_client_may_do_nothing_unless_it_is_said():
    rules = ClientRules(key=A)
    assert (rules.publish, rules.subscribe, rules.deploy, rules.status) == ((), (), (), False)


def change(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            change('[keys]\nnode = "edge-1.key"\ncertificate = "/etc/edge-1.cert"', ""),
            "line 5: listen: '*' is not an address of this machine alone (without keys",
        ),
        (
            'name = "a"\nlisten = "ipc:///a"\ndata = "d"\n[clients.x]\nkey = "k"',
            "line 4: clients: says nothing without keys (add [keys]",
        ),
        (
            f'name = "a"\nlisten = "ipc:///a"\ndata = "d"\npeers.b = {{address = "ipc:///b", key = "{A}"}}',
            "line 4: peers.b: has a key, this node has none",
        ),
        (change('node = "edge-1.key"\n', ""), "line 8: keys: node is missing"),
        (change('node = "edge-1.key"', "node = 3"), "line 9: keys.node: expected a file, got 3"),
        (change("certificate =", "certifcate ="), "line 10: keys.certifcate: unknown field"),
        (change('federation = "netmon"\n', ""), "federation is missing (add a line"),
        (change('"netmon"', '"Net Mon"'), "line 4: federation: 'Net Mon' is no name"),
        (change(BOB, A), "line 13: participants.bob.key: expected the key of a participant (ed25519:"),
        (change(BOB, A), "(that is the CURVE key of a node or client"),
        (change(f'"{BOB}"', "7"), "line 13: participants.bob.key: expected the key of a participant"),
        (change(f'key = "{BOB}"', ""), "line 12: participants.bob: key is missing"),
        (change("[participants.bob]", "[participants.Bob]"), "'Bob' is no name (names are 1 to 64"),
        (change(f', key = "{A}"', ""), "line 16: peers.near: key is missing"),
        (change(A, "a" * 39), "line 16: peers.near.key: expected the CURVE key"),
        (change(A, "a" * 39 + "~"), "line 16: peers.near.key: expected the CURVE key"),
        (change(A, BOB), "(that is the key of a participant"),
        (change('"bob"', '"bbo"'), "line 17: peers.core.participant: there is no participant 'bbo' (did you"),
        (change("address = ", "adress = "), "line 16: peers.near.adress: unknown field 'adress' (did you"),
        (change('address = "tcp://10.0.0.6:5557", ', ""), "line 16: peers.near: address is missing"),
        (change(B, A), "line 17: peers.core.key: peers.near has the same key"),
        (change(C, A), "line 20: clients.reporting.key: peers.near has the same key"),
        (change('["netmon.*"]', '"netmon.*"'), "line 21: clients.reporting.subscribe: expected a list of"),
        (change('["netmon.*"]', '["a\\nb"]'), "line 21: clients.reporting.subscribe: expected a list of"),
        (change("status = true", "status = 1"), "line 22: clients.reporting.status: expected true or false"),
        (change("subscribe =", "subscribes ="), "line 21: clients.reporting.subscribes: unknown field"),
        (change("[clients.reporting]", "[clients]\nreporting = 1\n[x]"), "unknown field 'x'"),
        ("clients = {a = 1}\n" + change(GOOD[GOOD.index("[clients") :], ""), "line 1: clients.a: expected a"),
    ],
)
def test_a_slip_is_named_with_its_line(text, says):
    with pytest.raises(ConfigError) as caught:
        parse(text, where="edge.toml")
    assert says in str(caught.value)
    assert str(caught.value).startswith("edge.toml")
