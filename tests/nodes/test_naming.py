"""Who may ask and say what about names, what a node answers, and what it still knows in its next life."""

from __future__ import annotations

import json

import pytest

import medusa as md
from medusa.errors import RemoteProtocolError
from medusa.nodes.catalog.catalog import REMOVING, RUNNING, Catalog
from medusa.nodes.catalog.entry_bodies import FragmentBody, StreamBody, body_to
from medusa.nodes.names.addresses import AWAY_US, PeerAddresses, reachable
from medusa.nodes.reports import PeerLost
from medusa.query.codec import graph_to_msgpack
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Remove, Reply
from medusa.wire.messages.directory import CatalogEntry, Define, Digest, Entries, EntryRun, Lookup, runs_to
from medusa.wire.messages.links import Attach, Hello
from medusa.wire.outbox import CallAt, Outbox, Send
from medusa.wire.statement import client_name
from tests.nodes.keyed import NODES, Keyed, curve
from tests.nodes.test_security import running


def asked(node, name, what="", kind=""):
    """The code of the reply, and the document."""
    node.effects.clear()
    said = node.say(name, Lookup(request=4, name=what, kind=kind))
    [send] = [e for e in node.effects if isinstance(e, Send) and e.message in said]
    return send.message.code, None if send.payload is None else json.loads(bytes(send.payload))


def news(writer="near", name="far.out", version=7, fragment="far/x", after=0):
    """A stream and its fragment."""
    stream = StreamBody(query="far", fragment=fragment, columns=(("v", "int64"),), timed=False)
    boxes = FragmentBody(query="far", boxes=("x",), streams=(name,), sources=())
    told = (("stream", name, stream), ("fragment", fragment, boxes))
    entries = tuple(
        CatalogEntry(
            kind=kind, name=of, writer=writer, epoch=1, version=version - 1 + number, body=body_to(body)
        )
        for number, (kind, of, body) in enumerate(told)
    )
    return runs_to((EntryRun(writer=writer, since=1, after=after, upto=version, entries=entries),))


def definition(name="trips", column="v"):
    q = md.Query(name)
    q.sink("out", q.source("in", {column: "int64"}, time=None))
    return graph_to_msgpack(q.graph)


DIGEST = Digest(digest=bytes(16))


# --- who may ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["maker", "writer", "reader", "nobody"])
@pytest.mark.parametrize(("message", "payload"), [(DIGEST, None), (Entries(), news())])
def test_a_client_says_nothing_of_the_catalog(name, message, payload):
    node = running()
    before = node.state()
    with pytest.raises(RemoteProtocolError) as caught:
        node.say(name, message, payload)
    assert caught.value.code == "E_ROLE"
    assert node.state() == before


@pytest.mark.parametrize(("message", "payload"), [(DIGEST, None), (Entries(), news("core"))])
def test_a_node_of_another_participant_takes_no_part(message, payload):
    node = running()
    before = node.state()
    assert node.say("core", message, payload) == []
    assert node.brain.refusals == {"E_ROLE": 1}
    assert node.state() == before


def test_a_node_of_ours_is_believed():
    node = running()
    node.say("near", Entries(), news())
    assert asked(node, "maker", "far.out")[1]["node"] == "near"


@pytest.mark.parametrize("name", ["near", "core"])
@pytest.mark.parametrize(
    ("message", "payload"), [(Lookup(request=4), None), (Define(request=4), definition())]
)
def test_nodes_ask_and_define_nothing(name, message, payload):
    node = running()
    with pytest.raises(RemoteProtocolError) as caught:
        node.say(name, message, payload)
    assert caught.value.code == "E_ROLE"


# --- who sees what ------------------------------------------------------------------------------------


