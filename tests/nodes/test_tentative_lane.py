"""The tentative lane between the fragments of two nodes, and at the door of one."""

from __future__ import annotations

from itertools import count

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Boundary, Kind, Train
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.fragment.durability import policy_of
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.inputs import FragmentInput, TentativeWork
from medusa.nodes.placement.placement import cut
from medusa.query.boxes import Source
from medusa.wire.codec import TrainCodec
from medusa.wire.link.automaton import LinkEvent, LinkSettings, ReceiverState
from medusa.wire.link.tentative_receiver import StateChanged
from medusa.wire.messages.links import NOW, Ack, Attach, Attached, OpenPublisher, Refuse
from medusa.wire.messages.tentative import (
    FAILURE,
    StreamState,
    TentativeBoundary,
    TentativeRows,
    TentativeTaken,
)
from medusa.wire.outbox import Outbox, Send
from tests.nodes.test_security import columns, running

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}


def query():
    q = md.Query("q")
    per_k = (
        q.source("flows", SCHEMA, time="ts").window("1s").group_by("k").aggregate(n=md.count(), name="per")
    )
    q.sink("out", per_k.filter("n > 0", name="big"))
    return q


class Two:
    """A fragment at node ``a`` and the one at ``b`` that reads its windows; no engine runs.

    Attributes:
        said: what ``a`` said to ``b``, with payloads.
        works: what of that is for the fragment at ``b`` itself; it isn't fed, and what is for forks waits.
    """

    def __init__(self, delay_us=1_000_000):
        self.boxes = {"a": Outbox(), "b": Outbox()}
        plan = cut(query().graph, {"a": ["flows", "per"], "b": ["big", "out"]})
        tokens = count(1)
        self.hosts = {
            each.node: FragmentHost(
                msgspec.structs.replace(each, delay_us=delay_us),
                incarnation=1,
                outbox=self.boxes[each.node],
                link=LinkSettings(tentative_bytes_max=4000),
                durability=policy_of(disk=True, guarded=False),
                checkpoint_every_us=1_000_000,
                next_token=lambda: next(tokens),
                wall=WallClock(),
            )
            for each in plan.fragments
        }
        [self.output] = self.hosts["a"].outputs.values()
        [self.input] = self.hosts["b"].inputs.values()
        self.said, self.works = [], []
        self.input.receiver.peer_event(0, LinkEvent.PEER_UP)
        self.settle()

    def settle(self):
        while True:
            up, down = (
                [each for each in self.boxes[name].take() if isinstance(each, Send)] for name in ("b", "a")
            )
            if not up and not down:
                return
            for each in up:
                self.output.sender.receive(0, "b", each.message)
            for each in down:
                self.said.append((each.message, each.payload))
                self.works += self.input.receive(0, each.message, each.payload)

    def windows(self, *ks, start_us=0, kind=Kind.TENTATIVE):
        """Rows as ``per`` puts them out."""
        schema = self.output._codec.schema
        rows = [dict.fromkeys(schema.names) | {"k": k, "n": 1} for k in ks]
        starts = pa.array([start_us] * len(ks), pa.timestamp("us", tz="UTC"))
        batch = pa.RecordBatch.from_pylist(rows, schema)
        for name in ("window_start", "window_end"):
            batch = batch.set_column(schema.get_field_index(name), schema.field(name), starts)
        return Train(batch=batch, times=starts, kind=kind)


def failing(**options):
    two = Two(**options)
    two.output.sender.tentative.state(0, "up_failure", 1)
    two.settle()
    return two


def works(two):
    return [each for each in two.input.take_tentative() if isinstance(each, TentativeWork)]


def test_what_a_fork_puts_out_comes_to_the_next_fragment_and_waits_for_its_fork():
    two = failing()
    two.output.tentative_take(0, two.windows("a", "b", start_us=5), rows=True)
    two.output.tentative_take(0, Boundary(5), rows=True)
    two.settle()
    changed, rows, promise = two.input.take_tentative()
    assert changed == StateChanged(state="up_failure", fork=1)
    assert (rows.fork, rows.element.kind, rows.input) == (1, Kind.TENTATIVE, two.input)
    assert rows.element.batch["k"].to_pylist() == ["a", "b"]
    assert rows.element.times.cast(pa.int64()).to_pylist() == [5, 5]
    assert promise.element == Boundary(5)
    assert two.works == [], "none of it is for the fragment itself"
    assert (two.input.fed_seq, two.input.receiver.next_seq) == (0, 0)
    assert two.input.take_tentative() == []


def test_where_the_stream_has_the_rows_only_boundaries_leave():
    two = failing()
    two.output.tentative_take(0, two.windows("a"), rows=False)
    two.output.tentative_take(0, Boundary(5), rows=False)
    two.settle()
    assert [work.element for work in works(two)] == [Boundary(5)]
    assert two.output.sender.tentative.rows == 0


def test_what_was_fed_makes_room_and_what_was_not_is_dropped_and_counted():
    two = failing()
    for _ in range(50):
        two.output.tentative_take(0, two.windows("a"), rows=True)
        two.settle()
    lane, waiting = two.output.sender.tentative, works(two)
    assert lane.dropped_rows == 50 - len(waiting) > 0
    for work in waiting:
        two.input.took(0, work)
    two.settle()
    two.output.tentative_take(0, two.windows("z"), rows=True)
    two.settle()
    [last] = works(two)
    assert last.element.batch["k"].to_pylist() == ["z"]
    assert two.input.receiver.tentative.missed_rows == lane.dropped_rows


