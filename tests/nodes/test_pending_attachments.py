"""Who asks for a stream while nobody knows whose it is hears it as soon as that is known."""

from __future__ import annotations

import pytest

from medusa.nodes.pending_attachments import PENDING_US
from medusa.nodes.reports import PeerLost
from medusa.wire.messages.links import NOW, Attach, Attached, Detach, OpenPublisher
from medusa.wire.statement import client_name
from tests.nodes.keyed import curve
from tests.nodes.test_security import query
from tests.nodes.test_subscribers import OWNER, running, said

READER = f"{OWNER}-1"
ATTACH = Attach(stream="q.out", epoch=1, next_seq=NOW, durable=0, granted=1 << 20, plain=True)


def resting():
    node = running()
    node.brain.fragments["q/flows"].freeze()
    return node


def known(node, after_us=0):
    """It is ours; what is said then, without any further word of who asked."""
    node.now_us += after_us
    node.brain.fragments["q/flows"].thaw(node.now_us)
    node.brain.tick(node.now_us)
    return [e for e in node.settle() if hasattr(e, "message")]


def test_a_reader_is_answered_when_it_is_known_whose_the_stream_is():
    node = resting()
    assert said(node.say("reader", ATTACH), Attached) == []
    assert [peer for peer, _ in said(known(node), Attached)] == [READER]


def test_a_publisher_is_asked_for_its_rows():
    node = resting()
    flows = query().graph.boxes[0].schema
    asks = OpenPublisher(stream="q.flows", schema=flows)
    assert said(node.say("writer", asks), Attach) == []
    [(peer, attach)] = said(known(node), Attach)
    assert (peer, attach.stream) == (client_name(curve("writer"), "1"), "q.flows")


def test_who_asked_twice_is_answered_once():
    node = resting()
    node.say("reader", ATTACH)
    node.say("reader", Attach(**{**{f: getattr(ATTACH, f) for f in ATTACH.__struct_fields__}, "epoch": 2}))
    [(_, attached)] = said(known(node), Attached)
    assert attached.epoch == 2


@pytest.mark.parametrize("how", ["detached", "lost", "long ago"])
def test_who_may_not_want_it_any_more_is_not_attached(how):
    node = resting()
    node.say("reader", ATTACH)
    if how == "detached":
        node.say("reader", Detach(stream="q.out", epoch=1))
    if how == "lost":
        node.brain.report(node.now_us, PeerLost(READER))
        node.settle()
    assert said(known(node, PENDING_US if how == "long ago" else 0), Attached) == []
    assert READER not in node.brain.fragments["q/flows"].outputs["out"].sender.receivers
