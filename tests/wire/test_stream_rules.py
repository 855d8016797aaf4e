"""A peer that lies, and calls of our own that make no sense: refused, with nothing changed
(reliability D 13, 18, 19, 27)."""

from __future__ import annotations

import pytest

from medusa.elements import START_US
from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.query.boxes import Field
from medusa.wire import limits
from medusa.wire.link.automaton import LinkEvent, ReceiverState, SenderState
from medusa.wire.messages.links import Ack, Attached, Boundary, Data, Progress
from tests.wire.pair import SCHEMA, SMALL, Pair, sends


def attached(pair, **changes):
    values = {
        "stream": "s",
        "epoch": pair.receiver._epoch,
        "next_seq": 0,
        "boundary_us": START_US,
        "schema": SCHEMA,
        "timed": True,
    }
    return Attached(**values | changes)


@pytest.mark.parametrize(
    ("schema", "timed", "says"),
    [
        ((Field("b", "int64"),), True, "'b' of int64, expected 'a' of int64"),
        ((Field("a", "utf8"),), True, "'a' of utf8, expected 'a' of int64"),
        ((*SCHEMA, Field("b", "int64")), True, "2 columns, expected 1"),
        ((), True, "0 columns, expected 1"),
        (SCHEMA, False, "timed"),
    ],
)
def test_another_schema_is_refused_by_column(schema, timed, says):
    pair = Pair()
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    with pytest.raises(RemoteProtocolError, match=says) as error:
        pair.receiver.receive(0, attached(pair, schema=schema, timed=timed))
    assert error.value.code == "E_SCHEMA"
    assert pair.receiver.state is ReceiverState.ATTACHING


@pytest.mark.parametrize(
    ("message", "payload", "code"),
    [
        (Data(stream="s", epoch=0, frame=0, seq=5, rows=1), b"x", "E_SEQ"),
        (Data(stream="s", epoch=0, frame=0, seq=0, rows=1), None, "E_FRAME"),
        (Data(stream="s", epoch=0, frame=0, seq=0, rows=1), b"x" * 5000, "E_CREDIT"),
        (Boundary(stream="s", epoch=0, frame=0, seq=3, time_us=9), None, "E_SEQ"),
    ],
)
def test_a_frame_that_breaks_a_rule_is_refused_and_changes_nothing(message, payload, code):
    pair = Pair().up()
    receiver = pair.receiver
    values = {name: getattr(message, name) for name in message.__struct_fields__}
    message = type(message)(**values | {"epoch": receiver._epoch, "frame": receiver._frames})
    before = (receiver.next_seq, receiver.held_bytes, receiver._frames, receiver.state)
    with pytest.raises(RemoteProtocolError) as error:
        receiver.receive(0, message, payload)
    assert error.value.code == code
    assert (receiver.next_seq, receiver.held_bytes, receiver._frames, receiver.state) == before


@pytest.mark.parametrize(("next_seq", "skipped"), [(0, 1), (7, 8), (7, 1 << 40)])
def test_no_more_numbers_belong_to_no_row_than_are_passed_over(next_seq, skipped):
    """Else rows that are lost would count as none."""
    pair = Pair()
    receiver = pair.receiver
    receiver.peer_event(0, LinkEvent.PEER_UP)
    before = (receiver.next_seq, receiver.skipped, receiver.lost_rows, receiver.state)
    with pytest.raises(RemoteProtocolError, match="belong to no row") as error:
        receiver.receive(0, attached(pair, next_seq=next_seq, skipped=skipped))
    assert error.value.code == "E_SEQ"
    assert (receiver.next_seq, receiver.skipped, receiver.lost_rows, receiver.state) == before
    receiver.receive(0, attached(pair, next_seq=7, skipped=4))
    assert (receiver.next_seq, receiver.skipped, receiver.lost_rows) == (7, 4, 3)