def test_without_a_delay_the_lane_is_not_asked_for_and_what_a_fork_puts_out_is_not_even_encoded():
    two = Two(delay_us=0)
    assert isinstance(two.said[0][0], Attached)
    assert not two.said[0][0].tentative
    two.output.sender.tentative.state(0, "up_failure", 1)
    two.output.tentative_take(0, two.windows("a"), rows=True)
    two.settle()
    assert [type(message) for message, _ in two.said] == [Attached]
    assert (two.input.take_tentative(), two.output.sender.tentative.rows) == ([], 1)


BAD = {
    "no Arrow": ("E_ARROW", lambda payload: b"x" * 100, {}),
    "more rows than it says": ("E_LIMIT", bytes, {"rows": 3}),
    "a mask that isn't there": ("E_ARROW", bytes, {"late": True}),
}


@pytest.mark.parametrize("what", BAD)
def test_rows_that_cannot_be_read_are_refused_and_hold_nothing(what):
    code, spoil, fields = BAD[what]
    two = failing()
    [(payload, _, _)] = two.output._codec.encode(two.windows("a"))
    message = TentativeRows(
        **{
            "stream": two.input.stream,
            "epoch": two.input.receiver._epoch,
            "frame": 9,
            "fork": 1,
            "seq": 0,
            "rows": 1,
            **fields,
        }
    )
    assert two.input.receive(0, message, spoil(payload)) == []
    [refusal] = [
        each.message
        for each in two.boxes["b"].take()
        if isinstance(each, Send) and isinstance(each.message, Refuse)
    ]
    assert refusal.code == code
    assert two.input.receiver.state is ReceiverState.REFUSED
    assert two.input.receiver.tentative.held_bytes == 0
    assert two.input.take_tentative()[-1] == StateChanged(state=FAILURE, fork=1)


def test_a_row_below_what_its_fork_promised_breaks_a_rule():
    two = failing()
    two.output.tentative_take(0, Boundary(50), rows=True)
    two.output.tentative_take(0, two.windows("a", start_us=40), rows=True)
    two.settle()
    assert two.input.receiver.state is ReceiverState.REFUSED


@pytest.mark.parametrize(
    "message",
    [
        TentativeRows(stream="q.flows", epoch=0, frame=0, fork=1, seq=0, rows=1),
        TentativeBoundary(stream="q.flows", epoch=0, frame=0, fork=1, seq=0, time_us=1 << 60),
        StreamState(stream="q.flows", epoch=0, frame=0, state="up_failure", fork=1, seq=0),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_publisher_has_nothing_tentative_to_say(message):
    """Nobody has judged its rows: a boundary of its own making would close windows."""
    outbox = Outbox()
    source = Source(id="flows", schema=columns(), time="ts")
    input = FragmentInput(
        source, "q.flows", "p", incarnation=1, outbox=outbox, settings=LinkSettings(), tentative=True
    )
    input.receiver.peer_event(0, LinkEvent.PEER_UP)
    [attach] = [each.message for each in outbox.take() if isinstance(each, Send)]
    input.receive(
        0,
        Attached(
            stream="q.flows",
            epoch=attach.epoch,
            next_seq=0,
            boundary_us=-(1 << 62),
            schema=columns(),
            timed=False,
            tentative=(0, -(1 << 62)),
        ),
        None,
    )
    [(payload, _, _)] = TrainCodec(columns(), timed=False).encode(
        Train(batch=pa.record_batch([[0], [0]], schema=TrainCodec(columns(), timed=False).schema))
    )
    input.receive(0, msgspec.structs.replace(message, epoch=attach.epoch), payload)
    [refusal] = [
        each.message for each in outbox.take() if isinstance(each, Send) and isinstance(each.message, Refuse)
    ]
    assert refusal.code == "E_FORK"
    assert not any(isinstance(each, TentativeWork) for each in input.take_tentative())


def test_a_node_brings_what_readers_and_senders_say_of_the_lane_to_the_stream_that_it_is_about():
    node = running()
    attach = Attach(
        stream="q.out", epoch=1, next_seq=NOW, durable=0, granted=1 << 20, plain=True, tentative=True
    )
    attached, state = node.say("reader", attach)
    assert attached.tentative == (0, -(1 << 62))
    assert (state.state, state.fork) == ("stable", 0)
    lane = node.brain.fragments["q/flows"].outputs["out"].sender.tentative
    assert lane.wake_at_us() is not None
    assert node.say("reader", TentativeTaken(stream="q.out", epoch=1, frames=1, said=1)) == []
    assert lane.wake_at_us() is None
    assert node.say("near", TentativeTaken(stream="q.gone", epoch=1, frames=1, said=1)) == []
    assert node.say("reader", Ack(stream="q.out", epoch=1, frames=1, received=0, durable=0, granted=9)) == []
    [asked] = node.say("writer", OpenPublisher(stream="q.flows", schema=columns()))
    first = Attached(
        stream="q.flows", epoch=asked.epoch, next_seq=0, boundary_us=0, schema=columns(), timed=False
    )
    node.say("writer", first)
    guess = TentativeBoundary(stream="q.flows", epoch=asked.epoch, frame=0, fork=1, seq=0, time_us=1)
    [refusal] = [each for each in node.say("writer", guess) if isinstance(each, Refuse)]
    assert refusal.code == "E_FORK"
