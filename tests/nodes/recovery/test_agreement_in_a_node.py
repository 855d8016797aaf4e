"""A node brings what is said of configurations to its agreement, and time and the disk's word too."""

from __future__ import annotations

from medusa.nodes.catalog.catalog import Catalog, Deployment
from medusa.nodes.catalog.in_doubt import InDoubt
from medusa.nodes.catalog.kept_configurations import KeptConfiguration
from medusa.nodes.config.settings import Settings
from medusa.nodes.node import NodeMind
from medusa.nodes.recovery.audience import audience
from medusa.nodes.repair.doubtful_parts import begin_doubt
from medusa.nodes.reports import PeerLost, Persisted, Started
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.configuration import Accept, Ballot, Configure, Prepare, Vote
from medusa.wire.messages.links import Hello
from medusa.wire.outbox import Persist, Send
from tests.nodes.recovery.agreement_trial import first, takeover

VOTERS = ("a", "b", "c")
NOW = first(VOTERS, owner="a", secondaries=("b", "c"))


class Node:
    """Node ``b``, its disk and what it says."""

    def __init__(self, catalog=None, away=()):
        peers = dict.fromkeys(("a", "c"), "ipc:///x")
        known = peers | dict.fromkeys(away, "ipc:///x")
        settings = Settings(name="b", listen="ipc:///b", data="b", peers=known)
        self.brain = NodeMind(settings, incarnation=1, catalog=catalog)
        self.now_us, self.said = 0, []
        self.brain.report(0, Started())
        for peer in peers:
            self.hear(peer, Hello(version=PROTOCOL_VERSION, node=peer, incarnation=5))

    def hear(self, peer, message):
        """What it answers once its disk has all."""
        self.brain.receive(self.now_us, peer, message)
        return self.perform()

    def perform(self):
        said, held = [], []
        while effects := self.brain.outbox.take():
            for effect in effects:
                if isinstance(effect, Send):
                    (said if effect.after is None else held).append(effect)
                elif isinstance(effect, Persist):
                    self.brain.report(self.now_us, Persisted(effect.token, True))
        ours = (Reply, Vote, Configure, Prepare, Accept)
        return [(each.peer, each.message) for each in said + held if isinstance(each.message, ours)]


def test_a_node_keeps_a_configuration_votes_takes_over_and_tells():
    node = Node()
    assert node.hear("a", Configure(request=4, configuration=NOW)) == [("a", Reply(request=4))]
    assert node.brain.recovery.agreement.current("q") == NOW
    node.brain.report(node.now_us, PeerLost(peer="a"))
    node.perform()
    node.brain.recovery.agreement.propose(node.now_us, "q", takeover("b", 2), suspects=("a",))
    [(peer, asked)] = node.perform()
    assert (peer, asked.ballot, asked.suspects) == ("c", Ballot(0, "b"), ("a",))
    vote = Vote(request=asked.request, query="q", number=2, ballot=asked.ballot)
    (peer, told), *others = node.hear("c", vote)
    assert all(isinstance(each, Prepare) for _, each in others), "b has no state, and wants c to have it"
    assert (peer, told.configuration) == ("c", takeover("b", 2)(NOW))
    assert node.brain.recovery.agreement.untold("q") == ("a", "c")
    node.hear("c", Reply(request=told.request))
    assert node.brain.recovery.agreement.untold("q") == ("a",)
    again = node.hear("a", Hello(version=PROTOCOL_VERSION, node="a", incarnation=6))
    assert [each for each in again if isinstance(each[1], Configure)] == [("a", told)]


