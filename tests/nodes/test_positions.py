"""Positions that can't be: refused, nothing moves, and no node ever says one itself."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from medusa.elements import START_US
from medusa.errors import RemoteProtocolError
from medusa.nodes.fragment import inputs
from medusa.nodes.fragment.checkpoint_record import InputRecord
from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.reports import PeerLost
from medusa.query.boxes import Source
from medusa.wire import limits
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.link import receiver
from medusa.wire.link.automaton import LinkEvent, LinkSettings
from medusa.wire.messages.links import (
    NOW,
    OLDEST,
    RESUME,
    Ack,
    Attach,
    Attached,
    Boundary,
    Data,
    Detach,
    OpenPublisher,
    Progress,
    Refuse,
)
from medusa.wire.outbox import Outbox, ReportLine, Send
from tests.nodes.test_publishers import (
    FIRST,
    OFFER,
    OWNER,
    RESUMED,
    attached,
    disk,
    fed,
    hosted,
    passes,
    running,
    sends,
)
from tests.nodes.test_security import columns

LAST = limits.SEQ_MAX
EXTREMES = (0, 1, 2, 7, 1 << 40, LAST - receiver.EPOCHS_PER_LIFE, LAST - 2, LAST - 1, LAST)


class Liar:
    """A client that publishes and one that reads, whose every number may be any that a message can have."""

    def __init__(self, seed):
        self.dice = Random(seed)
        self.node = running()
        self.offers = (OFFER, RESUMED) if seed % 2 else (OpenPublisher(stream="q.flows", schema=columns()),)
        self.lives = {"writer": 1, "reader": 1}
        self.epochs = [1]
        self.said = 0

    def number(self):
        return self.dice.choice(EXTREMES)

    def epoch(self):
        return self.dice.choice([*self.epochs[-3:], self.epochs[-1], self.number()])

    def message(self):
        """Who says it, what, and the payload."""
        number, epoch = self.number, self.epoch
        about = {"stream": "q.flows", "epoch": epoch()}
        rows = self.dice.choice((1, 2, limits.ROWS_MAX))
        match self.dice.randrange(12):
            case 0:
                return "writer", self.dice.choice(self.offers), None
            case 1 | 2 | 3:
                at = self.dice.choice((number(), hosted_at(self.node)))
                lost = self.dice.choice((0, number()))
                made = Attached(
                    next_seq=at, boundary_us=-(1 << 62), schema=columns(), timed=False, lost=lost, **about
                )
                return "writer", made, None
            case 4 | 5:
                at = self.dice.choice((number(), hosted_at(self.node)))
                frame = self.dice.choice((1, number()))
                return "writer", Data(frame=frame, seq=at, rows=rows, **about), b"no rows"
            case 6:
                return "writer", Boundary(frame=1, seq=number(), time_us=1 << 61, **about), None
            case 7:
                return "writer", Progress(frames=number(), **about), None
            case 8:
                code = self.dice.choice(("E_EPOCH", "E_DETACHED", "E_SEQ", "E_STREAM"))
                return "writer", Refuse(code=code, text="", **about), None
            case 9:
                asked = Attach(
                    stream="q.out",
                    epoch=number(),
                    next_seq=self.dice.choice((NOW, OLDEST, RESUME, number())),
                    durable=number(),
                    granted=number(),
                    plain=self.dice.random() < 0.5,
                    resumed=self.dice.random() < 0.5,
                )
                return "reader", asked, None
            case 10:
                counts = {name: number() for name in ("frames", "received", "durable", "granted")}
                return "reader", Ack(stream="q.out", epoch=number(), **counts), None
        return "reader", Detach(stream="q.out", epoch=number()), None

    def begin(self):
        self.node.say("writer", self.offers[0])
        self.heard()
        return self

    def step(self):
        name, message, payload = self.message()
        try:
            self.node.say(name, message, None if payload is None else memoryview(payload))
        except RemoteProtocolError:  # Its link ends, and it comes again.
            called = f"{OWNER}-1" if name == "writer" else None
            if called is None:
                called = next(each for each in self.node.brain.clients if each not in (FIRST, f"{OWNER}-2"))
            self.node.brain.report(self.node.now_us, PeerLost(called))
            self.lives[name] += 1
            self.node.hello(name, incarnation=self.lives[name])
        if self.dice.random() < 0.3:
            self.node.now_us += self.dice.choice((1_000, 300_000, 2_000_000))
            self.node.brain.tick(self.node.now_us)
            self.node.settle()
        self.heard()

    def heard(self):
        """What the node said since the last look, as any peer of ours would take it."""
        for effect in self.node.effects:
            if isinstance(effect, Send):
                frames = [memoryview(bytes(part)) for part in encode_frame(effect.message, effect.payload)]
                message, _ = decode_frame(frames, peer="n")
                assert message == effect.message
                self.said += 1
                if isinstance(message, Attach):
                    self.epochs.append(message.epoch)
                    assert message.durable <= max(message.next_seq, 0) or message.next_seq < 0
                elif isinstance(message, Ack):
                    assert message.durable <= message.received <= LAST
        self.node.effects.clear()


def hosted_at(node):
    return max((each.receiver.next_seq for each in hosted(node).inputs.values()), default=0)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_numbers_come_the_node_says_only_what_a_peer_may(seed):
    liar = Liar(seed).begin()
    for _ in range(60):
        liar.step()
    assert liar.said > 5
    assert not hosted(liar.node).failed


def test_the_liar_reaches_each_end_of_what_may_be_said():
    epochs, positions = set(), set()
    for seed in range(60):
        liar = Liar(seed).begin()
        for _ in range(60):
            liar.step()
        epochs.add(max(liar.epochs))
        positions.add(hosted_at(liar.node))
    assert max(epochs) > 1 << 40, "an epoch that a peer claimed was believed, within its bound"
    assert max(epochs) <= LAST
    assert max(positions) >= LAST - 1, "and so was a position"


def test_an_epoch_that_leaves_no_room_for_ours_is_not_followed():
    node = running()
    [attach] = node.say("writer", OFFER)
    for epoch in (LAST, LAST - 1, receiver.EPOCH_MAX + 1):
        refusal = Refuse(code="E_EPOCH", text="", stream="q.flows", epoch=epoch)
        assert node.say("writer", refusal, called=FIRST) == []
    at_most = Refuse(code="E_EPOCH", text="", stream="q.flows", epoch=receiver.EPOCH_MAX)
    [again] = node.say("writer", at_most, called=FIRST)
    assert (type(again), again.epoch) == (Attach, receiver.EPOCH_MAX + 1)
    assert attach.epoch < again.epoch < LAST


# --- rows that a publisher says are lost -----------------------------------------------------------


def claims(node, attach, lost):
    """The publisher says that so many rows are lost; what it hears, and what is reported."""
    node.effects.clear()
    message = msgspec.structs.replace(attached(attach), next_seq=attach.next_seq + lost)
    said = node.say("writer", message, called=FIRST, disk=False)
    return said, [e for e in node.effects if isinstance(e, ReportLine) and e.level == "error"]


@pytest.mark.parametrize("lost", [1, 1 << 40, LAST])
def test_a_new_publisher_has_lost_nothing(lost):
    node = running()
    [attach] = node.say("writer", OFFER)
    [refusal], [report] = claims(node, attach, lost)
    assert (refusal.code, refusal.stream) == ("E_SEQ", "q.flows")
    assert report.fields["peer"] == FIRST, "the log names who claims it"
    assert hosted_at(node) == 0
    assert hosted(node).inputs["flows", f"{OWNER}/w/7"].receiver.lost_rows == 0


def with_rows(count):
    """A node to which the publisher has sent rows that are durable, and how it was asked."""
    node = running()
    [attach] = node.say("writer", OFFER)
    sends(node, attach, count)
    fed(node)
    passes(node)
    disk(node)
    assert hosted(node).inputs["flows", f"{OWNER}/w/7"].receiver.durable_seq == count
    return node


def test_who_was_attached_before_has_lost_nothing_since():
    node = with_rows(3)
    node.brain.report(node.now_us, PeerLost(FIRST))
    node.effects.clear()
    node.hello("writer", incarnation=2)
    [attach] = [e.message for e in node.effects if isinstance(e, Send) and isinstance(e.message, Attach)]
    assert attach.next_seq == 3
    [refusal], [report] = claims(node, attach, 5)
    assert refusal.code == "E_SEQ"
    assert report.fields["peer"] == FIRST
    assert hosted_at(node) == 3


@pytest.mark.parametrize(
    ("lost", "taken"), [(7, True), (inputs.LOST_MAX, True), (inputs.LOST_MAX + 1, False)]
)
def test_after_a_start_it_may_have_forgotten_what_the_disk_lost_once(lost, taken):
    outbox = Outbox()
    source = Source(id="flows", schema=columns(), time=None)
    key = f"{OWNER}/w/7"
    record = InputRecord(source="flows", peer=key, next_seq=10, boundary_us=int(START_US), holder=FIRST)
    input = FragmentInput(
        source, "q.flows", key, incarnation=2, outbox=outbox, settings=LinkSettings(), record=record
    )
    input.receiver.peer_event(0, LinkEvent.PEER_UP)
    [attach] = [e.message for e in outbox.take() if isinstance(e, Send)]
    input.receive(0, msgspec.structs.replace(attached(attach), next_seq=10 + lost), None)
    reports = [e for e in outbox.take() if isinstance(e, ReportLine)]
    assert [each.what for each in reports] == ["rows lost" if taken else "stream refused"]
    assert reports[0].fields["peer"] == FIRST
    assert input.receiver.next_seq == (10 + lost if taken else 10)
    if taken:
        input.receiver.peer_event(0, LinkEvent.PEER_RESTARTED)
        [attach] = [e.message for e in outbox.take() if isinstance(e, Send)]
        input.receive(0, msgspec.structs.replace(attached(attach), next_seq=attach.next_seq + 1), None)
        assert [e.what for e in outbox.take() if isinstance(e, ReportLine)] == ["stream refused"]


def test_an_unnamed_publisher_is_asked_for_row_0_and_may_have_any():
    node = running()
    [attach] = node.say("writer", OpenPublisher(stream="q.flows", schema=columns()))
    said, reports = claims(node, attach, 1 << 40)
    assert not [each for each in said if isinstance(each, Refuse)]
    assert [each.what for each in reports] == ["rows lost"]
