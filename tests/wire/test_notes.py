"""Notes: each end keeps what the other left with it, and gives it back."""

from __future__ import annotations

import pytest

from medusa.errors import RemoteProtocolError
from medusa.wire import limits
from medusa.wire.link.automaton import LinkEvent, LinkSettings
from medusa.wire.link.receiver import Receiver
from medusa.wire.link.sender import Sender
from medusa.wire.messages.links import RESUME, Ack, Attach, Attached, Boundary, Data
from medusa.wire.outbox import Outbox
from tests.wire.pair import SCHEMA, sends


class Pair:
    """A sender that has put out rows 0 to 9 and a promise, and a receiver."""

    def __init__(self) -> None:
        self.there, self.here = Outbox(), Outbox()
        self.sender = Sender("s", SCHEMA, timed=True, outbox=self.there)
        self.sender.expect("n")
        self.sender.train(0, b"rows", 10, note=b"after rows")
        self.sender.boundary(0, 7, b"after promise")
        self.receiver = self.another(1)

    def another(self, incarnation: int) -> Receiver:
        made = Receiver("s", "up", incarnation=incarnation, outbox=self.here, schema=SCHEMA, timed=True)
        self.receiver = made
        return made

    def attach(self) -> Attach:
        self.receiver.peer_event(0, LinkEvent.PEER_UP)
        ((message, _),) = sends(self.here)
        self.sender.receive(0, "n", message)
        return message

    def deliver(self) -> list:
        came = sends(self.there)
        for message, payload in came:
            self.receiver.receive(0, message, payload)
        return [message for message, _ in came]

    def ack(self, durable: int, note: bytes) -> None:
        self.receiver.own_note = note
        self.receiver.durable(0, durable)
        for message, _ in sends(self.here):
            self.sender.receive(0, "n", message)


def test_the_last_note_that_came_is_given_back():
    pair = Pair()
    assert pair.attach().note == b""
    assert [getattr(each, "note", None) for each in pair.deliver()] == [b"", b"after rows", b"after promise"]
    assert pair.receiver.note == b"after promise"
    pair.receiver.peer_event(0, LinkEvent.PEER_RESTARTED)
    assert next(m for m, _ in sends(pair.here) if isinstance(m, Attach)).note == b"after promise"


def test_a_promise_that_takes_the_place_of_another_brings_its_note():
    pair = Pair()
    pair.sender.boundary(0, 9, b"later")
    pair.attach()
    assert [each.note for each in pair.deliver() if isinstance(each, Boundary)] == [b"later"]


def test_who_has_nothing_asks_and_is_sent_no_rows():
    pair = Pair()
    pair.attach()
    pair.deliver()
    pair.ack(6, b"up to 6")
    again = pair.another(2)
    again.asking = True
    message = pair.attach()
    assert (message.next_seq, message.granted) == (RESUME, 0)
    (attached,) = pair.deliver()
    assert isinstance(attached, Attached)
    assert again.told == (6, b"up to 6")
    again.tick(10_000_000)
    assert not any(isinstance(m, Ack) for m, _ in sends(pair.here)), "there is nothing to acknowledge"
    again.begin_at(0, 6)
    ((message, _),) = sends(pair.here)
    assert (message.next_seq, message.durable) == (6, 6)
    pair.sender.receive(0, "n", message)
    assert [m.seq for m in pair.deliver() if isinstance(m, Data)] == [0], "the train that straddles row 6"
    assert again.next_seq == 10


def test_what_is_durable_and_its_note_stay_together():
    """An attachment brings no note of ours, so it says nothing of what is durable by one."""
    pair = Pair()
    pair.attach()
    pair.deliver()
    pair.ack(6, b"up to 6")
    pair.receiver.peer_event(0, LinkEvent.PEER_RESTARTED)
    ((message, _),) = [each for each in sends(pair.here) if isinstance(each[0], Attach)]
    assert (message.next_seq, message.durable) == (10, 0)