def test_a_client_finds_what_it_may_use():
    node = running()
    assert asked(node, "nobody", "q.out")[0] == "E_ROLE"
    for name, seen in (("reader", "q.out"), ("writer", "q.flows")):
        code, found = asked(node, name, seen)
        assert (code, found["node"], found["name"]) == ("", "n", seen)
        for hidden in {"q.out", "q.flows", "q", "q/flows"} - {seen}:
            assert asked(node, name, hidden)[0] == "E_STREAM", (name, hidden)
    for seen in ("q.out", "q.flows", "q", "q/flows", "alice/q.out", "n"):
        assert asked(node, "maker", seen)[0] == ""
    kinds = {each["kind"] for each in asked(node, "reader")[1]["entries"]}
    assert kinds == {"node", "stream"}


@pytest.mark.parametrize(
    ("name", "kind", "lacks"),
    [
        ("q.flows", "source", 'publish = ["q.flows"]'),
        ("no.such", "source", 'publish = ["no.such"]'),
        ("cars", "source", 'publish = ["cars.in"]'),
        ("q.out", "stream", ""),
        ("q.otu", "stream", 'subscribe = ["q.otu"]'),
    ],
)
def test_what_a_client_may_not_use_is_refused_by_the_right_that_it_lacks_whether_or_not_it_is_there(
    name, kind, lacks
):
    node = running()
    [reply] = node.say("reader", Lookup(request=4, name=name, kind=kind))
    assert reply.code == ("E_ROLE" if lacks else "")
    assert lacks in reply.hint
    assert ("[clients.reader]" in reply.hint) == bool(lacks)
    assert ("did you mean 'q.out'" in reply.hint) == (name == "q.otu")


def test_nothing_is_called_so():
    node = running()
    node.effects.clear()
    [reply] = node.say("maker", Lookup(request=4, name="q.otu"))
    assert reply.code == "E_STREAM"
    assert reply.hint == "did you mean 'q.out'?"
    assert asked(node, "maker", "bob/q.out")[0] == "E_STREAM"
    assert asked(node, "maker", "q.out", "query")[0] == "E_STREAM"


# --- definitions --------------------------------------------------------------------------------------


def test_a_definition_is_versioned_and_not_changed_under_a_reader():
    node = Keyed()
    for name in ("maker", "reader"):
        node.hello(name)
    assert node.answer("maker", Define(request=2), definition("q")) == ""
    assert asked(node, "maker", "q", "definition")[1]["version"] == 1
    assert node.answer("maker", Define(request=3), definition("q")) == ""
    assert asked(node, "maker", "q", "definition")[1]["version"] == 1
    attach = Attach(stream="q.out", epoch=1, next_seq=0, durable=0, granted=1 << 20, plain=True)
    node.say("reader", attach)
    assert node.answer("maker", Define(request=4), definition("q", "w")) == "E_READ"
    node.brain.report(
        node.now_us, PeerLost(next(iter(node.brain.fragments["q/in"].outputs["out"].sender.receivers)))
    )
    node.brain.fragments["q/in"].outputs["out"].sender.receivers.clear()
    assert node.answer("maker", Define(request=5), definition("q", "w")) == ""
    found = asked(node, "maker", "q", "definition")[1]
    assert (found["version"], found["columns"]) == (2, [["w", "int64"]])


def test_a_node_that_just_started_waits_for_those_that_must_hear_of_a_new_version():
    """It hadn't heard of them yet and took them for away."""
    node = Keyed()
    node.hello("maker")
    assert node.answer("maker", Define(request=2), definition("q")) == ""
    node.brain.catalog.deployments["q"].nodes = ("n", "near")  # It was there once.
    before = node.state()
    for turn in range(3):
        node.now_us += 1_000_000
        assert node.say("maker", Define(request=3), definition("q", "w")) == [], f"asked {turn + 1} times"
        assert ticked(node) == []
    assert node.state() == before
    node.now_us += 2_000_000  # As long as a deployment may take, from when it was first asked.
    [refused] = ticked(node)
    assert refused.code == "E_DEFINED"
    assert "'near', which doesn't answer" in refused.text
    assert ticked(node) == []
    assert node.state() == before
    assert node.say("maker", Define(request=4), definition("q", "w")) == []
    node.hello("near")
    forget = next(each for each in ticked(node, "near") if isinstance(each, Remove))
    assert forget.query == "q"
    node.say("near", Reply(request=forget.request))
    assert [each.code for each in ticked(node)] == [""]
    found = asked(node, "maker", "q", "definition")[1]
    assert (found["version"], found["columns"]) == (2, [["w", "int64"]])


