"""A plain subscriber that takes nothing is cut off in time, whatever else it does."""

from __future__ import annotations

import pytest

from medusa.query.boxes import Field
from medusa.wire.link.automaton import LinkEvent, LinkSettings
from medusa.wire.link.sender import Sender
from medusa.wire.messages.links import OLDEST, Ack, Attach
from medusa.wire.outbox import Outbox

SCHEMA = (Field("v", "int64"),)
SECOND = 1_000_000
SETTINGS = LinkSettings(idle_us=10 * SECOND)


class Stream:
    """One row has been put out, and a subscriber attached at time 0."""

    def __init__(self) -> None:
        self.sender = Sender("s", SCHEMA, timed=True, outbox=Outbox(), settings=SETTINGS)
        self.epoch = 0
        self.sender.train(0, b"x", 1)
        self.attach(0)

    def attach(self, now_us: int, next_seq: int = OLDEST) -> None:
        self.epoch += 1
        asked = Attach(
            stream="s", epoch=self.epoch, next_seq=next_seq, durable=0, granted=1 << 20, plain=True
        )
        self.sender.receive(now_us, "r", asked)

    def ack(self, now_us: int, rows: int) -> None:
        view = self.sender.receivers["r"]
        said = Ack(
            stream="s",
            epoch=self.epoch,
            frames=view.frames,
            received=rows,
            durable=rows,
            granted=1 << 20,
        )
        self.sender.receive(now_us, "r", said)

    def event(self, now_us: int, event: LinkEvent) -> None:
        self.sender.peer(now_us, "r", event)

    @property
    def is_there(self) -> bool:
        return bool(self.sender.receivers)


def asks_again(stream: Stream, second: int) -> None:
    stream.attach(second * SECOND)


def comes_and_goes(stream: Stream, second: int) -> None:
    stream.event(second * SECOND, LinkEvent.PEER_DOWN if second % 2 else LinkEvent.PEER_UP)


def begins_anew(stream: Stream, second: int) -> None:
    stream.event(second * SECOND, LinkEvent.PEER_RESTARTED)
    stream.attach(second * SECOND)


@pytest.mark.parametrize("does", [asks_again, comes_and_goes, begins_anew])
def test_to_ask_again_or_to_come_and_go_is_no_reading(does):
    stream = Stream()
    for second in range(1, 10):
        does(stream, second)
        stream.sender.tick(second * SECOND)
        assert stream.is_there
    stream.sender.tick(10 * SECOND)
    assert not stream.is_there


@pytest.mark.parametrize("does", [asks_again, comes_and_goes, begins_anew])
def test_who_takes_rows_stays(does):
    stream = Stream()
    for second in range(1, 40):
        if second % 2 == 0:
            does(stream, second)
            if does is comes_and_goes:
                stream.event(second * SECOND, LinkEvent.PEER_UP)
        stream.ack(second * SECOND, stream.sender.receivers["r"].sent_seq)
        stream.sender.train(second * SECOND, b"x", 1)
        stream.sender.tick(second * SECOND)
        assert stream.is_there


def test_who_had_all_has_the_whole_time_from_when_it_goes():
    stream = Stream()
    stream.ack(0, 1)
    stream.event(50 * SECOND, LinkEvent.PEER_DOWN)
    stream.sender.tick(60 * SECOND - 1)
    assert stream.is_there
    stream.sender.tick(60 * SECOND)
    assert not stream.is_there
