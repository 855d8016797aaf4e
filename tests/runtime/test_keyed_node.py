"""A node with keys and its clients, over real sockets: who is let in, as whom, and what a revocation does."""

from __future__ import annotations

import shutil
import time

import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.cli.naming import queries
from medusa.cli.screens.top_read import reading
from medusa.errors import ConfigError, LinkError
from medusa.runtime.keys.key_files import (
    CurveKey,
    ParticipantKey,
    read_curve_key,
    read_public,
    write_key,
    write_new,
)
from medusa.runtime.node.assembly import assembled
from medusa.runtime.node.configuration import load_settings
from medusa.runtime.node.process import run_node
from medusa.runtime.node.reports import Reports
from medusa.runtime.transport.link_events import Arrival, LinkDown, LinkUp
from medusa.runtime.transport.zeromq import Transport
from medusa.wire import limits
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages.links import Hello, Refuse
from medusa.wire.statement import Certificate, Revocation, sign, to_text
from tests.runtime.test_process import InThread, query
from tests.runtime.test_zeromq import until
from tests.system.nodes import until as asked_until

DEADLINE_S = 30.0
CLIENTS = {
    "maker": 'deploy = ["*"]\npublish = ["q.*"]\nsubscribe = ["q.*"]\nstatus = true\n',
    "watcher": "status = true\n",
    "writer": 'publish = ["q.rows"]\n',
    "reader": 'subscribe = ["q.out"]\n',
    "nobody": "",
}
ALICE, BOB = ParticipantKey.new(), ParticipantKey.new()
PEER = CurveKey.new()


