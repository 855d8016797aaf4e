"""Remote definitions: who may have a node keep and run what, and deployments that use one."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

import medusa as md
from medusa.nodes.catalog.kept_definitions import HeldDefinition, MappedDefinition
from medusa.nodes.config.settings import parse
from medusa.nodes.config.settings_offers import OfferRules
from medusa.nodes.config.settings_security import ClientRules, PeerKey
from medusa.nodes.message_table import Heard
from medusa.nodes.placement.placement import cut
from medusa.nodes.remote import definitions
from medusa.nodes.spec.fragment_spec import SPEC_BYTES_MAX, fragment_to
from medusa.query.codec import graph_to_msgpack
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages.commands import Install, Remove, Reply
from medusa.wire.messages.remote import DefineRemote, DropRemote, Instantiate, KeepRemote, RevokeRemote, Terms
from medusa.wire.messages.rerouting import Expect, Follow, Moved, Placed
from medusa.wire.outbox import Send
from tests.nodes import keyed
from tests.nodes.deployed import AT, TARGETS, Town, query
from tests.nodes.keyed import SECURITY, Keyed, curve
from tests.nodes.test_security import query as own_query

# --- a town of one participant ----------------------------------------------------------------------


def asked(town, message, payload=None):
    """What the client hears."""
    town.ask(message, payload)
    town.settle(lambda: message.request in town.replies, until_us=town.now_us + 3_000_000)
    town.settle()
    return town.replies[message.request]


def define(town, request, name="part", node="t3"):
    message = DefineRemote(request=request, name=name, node=node, at=AT)
    return asked(town, message, graph_to_msgpack(query().graph))


def test_every_term_travels_by_its_name_and_both_sides_keep_it():
    terms = set(Terms.__struct_fields__)
    for kind in (KeepRemote, HeldDefinition, MappedDefinition):
        assert terms <= set(kind.__struct_fields__), kind
    assert KeepRemote(request=1, name="part", expires_us=7).terms == Terms(expires_us=7)
    asked = DefineRemote(request=1, name="part", node="n", at=(), lifetime_us=5)
    assert asked.terms(lambda: 10) == Terms(expires_us=15)
    assert msgspec.structs.replace(asked, lifetime_us=0).terms(pytest.fail) == Terms()


def heard_by(town, name):
    """The kinds of words by which it is told to run something, as they come."""
    heard, take = [], town.machines[name].take

    def noted(source, frames):
        message = decode_frame(frames, peer=source)[0]
        if isinstance(message, Install | Instantiate):
            heard.append(type(message))
        take(source, frames)

    town.machines[name].take = noted
    return heard


def deployed(town, request):
    town.deploy(request)
    town.settle(lambda: request in town.replies)
    town.settle()
    return town.replies[request]


def test_a_deployment_sends_the_name_where_the_spec_is_kept():
    town = Town()
    assert define(town, 1) == ""
    by_name, by_spec = heard_by(town, "t3"), heard_by(town, "t4")
    assert deployed(town, 2) == ""
    assert town.runs()
    assert (by_name, by_spec) == ([Instantiate], [Install])
    status = town.machines["t3"].brain.status(0)["remote"]
    assert status["kept"] == {
        "local/part": {
            "for": "m",
            "participant": "local",
            "query": "q",
            "fragment": "q/on_t3",
            "inputs": ["on_t2"],
            "expires_us": None,
        }
    }
    defined = town.machines["m"].brain.status(0)["remote"]["defined"]
    assert defined == {"part": {"node": "t3", "query": "q", "fragment": "q/on_t3", "expires_us": None}}


def test_who_revokes_it_where_it_is_kept_is_obeyed_and_nothing_is_left():
    town = Town()
    assert define(town, 1) == ""
    held = town.machines["t3"].brain.catalog.remote.held
    del held["local/part"]
    assert deployed(town, 2) == "E_NO_DEFINITION"
    assert not town.runs()
    assert asked(town, RevokeRemote(request=3, name="part")) == ""
    by_spec = heard_by(town, "t3")
    assert deployed(town, 4) == ""
    assert town.runs()
    assert by_spec == [Install], "what is defined no more is deployed in full"


def test_what_is_kept_outlives_its_nodes():
    town = Town()
    assert define(town, 1) == ""
    for name in ("t3", "m"):
        town.machines[name].die()
        town.restart(name)
    town.settle(until_us=town.now_us + 300_000)
    by_name = heard_by(town, "t3")
    assert deployed(town, 2) == ""
    assert by_name == [Instantiate]
    assert town.runs()


def test_revoked_while_it_runs_it_goes_on_and_is_not_begun_again():
    town = Town()
    assert define(town, 1) == ""
    assert deployed(town, 2) == ""
    assert asked(town, RevokeRemote(request=3, name="part")) == ""
    assert town.machines["t3"].brain.catalog.remote.held == {}
    assert town.runs()


@pytest.mark.parametrize("name", TARGETS)
def test_the_same_again_is_no_error_and_another_is(name):
    town = Town()
    assert define(town, 1) == define(town, 2) == ""
    assert define(town, 3, node=name) == ("" if name == "t3" else "E_DEFINED")


def test_a_definition_is_one_part_at_another_node():
    town = Town()
    assert define(town, 1, node="m") == "query.placement"
    assert asked(town, RevokeRemote(request=2, name="part")) == "E_NO_DEFINITION"


def test_the_nearest_node_of_the_placement_is_named():
    brain = Town().machines["m"].brain
    message = DefineRemote(request=1, name="part", node="t33", at=AT)
    brain.remotes.receive(Heard(0, "c", message, graph_to_msgpack(query().graph), client=True))
    [reply] = [each.message for each in brain.outbox.take() if isinstance(each, Send)]
    assert reply.code == "query.placement"
    assert "t3" in reply.hint


def test_a_node_that_does_not_answer_keeps_nothing_in_the_end():
    town = Town()
    town.machines["t3"].hangs = True
    assert define(town, 1) == "E_TIMEOUT"
    town.heal()
    assert town.machines["t3"].brain.catalog.remote.held == {}
    assert town.machines["m"].brain.catalog.remote.mapped == {}


def begin(town, message, payload=None):
    """Ask, and go on as far as that goes without time passing."""
    town.ask(message, payload)
    town.settle()


def kept_of(town, name):
    return town.machines[name].brain.catalog.remote


def test_a_second_definition_of_a_name_waits_for_the_first():
    """Both would be kept, and only one could be revoked."""
    town = Town()
    town.machines["t3"].hangs = True
    graph = graph_to_msgpack(query().graph)
    first = DefineRemote(request=1, name="part", node="t3", at=AT)
    begin(town, first, graph)
    assert define(town, 2, node="t4") == "E_BUSY"
    assert asked(town, RevokeRemote(request=3, name="part")) == "E_BUSY"
    assert 1 not in town.replies
    begin(town, first, graph)
    assert 1 not in town.replies, "the same question again is no second definition"
    town.heal()
    assert town.replies[1] == ""
    assert (list(kept_of(town, "t3").held), kept_of(town, "t4").held) == (["local/part"], {})
    assert asked(town, RevokeRemote(request=4, name="part")) == ""
    assert kept_of(town, "t3").held == kept_of(town, "m").mapped == kept_of(town, "m").revoking == {}


def test_not_too_many_are_asked_for_at_once(monkeypatch):
    monkeypatch.setattr(definitions, "ASKED_MAX", 2)
    town = Town()
    assert define(town, 1, "first") == ""
    town.machines["t3"].hangs = True
    graph = graph_to_msgpack(query().graph)
    for number in (2, 3):
        begin(town, DefineRemote(request=number, name=f"part-{number}", node="t3", at=AT), graph)
    assert define(town, 4, "part-4", node="t4") == "E_LIMIT"
    assert asked(town, RevokeRemote(request=5, name="first")) == "E_LIMIT"
    assert list(kept_of(town, "m").mapped) == ["first"]
    town.heal()
    assert town.replies[2] == town.replies[3] == ""
    assert define(town, 6, "part-4", node="t4") == ""


def test_what_is_revoked_while_its_keeper_is_away_goes_when_it_is_back():
    town = Town()
    assert define(town, 1) == ""
    town.machines["t3"].die()
    assert asked(town, RevokeRemote(request=2, name="part")) == "E_TIMEOUT"
    assert kept_of(town, "m").mapped == {}
    assert define(town, 3, node="t4") == "E_BUSY"
    town.machines["m"].die()
    town.restart("m")
    town.settle(until_us=town.now_us + 300_000)
    assert town.machines["m"].brain.status(0)["remote"]["revoking"] == {"part": "t3"}
    assert asked(town, RevokeRemote(request=4, name="part")) == "E_TIMEOUT", "still not known"
    town.heal()
    assert kept_of(town, "t3").held == kept_of(town, "m").revoking == {}
    assert asked(town, RevokeRemote(request=5, name="part")) == "E_NO_DEFINITION"
    assert define(town, 6, node="t4") == ""


def test_what_its_node_forgot_to_have_asked_for_is_kept_by_nobody():
    town = Town()
    town.machines["t3"].hangs = True
    begin(town, DefineRemote(request=1, name="part", node="t3", at=AT), graph_to_msgpack(query().graph))
    town.machines["m"].die()
    town.asked = None
    town.restart("m")
    town.heal()
    assert kept_of(town, "t3").held == kept_of(town, "m").revoking == kept_of(town, "m").mapped == {}


def test_a_keeper_answers_when_it_is_on_its_disk():
    town = Town()
    town.machines["t3"].full = True
    assert define(town, 1) == "E_TIMEOUT"
    town.heal()
    assert define(town, 2) == ""


# --- another participant ----------------------------------------------------------------------------


def part(*, window=False, name="r"):
    """The fragment at node n of a query of bob's node core."""
    q = md.Query(name)
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="s")
    kept = rows.filter("v > 0", name="kept")
    if window:
        kept = kept.window("1s").aggregate(n=md.count(), name="counted")
    q.sink("out", kept)
    (found,) = cut(q.graph, {"core": ["rows", "out"], "n": ["kept", "counted"] if window else ["kept"]}).at(
        "n"
    )
    return found


