"""Named subscriptions: what is kept for whom, who may read, and what comes again when somebody dies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.wire.client_mind import ClientMind
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.link.automaton import LinkEvent, LinkSettings, SenderState
from medusa.wire.link.named_subscriptions import is_key, key_of, objection, owner_and_name
from medusa.wire.link.receiver import LostRows, ReceivedRows, Receiver
from medusa.wire.link.sender import Sender
from medusa.wire.messages.links import NOW, OLDEST, Ack, Attach, Detach, Hello
from medusa.wire.outbox import Outbox, Send
from tests.wire.pair import SCHEMA, SMALL, sends

KEY = key_of("", "r")


def letters(begin, end):
    """Rows of the stream: one character each, from their numbers."""
    return "".join(chr(97 + number % 26) for number in range(begin, end))


class Station:
    """A node with stream ``s``. Its disk holds what ``checkpoint`` wrote; a name is answered once it does."""

    def __init__(self, settings=SMALL):
        self.settings = settings
        self.life = 0
        self.saved = (0, [], {})
        self.restart()

    def restart(self):
        """From the checkpoint; whoever was connected has to say ``Hello`` again."""
        first, entries, receivers = self.saved
        self.life += 1
        self.box = Outbox()
        self.sender = Sender(
            "s", SCHEMA, timed=True, outbox=self.box, settings=self.settings, first_seq=first
        )
        self.sender.load(entries, receivers)
        self.peers = []

    def checkpoint(self):
        log = self.sender.log
        self.saved = (log.start_seq, log.entries(), self.sender.durable_positions())

    def run_to(self, end):
        """The fragment gives rows up to this number; again, after a crash."""
        begin = self.sender.log.next_seq
        if end > begin:
            self.sender.train(0, letters(begin, end).encode(), end - begin)

    def receive(self, now_us, peer, message):
        if isinstance(message, Hello):
            self.box.send(
                peer, Hello(version=PROTOCOL_VERSION, node="n", incarnation=self.life, answer=False)
            )
            self.peers.append(peer)
            self.sender.peer(now_us, peer, LinkEvent.PEER_UP)
        elif peer in self.peers and isinstance(message, Attach) and message.name:
            key = key_of("", message.name)
            if key not in self.sender.receivers:
                begin = self.sender.begin_at(peer, message)
                if begin is None:
                    return
                self.sender.expect(key, begin)
                self.checkpoint()
            self.sender.receive(now_us, peer, message, key=key)
        elif peer in self.peers and isinstance(message, Attach | Ack | Detach):
            self.sender.receive(now_us, peer, message)

    def gone(self, peer):
        if peer in self.peers:
            self.peers.remove(peer)
        self.sender.peer(0, peer, LinkEvent.PEER_DOWN)

    @property
    def view(self):
        return self.sender.receivers[KEY]


class Places:
    """The station and its clients; frames pass at once. ``wait`` lets time pass."""

    def __init__(self, **options):
        self.node = Station(**options)
        self.minds = {}
        self.now_us = 0

    def client(self, name):
        self.minds[name] = ClientMind(name, "n", link=self.node.settings)
        self.wait()
        return self.minds[name]

    def settle(self):
        while True:
            ups = [(name, *each) for name, mind in self.minds.items() for each in sends(mind.outbox)]
            downs = [each for each in self.node.box.take() if isinstance(each, Send)]
            if not ups and not downs:
                return
            for name, message, _ in ups:
                self.node.receive(self.now_us, name, message)
            for each in downs:
                if each.peer in self.minds:
                    self.minds[each.peer].receive(self.now_us, each.message, each.payload)

    def wait(self, delay_us=400_000):
        self.now_us += delay_us
        for mind in self.minds.values():
            mind.tick(self.now_us)
        self.node.sender.tick(self.now_us)
        self.settle()

    def crash(self):
        """The node dies and comes back."""
        for mind in self.minds.values():
            mind.lost(self.now_us)
        self.node.restart()
        self.wait()

    def kill(self, name):
        """A program dies; the node has not noticed."""
        del self.minds[name]


def take_all(subscription):
    """Rows and their first number; every gap is one that was told."""
    found, first, at = "", None, None
    while (each := subscription.take(0)) is not None:
        if isinstance(each, LostRows):
            at = each.to_seq
        elif isinstance(each, ReceivedRows):
            assert at is None or each.seq == at
            at = each.seq + each.message.rows - each.skip
            first = each.seq if first is None else first
            found += bytes(each.payload).decode()[each.skip :]
    return first, found


def code(subscription):
    refusal = subscription.receiver.refusal
    return None if refusal is None else refusal.code


def test_keys_hold_owner_and_name():
    assert owner_and_name(key_of("c-1", "a_b")) == ("c-1", "a_b")
    assert owner_and_name(key_of("", "x")) == ("", "x")
    assert is_key(key_of("", "x"))
    assert not is_key("c-1-2")


@pytest.mark.parametrize(
    ("reader", "is_there", "peer", "next_seq", "resumed", "says"),
    [
        ("", False, "b", NOW, False, None),
        ("a", True, "b", NOW, False, "E_TAKEN"),
        ("a", False, "b", NOW, False, None),
        ("a", True, "a", OLDEST, False, None),
        ("", False, "b", 9, False, "E_SEQ"),
        ("", False, "b", 10, False, None),
        ("", False, "b", 0, False, "E_SEQ"),
        ("", False, "b", 9, True, "E_TAKEN"),
        ("", False, "b", 10, True, None),
    ],
)
def test_who_may_read_under_a_name(reader, is_there, peer, next_seq, resumed, says):
    found = objection(
        KEY,
        reader=reader,
        is_there=is_there,
        durable=10,
        peer=peer,
        next_seq=next_seq,
        resumed=resumed,
    )
    assert (found and found.code) == says


def test_rows_stay_until_they_are_acknowledged():
    places = Places()
    first = places.client("c1").subscribe(0, "s", name="r")
    places.settle()
    places.node.run_to(5)
    places.settle()
    assert take_all(first) == (0, "abcde")
    places.wait()
    assert places.node.sender.log.start_seq == 0
    first.ack(0, 3)
    places.settle()
    assert places.node.view.durable == 3
    places.node.run_to(8)
    places.minds["c1"].unsubscribe(0, "s")
    places.settle()
    assert (places.node.view.state, places.node.view.peer) == (SenderState.DETACHED, "")
    second = places.client("c2").subscribe(0, "s", name="r")
    places.settle()
    assert places.node.view.durable == 3, "also before it says anything"
    assert take_all(second) == (3, "defgh")
    second.ack(0, 8)
    places.settle()
    assert places.node.sender.log.start_seq == 8


def test_acknowledging_too_much_is_refused_and_too_little_changes_nothing():
    places = Places()
    mind = places.client("c1")
    subscription = mind.subscribe(0, "s", OLDEST, name="r")
    places.node.run_to(4)
    places.settle()
    with pytest.raises(LocalProtocolError, match="taken were the rows below 0"):
        subscription.ack(0, 1)
    subscription.take(0)
    with pytest.raises(LocalProtocolError, match="row 5 acknowledged, taken were the rows below 4"):
        subscription.ack(0, 5)
    subscription.ack(0, 4)
    subscription.ack(0, 1)
    places.settle()
    assert (subscription.receiver.durable_seq, places.node.view.durable) == (4, 4)
    plain = places.client("c2").subscribe(0, "s", OLDEST)
    with pytest.raises(LocalProtocolError, match="read without a name"):
        plain.ack(0, 0)


def test_a_second_reader_is_refused_while_the_first_is_there_and_takes_over_when_it_is_silent():
    places = Places()
    first = places.client("c1").subscribe(0, "s", name="r")
    places.settle()
    places.node.run_to(6)
    places.settle()
    take_all(first)
    first.ack(0, 2)
    intruder = places.client("c2")
    second = intruder.subscribe(0, "s", name="r")
    places.settle()
    assert code(second) == "E_TAKEN"
    intruder.unsubscribe(0, "s")
    places.node.gone("c1")
    second = intruder.subscribe(0, "s", name="r")
    places.settle()
    assert take_all(second) == (2, "cdef")
    second.ack(0, 6)
    places.settle()
    # The first wakes up again: what it says counts no more, and it hears that.
    places.node.peers.append("c1")
    first.ack(0, 5)
    places.settle()
    assert code(first) == "E_TAKEN"
    assert (places.node.view.peer, places.node.view.durable) == ("c2", 6)


def test_a_program_whose_rows_another_has_acknowledged_meanwhile_does_not_go_on():
    places = Places()
    first = places.client("c1").subscribe(0, "s", name="r")
    places.settle()
    places.node.run_to(3)
    places.settle()
    take_all(first)
    slept = places.minds.pop("c1")
    places.node.gone("c1")
    second = places.client("c2").subscribe(0, "s", name="r")
    places.node.run_to(7)
    places.settle()
    take_all(second)
    second.ack(0, 7)
    places.minds["c2"].unsubscribe(0, "s")
    places.settle()
    places.minds["c1"] = slept
    slept.lost(places.now_us)
    places.wait()
    assert code(first) == "E_TAKEN"
    assert "up to row 7" in first.receiver.refusal.text
    assert first.receiver.lost_rows == 0


def test_a_number_says_where_the_program_stands():
    places = Places()
    places.node.run_to(10)
    mind = places.client("c1")
    beyond = mind.subscribe(0, "s", 11, name="r")
    places.settle()
    assert code(beyond) == "E_SEQ"
    assert not places.node.sender.receivers
    mind.unsubscribe(0, "s")
    for number, rows in ((4, (4, "efghij")), (7, (7, "hij")), (10, (None, ""))):
        subscription = mind.subscribe(0, "s", number, name="r")
        places.settle()
        assert take_all(subscription) == rows
        assert (subscription.receiver.durable_seq, places.node.view.durable) == (number, number)
        mind.unsubscribe(0, "s")
        places.settle()
    back = mind.subscribe(0, "s", 9, name="r")
    places.settle()
    assert code(back) == "E_SEQ"
    assert "rows below 10" in back.receiver.refusal.text


def test_what_is_no_longer_kept_is_told_with_its_count():
    shedding = LinkSettings(
        window_bytes=2000, frame_bytes_max=1000, retained_bytes_max=1500, keep_bytes=1500, at_limit="shed"
    )
    places = Places(settings=shedding)
    mind = places.client("c1")
    mind.subscribe(0, "s", name="r")
    places.settle()
    mind.unsubscribe(0, "s")
    places.settle()
    for end in range(100, 2001, 100):
        places.node.run_to(end)
    start = places.node.sender.log.start_seq
    assert start > 0
    again = mind.subscribe(0, "s", name="r")
    places.settle()
    lost = again.take(0)
    assert lost == LostRows(from_seq=0, to_seq=start)
    assert again.receiver.lost_rows == start
    assert take_all(again)[0] == start


def test_one_connection_reads_a_stream_under_one_name_at_a_time():
    """Also where the word that it reads no more was lost."""
    places = Places()
    mind = places.client("c1")
    places.node.run_to(3)
    for name in ("r", "", "other", "r"):
        subscription = mind.subscribe(0, "s", OLDEST, name=name)
        places.settle()
        assert code(subscription) is None
        assert take_all(subscription) == (0, "abc")
        mind.unsubscribe(0, "s")
        assert any(isinstance(message, Detach) for message, _ in sends(mind.outbox))  # Lost.
    assert {view.peer for view in places.node.sender.receivers.values()} == {"", "c1"}
    assert set(places.node.sender.receivers) == {KEY, key_of("", "other")}


def test_what_is_ended_keeps_nothing():
    places = Places()
    places.client("c1").subscribe(0, "s", name="r")
    places.settle()
    places.node.run_to(5)
    places.node.sender.forget(0, KEY)
    assert not places.node.sender.receivers
    assert places.node.sender.seats.view("c1") is None


def test_only_names_and_plain_receivers_begin_at_a_word():
    places = Places()
    sender = places.node.sender
    attach = Attach(stream="s", epoch=1, next_seq=NOW, durable=0, granted=2000)
    with pytest.raises(RemoteProtocolError, match="names the row it wants"):
        sender.receive(0, "x", attach)
    with pytest.raises(RemoteProtocolError, match="durable up to 3, yet wants row -2"):
        sender.begin_at("x", Attach(stream="s", epoch=1, next_seq=NOW, durable=3, granted=2000, name="r"))
    with pytest.raises(LocalProtocolError, match="only a plain or named receiver"):
        Receiver("s", "n", incarnation=1, outbox=Outbox(), next_seq=NOW)


@pytest.mark.parametrize("known", [False, True])
def test_what_has_a_name_is_never_plain(known):
    """Else its position wouldn't be in the checkpoint, and who took nothing would be cut off for good."""
    places = Places()
    sender = places.node.sender
    if known:
        sender.expect(KEY, 0)
    both = Attach(stream="s", epoch=1, next_seq=OLDEST, durable=0, granted=2000, plain=True, name="r")
    with pytest.raises(RemoteProtocolError, match="plain too") as error:
        sender.receive(0, "x", both, key=KEY) if known else sender.begin_at("x", both)
    assert error.value.code == "E_READER"
    assert sender.durable_positions() == ({KEY: 0} if known else {})
    sender.train(0, b"abc", 3)
    sender.tick(10 * SMALL.idle_us)
    assert sender.log.start_seq == 0