class Place:
    """A folder with the keys and the configuration of node ``a``, and a way to talk with it."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.address = f"ipc://{folder}/a"
        self.clients = dict(CLIENTS)
        self.peer = PEER.public
        write_key(folder / "a.key", "node", CurveKey.new())
        for name in (*CLIENTS, "stranger"):
            write_key(folder / f"{name}.key", "client", CurveKey.new())
        self.configure()

    def configure(self, more: str = "") -> None:
        text = f'name = "a"\nlisten = "{self.address}"\ndata = "data"\nparticipant = "alice"\n'
        text += 'federation = "fed"\n[keys]\nnode = "a.key"\n'
        text += f'[participants.alice]\nkey = "{ALICE.key}"\n[participants.bob]\nkey = "{BOB.key}"\n'
        text += f'[peers.b]\naddress = "ipc://{self.folder}/b"\nparticipant = "bob"\nkey = "{self.peer}"\n'
        for name, rules in self.clients.items():
            text += f'[clients.{name}]\nkey = "{read_public(self.folder / f"{name}.pub")}"\n{rules}'
        (self.folder / "a.toml").write_text(text + more)

    def connect(self, name="maker", timeout="20s", **given):
        given = {"key": self.folder / f"{name}.key", "server_key": self.folder / "a.pub", **given}
        return md.connect(self.address, timeout=timeout, **given)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("k")).folder


@pytest.fixture
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("k"))


@pytest.fixture
def node(place, monkeypatch):
    made = InThread(str(place.folder / "a.toml"), monkeypatch)
    yield made
    made.stop()


def fails(call, code, says="."):
    with pytest.raises(LinkError, match=says) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def fails_soon(call, *codes_and_words):
    """As ``fails``, of what is known long before the time given is over, which is waited for all the same: a
    little, and more where the machine is so busy that nothing is known by then."""
    codes = {each for each in codes_and_words if each.startswith("link.")}
    [says] = {"."} if codes == set(codes_and_words) else set(codes_and_words) - codes
    for timeout in ("500ms", "5s", "30s"):
        with pytest.raises(LinkError, match=says) as caught:
            call(timeout)
        if caught.value.code != "link.timeout":
            break
    assert caught.value.code in codes
    return caught.value


def test_each_client_may_do_what_the_configuration_says(place, node):
    with place.connect() as maker:
        maker.deploy(query())
        maker.publish("q.rows", {"ts": [1, 2], "v": [1, -1]})
        with maker.subscribe("q.out", from_="oldest") as trains:
            assert trains.next("20s").batch.to_pylist() == [{"ts": 1, "v": 1}]
        maker.flush()
    with place.connect("watcher") as watcher:
        assert watcher.status()["fragments"]
        fails(lambda: watcher.undeploy("q"), "E_ROLE", r"clients\.watcher")
        fails(lambda: watcher.publish("q.rows", {"ts": [3], "v": [3]}), "E_ROLE")
        watcher.close()
    with place.connect("nobody") as nobody:
        fails(nobody.status, "E_ROLE", "may not ask for the status")
        nobody.close()


def test_one_role_is_enough_for_what_it_is_for(place, node):
    """Who only publishes learns the columns and what is durable; who only reads, where to read."""
    with place.connect() as maker:
        maker.deploy(query())
        with place.connect("writer") as writer:
            writer.publish("q.rows", {"ts": [1, 2], "v": [1, -1]})
            writer.boundary("q.rows", 2)
            writer.flush()
            assert list(writer.status()["sources"]) == ["q.rows"]
            fails(lambda: writer.subscribe("q.out", from_="oldest").next("20s"), "E_ROLE")
            with place.connect("reader") as reader:
                with reader.subscribe("q.out", from_="oldest") as trains:
                    assert trains.next("20s").batch.to_pylist() == [{"ts": 1, "v": 1}]
                assert reader.status()["streams"] == ["q.out"]
                rows = {"ts": [3], "v": [3]}
                refused = fails(lambda: reader.publish("q.rows", rows), "E_ROLE", "'reader' may not publish")
                assert 'publish = ["q.rows"] in [clients.reader]' in refused.hint


def test_who_sees_no_queries_is_told_so(place, node):
    for name, says in (("reader", "status = true"), ("watcher", "no query is deployed")):
        keys = ["--key", str(place.folder / f"{name}.key"), "--server-key", str(place.folder / "a.pub")]
        told = CliRunner().invoke(queries, ["--node", place.address, *keys])
        assert (told.exit_code, told.stdout, says in told.stderr) == (0, "", True), told.output


def test_who_draws_without_keys_is_told_of_keys_as_by_status(place, node):
    for command in ("draw", "status"):
        told = CliRunner().invoke(main, [command, "--node", place.address])
        assert told.exit_code == 1
        assert "give key= and server_key=" in told.stderr, command


def test_a_client_that_may_not_see_the_boxes_is_told_so_by_top(place, node):
    def boxes(name):
        keys = {"key": str(place.folder / f"{name}.key"), "server_key": str(place.folder / "a.pub")}
        with reading(place.address, 20.0, **keys) as ask:
            return ask()

    assert boxes("watcher").boxes == []
    error = fails(lambda: boxes("reader"), "E_ROLE", "shows this client no boxes")
    assert "status = true" in error.hint


def test_a_key_as_text_is_as_good_as_its_file(place, node):
    text = (place.folder / "watcher.key").read_text()
    secret = text.split('secret = "')[1].split('"')[0]
    server = read_public(place.folder / "a.pub")
    with place.connect(key=secret, server_key=server) as fed:
        assert fed.status()["fragments"] == []
        assert secret not in repr(fed)


def test_who_is_not_let_in_is_told_at_once(place, node):
    begun = time.monotonic()
    error = fails(lambda: place.connect("stranger", "1h"), "link.not_admitted", "doesn't admit this key")
    assert "must name our public key" in error.hint
    with place.connect("watcher") as watcher:
        while (door := watcher.status()["door"])["unknown key"] < 3:  # The node's mind is told now and then.
            assert time.monotonic() - begun < DEADLINE_S
        assert door["accepted"] - door["let in"] >= 3
    assert time.monotonic() - begun < DEADLINE_S, "not after an hour"


def test_who_is_known_is_let_in_from_the_moment_the_node_listens(place):
    """Nodes that start together must not be told that they don't know each other."""
    config = place.folder / "a.toml"
    key = read_curve_key(place.folder / "watcher.key")
    server_keys = {"a": (read_public(place.folder / "a.pub"),)}
    reports = Reports(lambda level, line: None)
    with assembled(load_settings(config), config=config, reports=reports):  # It listens, and doesn't run.
        caller = Transport(listen=None, peers={"a": place.address}, key=key, server_keys=server_keys)
        try:
            came, ends = [], time.monotonic() + DEADLINE_S
            while not came and time.monotonic() < ends:
                came += caller.wait(50)
            assert came == [LinkUp("a")]
        finally:
            caller.close()


def test_a_wrong_server_key_ends_with_the_deadline_and_says_so(place, node):
    error = fails_soon(
        lambda timeout: place.connect(server_key=PEER.public, timeout=timeout), "link.server_key", "waited "
    )
    assert "another than the server key" in error.hint


def test_without_keys_a_node_with_keys_says_nothing(place, node):
    error = fails_soon(
        lambda timeout: md.connect(place.address, timeout=timeout), "link.keys", "link.handshake"
    )
    assert "server_key=" in error.hint


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"server_key": None}, "anybody could pass for the node"),
        ({"key": None}, "key= is not"),
        ({"key": 7}, "path or 40 characters"),
        ({"key": "!" * 39}, "can't be read"),
        ({"server_key": "~" * 40}, "server_key is no key"),
        ({"key": "~" * 40}, "key: the secret key is damaged"),
        ({"server_key": "nowhere.pub"}, "No such file"),
    ],
)
def test_keys_that_cannot_be_used(written, given, says):
    given = {"key": written / "maker.key", "server_key": written / "a.pub", **given}
    with pytest.raises(LinkError, match=f"connect: .*{says}"):
        md.connect("tcp://127.0.0.1:9", timeout="1s", **given)


