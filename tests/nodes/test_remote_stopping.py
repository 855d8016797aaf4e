"""Parts that the owner of their node ends: nothing is left there, and who had them begun hears so."""

from __future__ import annotations

import json

import pytest

from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.message_table import Heard
from medusa.nodes.reports import FragmentFailed
from medusa.nodes.spec.fragment_spec import fragment_to
from medusa.wire.messages.commands import Remove, Reply
from medusa.wire.messages.links import Attach, Heartbeat, Refuse
from medusa.wire.messages.remote import RevokeRemote, StoppedRemote
from medusa.wire.outbox import CloseFragment, ReportLine, Send
from tests.nodes.deployed import Town
from tests.nodes.keyed import Keyed
from tests.nodes.test_remote import asked, define, deployed, keep, kept_of, offering, part, run


def hosting():
    """Node n of alice, which runs a part of query r for bob's node core."""
    node = offering()
    assert node.answer("core", keep(), fragment_to(part())) == ""
    assert node.answer("core", run()) == ""
    node.brain.remotes.offers = {}
    return node


def stop(node, name="bob/part", request=7):
    """As a client that may deploy anything."""
    called = "client-of-alice"
    message = RevokeRemote(request=request, name=name, stop=True)
    node.brain.remotes.receive(Heard(node.now_us, called, message, None, client=True))
    [reply] = [e.message for e in node.settle() if isinstance(e, Send) and e.peer == called]
    return reply.code


def told(node):
    """What core hears of stopped parts when the node looks next."""
    node.now_us += 1_000_000
    node.say("core", Heartbeat(incarnation=1))
    node.brain.tick(node.now_us)
    sent = [e for e in node.settle() if isinstance(e, Send) and isinstance(e.message, StoppedRemote)]
    return [(e.peer, e.message.query, e.message.fragment) for e in sent]


STREAM = part().streams["kept-out"]
WORD = ("core", "r", "r/kept")


@pytest.mark.parametrize("revoked", [False, True], ids=["kept", "revoked before"])
def test_a_part_is_stopped_by_the_owner_of_its_node_and_nothing_is_left(revoked):
    node = hosting()
    if revoked:
        node.brain.catalog.remote.held.clear()
    assert stop(node) == ""
    catalog = node.brain.catalog
    assert (node.brain.fragments, catalog.fragments, catalog.owners) == ({}, {}, {})
    assert (catalog.remote.held, catalog.remote.made) == ({}, {})
    assert node.answer("core", run(request=3)) == "E_NO_DEFINITION"
    said = node.say("core", Attach(stream=STREAM, epoch=1, next_seq=0, durable=0, granted=1000))
    [refusal] = [each for each in said if isinstance(each, Refuse)]
    assert refusal.code == "E_REMOVED"
    assert "stopped by the owner of node 'n'" in refusal.text
    again = Keyed(catalog=Catalog.from_bytes(catalog.to_bytes(), node="n", where="catalog"))
    again.hello("core")
    assert again.brain.fragments == {}
    assert again.brain.catalog.remote.stopped["r/kept"].node == "core"


def test_who_had_it_begun_is_told_until_it_answers_and_may_remove_its_query_then():
    node = hosting()
    assert stop(node) == ""
    assert told(node) == told(node) == [WORD]
    number = node.brain.remotes.stopping._numbers["r/kept"]
    node.say("core", Reply(request=number))
    assert told(node) == []
    assert [each.code for each in node.say("core", Remove(request=9, query="r"))] == [""]
    assert node.brain.catalog.remote.stopped == {}
    assert node.answer("core", Remove(request=10, query="r")) == "E_NO_CONTRACT"


def test_all_parts_of_a_query_are_stopped_by_its_name_and_of_strangers_nothing():
    node = hosting()
    assert stop(node, "alice/r") == stop(node, "bob/q") == stop(node, "r") == "E_NO_DEFINITION"
    assert list(node.brain.fragments) == ["r/kept"]
    assert stop(node, "bob/r") == ""
    assert list(node.brain.fragments) == []


def test_a_client_stops_only_what_it_may_deploy():
    node = hosting()
    for who in ("maker", "reader"):
        assert node.answer(who, RevokeRemote(request=2, name="bob/part", stop=True)) == "E_ROLE"
    assert list(node.brain.fragments) == ["r/kept"]


def test_who_coordinates_the_query_says_what_was_stopped_and_removes_the_rest():
    town = Town()
    assert define(town, 1) == ""
    assert deployed(town, 2) == ""
    assert asked(town, RevokeRemote(request=3, name="part", stop=True)) == "E_QUERY", "not at who had it kept"
    coordinator, host = town.machines["m"], town.machines["t3"]
    coordinator.hangs = True
    remotes = host.brain.remotes
    remotes.stopping.stop(remotes.stopping.running("local/part"))
    town.settle(until_us=town.now_us + 300_000)
    assert list(host.brain.fragments) == []
    host.die()
    town.restart("t3")
    town.heal()
    told = coordinator.brain.status(0)["queries"]["q"]["stopped"]
    assert told == {"q/on_t3": "t3"}
    assert coordinator.brain.catalog.deployments["q"].stopped == (("q/on_t3", "t3"),)
    assert [each.told for each in kept_of(town, "t3").stopped.values()] == [True]
    assert asked(town, Remove(request=4, query="q")) == ""
    assert kept_of(town, "t3").stopped == {}
    assert all(not machine.brain.fragments for machine in town.machines.values())
    assert asked(town, RevokeRemote(request=5, name="part")) == ""
    assert deployed(town, 6) == ""
    assert town.runs()
    assert coordinator.brain.status(0)["queries"]["q"]["stopped"] == {}


