"""Graphs that others send: rights first, large ones beside the loop, so many and no more."""

from __future__ import annotations

import msgspec
import pytest

from medusa.errors import QueryError
from medusa.nodes import fragments
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.config.settings_offers import OfferRules
from medusa.nodes.deploy import admission, background_parsing, query_plan
from medusa.nodes.deploy.background_parsing import BackgroundParsing
from medusa.nodes.reports import PeerLost
from medusa.nodes.security.registry import Caller
from medusa.query.codec import graph_to_msgpack
from medusa.wire.messages.commands import Deploy, Install, Remove, Reply
from medusa.wire.messages.directory import Define
from medusa.wire.messages.remote import DefineRemote, Instantiate, KeepRemote
from medusa.wire.outbox import Outbox, Parse, Send
from medusa.wire.status_and_metrics import ParsingStatus
from tests.nodes.deployed import Town
from tests.nodes.keyed import Keyed
from tests.nodes.parsed import done
from tests.nodes.test_remote import define, heard_by, keep, offering, part
from tests.nodes.test_security import query as own_query

LARGE = background_parsing.LOOP_BYTES_MAX + 1


class Asking:
    """What is read, by hand; what came of it, in order."""

    def __init__(self):
        self.outbox = Outbox()
        self.parsing = BackgroundParsing("n", self.outbox)
        self.came = []
        self.begun = []
        self.now_us = 0

    def ask(self, peer, number, *, nbytes=LARGE, caller=None, fails=False, query=""):
        def read():
            self.begun.append((peer, number))
            if fails:
                raise QueryError("no graph", code="query.codec")
            return number

        self.parsing.read(
            self.now_us,
            peer,
            caller,
            ("deploy", number),
            nbytes=nbytes,
            read=read,
            then=lambda now_us, found: self.came.append((peer, found)),
            refuse=lambda error: self.came.append((peer, error.code)),
            query=query,
        )

    def effects(self):
        return [each for each in self.outbox.take() if isinstance(each, Parse)]

    def work(self):
        """Read until nothing waits; who was read, in order."""
        while effects := self.effects():
            [effect] = effects
            try:
                self.parsing.parsed(self.now_us, effect.token, effect.read(), None)
            except QueryError as error:
                self.parsing.parsed(self.now_us, effect.token, None, error)
        return self.begun


def test_a_small_graph_is_read_at_once_and_a_large_one_beside():
    asking = Asking()
    asking.ask("a", 1, nbytes=100)
    assert (asking.came, asking.effects()) == ([("a", 1)], [])
    asking.ask("a", 2)
    assert asking.begun == [("a", 1)], "it isn't read before the driver does"
    [effect] = asking.effects()
    assert effect.nbytes == LARGE
    asking.parsing.parsed(0, effect.token, effect.read(), None)
    assert asking.came == [("a", 1), ("a", 2)]


def test_many_small_graphs_use_up_what_the_loop_reads_in_a_second():
    asking = Asking()
    size = 1 << 10
    most = background_parsing.LOOP_BYTES_PER_S // size
    for number in range(most):
        asking.ask("a", number, nbytes=size)
    assert len(asking.came) == most
    asking.ask("a", most, nbytes=size)
    assert len(asking.came) == most
    assert len(asking.effects()) == 1
    asking.now_us = 1_000_000
    asking.ask("b", 0, nbytes=size)
    assert asking.came[-1] == ("b", 0), "a second later there is room again"


def test_a_small_graph_does_not_overtake_a_large_one_of_the_same_caller():
    asking = Asking()
    asking.ask("a", 1)
    asking.ask("a", 2, nbytes=100)
    assert asking.came == []
    asking.work()
    assert asking.came == [("a", 1), ("a", 2)]


def test_one_is_read_at_a_time_and_callers_take_turns():
    asking = Asking()
    for number in range(3):
        asking.ask("flood", number)
    asking.ask("honest", 0)
    asking.work()
    assert asking.begun == [("flood", 0), ("flood", 1), ("honest", 0), ("flood", 2)]


def test_what_can_not_be_read_is_refused_and_the_next_one_goes_on():
    asking = Asking()
    asking.ask("a", 1, fails=True)
    asking.ask("a", 2)
    asking.work()
    assert asking.came == [("a", "query.codec"), ("a", 2)]