def test_a_key_of_the_wrong_kind(written):
    with pytest.raises(LinkError, match="expected node"):
        md.connect(
            "tcp://127.0.0.1:9", key=written / "maker.key", server_key=written / "watcher.pub", timeout="1s"
        )
    with pytest.raises(LinkError, match="needs the secret one"):
        md.connect("tcp://127.0.0.1:9", key=written / "maker.pub", server_key=written / "a.pub", timeout="1s")


def test_a_key_that_others_can_read_is_not_used(place):
    """Row 32 of the threat table: by a client, and by a node as it starts."""
    for name in ("maker", "a"):
        (place.folder / f"{name}.key").chmod(0o644)
    fails(place.connect, "config.key.mode", rf"chmod 600 {place.folder}/maker\.key")
    with pytest.raises(ConfigError, match=rf"chmod 600 {place.folder}/a\.key"):
        run_node(place.folder / "a.toml")
    assert not (place.folder / "a").exists(), "it never listened"


@pytest.mark.parametrize("claims", ["b", "c-00000000000000000000", "watcher"])
def test_a_name_that_is_not_the_keys_is_refused_and_its_link_ends(place, node, claims):
    """Row 2 of the threat table: the name in a message, with a routing id that nobody asks for."""
    keys = {"a": (read_public(place.folder / "a.pub"),)}
    own = read_curve_key(place.folder / "maker.key")
    liar = Transport(listen=None, peers={"a": place.address}, key=own, server_keys=keys)
    try:
        until(lambda events: LinkUp("a") in events, liar)
        hello = Hello(
            version=limits.PROTOCOL_VERSION, node=claims, incarnation=1, answer=True, client=claims != "b"
        )
        liar.send("a", encode_frame(hello))
        (events,) = until(lambda events: LinkDown("a") in events, liar)
        said = [decode_frame(each.frames, peer="a")[0] for each in events if isinstance(each, Arrival)]
        assert [(type(each), each.code) for each in said] == [(Refuse, "E_IDENTITY")]
    finally:
        liar.close()
    with place.connect("watcher") as watcher:
        assert watcher.status()["peers"] == {"b": "silent"}


# --- revocation -----------------------------------------------------------------------------------


def gone(fed) -> LinkError:
    """What a client hears whose link ended."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        try:
            fed.status()
        except LinkError as error:
            return error
    raise AssertionError("still there")


def test_a_client_that_left_the_configuration_is_cut_off_at_once(place, node):
    """Row 5 of the threat table: on an open connection."""
    maker, watcher = place.connect(), place.connect("watcher")
    maker.deploy(query())
    del place.clients["watcher"]
    place.configure()
    node.reload()
    error = gone(watcher)
    assert error.code == "E_REVOKED"
    assert maker.status()["fragments"], "others go on"
    fails(lambda: place.connect("watcher"), "link.not_admitted")
    watcher.close()
    place.clients["watcher"] = CLIENTS["watcher"]
    place.configure()
    node.reload()
    with place.connect("watcher") as again:
        assert again.status()["fragments"]
    maker.close()


def test_a_client_whose_rules_change_goes_on_with_the_new_ones(place, node):
    watcher = place.connect("watcher")
    assert watcher.status()["fragments"] == []
    place.clients["watcher"] = 'deploy = ["q"]\n'
    place.configure()
    node.reload()
    assert gone(watcher).code == "E_ROLE"
    watcher.deploy(query())
    watcher.close()


def test_a_configuration_that_is_wrong_changes_nothing(place, node, capsys):
    with place.connect() as maker:
        maker.deploy(query())
        for more, says in [
            ("no toml", "Expected '='"),
            ('[limits]\nretention = "2 MiB"\n', "limits changed too"),
        ]:
            place.configure(more)
            node.reload()
            said = ""
            end = time.monotonic() + DEADLINE_S
            while says not in said:
                assert time.monotonic() < end, said
                assert maker.status()["fragments"]
                said += capsys.readouterr().err
            assert "keys and rules stay as they were" in said


def signed(place, statement):
    return to_text(sign(statement, {"alice": ALICE, "bob": BOB}[statement.participant]))


def said_by(participant, **more):
    now_us = time.time_ns() // 1000
    fields = {"federation": "fed", "participant": participant, "recipient": "", "epoch": 1}
    return {**fields, "sequence": now_us, "expiry_us": now_us + 60_000_000, **more}


def test_a_revocation_that_its_owner_signed_bites_at_once_and_stays(place, node, monkeypatch):
    with place.connect() as maker:
        watcher = place.connect("watcher")
        key = read_public(place.folder / "watcher.pub")
        fails(
            lambda: maker.declare(signed(place, Revocation(key=key, **said_by("bob")))),
            "E_IDENTITY",
            "revokes",
        )
        assert watcher.status()["fragments"] == []
        fails(
            lambda: maker.declare(signed(place, Revocation(key=key, **said_by("alice", federation="other")))),
            "E_AUDIENCE",
        )
        maker.declare(signed(place, Revocation(key=key, **said_by("alice"))))
        assert gone(watcher).code == "E_REVOKED"
        watcher.close()
        fails(lambda: maker.declare("what?"), "E_MESSAGE")
    node.stop()
    again = InThread(str(place.folder / "a.toml"), monkeypatch)
    fails(lambda: place.connect("watcher"), "link.not_admitted")
    again.stop()


def test_a_node_says_whose_key_it_is_only_of_its_own(place, monkeypatch):
    """The certificate that the configuration names is of this node and key, or it doesn't start."""
    own = read_public(place.folder / "a.pub")
    good = Certificate(node="a", key=own, **said_by("alice"))
    for name, text, says in [
        ("none", "no statement", "no statement in this text"),
        (
            "other",
            signed(place, Certificate(node="b", key=own, **said_by("alice"))),
            "no certificate of node 'a'",
        ),
        ("key", signed(place, Certificate(node="a", key=PEER.public, **said_by("alice"))), "and its key"),
        ("revoked", signed(place, Revocation(key=own, **said_by("alice"))), "no certificate of node 'a'"),
    ]:
        write_new(place.folder / f"{name}.cert", text, 0o644)
        config = place.folder / "a.toml"
        place.configure()
        config.write_text(
            config.read_text().replace('node = "a.key"', f'node = "a.key"\ncertificate = "{name}.cert"')
        )
        with pytest.raises(ConfigError, match=says):
            run_node(config)
    write_new(place.folder / "a.cert", signed(place, good), 0o644)
    place.configure()
    config.write_text(config.read_text().replace('node = "a.key"', 'node = "a.key"\ncertificate = "a.cert"'))
    InThread(str(config), monkeypatch).stop()


