"""A node brings what is said of configurations to its agreement, and time and the disk's word too."""

from __future__ import annotations

import msgspec
import pytest

from medusa.nodes.catalog.catalog import Catalog, Deployment
from medusa.nodes.catalog.in_doubt import InDoubt
from medusa.nodes.catalog.kept_configurations import KeptConfiguration
from medusa.nodes.config.settings import Settings
from medusa.nodes.node import NodeMind
from medusa.nodes.recovery.audience import audience
from medusa.nodes.repair.doubtful_parts import begin_doubt
from medusa.nodes.reports import PeerLost, Persisted, Started
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Remove, Reply
from medusa.wire.messages.configuration import Accept, Ballot, Configure, Prepare, Vote
from medusa.wire.messages.links import Hello
from medusa.wire.outbox import Persist, Send
from tests.nodes.agreement.agreement_trial import first, takeover

VOTERS = ("a", "b", "c")
NOW = first(VOTERS, owner="a", secondaries=("b", "c"))


class Node:
    """Node ``b``, its disk and what it says."""

    def __init__(self, catalog=None, away=(), incarnation=1):
        peers = dict.fromkeys(("a", "c"), "ipc:///x")
        known = peers | dict.fromkeys(away, "ipc:///x")
        settings = Settings(name="b", listen="ipc:///b", data="b", peers=known)
        self.brain = NodeMind(settings, incarnation=incarnation, catalog=catalog)
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


