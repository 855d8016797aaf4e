"""What was left out above a stream, as its reader is told: each row once; and whatever a peer says, our
frames can be read."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.wire import limits
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.receiver import Receiver
from medusa.wire.link.sender import Sender
from medusa.wire.outbox import Outbox
from tests.wire.pair import SCHEMA, sends


class Reading:
    """A reader, and one sender after the other."""

    def __init__(self) -> None:
        self.there, self.here = Outbox(), Outbox()
        self.rows = 0
        self.receiver = Receiver("s", "up", incarnation=1, outbox=self.here, schema=SCHEMA, timed=True)
        self.sender = self.another()

    def another(self) -> Sender:
        self.sender = Sender("s", SCHEMA, timed=True, outbox=self.there, first_seq=self.rows)
        self.sender.expect("n")
        return self.sender

    def attach(self, event: LinkEvent) -> None:
        self.receiver.peer_event(0, event)
        for message, _ in sends(self.here):
            self.sender.receive(0, "n", message)
        self.deliver()

    def deliver(self) -> None:
        for message, payload in sends(self.there):
            self.receiver.receive(0, message, payload)
        for message, _ in sends(self.here):
            self.sender.receive(0, "n", message)

    def next_row(self) -> None:
        self.rows += 1
        self.sender.train(0, b"row", 1)
        self.deliver()

    @property
    def told(self) -> int:
        return sum(self.receiver.thinned.values())


def test_more_places_than_are_told_apart_count_once_in_whatever_order_they_come() -> None:
    """Each sorts before those that were named already."""
    reading = Reading()
    reading.attach(LinkEvent.PEER_UP)
    thinned: dict[str, int] = {}
    for number in range(3 * limits.THINNED_MAX):
        thinned[f"q/f.{999 - number}"] = number + 1
        reading.sender.thins(thinned)
        reading.next_row()
        assert reading.told == sum(thinned.values())
    named = [place for place in reading.receiver.thinned if place != "s"]
    assert len(named) == limits.THINNED_MAX - 1
    assert all(reading.receiver.thinned[place] == thinned[place] for place in named)


def test_who_goes_on_with_the_stream_may_name_others() -> None:
    reading = Reading()
    reading.attach(LinkEvent.PEER_UP)
    thinned: dict[str, int] = {}
    for number in range(40):
        thinned[f"q/f.{99 - number}"] = 10 + number
        reading.sender.thins(thinned)
    reading.next_row()
    assert reading.told == sum(thinned.values())
    reading.another().thins(thinned)  # which names those that sort first
    reading.attach(LinkEvent.PEER_RESTARTED)
    assert reading.told == sum(thinned.values())
    for _ in range(3):
        thinned["q/f.99"] += 1
        reading.sender.thins(thinned)
        reading.next_row()
        assert reading.told == sum(thinned.values())


def test_a_count_never_shrinks_while_a_sender_that_fell_back_catches_up() -> None:
    reading = Reading()
    reading.attach(LinkEvent.PEER_UP)
    many = {f"q/f.{number}": 10 for number in range(40)}
    reading.sender.thins(many)
    reading.next_row()
    reading.another().thins(dict.fromkeys(list(many)[:20], 10))
    reading.attach(LinkEvent.PEER_RESTARTED)
    assert reading.told == 400
    reading.sender.thins(many | {"q/f.0": 11})
    reading.next_row()
    assert reading.told == 401


COUNTS = st.integers(1, limits.SEQ_MAX) | st.just(limits.SEQ_MAX)


@given(st.lists(COUNTS, min_size=1, max_size=3 * limits.THINNED_MAX), st.booleans())
@settings(max_examples=60, deadline=None)
def test_whatever_partners_have_said_our_frames_can_be_read(counts: list[int], first: bool) -> None:
    reading = Reading()
    if first:
        reading.attach(LinkEvent.PEER_UP)
    reading.sender.thins({f"q/f.{number}": rows for number, rows in enumerate(counts)})
    if not first:
        reading.attach(LinkEvent.PEER_UP)
    reading.sender.train(0, b"row", 1)
    for message, payload in sends(reading.there):
        assert decode_frame(encode_frame(message, payload))[0] == message