# --- between nodes --------------------------------------------------------------------------------


def two_nodes(folder) -> dict[str, str]:
    """Configurations of node ``a`` of alice and node ``b`` of bob, that know each other's keys."""
    for name in "ab":
        write_key(folder / f"{name}.key", "node", CurveKey.new())
        write_key(folder / f"{name}-client.key", "client", CurveKey.new())
    found = {}
    for name, other, own, whose in (("a", "b", "alice", "bob"), ("b", "a", "bob", "alice")):
        text = f'name = "{name}"\nlisten = "ipc://{folder}/{name}"\ndata = "data-{name}"\n'
        text += f'participant = "{own}"\n'
        text += f'federation = "fed"\n[keys]\nnode = "{name}.key"\n'
        text += f'[participants.alice]\nkey = "{ALICE.key}"\n[participants.bob]\nkey = "{BOB.key}"\n'
        text += f'[peers]\n{other} = {{address = "ipc://{folder}/{other}", participant = "{whose}", '
        text += f'key = "{read_public(folder / f"{other}.pub")}"}}\n'
        text += f'[clients.admin]\nkey = "{read_public(folder / f"{name}-client.pub")}"\nstatus = true\n'
        found[name] = str(folder / f"{name}.toml")
        (folder / f"{name}.toml").write_text(text)
    return found


def ask(folder, name) -> None:
    with md.connect(
        f"ipc://{folder}/{name}",
        timeout="20s",
        key=folder / f"{name}-client.key",
        server_key=folder / f"{name}.pub",
    ) as fed:
        assert fed.node == name
        fed.status()


def test_two_participants_nodes_find_each_other_and_part(tmp_path_factory, monkeypatch, capsys):
    folder = tmp_path_factory.mktemp("n")
    configs = two_nodes(folder)
    nodes = [InThread(configs[name], monkeypatch) for name in "ab"]
    said = ""

    def told(*words, count=1):
        nonlocal said
        said += capsys.readouterr().err
        return all(said.count(each) >= count for each in words)

    asked_until(lambda: told("info peer up", count=2), what="both are up")
    ask(folder, "a")
    # At alice's, node b has another key now: what calls with its old one is cut off and not let in again.
    text = (folder / "a.toml").read_text()
    (folder / "a.toml").write_text(text.replace(read_public(folder / "b.pub"), PEER.public))
    nodes[0].reload()
    asked_until(
        lambda: told("refused at the door: unknown key", "doesn't admit this key"), what="b is refused"
    )
    ask(folder, "b")
    for node in nodes:
        node.stop()
    shutil.rmtree(folder)
