"""What other nodes have still to forget: whom it is told, how often, and what ends it."""

from __future__ import annotations

from itertools import count

from medusa.nodes.catalog.kept_definitions import MappedDefinition, RemoteKept
from medusa.nodes.remote.revocation import AGAIN_US, RemoteRevocations
from medusa.ports import SKEW_US
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.remote import DropRemote
from medusa.wire.outbox import Outbox


class Node:
    """One that has ``part`` to take back from ``keeper``."""

    def __init__(self, *, expires_us=0):
        self.mapped = MappedDefinition(
            node="keeper", query="q", fragment="q/f", template=b"", expires_us=expires_us
        )
        self.kept = RemoteKept(revoking={"part": self.mapped})
        self.outbox = Outbox()
        self.peers = {"keeper": "up"}
        self.revoking = RemoteRevocations(
            self.kept, outbox=self.outbox, number=count(7).__next__, peers=self.peers
        )

    def told(self, now_us, asked=()):
        """What is said then."""
        self.revoking.tick(now_us, asked)
        return [(each.peer, each.message) for each in self.outbox.take()]


def test_a_keeper_that_is_there_is_told_the_same_again_until_it_answers():
    node = Node()
    word = ("keeper", DropRemote(request=7, name="part"))
    assert node.revoking.wake_at_us(()) == 0
    assert node.told(5) == [word]
    assert node.revoking.wake_at_us(()) == 5 + AGAIN_US
    assert node.told(5 + AGAIN_US - 1) == []
    assert node.told(5 + AGAIN_US) == [word]
    assert node.revoking.answered("keeper", Reply(request=7))
    assert (node.kept.revoking, node.revoking.wake_at_us(()), node.told(1 << 40)) == ({}, None, [])


def test_who_is_away_or_asked_for_a_client_is_left_alone():
    node = Node()
    node.peers["keeper"] = "silent"
    assert (node.revoking.wake_at_us(()), node.told(5)) == (None, [])
    node.peers["keeper"] = "up"
    assert (node.revoking.wake_at_us({"part"}), node.told(5, {"part"})) == (None, [])
    assert len(node.told(5)) == 1


def test_only_the_keeper_s_yes_to_this_question_ends_it():
    node = Node()
    node.told(5)
    for peer, reply in (
        ("other", Reply(request=7)),
        ("keeper", Reply(request=8)),
        ("keeper", Reply(request=7, code="E_BUSY")),
    ):
        assert not node.revoking.answered(peer, reply)
    assert list(node.kept.revoking) == ["part"]


def test_what_is_revoked_again_later_is_another_question():
    node = Node()
    assert node.revoking.word("part").request == node.revoking.word("part").request == 7
    node.revoking.end("part")
    node.kept.revoking["part"] = node.mapped
    assert node.revoking.word("part").request == 8, "a late answer to the first says nothing of it"


def test_what_has_expired_at_its_keeper_too_is_forgotten():
    node = Node(expires_us=1_000)
    assert not node.revoking.forget_expired(1_000 + 2 * SKEW_US)
    assert node.revoking.forget_expired(1_001 + 2 * SKEW_US)
    assert node.kept.revoking == {}
    node = Node()
    assert not node.revoking.forget_expired(1 << 50)
    assert list(node.kept.revoking) == ["part"]
