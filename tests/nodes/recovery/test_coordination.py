"""When a node proposes itself as coordinator, and what it does with what is decided and what it hears."""

from __future__ import annotations

import msgspec
import pytest

from medusa.nodes.catalog.catalog import REMOVING, RUNNING, Catalog, Deployment
from medusa.nodes.catalog.kept_configurations import KeptConfiguration
from medusa.nodes.config.settings import Settings
from medusa.nodes.recovery.coordination import (
    AWAY_US,
    ENDED_US,
    PAUSE_US,
    RANK_US,
    TRY_US,
    Coordination,
    CoordinatorRole,
)
from medusa.nodes.recovery.first_configuration import _fits
from medusa.wire.messages.configuration import Configuration, QueryParts, Replicas
from medusa.wire.outbox import Outbox

ALL = ("x", "a", "b", "c")
PARTS = QueryParts(nodes=("a", "b", "d"), streams=(("q.out", "d"),), reads=("p/other.out",))
FIRST = Configuration(
    query="q",
    number=1,
    coordinator="x",
    voters=ALL,
    fragments=(Replicas(fragment="q/f", owner="a", epoch=1, members=("a", "b"), streams=("q.mid",)),),
    life=7,
    parts=PARTS,
)


class Votes:
    """Stands in for the agreement: what is current, and what is proposed."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.change = None
        self.suspects = ()

    def current(self, query):
        kept = self.catalog.configurations.get(query)
        return None if kept is None else kept.current

    def proposing(self, query):
        return self.change is not None

    def wants(self, query, change):
        return change is self.change

    def propose(self, now_us, query, change, *, suspects=()):
        self.change, self.suspects = change, suspects

    def withdraw(self, query):
        self.change = None


class Node:
    """One of ``ALL``, and what its coordinating part is told."""

    def __init__(self, me="a", current=FIRST, peers=("x", "a", "b", "c", "d")):
        self.catalog = Catalog(me)
        self.catalog.configurations["q"] = KeptConfiguration(current=current)
        self.votes = Votes(self.catalog)
        self.up = set(peers)
        self.said = []
        others = {peer: "ipc:///p" for peer in peers if peer != me}
        self.mind = Coordination(
            Settings(name=me, listen="ipc:///n", data="n", peers=others),
            self.catalog,
            outbox=Outbox(),
            agreement=self.votes,
            is_up=lambda node: node == me or node in self.up,
            role=CoordinatorRole(
                took_over=self.took_over,
                handed_over=lambda *said: self.said.append(("handed over", *said)),
                ended=lambda *said: self.said.append(("ended", *said)),
                placed=lambda *said: self.said.append(("placed", *said)),
            ),
        )

    def took_over(self, now_us, query, parts):
        self.said.append(("took over", query))
        self.deployed(nodes=parts.nodes, streams=parts.streams)

    def deployed(self, state=RUNNING, nodes=PARTS.nodes, streams=PARTS.streams):
        self.catalog.deployments["q"] = Deployment(
            query="q", nodes=nodes, state=state, client="c", request=1, streams=streams
        )

    def proposes_at(self, until_us=10 * AWAY_US):
        """When it proposes itself, by its own word of when it has work; None: never."""
        now_us = 0
        while now_us <= until_us:
            self.mind.tick(now_us)
            if self.votes.change is not None:
                return now_us
            at_us = self.mind.wake_at_us(now_us)
            if at_us is None:
                return None
            assert at_us > now_us
            now_us = at_us
        return None

    def decide(self, now_us=0, **changes):
        new = msgspec.structs.replace(self.votes.current("q"), **changes)
        self.catalog.configurations["q"] = KeptConfiguration(current=new)
        self.mind.decided(now_us, new)
        return new


@pytest.mark.parametrize(("me", "rank"), [("a", 0), ("b", 1), ("c", 2)])
def test_they_propose_themselves_in_the_order_of_the_voters(me, rank):
    node = Node(me)
    node.up.discard("x")
    assert node.proposes_at() == AWAY_US + rank * RANK_US
    assert node.votes.suspects == ("x",)
    assert node.votes.change(FIRST) == msgspec.structs.replace(FIRST, number=2, coordinator=me)


def test_who_is_away_too_is_not_waited_for():
    node = Node("c")
    node.up -= {"x", "a", "b"}
    assert node.proposes_at() == AWAY_US


def test_nobody_proposes_himself_whose_coordinator_is_heard_again():
    node = Node()
    node.up.discard("x")
    node.mind.tick(0)
    node.up.add("x")
    node.mind.tick(AWAY_US - 1)
    node.up.discard("x")
    node.mind.tick(AWAY_US)
    assert node.votes.change is None
    node.mind.tick(2 * AWAY_US)
    change = node.votes.change
    assert change is not None
    node.up.add("x")
    assert change(FIRST) is None, "what was proposed is not wanted any more"


@pytest.mark.parametrize(
    ("me", "changes", "peers"),
    [
        ("d", {}, (*ALL, "d")),
        ("a", {"parts": None}, (*ALL, "d")),
        ("a", {}, ALL),
    ],
    ids=["no voter", "a role that stays", "a node of the query that it doesn't know"],
)
def test_who_could_not_coordinate_does_not_propose_himself(me, changes, peers):
    node = Node(me, msgspec.structs.replace(FIRST, **changes), peers)
    node.up.discard("x")
    assert node.proposes_at() is None


def test_another_wish_of_the_node_goes_before_and_its_own_does_not_hold_others_up():
    node = Node()
    node.up.discard("x")
    node.mind.tick(0)
    other = node.votes.change = lambda current: None
    node.mind.tick(AWAY_US)
    assert node.votes.change is other
    node.votes.change = None
    node.mind.tick(2 * AWAY_US)
    assert node.votes.change is not None
    node.mind.tick(2 * AWAY_US + TRY_US)
    assert node.votes.change is None, "it isn't decided"
    node.mind.tick(2 * AWAY_US + TRY_US + PAUSE_US - 1)
    assert node.votes.change is None
    node.mind.tick(2 * AWAY_US + TRY_US + PAUSE_US)
    assert node.votes.change is not None


def test_who_is_chosen_has_the_plan_and_where_guarded_fragments_are():
    node = Node()
    node.decide(number=2, coordinator="a")
    assert node.said == [("took over", "q")]
    assert node.catalog.deployments["q"].streams == (("q.out", "d"), ("q.mid", "a"))
    node.decide(number=3)
    assert node.said == [("took over", "q")], "once"


def test_who_was_replaced_has_the_role_no_more_unless_it_removes_the_query():
    node = Node("x")
    node.deployed()
    node.decide(number=2, coordinator="b")
    assert node.said == [("handed over", "q", "b")]
    removes = Node("x")
    removes.deployed(REMOVING)
    removes.decide(number=2, coordinator="b")
    assert removes.said == []


def test_the_first_configuration_changes_nobody():
    node = Node("a")
    node.mind.start(0)
    assert node.said == []


def test_the_coordinator_proposes_the_plan_with_what_has_moved():
    node = Node("x")
    node.deployed(streams=(("q.mid", "a"), *PARTS.streams))
    node.mind.tick(0)
    assert node.votes.change is None, "guarded ones stand there anyway"
    node.deployed(nodes=(*PARTS.nodes, "e"), streams=(("q.out", "e"),))
    node.mind.tick(1)
    [found] = [node.votes.change(FIRST)]
    assert (found.number, found.parts.nodes, found.parts.streams) == (
        2,
        ("a", "b", "d", "e"),
        (("q.out", "e"),),
    )
    assert found.parts.reads == PARTS.reads
    node.deployed(REMOVING, nodes=(*PARTS.nodes, "e"))
    assert node.votes.change(FIRST) is None


def test_who_hears_that_the_query_was_removed_leaves_whoever_removes_it_some_time():
    node = Node("b")
    node.mind.ended(10, "q")
    node.mind.ended(20, "q")
    assert node.mind.wake_at_us(20) == 10 + ENDED_US
    node.mind.tick(10 + ENDED_US - 1)
    assert node.said == []
    node.mind.tick(10 + ENDED_US)
    assert node.said == [("ended", 10 + ENDED_US, "q", FIRST.nodes())]
    assert set(FIRST.nodes()) == {*ALL, "d"}
    removed = Node("b")
    removed.mind.ended(10, "q")
    del removed.catalog.configurations["q"]
    removed.mind.tick(10 + ENDED_US)
    assert removed.said == [], "it was told meanwhile"


def test_a_configuration_as_an_earlier_release_of_this_format_wrote_it_is_read():
    """Fields at the end may be missing."""
    whole = msgspec.structs.replace(FIRST, witnesses=("c",), voters_least=4)
    last = len(Configuration.__struct_fields__)
    for field in range(Configuration.__struct_fields__.index("parts"), last):
        older = msgspec.msgpack.encode(msgspec.to_builtins(whole)[:field])
        read = msgspec.msgpack.decode(older, type=Configuration)
        missing = {"parts": None, "witnesses": (), "voters_least": 0}
        unknown = {name: missing[name] for name in Configuration.__struct_fields__[field:]}
        assert read == msgspec.structs.replace(whole, **unknown)


def test_what_a_successor_has_to_know_is_left_out_where_the_names_do_not_fit():
    streams = tuple(f"q.{number}{'x' * 200}" for number in range(40))
    wide = msgspec.structs.replace(
        FIRST, parts=None, fragments=(msgspec.structs.replace(FIRST.fragments[0], streams=streams),)
    )
    some, many = (QueryParts(streams=tuple((each, "d") for each in streams[:count])) for count in (1, 40))
    assert _fits(FIRST, PARTS)
    assert _fits(wide, some)
    assert not _fits(wide, many)
