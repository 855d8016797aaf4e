"""A client's mind beside a small node made of the same parts."""

from __future__ import annotations

import pytest

from medusa.errors import LinkError, LocalProtocolError, RemoteProtocolError
from medusa.wire.client_mind import ClientMind
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.receiver import Receiver
from medusa.wire.link.sender import Sender
from medusa.wire.messages.commands import Deploy, Install, Reply, StatusRequest
from medusa.wire.messages.links import OLDEST, Ack, Attach, Detach, Heartbeat, Hello, OpenPublisher, Refuse
from medusa.wire.outbox import Outbox
from tests.wire.pair import SCHEMA, SMALL, sends


class Node:
    """Takes stream ``in`` and gives stream ``out``; rows are characters."""

    def __init__(self, life=1, taken=0):
        self.box = Outbox()
        self.hello = Hello(version=PROTOCOL_VERSION, node="n", incarnation=life)
        self.sender = Sender("out", SCHEMA, timed=True, outbox=self.box, settings=SMALL)
        self.receiver = Receiver(
            "in",
            "c",
            incarnation=life,
            outbox=self.box,
            settings=SMALL,
            schema=SCHEMA,
            timed=True,
            next_seq=taken,
        )
        self.text = ""
        self.requests = []

    def receive(self, message, payload):
        match message:
            case Hello(answer=True):
                self.box.send("c", self.hello)
            case OpenPublisher():
                self.receiver.peer_event(0, LinkEvent.PEER_RESTARTED)
            case Attach() | Ack() | Detach():
                self.sender.receive(0, "c", message)
            case StatusRequest() | Deploy():
                self.requests.append(message)
            case _ if hasattr(message, "stream"):
                for each in self.receiver.receive(0, message, payload):
                    self.receiver.consumed(0, each.cost)
                    if hasattr(each, "payload"):
                        self.text += bytes(each.payload).decode()[each.skip :]


def settle(client, node, now_us=0):
    while True:
        up, down = sends(client.outbox), sends(node.box)
        if not up and not down:
            return
        for message, payload in up:
            node.receive(message, payload)
        for message, payload in down:
            client.receive(now_us, message, payload)


def connected():
    client, node = ClientMind("c", "n", link=SMALL), Node()
    client.tick(0)
    settle(client, node)
    assert client.up
    return client, node


def test_what_is_published_arrives_and_is_kept_until_durable():
    client, node = connected()
    publication = client.publish(0, "in", SCHEMA, timed=True)
    publication.sender.train(0, b"abc", 3)
    settle(client, node)
    assert node.text == "abc"
    assert publication.attached
    assert not publication.durable
    node.receiver.durable(0, 3)
    settle(client, node)
    assert publication.durable
    assert publication.sender.log.nbytes == 0


def test_a_node_that_restarts_gets_again_what_it_had_not_made_durable():
    client, node = connected()
    publication = client.publish(0, "in", SCHEMA, timed=True)
    for piece in (b"ab", b"cd"):
        publication.sender.train(0, piece, 2)
    settle(client, node)
    node.receiver.durable(0, 2)
    settle(client, node)
    again = Node(life=2, taken=2)
    client.lost(1)
    client.tick(1_000_000)
    settle(client, again, 1_000_000)
    assert again.text == "cd"


def test_an_offer_is_repeated_until_the_node_attaches():
    client, _ = connected()
    client.publish(0, "in", SCHEMA, timed=True)
    sends(client.outbox)  # lost
    client.receive(SMALL.retry_us - 1, Heartbeat(incarnation=1))
    client.tick(SMALL.retry_us)
    assert any(isinstance(message, OpenPublisher) for message, _ in sends(client.outbox))


def test_a_subscription_neither_loses_nor_repeats_over_a_restart():
    client, node = connected()
    node.sender.train(0, b"abcd", 4)
    subscription = client.subscribe(0, "out", OLDEST)
    settle(client, node)
    assert bytes(subscription.take(0).payload) == b"abcd"
    assert subscription.take(0) is None
    again = Node(life=2)
    client.lost(1)
    client.tick(1_000_000)
    settle(client, again, 1_000_000)
    again.sender.train(0, b"abcdef", 6)
    settle(client, again, 1_000_000)
    rows = subscription.take(0)
    assert (rows.seq, bytes(rows.payload)[rows.skip :]) == (4, b"ef")


def test_what_waits_unread_is_at_most_a_window():
    client, node = connected()
    subscription = client.subscribe(0, "out", OLDEST)
    for _ in range(30):
        node.sender.train(0, b"x" * 300, 300)
        settle(client, node)
    assert sum(each.cost for each in subscription.waiting) <= SMALL.window_bytes
    taken = 0
    while taken < 30 and (each := subscription.take(0)) is not None:
        taken += 1
        assert each.cost
        settle(client, node)
        client.tick(SMALL.ack_us)
        settle(client, node)
    assert taken == 30


def test_a_request_is_sent_again_after_a_reconnection_until_it_is_answered():
    client, node = connected()
    number = client.request(lambda request: StatusRequest(request=request))
    sends(client.outbox)  # lost with the connection
    client.lost(1)
    client.receive(2, node.hello)
    settle(client, node)
    assert node.requests == [StatusRequest(request=number)]
    node.box.send("c", Reply(request=number), b"{}")
    settle(client, node)
    assert client.replies[number] == (Reply(request=number), b"{}")
    client.lost(3)
    client.receive(4, node.hello)
    settle(client, node)
    assert len(node.requests) == 1


def test_an_answer_nobody_waits_for_is_dropped():
    client, _ = connected()
    client.receive(0, Reply(request=77))
    number = client.request(lambda request: StatusRequest(request=request))
    client.give_up(number)
    client.receive(0, Reply(request=number))
    assert client.replies == {}