class Program:
    """Reads under the name and stores (position, rows) in one step; may die at any moment."""

    def __init__(self, places):
        self.places = places
        self.position, self.rows = 0, ""
        self.acked = 0
        self.lives = 0
        self.begin()

    def begin(self):
        self.lives += 1
        self.name = f"c{self.lives}"
        self.mind = self.places.client(self.name)
        self.ask()

    def ask(self):
        self.subscription = self.mind.subscribe(self.places.now_us, "s", OLDEST, name="r")
        self.at = None
        self.places.settle()
        if code(self.subscription) is not None:
            assert code(self.subscription) == "E_TAKEN"
            assert any(peer != self.name for peer in self.places.node.peers)

    def look(self, least):
        """Take one train; rows that are stored already are dropped by number.

        Args:
            least: no row below it may come.
        """
        if code(self.subscription) is not None:
            self.mind.unsubscribe(0, "s")
            self.ask()
        delivery = self.subscription.take(self.places.now_us)
        assert not isinstance(delivery, LostRows)
        if not isinstance(delivery, ReceivedRows):
            return
        if self.at is None:
            assert least <= delivery.seq <= self.position, (least, delivery.seq, self.position)
        else:
            assert delivery.seq == self.at
        text = bytes(delivery.payload).decode()[delivery.skip :]
        self.at = delivery.seq + len(text)
        self.rows += text[max(self.position - delivery.seq, 0) :]
        self.position = max(self.position, self.at)

    def ack(self):
        if self.at is not None and code(self.subscription) is None:
            self.subscription.ack(self.places.now_us, self.at)
            self.places.settle()


STEPS = ("rows", "rows", "look", "look", "look", "ack", "ack", "disk", "crash", "die", "notice", "wait")


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(STEPS), min_size=30, max_size=60))
def test_every_row_comes_at_least_once_and_none_below_what_is_durable(steps):
    places = Places()
    program = Program(places)
    end = 0
    for step in [*steps, "notice", "wait"]:
        before = places.node.view.durable
        match step:
            case "rows":
                end += 3
            case "look":
                program.look(places.node.saved[2][KEY])
            case "ack":
                program.ack()
            case "disk":
                places.node.checkpoint()
            case "crash":
                places.crash()
            case "die":
                places.kill(program.name)
                program.begin()
            case "notice":
                for peer in [each for each in places.node.peers if each not in places.minds]:
                    places.node.gone(peer)
            case "wait":
                places.wait()
        places.node.run_to(end)
        places.settle()
        assert step == "crash" or places.node.view.durable >= before
        # What a crash could take is still there: below the durable position nothing, above it all.
        assert places.node.saved[2][KEY] <= places.node.view.durable
        assert places.node.sender.log.start_seq <= places.node.view.durable
    for _ in range(200):
        if program.position == end:
            break
        program.look(0)
        places.wait(100_000)
    assert program.rows == letters(0, end)
