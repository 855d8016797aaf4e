"""Messages taken part by part, and the rest of one with too many dropped."""

from __future__ import annotations

import pytest
import zmq

from medusa.runtime.transport import multipart_receive
from medusa.runtime.transport.multipart_receive import DROP_S, DROPPED_AT_ONCE, DroppedParts


@pytest.fixture
def pair():
    context = zmq.Context()
    sender, receiver = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    for each in (sender, receiver):
        each.setsockopt(zmq.SNDHWM, 0)
        each.setsockopt(zmq.RCVHWM, 0)
    receiver.bind("inproc://parts")
    sender.connect("inproc://parts")
    yield sender, receiver
    sender.close(linger=0)
    receiver.close(linger=0)
    context.term()


def send(sender, parts):
    for _ in range(parts - 1):
        sender.send(b"x", zmq.SNDMORE)
    sender.send(b"last")


class Clock:
    """Goes on by so much at each look."""

    def __init__(self, step_s):
        self.now_s, self.step_s, self.looks = 0.0, step_s, 0

    def __call__(self):
        self.now_s += self.step_s
        self.looks += 1
        return self.now_s


@pytest.fixture(params=["libzmq", "python"])
def way(request, monkeypatch):
    """Where libzmq's functions can't be found, pyzmq's take their place."""
    assert multipart_receive.libzmq_calls() is not None
    if request.param == "python":
        monkeypatch.setattr(multipart_receive, "_LIBZMQ", None)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("count", [5, 6, DROPPED_AT_ONCE + 3, DROPPED_AT_ONCE + 4, 2 * DROPPED_AT_ONCE + 3])
def test_the_next_message_comes_whole_after_one_that_was_dropped(pair, count):
    sender, receiver = pair
    send(sender, count)
    send(sender, 2)
    parts = DroppedParts(Clock(0.0))
    assert len(parts.take(receiver, 3)) == 4
    assert parts.dropped(receiver)
    assert [part.bytes for part in parts.take(receiver, 3)] == [b"x", b"last"]
    assert parts.dropped(receiver)
    assert parts.take(receiver, 3) is None


def test_a_turn_ends_when_its_time_is_over(pair):
    sender, receiver = pair
    send(sender, 5 * DROPPED_AT_ONCE)
    parts = DroppedParts(Clock(0.6 * DROP_S))  # Two batches a turn.
    parts.take(receiver, 3)
    assert [parts.dropped(receiver) for _ in range(3)] == [False, False, True]
    assert parts.take(receiver, 3) is None


def test_a_socket_that_is_closed_is_forgotten(pair):
    sender, receiver = pair
    send(sender, 2 * DROPPED_AT_ONCE)
    parts = DroppedParts(Clock(DROP_S))
    parts.take(receiver, 3)
    assert not parts.dropped(receiver)
    parts.forget(receiver)
    assert parts.dropped(receiver)


@pytest.mark.usefixtures("way")
def test_what_libzmq_refuses_is_raised(pair):
    """A message that another took the rest of: nothing is there to drop."""
    sender, receiver = pair
    send(sender, 5)
    parts = DroppedParts(Clock(0.0))
    parts.take(receiver, 3)
    receiver.recv()
    with pytest.raises(zmq.Again):
        parts.dropped(receiver)