def offering(*, security=SECURITY, **rules):
    """Node n of alice, who offers bob filters."""
    node = Keyed(security)
    offers = {"bob": OfferRules(boxes=("filter",), **rules)} if rules.pop("any", True) else {}
    node.brain.remotes.offers = offers
    for name in ("near", "core", "maker", "reader"):
        node.hello(name)
    return node


def keep(request=1, name="part"):
    return KeepRemote(request=request, name=name)


def run(request=2, name="part", **changes):
    fields = {
        "request": request,
        "query": "r",
        "fragment": "r/kept",
        "name": name,
        "inputs": (("rows", "core", "r.rows"),),
        "readers": (("kept-out", ("core",)),),
    }
    return Instantiate(**{**fields, **changes})


def test_what_is_offered_is_kept_and_run_and_stopped_by_who_had_it_kept():
    node = offering()
    spec = part()
    assert list(spec.readers) == ["kept-out"]
    assert (
        node.answer("core", Install(request=1, query="r", fragment="r/kept"), fragment_to(spec))
        == "E_NO_CONTRACT"
    )
    assert node.answer("core", keep(), fragment_to(spec)) == ""
    assert node.answer("core", run()) == ""
    assert list(node.brain.fragments) == ["r/kept"]
    assert node.answer("near", Remove(request=5, query="r")) == ""
    assert list(node.brain.fragments) == ["r/kept"], "not near's"
    said = node.say("core", Remove(request=3, query="r"))
    assert [each.code for each in said if isinstance(each, Reply)] == [""]
    assert list(node.brain.fragments) == []
    assert node.answer("core", Remove(request=4, query="r")) == "E_NO_CONTRACT"