def test_a_node_asks_again_when_it_is_time():
    node = Node()
    node.hear("a", Configure(request=4, configuration=NOW))
    node.brain.recovery.agreement.propose(node.now_us, "q", takeover("b", 2))
    asked = node.perform()
    assert [peer for peer, _ in asked] == ["a", "c"]
    node.now_us = node.brain.recovery.agreement.wake_at_us()
    for peer in "ac":  # Still there.
        node.brain.receive(node.now_us, peer, Hello(version=PROTOCOL_VERSION, node=peer, incarnation=5))
    node.perform()
    node.brain.tick(node.now_us)
    node.perform()
    node.now_us = node.brain.recovery.agreement.wake_at_us()
    node.brain.tick(node.now_us)
    assert [each for each in node.perform() if isinstance(each[1], Accept)] == asked


def test_a_node_that_has_lost_its_newest_catalog_votes_on_nothing():
    catalog = Catalog("b")
    catalog.in_doubt = InDoubt(newest=3)
    node = Node(catalog)
    asked = Prepare(request=4, query="q", life=7, number=2, ballot=Ballot(1, "a"))
    [(peer, answer)] = node.hear("a", asked)
    assert (peer, answer.request, answer.code) == ("a", 4, "E_BUSY")


def rebuilt():
    """Its disk is lost, and a peer that has nothing to do with the query never comes."""
    catalog = Catalog("b")
    catalog.begins_anew(1)
    return Node(catalog, away=("d",))


def test_nor_does_it_propose_anything_for_which_it_would_have_to_vote():
    """What it promised before may be what its disk has lost: its own vote would be a second one."""
    catalog = Catalog("b")
    catalog.in_doubt = InDoubt(newest=3)
    node = Node(catalog, away=("d",))
    node.hear("a", Configure(request=4, configuration=NOW))
    assert node.brain.recovery.agreement.current("q") == NOW
    node.brain.report(node.now_us, PeerLost(peer="a"))
    node.perform()
    node.brain.recovery.agreement.propose(node.now_us, "q", takeover("b", 2), suspects=("a",))
    assert node.perform() == []
    assert not node.brain.recovery.agreement.proposing("q")


def test_a_rebuilt_node_votes_once_all_voters_have_promised_whoever_else_is_away():
    node = rebuilt()
    asked = Prepare(request=4, query="q", life=7, number=2, ballot=Ballot(3, "a"))
    [(peer, vote)] = node.hear("a", asked)
    assert (peer, vote.code) == ("a", "E_QUERY"), "so that it is told"
    said = node.hear("a", Configure(request=5, configuration=NOW))
    questions = {to: each for to, each in said if isinstance(each, Prepare)}
    assert {*questions} == {"a", "c"}, "d is no voter"
    for voter, question in questions.items():
        assert [each.code for _, each in node.hear("a", asked) if isinstance(each, Vote)] == ["E_FORGOT"]
        node.hear(voter, Vote(request=question.request, query="q", number=2, ballot=question.ballot))
    assert node.brain.catalog.in_doubt, "of what else was here"
    higher = Prepare(request=6, query="q", life=7, number=2, ballot=Ballot(question.ballot.round + 1, "a"))
    [(peer, vote)] = node.hear("a", higher)
    assert (peer, vote.code) == ("a", "")


def test_a_rebuilt_node_that_loses_its_newest_catalog_too_votes_on_nothing():
    """What it has promised since is lost with that."""
    old = Catalog("b")
    old.begins_anew(1)
    old.configurations["q"] = KeptConfiguration(current=NOW)
    lost = begin_doubt(old, newest=3, data=old.to_bytes(), fragments={}, unreadable={})
    [(peer, answer)] = Node(lost).hear(
        "a", Prepare(request=4, query="q", life=7, number=2, ballot=Ballot(1, "a"))
    )
    assert (peer, answer.request, answer.code) == ("a", 4, "E_BUSY")


def test_those_who_have_a_part_are_told():
    catalog = Catalog("b")
    assert audience(catalog, "q") == ()
    catalog.deployments["q"] = Deployment(
        query="q", nodes=("b", "d"), state="running", client="c", request=1, streams=()
    )
    catalog.owners["q"] = "a"
    assert audience(catalog, "q") == ("b", "d", "a")