def test_rows_beyond_the_last_position_are_refused_and_no_position_moves():
    pair = Pair()
    receiver = pair.receiver
    receiver.peer_event(0, LinkEvent.PEER_UP)
    last = limits.SEQ_MAX
    receiver.receive(0, attached(pair, next_seq=last - 1))
    before = (receiver.next_seq, receiver.durable_seq, receiver.held_bytes, receiver._frames, receiver.state)
    for rows in (2, 10):
        data = Data(stream="s", epoch=receiver._epoch, frame=1, seq=last - 1, rows=rows)
        with pytest.raises(RemoteProtocolError, match="the last position is") as error:
            receiver.receive(0, data, b"x")
        assert error.value.code == "E_SEQ"
        after = (
            receiver.next_seq,
            receiver.durable_seq,
            receiver.held_bytes,
            receiver._frames,
            receiver.state,
        )
        assert after == before
    [rows] = receiver.receive(0, Data(stream="s", epoch=receiver._epoch, frame=1, seq=last - 1, rows=1), b"x")
    assert (rows.seq, receiver.next_seq) == (last - 1, last), "the last row that an Ack can name"


def test_rows_that_could_not_be_decoded_count_as_never_received():
    pair = Pair()
    pair.consume = False
    pair.up()
    pair.train("abc")
    pair.settle()
    [rows] = pair.got
    pair.receiver.refuse(RemoteProtocolError("not Arrow", code="E_ARROW"), rows)
    assert (pair.receiver.next_seq, pair.receiver.held_bytes) == (0, 0)
    pair.settle()
    assert pair.sender.receivers["target"].state is SenderState.DETACHED
    assert pair.sender.log.start_seq == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"received": 9},
        {"frames": 9},
        {"durable": 3, "received": 2},
        {"epoch": 1 << 40},
    ],
)
def test_an_ack_of_what_was_never_sent_is_refused(changes):
    pair = Pair().up()
    pair.train("abc")
    view = pair.sender.receivers["target"]
    before = (view.acked, view.durable, view.granted)
    values = {"stream": "s", "epoch": view.epoch, "frames": 1, "received": 0, "durable": 0, "granted": 0}
    with pytest.raises(RemoteProtocolError):
        pair.sender.receive(0, "target", Ack(**values | changes))
    assert (view.acked, view.durable, view.granted) == before


def test_a_grant_that_sinks_is_ignored_and_an_absurd_one_clamped():
    pair = Pair().up()
    view = pair.sender.receivers["target"]
    values = {"stream": "s", "epoch": view.epoch, "frames": 1, "received": 0, "durable": 0}
    pair.sender.receive(0, "target", Ack(**values, granted=0))
    assert view.granted == SMALL.window_bytes
    pair.sender.receive(0, "target", Ack(**values, granted=limits.SEQ_MAX))
    assert view.granted == limits.CREDIT_BYTES_MAX


def test_a_peer_that_never_acknowledges_holds_back_but_loses_nothing():
    pair = Pair().up()
    pair.source_box.take()
    sent = 0
    while not pair.sender.full:
        pair.train("x" * 500)
        sent += 500
    said = [message for message, _ in sends(pair.source_box)]
    assert sum(isinstance(message, Data) for message in said) <= SMALL.window_bytes // 500
    for step in range(100):
        pair.sender.tick(step * SMALL.progress_us)
    asks = [message for message, _ in sends(pair.source_box)]
    assert asks
    assert all(isinstance(message, Progress) for message in asks)
    assert pair.sender.log.start_seq == 0
    assert pair.sender.log.next_seq == sent


def test_impossible_trains_are_refused():
    pair = Pair()
    for payload, rows in ((b"", 0), (b"x", limits.ROWS_MAX + 1), (b"x" * (4 << 20) + b"x", 1)):
        with pytest.raises(LocalProtocolError) as error:
            pair.sender.train(0, payload, rows)
        assert error.value.code == "E_LIMIT"
    assert pair.sender.log.next_seq == 0


def test_durable_beyond_what_came_is_our_own_mistake():
    pair = Pair().up()
    with pytest.raises(LocalProtocolError, match="durable to 5, received 0"):
        pair.receiver.durable(0, 5)