def test_an_old_ack_brings_back_no_old_note():
    pair = Pair()
    pair.attach()
    pair.deliver()
    pair.ack(6, b"up to 6")
    epoch = pair.sender.receivers["n"].epoch
    old = Ack(stream="s", epoch=epoch, frames=3, received=10, durable=2, granted=1 << 20, note=b"up to 2")
    pair.sender.receive(0, "n", old)
    assert pair.sender.notes() == {"n": b"up to 6"}


def test_notes_survive_with_the_sender():
    pair = Pair()
    pair.attach()
    pair.deliver()
    pair.ack(10, b"all")
    loaded = Sender("s", SCHEMA, timed=True, outbox=Outbox(), first_seq=10, boundary_us=7)
    loaded.load([], pair.sender.durable_positions(), pair.sender.notes())
    assert loaded.receivers["n"].note == b"all"


@pytest.mark.parametrize("more", [{"plain": True}, {"name": "report"}])
def test_a_reader_has_nothing_to_resume(more):
    pair = Pair()
    message = Attach(stream="s", epoch=1 << 31, next_seq=RESUME, durable=0, granted=0, **more)
    with pytest.raises(RemoteProtocolError):
        pair.sender.receive(0, "reader", message)


def test_a_note_costs_credit_and_retention():
    """Else many small frames with long notes would take far more memory than was granted or is kept."""
    pair = Pair()
    note = bytes(limits.NOTE_BYTES_MAX)
    before = pair.sender.log.nbytes
    pair.sender.train(0, b"more", 1, note=note)
    assert pair.sender.log.nbytes - before == 4 + limits.ENTRY_BYTES + len(note)
    pair.attach()
    pair.deliver()
    assert pair.receiver.held_bytes == pair.sender.log.nbytes
    for time_us, length in ((20, 10), (30, 5000), (40, 100), (50, 0)):
        # One promise takes the place of another, and its note that of the other's, if it has one.
        pair.sender.boundary(0, time_us, note[:length])
        assert pair.sender.log.nbytes == sum(entry.cost for entry in pair.sender.log.entries())
        assert pair.sender.log.entries()[-1].cost == limits.ENTRY_BYTES + (length or 100)


def test_who_sends_notes_beyond_the_credit_is_refused():
    here = Outbox()
    settings = LinkSettings(window_bytes=2000, frame_bytes_max=1000)
    receiver = Receiver("s", "up", incarnation=1, outbox=here, settings=settings, schema=SCHEMA, timed=True)
    receiver.peer_event(0, LinkEvent.PEER_UP)
    ((asked, _),) = sends(here)
    epoch = asked.epoch
    attached = Attached(stream="s", epoch=epoch, next_seq=0, boundary_us=0, schema=SCHEMA, timed=True)
    receiver.receive(0, attached)
    with pytest.raises(RemoteProtocolError, match="beyond the credit"):
        receiver.receive(0, Data(stream="s", epoch=epoch, frame=1, seq=0, rows=1, note=bytes(2000)), b"x")


@pytest.mark.parametrize("more", [{"plain": True}, {"name": "report"}])
def test_who_never_resumes_leaves_no_note(more):
    """It would be written with each checkpoint, for nothing."""
    pair = Pair()
    key = "owner/report" if "name" in more else "reader"
    if "name" in more:
        pair.sender.expect(key, 0)
    attach = Attach(stream="s", epoch=1, next_seq=0, durable=0, granted=1 << 20, **more)
    pair.sender.receive(0, "reader", attach, key=key if "name" in more else "")
    ack = Ack(stream="s", epoch=1, frames=3, received=10, durable=0, granted=1 << 20, note=bytes(1000))
    pair.sender.receive(0, "reader", ack)
    assert pair.sender.receivers[key].acked == 10
    assert pair.sender.notes() == {}