@pytest.mark.parametrize(("since", "votes"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_rebuilt_node_votes_at_once_on_a_query_that_was_deployed_since(since, votes):
    """Its disk is of life 2: in none before it can have heard of the query. A voter is away all the time."""
    catalog = Catalog("b")
    catalog.begins_anew(2)
    node = Node(catalog, incarnation=3)
    said = node.hear("a", Configure(request=5, configuration=NOW, since=since))
    assert any(isinstance(each, Prepare) for _, each in said) is not votes
    asked = Prepare(request=4, query="q", life=7, number=2, ballot=Ballot(3, "a"))
    (vote,) = [each for _, each in node.hear("a", asked) if isinstance(each, Vote)]
    assert vote.code == ("" if votes else "E_FORGOT")


def test_it_may_hear_of_the_query_from_another_before_who_deployed_it_says_when_that_was():
    node = rebuilt()
    node.hear("c", Configure(request=5, configuration=NOW))
    asked = Prepare(request=4, query="q", life=7, number=2, ballot=Ballot(3, "a"))
    (vote,) = [each for _, each in node.hear("a", asked) if isinstance(each, Vote)]
    assert vote.code == "E_FORGOT"
    node.hear("a", Configure(request=6, configuration=NOW, since=1))
    (vote,) = [each for _, each in node.hear("a", asked) if isinstance(each, Vote)]
    assert vote.code == ""
    node.now_us += 2_000_000
    node.brain.tick(node.now_us)
    assert not [each for _, each in node.perform() if isinstance(each, Prepare)], "it asks nobody any more"


def test_who_deploys_tells_each_node_in_which_of_its_lives_that_was():
    node = Node(away=("d",))
    ours = first(("b", "a", "c", "d"), owner="b", secondaries=("a", "c", "d"))
    node.brain.recovery.agreement.install(node.now_us, ours)
    told = {to: each.since for to, each in node.perform() if isinstance(each, Configure)}
    assert told == {"a": 5, "c": 5}
    again = node.hear("a", Hello(version=PROTOCOL_VERSION, node="a", incarnation=6))
    assert [each.since for _, each in again if isinstance(each, Configure)] == [5], (
        "it was deployed in life 5"
    )
    late = node.hear("d", Hello(version=PROTOCOL_VERSION, node="d", incarnation=9))
    assert [each.since for _, each in late if isinstance(each, Configure)] == [0], "nobody knows"


def accepted(older):
    """An operator has accepted this catalog in place of one that is lost."""
    catalog = begin_doubt(older, newest=7, data=older.to_bytes(), fragments={}, unreadable={})
    catalog.in_doubt.accepted = True
    return catalog


@pytest.mark.parametrize("known", [False, True], ids=["not named", "named"])
def test_what_a_lost_catalog_had_promised_is_asked_of_all_voters_once_an_older_one_is_accepted(known):
    older = Catalog("b")
    if known:
        older.configurations["q"] = KeptConfiguration(current=NOW)
    node = Node(accepted(older), incarnation=4)
    assert not node.brain.catalog.in_doubt
    asked = Prepare(request=4, query="q", life=7, number=2, ballot=Ballot(3, "a"))
    said = node.hear("a", Configure(request=5, configuration=NOW))
    questions = {to: each for to, each in said if isinstance(each, Prepare)}
    assert {*questions} == {"a", "c"}
    for voter, question in questions.items():
        (vote,) = [each for _, each in node.hear("a", asked) if isinstance(each, Vote)]
        assert (vote.code, "has lost its newest catalog" in vote.text) == ("E_FORGOT", True)
        node.hear(voter, Vote(request=question.request, query="q", number=2, ballot=question.ballot))
    higher = Prepare(request=6, query="q", life=7, number=2, ballot=Ballot(question.ballot.round + 1, "a"))
    (vote,) = [each for _, each in node.hear("a", higher) if isinstance(each, Vote)]
    assert vote.code == ""


def test_what_was_heard_while_the_catalog_was_in_doubt_is_no_word_of_its_own_either():
    catalog = begin_doubt(Catalog("b"), newest=7, data=Catalog("b").to_bytes(), fragments={}, unreadable={})
    catalog.configurations["q"] = KeptConfiguration(current=NOW)
    catalog.in_doubt.accepted = True
    node = Node(catalog, incarnation=4)
    asked = Prepare(request=4, query="q", life=7, number=2, ballot=Ballot(3, "a"))
    (vote,) = [each for _, each in node.hear("a", asked) if isinstance(each, Vote)]
    assert vote.code == "E_FORGOT"
    assert Catalog.from_bytes(node.brain.catalog.to_bytes(), node="b", where="b").configurations["q"].forgot


def test_a_query_that_is_deployed_after_an_older_catalog_was_accepted_is_voted_on_at_once():
    node = Node(accepted(Catalog("b")), incarnation=4)
    node.hear("a", Configure(request=5, configuration=NOW, since=4))
    asked = Prepare(request=4, query="q", life=7, number=2, ballot=Ballot(3, "a"))
    (vote,) = [each for _, each in node.hear("a", asked) if isinstance(each, Vote)]
    assert vote.code == ""


def test_who_does_not_vote_yet_is_known_to_the_others_until_it_votes():
    node = Node()
    node.hear("a", Configure(request=4, configuration=NOW))
    status = lambda: node.brain.recovery.status(node.now_us, "q").not_voting  # noqa: E731
    assert status() == ()
    asked = Prepare(request=4, query="q", life=7, number=2, ballot=Ballot(9, "c"), forgot=True)
    (vote,) = [each for _, each in node.hear("c", asked) if isinstance(each, Vote)]
    assert vote.code == ""
    assert status() == ("c",)
    node.hear("c", msgspec.structs.replace(asked, forgot=False))
    assert status() == ()


def test_a_rebuilt_node_says_when_it_votes():
    node = rebuilt()
    said = node.hear("a", Configure(request=5, configuration=NOW))
    questions = {to: each for to, each in said if isinstance(each, Prepare)}
    assert all(each.forgot for each in questions.values())
    assert node.brain.recovery.status(node.now_us, "q").not_voting == ("b",)
    told = []
    for voter, question in questions.items():
        yes = Vote(request=question.request, query="q", number=2, ballot=question.ballot)
        told = [each for each in node.hear(voter, yes) if isinstance(each[1], Prepare)]
    assert {to: each.forgot for to, each in told} == {"a": False, "c": False}
    assert node.brain.recovery.status(node.now_us, "q").not_voting == ()


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


@pytest.mark.parametrize("since", [0, 3], ids=["removed", "undone"])
def test_a_configuration_that_comes_after_its_removal_is_not_taken(since):
    """A node that keeps it would have a later query of that name removed, once somebody says that this one
    was."""
    node = Node()
    removed = Remove(request=9, query="q", since=since, life=NOW.life)
    assert node.hear("a", removed) == [("a", Reply(request=9))]
    [(peer, answer)] = node.hear("a", Configure(request=4, configuration=NOW))
    assert (peer, answer.request, answer.code) == ("a", 4, "E_REMOVED")
    again = Node(Catalog.from_bytes(node.brain.catalog.to_bytes(), node="b", where="b"), incarnation=2)
    [(peer, answer)] = again.hear("c", Configure(request=5, configuration=NOW))
    assert (peer, answer.code) == ("c", "E_REMOVED"), "its disk says so"
    later = msgspec.structs.replace(NOW, life=NOW.life + 1)
    assert node.hear("a", Configure(request=6, configuration=later)) == [("a", Reply(request=6))]
    assert node.brain.recovery.agreement.current("q") == later
