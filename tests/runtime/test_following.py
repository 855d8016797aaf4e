"""A client goes after a stream that moved: what it makes of the answers to where it is."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import msgspec
import pytest

from medusa.errors import LinkError
from medusa.runtime.client import followed_names, followed_stream
from medusa.runtime.client.client_loop import ClientLoop
from medusa.runtime.client.contacts import read_place
from medusa.runtime.client.followed_names import LOOK_AGAIN_S, FollowedNames
from medusa.runtime.client.followed_stream import AWAIT_AGAIN_US, LEARN_AGAIN_US, Followed
from medusa.runtime.keys.client_keys import ClientKeys
from medusa.wire.link.redirect import MOVED_US
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.links import Refuse


class Loop:
    """A connection to a node."""

    def __init__(self, node):
        self.node = node

    def tell_moves(self, moved):
        self.moved = moved

    def ring(self):
        pass

    def down_us(self):
        return 0


class Stream(Followed):
    """One that its node refused."""

    kind = "stream"

    def __init__(self, loop, code):
        super().__init__(loop, "q.out")
        self.epoch, self.follows = 1, True
        self.refusal = Refuse(code=code, text="not here", stream="q.out")
        self.moved = []

    def mind_of_stream(self):
        raise AssertionError

    def last_refusal(self):
        return self.refusal

    def move(self, loop, epoch):
        self.moved.append((loop.node, epoch))
        self.refusal = None


@pytest.fixture
def world(monkeypatch):
    """A client of ``a``; the clock, and where the catalog says that the stream is."""

    class World:
        now_us, place = 0, None

        def __init__(self):
            self.following = FollowedNames(Loop("a"), None)
            monkeypatch.setattr(followed_names, "now_us", lambda: self.now_us)
            monkeypatch.setattr(self.following, "lookup", lambda *_: self.lookup())
            monkeypatch.setattr(self.following, "loop_at", lambda place: Loop(place["node"]))

        def lookup(self):
            if self.place is None:
                raise LinkError("nothing is called so", code="E_STREAM")
            return self.place

        def refused(self, code):
            self.stream = Stream(Loop("a"), code)
            return self.stream

        def seek(self, after_us=0):
            self.now_us += after_us
            self.following._seek(self.stream)

    return World()


def test_what_is_at_two_nodes_is_asked_for_again_until_the_word_comes_that_it_left_one(world, monkeypatch):
    """The word that it came may be known before the word that it left."""
    both = {"node": "b", "epoch": 2, "holders": ["b", "c"]}
    one = {**both, "holders": ["b"]}
    rests = []

    def rest(seconds):
        rests.append(seconds)
        world.now_us += int(seconds * 1e6)
        world.place = one if world.now_us > followed_names.NEWS_US // 2 else both

    monkeypatch.setattr(followed_names.time, "sleep", rest)
    world.place = both
    assert world.following.place("q.out", "stream") == one
    assert rests


def test_what_stays_at_several_nodes_is_refused_and_they_are_named(world, monkeypatch):
    def rest(seconds):
        world.now_us += int(seconds * 1e6)

    monkeypatch.setattr(followed_names.time, "sleep", rest)
    world.place = {"node": "b", "epoch": 1, "holders": ["b", "c"]}
    assert world.following.place("q.in", "source") is None
    assert world.now_us >= followed_names.NEWS_US
    refused = LinkError("node 'a' has no source 'q.in'", hint="nothing is deployed here", code="E_STREAM")
    told = world.following.hinted(refused, "q.in", "source")
    assert (told.message, told.code) == (refused.message, "E_STREAM")
    assert told.hint == "it is at the nodes b, c: connect to one of these"
    world.place = {"node": "a", "epoch": 1, "holders": ["a", "b"]}  # Our own is meant, at once.
    before = world.now_us
    assert world.following.place("q.in", "source") == world.place
    assert world.now_us == before


def test_what_moved_is_waited_for_while_nobody_has_heard_where_it_is(world):
    """The word that it left may be known before the word that it came."""
    stream = world.refused("E_MOVED")
    world.seek()
    world.seek(MOVED_US - 1)
    assert stream.final_refusal() is None
    world.place = {"node": "a", "epoch": 1}  # As it was before.
    world.seek(MOVED_US)
    world.place = None
    world.seek(1)
    world.seek(MOVED_US - 1)
    assert stream.final_refusal() is None
    world.place = {"node": "b", "epoch": 2}
    world.seek()
    assert stream.moved == [("b", 2)]


def test_what_moved_and_is_nowhere_for_long_was_removed(world):
    stream = world.refused("E_MOVED")
    world.seek()
    world.seek(MOVED_US)
    assert stream.final_refusal() is stream.refusal


def test_what_is_found_at_a_node_that_is_only_being_called_is_asked_for_again_when_that_answers(
    world, monkeypatch
):
    """Not after the usual rest: readers of a stream that was taken over waited for half of their pause."""
    stream = world.refused("E_MOVED")
    stream.refusal = None  # Its node is away, and said nothing.
    monkeypatch.setattr(stream.loop, "down_us", lambda: 100_000)
    connections = iter([None, Loop("b")])
    monkeypatch.setattr(world.following, "_newest", lambda _: {"node": "b", "epoch": 2})
    monkeypatch.setattr(world.following, "_called", lambda _: next(connections))
    world.now_us = 1_000_000
    assert stream.asks(world.now_us)
    assert not stream.asks(world.now_us + 1)
    world.seek()
    assert not stream.moved
    assert not stream.asks(world.now_us + 2)  # A node that doesn't answer is no reason to ask more often.
    world.following._streams.append(stream)
    world.following._call({"node": "b"})
    assert stream.asks(world.now_us + 3)
    world.seek()
    assert stream.moved == [("b", 2)]


class Asked(Loop):
    """A connection by which is asked without waiting.

    Attributes:
        asked: the questions, and who is told the answer.
        answering: whether it is there and will answer.
    """

    def __init__(self, node):
        super().__init__(node)
        self.asked, self.answering, self.down = [], True, 0

    def down_us(self):
        return self.down

    def ask_aside(self, make, read, then):
        self.asked.append((make(len(self.asked)), then))
        return len(self.asked) - 1

    def is_answering(self, number):
        return self.answering


@pytest.fixture
def lost(world, monkeypatch):
    """A stream whose node is away, of a client that has two others; what it polls."""
    stream = world.refused("E_MOVED")
    stream.refusal = None
    stream._loop = Asked("a")
    stream._loop.down = 100_000
    world.now_us, world.polls = 1_000_000, 0
    world.others = [Asked("b"), Asked("c")]
    following = world.following
    monkeypatch.setattr(followed_stream, "now_us", lambda: world.now_us)
    monkeypatch.setattr(following, "_own", lambda: world.others)
    monkeypatch.setattr(following, "_called", lambda place: Loop(place["node"]))
    monkeypatch.setattr(following, "_call_aside", lambda place: world.called.append(place["node"]))
    monkeypatch.setattr(following, "_learn", lambda: None)
    monkeypatch.setattr(following, "_seek_node", lambda *_: None)

    def poll(*_, **__):
        world.polls += 1
        return {"node": "a", "epoch": 1}

    monkeypatch.setattr(following, "_ask", poll)
    world.called = []
    following._loops = {"a": stream._loop, "b": world.others[0], "c": world.others[1]}
    following._streams.append(stream)
    return stream


def test_others_say_once_where_a_stream_comes_to_be_whose_node_is_away_and_nobody_asks_meanwhile(world, lost):
    for _ in range(20):
        assert world.following._look(), "it is sought"
        world.now_us += 20_000
    questions = [question for loop in world.others for question, _ in loop.asked]
    assert [(each.name, each.kind, each.above) for each in questions] == [("q.out", "stream", 1)] * 2
    assert world.polls == 0
    _, then = world.others[1].asked[0]
    then({"node": "a", "epoch": 1})
    assert world.following._look()
    assert not lost.moved, "no news"
    then({"node": "s", "epoch": 2})
    world.following._look()
    assert lost.moved == [("s", 2)]
    assert world.polls == 0


def test_where_a_stream_of_another_participant_is_nobody_hears_by_itself_so_it_is_asked_for(world, lost):
    lost.participant = "acme"
    looks = 20
    for _ in range(looks):
        world.following._look()
        world.now_us += 20_000
    assert [loop.asked for loop in world.others] == [[], []]
    assert world.polls == 2 * looks, "as before somebody could wait for it"


def test_nodes_of_an_earlier_release_answer_at_once_and_are_asked_as_often_as_before(world, lost):
    for loop in world.others:
        loop.answering = False
    looks = 50
    for _ in range(looks):
        world.following._look()
        world.now_us += 20_000
    assert world.polls == 2 * looks, "of each who is there"
    assert [len(loop.asked) for loop in world.others] == [looks * 20_000 // AWAIT_AGAIN_US] * 2


def test_who_may_have_a_stream_next_is_heard_from_its_node_and_called_when_that_is_lost(world, lost):
    node = lost._loop
    node.down = 0
    world.following._look()
    world.following._look()
    ((question, then),) = node.asked
    assert (question.name, question.above) == ("q.out", 0)
    then({"node": "a", "epoch": 1, "successors": [at("s"), at("b"), at("nowhere", "")]})
    world.following._look()
    assert (len(node.asked), world.called) == (1, [])
    node.down = 1
    world.following._look()
    assert world.called[0] == "s", "there is a connection to b, and nobody knows where the last one is"
    assert "b" not in world.called
    assert "nowhere" not in world.called
    world.following._look()
    assert world.called.count("s") == 1


def test_where_nobody_may_have_a_stream_next_that_is_asked_once_and_else_now_and_then(world, lost):
    node = lost._loop
    node.down = 0
    world.following._look()
    node.asked[0][1]({"node": "a", "epoch": 1})
    world.now_us += 10 * LEARN_AGAIN_US
    world.following._look()
    assert len(node.asked) == 1
    lost.learn(world.now_us, [at("s")])
    world.following._look()
    assert len(node.asked) == 1
    world.now_us += LEARN_AGAIN_US
    world.following._look()
    assert len(node.asked) == 2
    assert lost.successors == (at("s"),), "until it answers"


def test_what_its_node_does_not_know_and_nobody_else_is_nowhere(world):
    stream = world.refused("E_STREAM")
    world.seek()
    assert stream.final_refusal() is stream.refusal


def test_who_hears_that_a_stream_moved_looks_at_once_and_soon_again(monkeypatch):
    monkeypatch.setattr(followed_names, "LOOK_EVERY_S", 1e6)
    home = Loop("a")
    client = FollowedNames(home, None)
    rests, looked, over = [], threading.Semaphore(0), threading.Event()
    answers = iter([False, True, True, False])

    def look():
        looked.release()
        if (seeks := next(answers)) is False:
            over.set()
        return seeks

    class Rest:
        """A lock, and how long anybody has waited for it."""

        def __init__(self, lock):
            self.lock = lock

        def acquire(self, timeout):
            rests.append(timeout)
            return self.lock.acquire(timeout=min(timeout, 60))

        def release(self):
            self.lock.release()

    monkeypatch.setattr(client, "_look", look)
    client._rest = Rest(client._rest)
    client.add(Stream(home, "E_MOVED"), 1)
    home.moved()
    assert looked.acquire(timeout=60)  # The answer is that nothing is sought.
    over.wait(60)
    over.clear()
    home.moved()
    assert over.wait(60)
    assert all(looked.acquire(timeout=60) for _ in range(3))
    client.close()
    client.join()
    assert rests[:5] == [1e6, 1e6, LOOK_AGAIN_S, 2 * LOOK_AGAIN_S, 1e6]


# --- connections to other nodes -----------------------------------------------------------------------


def at(node, address="tcp://there", server_key=""):
    return {"node": node, "address": address, "server_key": server_key}


@pytest.fixture
def dials(monkeypatch):
    """Connections that are made where the test says so, and the node that answers there."""

    class Dialled:
        def __init__(self, address, timeout_us, keys, name, begun, what):
            self.address, self.closed = address, threading.Event()
            self.made.append(self)
            begun(self)
            if address in self.waiting:
                began, goes_on = self.waiting[address]
                began.set()
                assert goes_on.wait(60)
                if self.closed.is_set():
                    raise LinkError("the connection was closed", code="link.closed")
            self.node = self.answers[address]

        def tell_moves(self, moved):
            pass

        def down_us(self):
            return 0

        def close(self):
            self.closed.set()
            for _, goes_on in self.waiting.values():
                goes_on.set()

    Dialled.made, Dialled.answers, Dialled.waiting = [], {"tcp://there": "b", "tcp://dead": "c"}, {}
    monkeypatch.setattr(followed_names, "ClientLoop", Dialled)
    return Dialled


def client_of(node, keys=None):
    home = Loop(node)
    home.name, home.timeout_us = "client-1", 1_000_000
    return FollowedNames(home, keys)


def test_another_node_at_the_address_is_not_the_one_that_was_sought(dials):
    client = client_of("a")
    with pytest.raises(LinkError, match="at tcp://there is node 'b', not 'x'") as caught:
        client.loop_at(at("x"))
    assert caught.value.code == "E_IDENTITY"
    assert [each.closed.is_set() for each in dials.made] == [True]
    assert client.loop_at(at("b")) is client.loop_at(at("b")) is dials.made[1]
    assert not dials.made[1].closed.is_set()


def test_a_client_with_keys_speaks_with_no_node_whose_key_it_does_not_know(dials):
    with pytest.raises(LinkError, match="node 'b' has no key in the catalog") as caught:
        client_of("a", ClientKeys(own=None, server=b"")).loop_at(at("b"))
    assert caught.value.code == "link.keys"
    assert dials.made == []


def test_a_connection_that_is_being_made_can_be_closed():
    """By whoever has it before its node has answered; here nobody listens."""
    began, codes = threading.Event(), []
    loops = []

    def note(loop):
        loops.append(loop)
        began.set()

    def dial():
        try:
            ClientLoop("inproc://nobody", 600_000_000, begun=note)
        except LinkError as error:
            codes.append(error.code)

    thread = threading.Thread(target=dial)
    thread.start()
    assert began.wait(60)
    while not loops[0]._bells._ringers:
        pass
    loops[0].close()
    thread.join(30)
    assert (thread.is_alive(), codes) == (False, ["link.closed"])


@pytest.mark.parametrize(
    "document",
    [
        b"{",
        b"[" * 100_000,
        b'{"node": "b\xff", "address": "", "server_key": "", "epoch": 2}',
        b'{"node": "b", "address": "", "server_key": ""}',
        b'{"node": "b", "address": "", "server_key": "", "epoch": "2"}',
        b'{"node": "b", "address": "", "server_key": "", "epoch": 2, "successors": [1]}',
        b'{"node": "b", "address": "", "server_key": "", "epoch": 2, "successors": [{"node": "c"}]}',
        b'{"node": "b", "address": "", "server_key": "", "epoch": 4611686018427387905}',
        b"null",
    ],
    ids=str,
)
def test_what_is_no_answer_to_a_question_aside_is_no_news(document):
    """It is read in the thread of the connection, which it ended."""
    heard = []
    answers = {1: (Reply(request=1), document), 2: (Reply(request=2, code="E_ROLE"), None)}
    answers[3] = Reply(request=3), msgspec.json.encode({**at("b"), "epoch": 2, "holders": ["b"]})
    loop = ClientLoop.__new__(ClientLoop)
    mind = SimpleNamespace(replies=answers, give_up=lambda number: answers.pop(number))
    asked = iter(answers.copy())
    mind.request = lambda make: next(asked)
    loop.lock, loop._aside = threading.RLock(), {}
    loop.mind, loop._mind = lambda: mind, mind
    for _ in range(3):
        loop.ask_aside(lambda number: None, read_place, heard.append)
    loop._answer_aside()
    assert heard == [{**at("b"), "epoch": 2, "successors": ()}]
    assert (answers, loop._aside) == ({}, {})


def test_nobody_else_waits_for_a_node_that_does_not_answer(dials):
    began, _ = dials.waiting["tcp://dead"] = threading.Event(), threading.Event()
    client = client_of("a")
    failed = []

    def dial():
        try:
            client.loop_at(at("c", "tcp://dead"))
        except LinkError as error:
            failed.append(error.code)

    threads = [threading.Thread(target=dial) for _ in range(2)]
    for each in threads:
        each.start()
    assert began.wait(60)
    assert client.loop_at(at("b")).node == "b"  # While that goes on.
    assert client.loop_at(at("a")) is client._home
    client.close()  # Nor does this wait; and who dials hears of it.
    for each in threads:
        each.join(60)
    assert not any(each.is_alive() for each in threads)
    assert failed == ["link.closed"] * 2
    assert all(each.closed.is_set() for each in dials.made if each.address == "tcp://there")
    assert client._dialled == set()


def test_who_dials_the_same_node_at_once_gets_the_same_connection(dials):
    """The node would take two for one client that came back."""
    began, goes_on = dials.waiting["tcp://there"] = threading.Event(), threading.Event()
    client = client_of("a")
    found = []
    threads = [threading.Thread(target=lambda: found.append(client.loop_at(at("b")))) for _ in range(3)]
    for each in threads:
        each.start()
    assert began.wait(60)
    goes_on.set()
    for each in threads:
        each.join(60)
    assert found == dials.made * 3
    assert len(dials.made) == 1
