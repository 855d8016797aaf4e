"""Frames of a stream over several connections: in order, what is missing shows, bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.wire import limits
from medusa.wire.link.lanes import LaneOrder
from medusa.wire.messages.links import Attached, Boundary, Data, Progress

WINDOW = 1 << 20
PAYLOAD = bytes(100)


def frame_of(number, epoch=1):
    if number == 0:
        message = Attached(stream="s", epoch=epoch, next_seq=0, boundary_us=0, schema=(), timed=False)
        return message, None
    if number % 5 == 0:
        return Boundary(stream="s", epoch=epoch, frame=number, seq=number, time_us=number), None
    return Data(stream="s", epoch=epoch, frame=number, seq=number, rows=1), PAYLOAD


def progress(frames, epoch=1):
    return Progress(stream="s", epoch=epoch, frames=frames), None


def number_of(message):
    if isinstance(message, Progress):
        return f"progress {message.frames}"
    return 0 if isinstance(message, Attached) else message.frame


def taken(order, lane, frame):
    return [number_of(message) for message, _ in order.receive(lane, *frame)]


@st.composite
def journeys(draw):
    """(lanes, frames per lane with what is lost, the order in which lanes bring something)."""
    lanes = draw(st.integers(1, 4))
    count = draw(st.integers(1, 40))
    lost = draw(st.sets(st.integers(0, count - 1), max_size=2))
    queues = {lane: [] for lane in range(1, lanes + 1)}
    for number in range(count):
        # Any assignment will do, as long as each connection keeps its order.
        queues[draw(st.integers(1, lanes))].append(number)
    for queue in queues.values():
        queue.append("progress")
    turns = [lane for lane, queue in queues.items() for _ in queue]
    return lanes, count, lost, queues, draw(st.permutations(turns))


@given(journeys())
def test_frames_come_in_order_and_the_first_one_missing_shows_once_it_must_be(journey):
    lanes, count, lost, queues, turns = journey
    order, out = LaneOrder(lanes, WINDOW), []
    for lane in turns:
        number = queues[lane].pop(0)
        if number == "progress":
            out += taken(order, lane, progress(count))
        elif number not in lost:
            out += taken(order, lane, frame_of(number))
    first = min(lost, default=count)
    assert out[:first] == list(range(first))
    rest = out[first:]
    if not lost:
        assert set(rest) == {f"progress {count}"}
        assert len(rest) <= lanes
    else:
        # The receiver finds out by a frame beyond the gap, or by the count where none is left.
        assert rest[0] in [*range(first + 1, count), f"progress {count}"]
    assert order.held_bytes == 0


def test_nothing_is_missing_while_a_connection_may_still_bring_it():
    order = LaneOrder(3, WINDOW)
    assert taken(order, 1, frame_of(0)) == [0]
    assert taken(order, 3, frame_of(2)) == []
    assert taken(order, 1, frame_of(3)) == []
    assert taken(order, 3, progress(4)) == []
    assert order.held_bytes == 2 * (limits.ENTRY_BYTES + len(PAYLOAD))
    assert taken(order, 2, frame_of(1)) == [1, 2, 3]
    assert taken(order, 1, progress(4)) == []
    assert taken(order, 2, progress(4)) == ["progress 4"]


def test_a_frame_that_all_connections_are_beyond_is_missing():
    order = LaneOrder(2, WINDOW)
    assert taken(order, 1, frame_of(0)) == [0]
    assert taken(order, 1, frame_of(2)) == []
    assert taken(order, 2, frame_of(3)) == [2]  # Frame 1 was lost with a connection.
    assert order.held_bytes == 0
    assert taken(order, 2, frame_of(5)) == [5]
    assert taken(order, 1, frame_of(0, epoch=2)) == [0]
    assert taken(order, 2, frame_of(1, epoch=2)) == [1]
    assert taken(order, 2, frame_of(7)) == [7], "left over: the receiver knows by the epoch"


def test_a_repeated_frame_changes_nothing():
    order = LaneOrder(2, WINDOW)
    assert taken(order, 1, frame_of(0)) == [0]
    assert taken(order, 1, frame_of(2)) == []
    assert taken(order, 1, frame_of(2)) == []
    assert taken(order, 1, frame_of(0)) == [0]
    assert taken(order, 2, frame_of(1)) == [1, 2]


def test_who_sends_out_of_order_beyond_the_credit_is_refused():
    cost = limits.ENTRY_BYTES + len(PAYLOAD)
    order = LaneOrder(2, 3 * cost)
    for number in (2, 3, 4):
        assert taken(order, 1, frame_of(number)) == []
    with pytest.raises(RemoteProtocolError, match="beyond the credit"):
        order.receive(1, *frame_of(6))
    assert order.held_bytes == 3 * cost
    assert taken(order, 2, frame_of(0)) == [0]
    assert taken(order, 2, frame_of(1)) == [1, 2, 3, 4]


@pytest.mark.parametrize("lane", [0, 3, -1])
def test_there_are_no_other_connections(lane):
    with pytest.raises(RemoteProtocolError, match="of 2"):
        LaneOrder(2, WINDOW).receive(lane, *frame_of(0))
    with pytest.raises(LocalProtocolError):
        LaneOrder(0, WINDOW)