def test_a_definition_that_is_asked_for_again_while_it_changes_is_answered_once():
    """Its client had lost the link; it heard that what it had asked for itself was in its way."""
    node, asked_for = changing()
    assert node.say("maker", asked_for, definition("q", "w")) == []
    assert node.answer("maker", Lookup(request=9, name="q", kind="definition")) == "E_STREAM"
    forgets(node)
    assert [each.code for each in ticked(node)] == [""]
    assert asked(node, "maker", "q", "definition")[1]["version"] == 2
    assert ticked(node) == []


def test_what_another_defines_while_it_changes_waits_until_that_is_over():
    node, _ = changing()
    assert node.say("maker", Define(request=7), definition("q", "w")) == []
    assert node.say("maker", Define(request=8), definition("q", "x")) == []
    forgets(node)
    assert sorted((each.request, each.code) for each in ticked(node)) == [(3, ""), (7, ""), (8, "")]
    found = asked(node, "maker", "q", "definition")[1]
    assert (found["version"], found["columns"]) == (3, [["x", "int64"]])


def test_a_node_that_dies_while_a_definition_changes_takes_it_when_it_is_asked_for_again():
    before, asked_for = changing()
    node = Keyed(catalog=before.on_disk())
    node.hello("maker")
    assert node.brain.catalog.deployments["q"].state == REMOVING
    assert node.say("maker", asked_for, definition("q", "w")) == []
    node.hello("near")
    forgets(node)
    assert [each.code for each in ticked(node)] == [""]
    assert asked(node, "maker", "q", "definition")[1]["columns"] == [["w", "int64"]]


def changing():
    """A definition that was at ``near`` once, which hasn't forgotten it yet; and what ``maker`` asked."""
    node = Keyed()
    node.hello("maker")
    node.hello("near")
    node.agree()
    assert node.answer("maker", Define(request=2), definition("q")) == ""
    node.brain.catalog.deployments["q"].nodes = ("n", "near")
    assert node.say("maker", Define(request=3), definition("q", "w")) == []
    assert node.brain.catalog.deployments["q"].state == REMOVING
    return node, Define(request=3)


def forgets(node):
    """``near`` does what it is asked."""
    said = [e.message for e in node.effects if isinstance(e, Send) and e.peer == "near"]
    forget = [each for each in said if isinstance(each, Remove)][-1]
    node.say("near", Reply(request=forget.request))


def ticked(node, name="maker"):
    """What ``name`` hears of the next turns."""
    node.effects.clear()
    for _ in range(3):
        node.now_us += 100_000
        node.brain.tick(node.now_us)
        node.settle()
    called = name if name in NODES else client_name(curve(name), "1")
    sent = [e.message for e in node.effects if isinstance(e, Send) and e.peer == called]
    return [each for each in sent if isinstance(each, Reply | Remove)]


def test_that_a_definition_stands_already_is_said_once_it_is_on_disk():
    """The node died after it had said so, and had none when it was back."""
    node = Keyed()
    node.hello("maker")
    for request in (2, 3):
        node.say("maker", Define(request=request), definition("q"), disk=False)
    assert node.brain.catalog.deployments["q"].state == RUNNING
    [held] = [e for e in node.effects if isinstance(e, Send) and e.message == Reply(request=3)]
    assert held.after is not None