@pytest.mark.parametrize(
    ("nbytes", "most"),
    [
        (LARGE, background_parsing.CALLER_WAITING_MAX),
        (4 << 20, background_parsing.CALLER_BYTES_MAX // (4 << 20)),
    ],
)
def test_a_caller_has_so_much_waiting_under_all_of_its_names_and_the_others_have_room(nbytes, most):
    asking, key = Asking(), Caller(name="maker", called="", participant="alice")
    for number in range(1 + most + 3):  # The first one is under way at once.
        asking.ask(f"client-{number}", number, nbytes=nbytes, caller=key)
    assert [code for _, code in asking.came] == ["E_BUSY"] * 3
    assert asking.parsing.status() == ParsingStatus(graphs=1 + most, bytes=(1 + most) * nbytes)
    asking.ask("other", 1, nbytes=nbytes)
    assert len(asking.came) == 3
    asking.work()
    assert len(asking.begun) == 1 + most + 1


def test_all_callers_together_have_so_much_waiting():
    asking = Asking()
    most = background_parsing.WAITING_BYTES_MAX // (4 << 20)
    for number in range(1 + most + 2):
        asking.ask(f"client-{number}", 1, nbytes=4 << 20)
    assert [code for _, code in asking.came] == ["E_BUSY"] * 2
    assert asking.parsing.status().bytes == (1 + most) * (4 << 20)


def test_the_same_question_again_is_read_once():
    asking = Asking()
    for _ in range(3):
        asking.ask("a", 1)
        asking.ask("a", 2)
    asking.work()
    assert asking.came == [("a", 1), ("a", 2)]


def test_nothing_is_read_for_a_peer_that_went_away():
    asking = Asking()
    for number in range(3):
        asking.ask("gone", number)
    asking.ask("honest", 0)
    [effect] = asking.effects()
    asking.parsing.lost("gone")
    assert asking.parsing.status().graphs == 1
    asking.parsing.parsed(0, effect.token, effect.read(), None)
    asking.work()
    assert asking.begun == [("gone", 0), ("honest", 0)]
    assert asking.came == [("honest", 0)]


def test_an_answer_to_what_is_not_being_read_changes_nothing():
    asking = Asking()
    asking.ask("a", 1)
    [effect] = asking.effects()
    asking.parsing.parsed(0, effect.token + 1, "other", None)
    assert asking.came == []
    asking.parsing.parsed(0, effect.token, "found", None)
    asking.parsing.parsed(0, effect.token, "again", None)
    assert asking.came == [("a", "found")]


def test_an_order_about_a_query_waits_for_its_graph():
    asking, given = Asking(), []
    asking.ask("a", 1, query="q")
    assert not asking.parsing.holds("a", "other", given.append)
    assert not asking.parsing.holds("b", "q", given.append), "another client's"
    assert asking.parsing.holds("a", "q", given.append)
    asking.now_us = 7
    asking.work()
    assert (asking.came, given) == ([("a", 1)], [7])


def test_so_many_orders_wait_for_one_graph_and_the_next_is_refused():
    """Done at once, it would be about the query of that name before."""
    asking, given = Asking(), []
    asking.ask("a", 1, query="q")
    for _ in range(background_parsing.AFTER_MAX):
        assert asking.parsing.holds("a", "q", given.append)
    with pytest.raises(QueryError, match="orders about query 'q' wait until node 'n'") as caught:
        asking.parsing.holds("a", "q", given.append)
    assert caught.value.code == "E_BUSY"
    asking.ask("a", 2, query="q")
    assert asking.parsing.holds("a", "q", given.append), "another graph"
    asking.work()
    assert len(given) == background_parsing.AFTER_MAX + 1
    assert not asking.parsing.holds("a", "q", given.append)


# --- whole nodes ------------------------------------------------------------------------------------

NO_GRAPH = b"\xff" * 20_000


@pytest.mark.parametrize(
    "message",
    [
        Deploy(request=1, at=(("n", ("flows",)),)),
        Define(request=1),
        DefineRemote(request=1, name="x", node="core", at=(("n", ("flows",)),)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_rights_are_asked_before_a_graph_is_read(message):
    node = Keyed()
    for name in ("writer", "maker"):
        node.hello(name)
    node.effects.clear()
    before = node.state()
    assert node.answer("writer", message, NO_GRAPH) == "E_ROLE", "no right to deploy: whatever it is"
    assert node.answer("maker", message, NO_GRAPH) == "query.codec", "nothing that has a name"
    other = graph_to_msgpack(own_query("other").graph)
    assert node.answer("maker", message, other) == "E_ROLE", "its name is the first thing that is read"
    assert not [each for each in node.effects if isinstance(each, Parse)]
    assert node.state() == before


def test_a_definition_of_somebody_to_whom_nothing_is_offered_is_not_read():
    node = Keyed()
    node.hello("core")
    node.effects.clear()
    keep = KeepRemote(request=1, name="x")
    assert node.answer("core", keep, NO_GRAPH) == "E_OFFER"
    node.brain.remotes.offers = {"bob": OfferRules(boxes=("filter",), definitions=0)}
    assert node.answer("core", keep, NO_GRAPH) == "E_LIMIT"
    assert not [each for each in node.effects if isinstance(each, Parse)]
    node.brain.remotes.offers = {"bob": OfferRules(boxes=("filter",))}
    assert node.answer("core", keep, NO_GRAPH) == "E_SPEC"
    assert [each for each in node.effects if isinstance(each, Parse)]


def test_a_flood_of_definitions_hears_that_the_node_is_busy_and_nobody_else_does():
    node = Keyed()
    node.brain.remotes.offers = {"bob": OfferRules(boxes=("filter",))}
    node.hello("core")
    node.hello("maker")
    node.effects.clear()
    for number in range(1, 101):
        node.say("core", KeepRemote(request=number, name=f"x{number}"), NO_GRAPH, parser=False)
    codes = [e.message.code for e in node.effects if isinstance(e, Send) and isinstance(e.message, Reply)]
    assert codes == ["E_BUSY"] * (100 - 1 - background_parsing.CALLER_WAITING_MAX)
    assert node.brain.refusals == {"E_BUSY": len(codes)}
    assert node.deploy("maker", own_query("q")) == ""


@pytest.mark.parametrize("client_goes", [False, True])
def test_a_deployment_is_read_beside_the_loop_on_every_node(client_goes):
    town = Town(loop_bytes_max=0)
    town.deploy(1)
    town.settle(lambda: bool(town.machines["m"].parsing))
    assert town.machines["m"].brain.status(0)["parsing"]["graphs"] == 1
    if client_goes:
        town.machines["m"].brain.report(town.now_us, PeerLost("x"))
    town.settle(lambda: 1 in town.replies)
    town.settle()
    assert town.runs() is not client_goes
    assert town.replies == ({} if client_goes else {1: ""})


def test_an_undeployment_that_overtakes_the_reading_of_its_query_waits_for_it():
    town = Town(loop_bytes_max=0)
    town.deploy(1)
    town.settle(lambda: bool(town.machines["m"].parsing))
    town.undeploy(2)
    town.settle(lambda: {1, 2} <= set(town.replies), until_us=town.now_us + 3_000_000)
    assert town.replies == {1: "", 2: "E_DEPLOYED"}, "as if it had come right behind: it is being deployed"
    town.settle()
    assert town.runs()


def test_more_undeployments_than_wait_for_a_graph_are_refused_and_remove_nothing():
    """The query of that name that runs isn't the one that they are about."""
    node = Keyed()
    node.hello("maker")
    assert node.deploy("maker", own_query("q")) == ""
    node.brain.parsing.loop_bytes_max = 0
    node.effects.clear()
    again = Deploy(request=2, at=(("n", ("flows",)),))
    node.say("maker", again, graph_to_msgpack(own_query("q").graph), parser=False)
    orders = range(10, 10 + background_parsing.AFTER_MAX + 3)
    for number in orders:
        node.say("maker", Remove(request=number, query="q"), parser=False)
    replies = {
        e.message.request: e.message.code
        for e in node.effects
        if isinstance(e, Send) and isinstance(e.message, Reply)
    }
    assert replies == dict.fromkeys(orders[background_parsing.AFTER_MAX :], "E_BUSY")
    assert list(node.brain.fragments) == ["q/flows"]


def test_a_removal_that_overtakes_the_reading_of_an_install_undoes_it():
    town = Town(loop_bytes_max=0)
    town.deploy(1)
    held = town.machines["t3"]
    town.settle(lambda: bool(held.parsing))
    [reading] = held.parsing
    install = held.brain.parsing._reading[2].about[1]
    held.brain.receive(town.now_us, "m", Remove(request=install + 1, query="q"))
    done(held.brain, town.now_us, reading)
    assert not held.brain.fragments


def test_a_spec_of_another_fragment_is_refused_after_it_was_read():
    town = Town(loop_bytes_max=0)
    heard, take = [], town.machines["t3"].take
    town.machines["t3"].take = lambda source, frames: (heard.append(frames), take(source, frames))
    town.deploy(1)
    town.settle(lambda: 1 in town.replies)
    town.settle()
    assert town.runs()
    spec = next(frames[1] for frames in heard if len(frames) == 2)
    brain = town.machines["t4"].brain
    brain.receive(town.now_us, "m", Install(request=1 << 40, query="q", fragment="q/on_t4"), spec)
    [effect] = [each for each in brain.outbox.take() if isinstance(each, Parse)]
    done(brain, town.now_us, effect)
    replies = [e.message for e in brain.outbox.take() if isinstance(e, Send) and isinstance(e.message, Reply)]
    assert [reply.code for reply in replies] == ["E_SPEC"]


def test_a_part_that_is_kept_is_checked_beside_the_loop_before_it_runs():
    town = Town(loop_bytes_max=0)
    assert define(town, 1) == ""
    by_name = heard_by(town, "t3")
    town.deploy(2)
    keeper = town.machines["t3"]
    town.settle(lambda: bool(keeper.parsing))
    assert by_name == [Instantiate]
    town.settle(lambda: 2 in town.replies)
    town.settle()
    assert town.replies[2] == ""
    assert town.runs()


# --- how much is kept -------------------------------------------------------------------------------


def test_a_graph_whose_spec_no_node_would_take_is_refused(monkeypatch):
    node = Keyed()
    node.hello("maker")
    monkeypatch.setattr(query_plan, "SPEC_BYTES_MAX", 300)
    before = node.state()
    assert node.deploy("maker", own_query("q")) == "query.limit"
    assert node.state() == before


def test_the_specs_of_a_node_have_so_many_bytes_together(monkeypatch):
    node = Keyed()
    node.hello("maker")
    assert node.deploy("maker", own_query("q1")) == ""
    [hosted] = node.brain.fragments.values()
    monkeypatch.setattr(fragments, "SPECS_BYTES_MAX", 2 * len(hosted.spec.packed) - 1)
    assert node.deploy("maker", own_query("q2"), request=10) == "E_LIMIT"
    assert list(node.brain.fragments) == ["q1/flows"]
    monkeypatch.setattr(fragments, "SPECS_BYTES_MAX", 2 * len(hosted.spec.packed))
    assert node.deploy("maker", own_query("q2"), request=11) == ""


def test_definitions_kept_for_another_participant_have_so_many_bytes_together(monkeypatch):
    node, spec = offering(), part()
    monkeypatch.setattr(admission, "KEPT_BYTES_MAX", 2 * len(spec.packed))
    for number, code in ((1, ""), (2, ""), (3, "E_LIMIT")):
        assert node.answer("core", keep(number, f"part-{number}"), spec.packed) == code
    assert node.answer("core", keep(4, "part-2"), spec.packed) == "", "it is kept already"
    assert list(node.brain.catalog.remote.held) == ["bob/part-1", "bob/part-2"]


def test_the_catalog_is_written_with_what_each_spec_is_now():
    node, spec = offering(), part()
    assert node.answer("core", keep(), spec.packed) == ""
    node.deploy("maker", own_query("q"))
    catalog = node.brain.catalog
    again = Catalog.from_bytes(catalog.to_bytes(), node="n", where="test")
    assert (again.fragments, again.remote) == (catalog.fragments, catalog.remote)
    changed = msgspec.structs.replace(catalog.fragments["q/flows"], stream_version=7)
    catalog.add(changed, "n")
    again = Catalog.from_bytes(catalog.to_bytes(), node="n", where="test")
    assert again.fragments == {"q/flows": changed}
    assert again.fragments["q/flows"].stream_version == 7


def test_what_follows_from_a_checked_spec_is_kept_until_it_is_taken():
    spec = part()
    assert spec.check() is spec
    first = spec._checked
    assert spec.taken() is first
    assert spec.taken() is not first, "checked anew"
    with pytest.raises(QueryError, match="feeds"):
        msgspec.structs.replace(spec.check(), feeds=()).check()
