"""The number of the configuration on links: a lower one is refused on both sides, a higher one asked for."""

from __future__ import annotations

import msgspec
import pytest

from medusa.elements import START_US
from medusa.wire.link.automaton import ReceiverState, SenderState
from medusa.wire.link.fence import OUTDATED
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.configuration import Configuration, Configure, Replicas
from medusa.wire.messages.links import Ack, Attach, Attached, Heartbeat, Refuse
from tests.nodes.diverted import CREDIT, Node, spec_at

SPEC = spec_at("n")
[FEED] = SPEC.feeds
[STREAM] = SPEC.streams.values()


def configuration(number: int, owner: str = "n") -> Configuration:
    """``third`` stands by for what node ``n`` has."""
    replicas = Replicas(
        fragment=SPEC.name,
        owner=owner,
        epoch=1 if owner == "n" else 2,
        members=("n", "third"),
        reads=(FEED.stream,),
        streams=(STREAM,),
    )
    voters = ("up", "n", "third", "down")
    return Configuration(
        query="q", number=number, coordinator="up", voters=voters, fragments=(replicas,), life=7
    )


def tell(node: Node, number: int, owner: str = "n") -> None:
    told = Configure(request=900 + number, configuration=configuration(number, owner))
    assert Reply(request=900 + number) in node.say("up", told)


@pytest.fixture
def node() -> Node:
    """It knows configuration 3."""
    made = Node(SPEC)
    tell(made, 3)
    return made


def passes(node: Node, tenths: int) -> None:
    """Tenths of a second, in which all peers are there."""
    for _ in range(tenths):
        for peer in Node.PEERS:
            node.say(peer, Heartbeat(incarnation=1))
        node.passes(100_000)


def attach(number: int, epoch: int = 1) -> Attach:
    return Attach(stream=STREAM, epoch=epoch, next_seq=0, durable=0, granted=CREDIT, configuration=number)


def attached(node: Node, number: int) -> Attached:
    """What ``up`` answers to the node's last ``Attach``."""
    asked = node.attach_of("up")
    assert asked is not None
    [source] = [box for box in node.hosted.spec.graph.boxes if not box.inputs]
    return Attached(
        stream=FEED.stream,
        epoch=asked.epoch,
        next_seq=0,
        boundary_us=START_US,
        schema=source.schema,
        timed=source.judged and source.timed,
        configuration=number,
    )


def told(said: list, kind: type) -> list:
    return [each for each in said if isinstance(each, kind)]


def receiver(node: Node):
    [input] = node.hosted.inputs.values()
    return input.receiver


def sender(node: Node):
    [output] = node.hosted.outputs.values()
    return output.sender


# --- who has the rows ------------------------------------------------------------------------------------


def test_a_reader_of_a_lower_number_is_refused_and_gets_the_configuration(node: Node) -> None:
    said = node.say("down", attach(2))
    [refusal] = told(said, Refuse)
    assert (refusal.code, refusal.stream, refusal.epoch) == (OUTDATED, STREAM, 1)
    assert "configuration 3 of query 'q'" in refusal.text
    assert "by 2" in refusal.text
    assert [each.configuration for each in told(said, Configure)] == [configuration(3)]
    assert told(said, Attached) == []
    assert node.brain.refusals[OUTDATED] == 1
    assert sender(node).receivers["down"].state is SenderState.DETACHED


def test_who_was_replaced_hears_the_number_and_not_only_that_it_is_no_reader() -> None:
    """The plan names another reader by then: that it doesn't know this configuration comes before."""
    node = Node(SPEC)
    tell(node, 3)
    said = node.say("third", attach(2))
    assert [each.code for each in told(said, Refuse)] == [OUTDATED]
    assert [each.configuration.number for each in told(said, Configure)] == [3]
    assert node.says("third", attach(3, epoch=2)) == "E_READER"


@pytest.mark.parametrize("number", [3, 0])
def test_a_reader_of_the_same_number_or_that_is_told_of_none_reads(node: Node, number: int) -> None:
    said = node.say("down", attach(number))
    assert [each.configuration for each in told(said, Attached)] == [3]
    assert told(said, Refuse) + told(said, Configure) == []


def test_a_reader_of_a_higher_number_is_asked_for_the_configuration_and_reads_by_it(node: Node) -> None:
    said = node.say("down", attach(4))
    assert told(said, Attached) == []
    [asks] = told(said, Configure)
    assert (asks.configuration, asks.request > 0) == (configuration(3), True)
    answer = Reply(request=asks.request, code="E_CONFIGURATION", text="configuration 4 is known")
    node.say("down", answer)
    node.say("down", Configure(request=5, configuration=configuration(4)))
    said = node.say("down", attach(4, epoch=2))
    assert [each.configuration for each in told(said, Attached)] == [4]