def test_a_definition_that_an_earlier_version_kept_with_its_fragment_alone_is_found_there():
    node = Keyed()
    node.hello("maker")
    assert node.answer("maker", Define(request=2), definition("q")) == ""
    deployment = node.brain.catalog.deployments["q"]
    assert deployment.definition == definition("q")
    deployment.definition = b""
    written = node.brain.catalog.to_bytes()
    assert Catalog.from_bytes(written, node="n", where="disk").deployments["q"].definition == definition("q")


def test_what_is_no_definition_is_refused():
    node = running()
    before = node.state()
    wide = md.Query("q7")
    wide.sink("out", wide.source("in", {"v": "int64"}, time=None).filter("v > 0"))
    for payload, code in (
        (graph_to_msgpack(wide.graph), "E_SPEC"),
        (b"\xc1", "query.codec"),
        (definition("q"), "E_DEFINED"),
        (definition("other"), "E_ROLE"),
    ):
        assert node.answer("maker", Define(request=5), payload) == code
    assert node.answer("writer", Define(request=5), definition("q7")) == "E_ROLE"
    assert node.state() == before


# --- the next life ------------------------------------------------------------------------------------


def test_a_node_that_starts_again_knows_at_once():
    node = running()
    node.say("near", Entries(), news())
    node.now_us += 11_000_000
    node.brain.tick(node.now_us)
    node.settle()
    again = Keyed(catalog=node.on_disk())
    again.hello("maker")
    assert asked(again, "maker", "far.out")[1]["node"] == "near"


# --- addresses ----------------------------------------------------------------------------------------

OLD, NEW = "tcp://10.0.0.1:5", "tcp://10.0.0.1:6"


def hello(address=NEW, answer=True):
    return Hello(version=PROTOCOL_VERSION, node="b", incarnation=2, answer=answer, address=address)


def calls(outbox):
    return [effect.address for effect in outbox.take() if isinstance(effect, CallAt)]


def test_a_peer_that_asks_in_vain_is_called_where_it_listens():
    outbox = Outbox()
    calling = PeerAddresses({"b": OLD}, outbox)
    for at in range(5):
        calling.greeted(at * 200_000, "b", hello())
        assert calls(outbox) == []
    calling.greeted(1_000_000, "b", hello())
    assert calls(outbox) == [NEW]
    for at in range(6, 15):
        calling.greeted(at * 200_000, "b", hello())
    assert calls(outbox) == [], "it gets the time to hear us there"
    for at in range(15, 25):
        calling.greeted(at * 200_000, "b", hello())
    assert calls(outbox) == [OLD], "it doesn't: then where it was"


def test_a_peer_that_hears_us_is_called_where_it_is():
    outbox = Outbox()
    calling = PeerAddresses({"b": OLD}, outbox)
    for at in range(20):
        calling.greeted(at * 200_000, "b", hello(answer=at % 2 == 0))
        calling.greeted(at * 2_000_000, "b", hello())
        calling.greeted(at * 200_000, "b", hello(OLD))
    assert calls(outbox) == []


def test_a_peer_that_is_away_is_called_where_the_catalog_knows_it():
    outbox = Outbox()
    calling = PeerAddresses({"b": OLD}, outbox)
    calling.tick(AWAY_US - 1, lambda peer: NEW)
    assert calls(outbox) == []
    calling.tick(AWAY_US, lambda peer: NEW)
    assert calls(outbox) == [NEW]
    calling.peer_is(AWAY_US + 1, "b", up=True)
    calling.tick(9 * AWAY_US, lambda peer: NEW)
    assert calls(outbox) == []


@pytest.mark.parametrize(
    ("listens", "called", "found"),
    [
        ("tcp://*:6", OLD, NEW),
        ("tcp://0.0.0.0:6", OLD, NEW),
        ("tcp://[::]:6", OLD, NEW),
        ("tcp://*:6", "ipc:///b", ""),
        ("ipc:///b", OLD, "ipc:///b"),
        ("", OLD, ""),
        (NEW, "", NEW),
    ],
)
def test_a_node_that_listens_everywhere_is_where_it_was_called(listens, called, found):
    assert reachable(listens, called) == found