def test_who_asks_where_something_is_of_a_query_that_has_ended_hears_so():
    town = Town()
    assert deployed(town, 1) == ""
    town.machines["t3"].brain.remotes.stopping.end("q/on_t3", "E_MEMORY", "it holds too much", 0)
    town.settle(until_us=town.now_us + 300_000)
    names = town.machines["m"].brain.naming.names
    assert json.loads(names.answer("q"))["state"] == "ended"
    for gone in ("q.on_t3", "q/none", "local/q.on_t3"):
        with pytest.raises(
            LinkError, match="a part of query 'q' took more of its node than it may"
        ) as caught:
            names.answer(gone)
        assert "the status of node 'm'" in caught.value.hint
    with pytest.raises(LinkError, match=r"nothing at participant 'local' is called 'other\.x'"):
        names.answer("other.x")


@pytest.mark.parametrize("word", [("q", "other/on_t3"), ("none", "none/x")])
def test_a_word_about_what_is_not_its_part_changes_nothing(word):
    town = Town()
    assert deployed(town, 1) == ""
    stopping = town.machines["m"].brain.remotes.stopping
    stopping.heard("t3", StoppedRemote(request=1, query=word[0], fragment=word[1]))
    stopping.heard("stranger", StoppedRemote(request=1, query="q", fragment="q/on_t3"))
    assert town.machines["m"].brain.catalog.deployments["q"].stopped == ()


# --- parts whose query takes too much ---------------------------------------------------------------


def test_a_part_that_takes_too_much_ends_here_and_no_restart_brings_it_back():
    node = offering()
    assert node.answer("core", keep(), fragment_to(part())) == ""
    assert node.answer("core", run()) == ""
    node.brain.wall.told(node.now_us, 1_000_000_000)
    node.brain.report(node.now_us, FragmentFailed("r/kept", "query 'r' holds 2 GiB", "E_MEMORY"))
    effects = node.settle()
    assert [e.fragment for e in effects if isinstance(e, CloseFragment)] == ["r/kept"]
    [line] = [e for e in effects if isinstance(e, ReportLine) and e.level == "error"]
    assert (line.what, line.fields["query"], line.fields["code"]) == ("query ended", "r", "E_MEMORY")
    said = node.say("core", Attach(stream=STREAM, epoch=1, next_seq=0, durable=0, granted=1000))
    [refusal] = [each for each in said if isinstance(each, Refuse)]
    assert (refusal.code, "query 'r' holds 2 GiB" in refusal.text) == ("E_MEMORY", True)
    assert node.answer("core", run(request=3)) == "E_MEMORY", "it would end again"
    for catalog in (
        node.brain.catalog,
        Catalog.from_bytes(node.brain.catalog.to_bytes(), node="n", where="catalog"),
    ):
        assert (catalog.fragments, catalog.owners) == ({}, {})
        kept = catalog.remote.stopped["r/kept"]
        assert (kept.node, kept.code, kept.why, kept.at_us) == (
            "core",
            "E_MEMORY",
            "query 'r' holds 2 GiB",
            1_000_000_000,
        )
    assert node.brain.status(0)["remote"]["ended"]["r/kept"]["code"] == "E_MEMORY"
    assert node.brain.status(0)["remote"]["stopped"] == {}
    assert told(node) == [WORD]
    assert [each.code for each in node.say("core", Remove(request=9, query="r"))] == [""]
    assert node.answer("core", run(request=11)) == "", "it may be tried again"


def test_readers_and_publishers_of_what_ended_hear_the_code():
    town = Town()
    assert deployed(town, 1) == ""
    host = town.machines["t1"]
    fragment = host.brain.fragments["q/rows"]
    heard = []
    fragment.close = lambda why, code="": heard.append((why, code))
    host.brain.report(town.now_us, FragmentFailed("q/rows", "too much", "E_BUSY"))
    assert heard == [("too much", "E_BUSY")]


@pytest.mark.parametrize("name", ["t3", "m"])
def test_who_coordinates_a_query_says_what_ended_of_it(name):
    """At another node, or here."""
    town = Town()
    assert deployed(town, 1) == ""
    host, coordinator = town.machines[name], town.machines["m"]
    (fragment,) = host.brain.fragments
    host.brain.report(town.now_us, FragmentFailed(fragment, "too much", "E_MEMORY"))
    host.perform()
    town.settle(until_us=town.now_us + 3_000_000)
    expected = {"node": name, "code": "E_MEMORY", "why": "too much", "at_us": None}
    status = coordinator.brain.status(0)["queries"]["q"]
    assert (status["state"], status["ended"], status["stopped"]) == ("ended", {fragment: expected}, {})
    assert [each.told for each in kept_of(town, name).stopped.values()] == [True]
    for machine in town.machines.values():
        assert len(machine.brain.fragments) == (machine is not host), "the others run"
    host.die()
    town.restart(name)
    town.heal()
    assert town.machines[name].brain.fragments == {}
    assert town.machines["m"].brain.status(0)["queries"]["q"]["ended"] == {fragment: expected}
    assert asked(town, Remove(request=4, query="q")) == ""
    assert kept_of(town, name).stopped == {}
    assert deployed(town, 5) == ""
    assert town.runs()
    assert town.machines["m"].brain.status(0)["queries"]["q"]["state"] == "running"


def test_a_fragment_whose_boxes_failed_is_kept_as_it_is():
    town = Town()
    assert deployed(town, 1) == ""
    host = town.machines["t3"]
    host.brain.report(town.now_us, FragmentFailed("q/on_t3", "ValueError: a box is broken"))
    assert host.brain.fragments["q/on_t3"].failed == "ValueError: a box is broken"
    assert kept_of(town, "t3").stopped == {}
