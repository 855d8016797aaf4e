"""Every (state, event) pair of both automata: a move as the table says, or a clean refusal."""

from __future__ import annotations

import pytest

from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.wire.link.automaton import RECEIVER, SENDER, LinkEvent, LinkSettings, ReceiverState, SenderState
from medusa.wire.messages.links import Ack, Attach, Attached, Boundary, Detach, Progress, Refuse
from tests.wire.pair import SCHEMA, SMALL, Pair, sends

PEER = (LinkEvent.PEER_UP, LinkEvent.PEER_DOWN, LinkEvent.PEER_RESTARTED)
OF_RECEIVER = [
    *PEER,
    LinkEvent.ATTACHED,
    LinkEvent.FRAME,
    LinkEvent.FRAME_MISSING,
    LinkEvent.FORGOTTEN,
    LinkEvent.PROGRESS,
    LinkEvent.RETRY,
    LinkEvent.REFUSE,
    LinkEvent.BROKEN_RULE,
]
OF_SENDER = [
    *PEER,
    LinkEvent.ATTACH,
    LinkEvent.ACK,
    LinkEvent.DETACH,
    LinkEvent.REFUSE,
    LinkEvent.CUT_OFF,
]


def receiver_in(state):
    """A pair whose receiver stands in ``state``, reached by legal events."""
    pair = Pair()
    if state is ReceiverState.IDLE:
        return pair
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    if state is ReceiverState.ATTACHING:
        pair.target_box.take()
        return pair
    pair.settle()
    pair.train("ab")
    pair.settle()
    if state is ReceiverState.REFUSED:
        pair.receiver.refuse(RemoteProtocolError("bad"))
    pair.target_box.take()
    pair.source_box.take()
    return pair


def to_receiver(pair, event):
    """Make ``event`` happen to the receiver."""
    receiver = pair.receiver
    epoch, frame = receiver._epoch, max(receiver._frames, 1)
    if event in PEER:
        receiver.peer_event(10, event)
    elif event is LinkEvent.ATTACHED:
        receiver.receive(
            10,
            Attached(stream="s", epoch=epoch, next_seq=0, boundary_us=0, schema=SCHEMA, timed=True),
        )
    elif event is LinkEvent.FRAME:
        receiver.receive(10, Boundary(stream="s", epoch=epoch, frame=frame, seq=0, time_us=5))
    elif event is LinkEvent.FRAME_MISSING:
        receiver.receive(10, Boundary(stream="s", epoch=epoch, frame=frame + 7, seq=0, time_us=5))
    elif event is LinkEvent.PROGRESS:
        receiver.receive(10, Progress(stream="s", epoch=epoch, frames=receiver._frames))
    elif event is LinkEvent.REFUSE:
        receiver.receive(10, Refuse(code="E_X", text="no", stream="s", epoch=epoch))
    elif event is LinkEvent.FORGOTTEN:
        receiver.receive(10, Refuse(code="E_EPOCH", text="no", stream="s", epoch=epoch + 1))
    elif event is LinkEvent.RETRY:
        receiver.tick(SMALL.retry_us + 1)
    else:
        assert event is LinkEvent.BROKEN_RULE
        receiver.refuse(RemoteProtocolError("bad"))


@pytest.mark.parametrize("state", ReceiverState)
@pytest.mark.parametrize("event", OF_RECEIVER)
def test_receiver_moves_as_the_table_says_or_drops_what_is_left_over(state, event):
    pair = receiver_in(state)
    receiver = pair.receiver
    assert receiver.state is state
    to_receiver(pair, event)
    if event in RECEIVER[state]:
        assert receiver.state is RECEIVER[state][event]
    else:
        assert receiver.state is state
        said = [message for message, _ in sends(pair.target_box)]
        assert not any(isinstance(message, Attach | Refuse) for message in said)
        silent = event in (LinkEvent.RETRY, LinkEvent.FORGOTTEN)
        assert receiver.stale + receiver.duplicates == (0 if silent else 1)