def test_what_is_not_offered_is_refused_and_changes_nothing():
    for node, spec in ((offering(), part(window=True)), (offering(any=False), part())):
        before = node.state()
        assert node.answer("core", keep(), fragment_to(spec)) == "E_OFFER"
        assert node.answer("core", run()) == "E_NO_DEFINITION"
        assert node.state() == before
        assert node.brain.refusals == {"E_OFFER": 1, "E_NO_DEFINITION": 1}


def test_what_is_offered_no_more_is_not_run_though_it_is_kept():
    node = offering()
    assert node.answer("core", keep(), fragment_to(part())) == ""
    node.brain.remotes.offers = {}
    before = node.state()
    assert node.answer("core", run()) == "E_OFFER"
    assert node.state() == before


def test_nobody_runs_or_drops_what_another_had_kept():
    node = offering()
    assert node.answer("core", keep(), fragment_to(part())) == ""
    before = node.state()
    assert node.answer("near", run()) == "E_NO_DEFINITION"
    assert node.answer("near", DropRemote(request=9, name="part")) == ""
    assert node.answer("near", DropRemote(request=10, name="bob/part")) == ""
    assert node.state() == before


def test_another_node_of_the_participant_drops_nothing_either(monkeypatch):
    monkeypatch.setattr(keyed, "NODES", (*keyed.NODES, "other"))
    other = PeerKey(participant="bob", key=curve("other"))
    node = offering(security=replace(SECURITY, peers={**SECURITY.peers, "other": other}))
    node.hello("other")
    assert node.answer("core", keep(), fragment_to(part())) == ""
    before = node.state()
    assert node.answer("other", DropRemote(request=9, name="part")) == ""
    assert node.state() == before
    assert list(node.brain.catalog.remote.held) == ["bob/part"]
    said = node.say("other", Install(request=11, query="r", fragment="r/kept"), fragment_to(part()))
    [refusal] = [each for each in said if isinstance(each, Reply)]
    assert (refusal.code, "by that node" in refusal.hint) == ("E_NO_CONTRACT", True)
    assert "'r/kept' is kept here for node 'core'" in refusal.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"query": "q"},
        {"inputs": ()},
        {"inputs": (("rows", "n", "r.rows"),)},
        {"inputs": (("other", "core", "r.rows"),)},
        {"readers": ()},
        {"readers": (("other", ("core",)),)},
    ],
)
def test_a_name_is_run_with_its_own_inputs_and_outputs_only(changes):
    node = offering()
    assert node.answer("core", keep(), fragment_to(part())) == ""
    before = node.state()
    assert node.answer("core", run(**changes)) == "E_SPEC"
    assert node.answer("core", run(request=3, inputs=(("rows", "stranger", "r.rows"),))) == "E_PEER"
    assert node.state() == before