def test_a_refusal_is_kept_where_the_user_looks():
    client, _ = connected()
    publication = client.publish(0, "nope", SCHEMA, timed=True)
    client.receive(0, Refuse(code="E_STREAM", text="no stream 'nope'", stream="nope"))
    assert publication.refusal.text == "no stream 'nope'"
    subscription = client.subscribe(0, "nada")
    client.receive(0, Refuse(code="E_STREAM", text="no stream 'nada'", stream="nada"))
    assert subscription.receiver.refusal.text == "no stream 'nada'"
    with pytest.raises(LinkError, match="full house"):
        client.receive(0, Refuse(code="E_LIMIT", text="full house"))


def test_the_same_stream_twice_and_messages_for_nodes_are_refused():
    client, _ = connected()
    client.publish(0, "in", SCHEMA, timed=True)
    client.subscribe(0, "out")
    with pytest.raises(LocalProtocolError):
        client.publish(0, "in", SCHEMA, timed=True)
    with pytest.raises(LocalProtocolError):
        client.subscribe(0, "out")
    with pytest.raises(RemoteProtocolError, match="nothing for a client"):
        client.receive(0, Install(request=1, query="q", fragment="f"))
    client.unsubscribe(0, "out")
    assert any(isinstance(message, Detach) for message, _ in sends(client.outbox))


def test_rows_not_taken_are_known_once_and_end_nothing():
    client, node = connected()
    publication = client.publish(0, "in", SCHEMA, timed=True)
    publication.sender.train(0, b"abc", 3)
    settle(client, node)
    word = Refuse(code="E_ROWS", text="rows 0 to 2 were not taken", stream="in")
    for message in (word, word):  # The second time because we offered anew.
        client.receive(0, message)
    client.receive(0, Refuse(code="E_ROWS", text="of a stream we don't publish", stream="other"))
    assert publication.not_taken == [word]
    assert publication.refusal is None
    assert publication.undurable_rows == 3
    publication.sender.train(0, b"de", 2)
    settle(client, node)
    assert node.text == "abcde"


def test_words_of_a_node_are_shown_as_a_terminal_may_print_them():
    """Reliability D 30: a node that a stranger runs."""
    client = ClientMind("c", "node")
    client.receive(0, Hello(version=PROTOCOL_VERSION, node="node", incarnation=1))
    request = client.request(lambda number: StatusRequest(request=number))
    evil = "\x1b[2J\x9b1m\u202e\0"
    client.receive(0, Reply(request=request, code="E_X", text=f"a\nb{evil}", hint=evil))
    reply, _ = client.replies[request]
    assert reply.text == "a\nb\\x1b[2J\\x9b1m\\u202e\\x00"
    assert reply.hint.isprintable()
    with pytest.raises(LinkError) as caught:
        client.receive(0, Refuse(code="E_X", text=evil))
    assert str(caught.value).isprintable()


def test_a_publication_that_its_node_does_not_know_is_offered_again():
    client, node = connected()
    publication = client.publish(0, "in", SCHEMA, timed=True)
    settle(client, node)
    assert publication.attached
    forgotten = Refuse(code="E_DETACHED", text="nothing is known of it", stream="in", epoch=1)
    client.receive(0, forgotten)
    client.receive(0, forgotten)
    assert [type(message) for message, _ in sends(client.outbox)] == [OpenPublisher]
    assert publication.refusal is None


def test_what_is_said_of_frames_under_way_does_not_hide_why_they_were_refused():
    client, node = connected()
    publication = client.publish(0, "in", SCHEMA, timed=True)
    settle(client, node)
    removed = Refuse(code="E_REMOVED", text="the query was removed", stream="in", epoch=1)
    client.receive(0, removed)
    client.receive(0, Refuse(code="E_STREAM", text="there is no such source", stream="in", epoch=1))
    assert publication.refusal == removed
    client.receive(0, Refuse(code="E_STREAM", text="there is no such source", stream="in"))
    assert publication.refusal.code == "E_STREAM", "an answer to an offer counts"


def test_what_a_node_asked_for_before_the_stream_came_there_is_answered_at_once():
    """A fragment that moved attaches to its publishers, who may not have heard of that yet."""

    class Waits(Node):
        def receive(self, message, payload):
            if not isinstance(message, OpenPublisher):  # It has asked, and waits for the answer.
                super().receive(message, payload)

    client, node = connected()
    publication = client.publish(0, "in", SCHEMA, timed=True)
    publication.sender.train(0, b"abc", 3)
    settle(client, node)
    node.receiver.durable(0, 2)
    settle(client, node)
    there, new = ClientMind("c", "n", link=SMALL), Waits(life=2, taken=2)
    there.tick(0)
    settle(there, new)
    new.receiver.peer_event(0, LinkEvent.PEER_UP)
    settle(there, new)
    there.take_publication(0, publication)
    publication.sender.train(0, b"de", 2)
    settle(there, new)
    assert new.text == "cde"
    assert publication.attached
    there.lost(0)
    new.receiver.peer_event(0, LinkEvent.PEER_RESTARTED)
    assert there._early == {}


def test_what_a_node_asked_for_and_then_refused_is_not_answered():
    """It has moved on before we came: who was answered would believe to be attached."""
    client, _ = connected()
    publication = client.publish(0, "in", SCHEMA, timed=True)
    there, new = ClientMind("c", "n", link=SMALL), Node(life=2, taken=0)
    there.tick(0)
    settle(there, new)
    new.receiver.peer_event(0, LinkEvent.PEER_UP)
    settle(there, new)
    assert list(there._early) == ["in"]
    there.receive(0, Refuse(code="E_MOVED", text="it is at another node", stream="in", epoch=1))
    there.take_publication(0, publication)
    assert not publication.attached