def test_what_the_receiver_sends_on_each_move():
    """By hand, not from the table: which moves make it ask anew."""
    asks = {
        (ReceiverState.IDLE, LinkEvent.PEER_UP),
        (ReceiverState.IDLE, LinkEvent.PEER_RESTARTED),
        (ReceiverState.ATTACHING, LinkEvent.PEER_RESTARTED),
        (ReceiverState.ATTACHING, LinkEvent.FORGOTTEN),
        (ReceiverState.ATTACHING, LinkEvent.RETRY),
        (ReceiverState.FLOWING, LinkEvent.PEER_RESTARTED),
        (ReceiverState.FLOWING, LinkEvent.FRAME_MISSING),
        (ReceiverState.FLOWING, LinkEvent.FORGOTTEN),
        (ReceiverState.REFUSED, LinkEvent.PEER_RESTARTED),
    }
    for state in ReceiverState:
        for event in [event for event in OF_RECEIVER if event is not LinkEvent.BROKEN_RULE]:
            pair = receiver_in(state)
            epoch = pair.receiver._epoch
            to_receiver(pair, event)
            attached = [m for m, _ in sends(pair.target_box) if isinstance(m, Attach)]
            assert bool(attached) is ((state, event) in asks), (state, event)
            assert all(message.epoch > epoch for message in attached)


def sender_in(state):
    pair = Pair()
    if state is SenderState.DETACHED:
        return pair
    pair.up()
    pair.train("abc")
    pair.settle()
    if state is SenderState.PAUSED:
        pair.sender.peer(0, "target", LinkEvent.PEER_DOWN)
    pair.source_box.take()
    return pair


def to_sender(pair, event):
    sender = pair.sender
    view = sender.receivers["target"]
    epoch = view.epoch
    if event in PEER:
        sender.peer(10, "target", event)
    elif event is LinkEvent.ATTACH:
        message = Attach(stream="s", epoch=epoch + 1, next_seq=0, durable=0, granted=2000)
        sender.receive(10, "target", message)
    elif event is LinkEvent.ACK:
        message = Ack(stream="s", epoch=epoch, frames=view.frames, received=0, durable=0, granted=2000)
        sender.receive(10, "target", message)
    elif event is LinkEvent.DETACH:
        sender.receive(10, "target", Detach(stream="s", epoch=epoch))
    elif event is LinkEvent.REFUSE:
        sender.receive(10, "target", Refuse(code="E_X", text="no", stream="s", epoch=epoch))
    else:
        assert event is LinkEvent.CUT_OFF
        view.plain = True
        sender.train(10, b"x", 1)
        sender.tick(10 + SMALL.idle_us + 1)
    return view


@pytest.mark.parametrize("state", SenderState)
@pytest.mark.parametrize("event", OF_SENDER)
def test_sender_moves_as_the_table_says_or_drops_what_is_left_over(state, event):
    pair = sender_in(state)
    view = pair.sender.receivers["target"]
    assert view.state is state
    to_sender(pair, event)
    if event in (LinkEvent.DETACH, LinkEvent.CUT_OFF):
        # Nothing is kept for it any more.
        assert "target" not in pair.sender.receivers
    elif event in SENDER[state]:
        assert view.state is SENDER[state][event]
    else:
        assert view.state is state


@pytest.mark.parametrize("event", [e for e in LinkEvent if e not in PEER])
def test_only_the_three_events_of_a_peer_are_taken_as_such(event):
    pair = sender_in(SenderState.FLOWING)
    with pytest.raises(LocalProtocolError, match=event.value):
        pair.receiver.peer_event(0, event)
    assert pair.receiver.state is ReceiverState.FLOWING
    with pytest.raises(LocalProtocolError, match=event.value):
        pair.sender.peer(0, "target", event)


def test_each_event_belongs_to_a_side():
    assert set(OF_RECEIVER) | set(OF_SENDER) == set(LinkEvent)
    for table, events in ((RECEIVER, OF_RECEIVER), (SENDER, OF_SENDER)):
        for moves in table.values():
            assert set(PEER) <= set(moves) <= set(events)


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"window_bytes": 1000}, "window_bytes"),
        ({"window_bytes": 2 << 30}, "window_bytes"),
        ({"frame_bytes_max": 10}, "window_bytes"),
        ({"retry_us": 0}, "retry_us"),
        ({"ack_us": -1}, "ack_us"),
    ],
)
def test_a_knob_out_of_range_is_refused(knobs, says):
    with pytest.raises(LocalProtocolError, match=says):
        LinkSettings(**knobs)