def test_words_that_come_again_late_change_nothing():
    node = offering()
    assert node.answer("core", keep(), fragment_to(part())) == ""
    assert node.answer("core", DropRemote(request=2, name="part")) == ""
    before = node.state()
    assert node.answer("core", keep(), fragment_to(part())) == "E_STALE"
    assert node.state() == before
    assert node.answer("core", keep(3), fragment_to(part())) == ""
    assert node.answer("core", DropRemote(request=2, name="part")) == ""
    assert list(node.brain.catalog.remote.held) == ["bob/part"]


def test_a_definition_that_was_never_confirmed_takes_back_nothing_that_was_kept_before():
    """The node that had it kept lost its folder, defined it anew, and didn't get the answer in time."""
    node = offering()
    assert node.answer("core", keep(1), fragment_to(part())) == ""
    assert node.answer("core", keep(3), fragment_to(part())) == ""
    assert node.answer("core", DropRemote(request=4, name="part", since=3)) == ""
    assert list(node.brain.catalog.remote.held) == ["bob/part"]
    assert node.answer("core", DropRemote(request=5, name="part", since=1)) == ""
    assert not node.brain.catalog.remote.held


def test_what_brought_a_definition_does_not_bring_it_back_when_it_comes_again():
    """The keeper has revoked it meanwhile; a later word of the node that had it kept does."""
    admin = ClientRules(key=curve("admin"), deploy=("*",))
    node = offering(security=replace(SECURITY, clients={**SECURITY.clients, "admin": admin}))
    node.hello("admin")
    assert node.answer("core", keep(), fragment_to(part())) == ""
    assert node.answer("admin", RevokeRemote(request=2, name="bob/part")) == ""
    before = node.state()
    assert node.answer("core", keep(), fragment_to(part())) == "E_STALE"
    assert node.state() == before
    assert node.answer("core", keep(3), fragment_to(part())) == ""
    assert list(node.brain.catalog.remote.held) == ["bob/part"]