@pytest.mark.parametrize("number", [2, 4])
def test_an_acknowledgement_by_another_number_changes_nothing(node: Node, number: int) -> None:
    node.brings("up", 0, 10, frame=1, begins=0)
    node.say("down", attach(3))
    view = sender(node).receivers["down"]
    acked = Ack(
        stream=STREAM, epoch=1, frames=view.frames, received=10, durable=10, granted=CREDIT, configuration=3
    )
    said = node.say("down", msgspec.structs.replace(acked, configuration=number))
    assert [each.code for each in told(said, Refuse)] == [OUTDATED]
    assert view.durable == 0
    assert view.state is SenderState.FLOWING
    assert told(node.say("down", acked), Refuse) == []
    assert view.durable == 10


def test_who_goes_on_saying_another_number_is_told_again_and_not_each_time(node: Node) -> None:
    assert len(told(node.say("down", attach(2)), Configure)) == 1
    assert told(node.say("down", attach(2, epoch=2)), Configure) == []
    node.now_us += 100_000
    assert len(told(node.say("down", attach(2, epoch=3)), Configure)) == 1


def test_a_stranger_by_another_number_is_refused_and_told_nothing(node: Node) -> None:
    said = node.say("old", attach(2))
    assert [each.code for each in told(said, Refuse)] == [OUTDATED]
    assert told(said, Configure) == []


# --- who reads -------------------------------------------------------------------------------------------


def attaching(number: int) -> Node:
    """It has asked ``up`` for rows by this configuration."""
    node = Node(SPEC)
    tell(node, number)
    passes(node, 3)
    asked = node.attach_of("up")
    assert asked is not None
    assert asked.configuration == number
    return node


def test_a_sender_of_a_lower_number_is_refused_and_gets_the_configuration() -> None:
    node = attaching(3)
    said = node.say("up", attached(node, 2))
    asked = node.attach_of("up")
    [refusal] = told(said, Refuse)
    assert (refusal.code, refusal.stream, refusal.epoch) == (OUTDATED, FEED.stream, asked.epoch)
    assert [each.configuration.number for each in told(said, Configure)] == [3]
    assert receiver(node).state is ReceiverState.ATTACHING
    node.brings("up", 0, 10, frame=1)
    assert node.fed == []
    passes(node, 6)
    again = node.attach_of("up")
    assert again.epoch > asked.epoch
    node.say("up", attached(node, 3))
    node.brings("up", 0, 10, frame=1)
    assert node.fed == list(range(10))


@pytest.mark.parametrize("number", [3, 0])
def test_a_sender_of_the_same_number_or_that_is_told_of_none_is_read(number: int) -> None:
    node = attaching(3)
    node.say("up", attached(node, number))
    node.brings("up", 0, 10, frame=1)
    assert node.fed == list(range(10))
    node.checkpoint()
    acks = [each for to, each in node.sent if to == "up" and isinstance(each, Ack)]
    assert {each.configuration for each in acks} == {3}


def test_a_sender_of_a_higher_number_is_asked_for_the_configuration_and_read_by_it() -> None:
    node = attaching(3)
    said = node.say("up", attached(node, 4))
    assert [each.configuration.number for each in told(said, Configure)] == [3]
    assert receiver(node).state is ReceiverState.ATTACHING
    tell(node, 4)
    passes(node, 6)
    assert node.attach_of("up").configuration == 4
    node.say("up", attached(node, 4))
    assert receiver(node).state is ReceiverState.FLOWING


def test_who_is_refused_asks_again_and_goes_on_reading_what_it_reads() -> None:
    node = attaching(3)
    asked = node.attach_of("up")
    no = Refuse(code=OUTDATED, text="you go by 3", stream=FEED.stream, epoch=asked.epoch)
    node.say("up", no)
    assert receiver(node).state is ReceiverState.ATTACHING
    passes(node, 6)
    assert node.attach_of("up").epoch > asked.epoch
    node.say("up", attached(node, 3))
    node.say("up", no)
    node.brings("up", 0, 10, frame=1)
    assert node.fed == list(range(10))


def test_an_owner_that_was_replaced_steps_down_when_the_refusal_brings_the_configuration() -> None:
    node = attaching(3)
    node.say("up", Refuse(code=OUTDATED, text="", stream=FEED.stream, epoch=node.attach_of("up").epoch))
    tell(node, 4, owner="third")
    assert SPEC.name not in node.brain.fragments


# --- queries without configuration -------------------------------------------------------------------------


def test_without_a_configuration_no_number_is_said_and_none_refused() -> None:
    node = Node(SPEC)
    assert node.attach_of("up").configuration == 0
    assert [each.configuration for each in told(node.say("down", attach(9)), Attached)] == [0]
    node.say("up", attached(node, 9))
    assert receiver(node).state is ReceiverState.FLOWING