def test_too_many_too_large_and_wounded():
    node = offering(definitions=2)
    for number in (1, 2):
        assert node.answer("core", keep(number, f"part-{number}"), fragment_to(part())) == ""
    before = node.state()
    assert node.answer("core", keep(3, "part-3"), fragment_to(part())) == "E_LIMIT"
    assert node.answer("core", keep(4, "part-1"), bytes(SPEC_BYTES_MAX + 1)) == "E_SPEC"
    assert node.answer("core", keep(5, "part-1"), b"\xc1") == "E_SPEC"
    other = msgspec.structs.replace(part(), node="core")
    assert node.answer("core", keep(6, "part-1"), fragment_to(other)) in ("E_SPEC", "E_IDENTITY")
    assert node.answer("core", keep(7, "part-1"), fragment_to(part(name="s"))) == "E_DEFINED"
    assert node.state() == before


def test_clients_define_and_revoke_only_what_they_may_deploy():
    node = offering()
    assert node.answer("core", keep(), fragment_to(part())) == ""
    before = node.state()
    at = (("n", ("rows", "out")), ("near", ("kept",)))
    q = md.Query("r")
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="s")
    q.sink("out", rows.filter("v > 0", name="kept"))
    define = DefineRemote(request=1, name="x", node="near", at=at)
    assert node.answer("maker", define, graph_to_msgpack(q.graph)) == "E_ROLE", "maker may deploy q*"
    assert node.answer("reader", RevokeRemote(request=2, name="bob/part")) == "E_ROLE"
    assert node.answer("maker", RevokeRemote(request=3, name="bob/part")) == "E_ROLE"
    with pytest.raises(md.LinkError):
        node.say("maker", keep(4), fragment_to(part()))
    assert node.state() == before


def test_who_has_a_part_here_moves_what_is_next_to_it_among_its_own_nodes():
    second = PeerKey(participant="bob", key=curve("second"))
    security = replace(SECURITY, peers={**SECURITY.peers, "second": second})
    node = offering(security=security)
    assert node.answer("core", keep(), fragment_to(part())) == ""
    assert node.answer("core", run()) == ""
    assert node.deploy("maker", own_query()) == ""

    def follow(request, peer="core", to="second", query="r", stream="r.rows"):
        return node.answer(peer, Follow(request=request, query=query, stream=stream, node=to))

    def expect(request, to="second", query="r", stream="r.kept"):
        message = Expect(request=request, query=query, stream=stream, like="core", reader=to, epoch=2)
        return node.answer("core", message)

    before = node.state()
    for number, to in enumerate(("near", "n", "stranger"), 10):
        assert follow(number, to=to) == expect(number, to=to) == "E_NO_CONTRACT"
    assert expect(20, query="q", stream="q.out") == "E_NO_CONTRACT", "that is ours"
    assert node.state() == before
    placed = Placed(request=30, query="r", fragment="r/kept", node="second")
    assert node.answer("core", placed) == "E_NO_CONTRACT"
    assert follow(31) == ""
    assert node.state() == before, "asked only"
    assert expect(32) == ""
    [hosted] = [each for name, each in node.brain.fragments.items() if name == "r/kept"]
    assert hosted.spec.readers == {"kept-out": ("core", "second")}
    assert node.answer("core", Moved(request=33, stream="r.rows", node="second", epoch=2)) == ""
    assert [feed.node for feed in hosted.spec.feeds] == ["second"]


# --- the configuration --------------------------------------------------------------------------------

PLAIN = 'name = "n"\nlisten = "ipc:///n"\ndata = "d"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[offers.bob]\nboxes = []", "is no other participant"),
        ("[offers.local]\nboxes = []", "is no other participant"),
        ("offers = 3", "offers"),
    ],
)
def test_offers_that_do_not_hold(text, says):
    with pytest.raises(md.MedusaError, match=says):
        parse(PLAIN + text)


def test_frames_of_these_messages_are_read_as_they_were_written():
    for message in (keep(), run(), DropRemote(request=1, name="x")):
        payload = b"x" if isinstance(message, KeepRemote) else None
        frames = [bytes(each) for each in encode_frame(message, payload)]
        assert decode_frame(frames, peer="p")[0] == message
