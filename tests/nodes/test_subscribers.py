"""Named subscriptions at a node: answered when durable, each key its own, bounded in number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medusa.errors import RemoteProtocolError
from medusa.nodes.config.settings import Limits
from medusa.nodes.config.settings_security import ClientRules
from medusa.nodes.fragment import subscribers
from medusa.nodes.fragment.checkpoint_record import RECORD, read_record
from medusa.nodes.reports import PeerLost, Persisted, RulesRead
from medusa.wire.messages.commands import Forget, Reply
from medusa.wire.messages.links import NOW, OLDEST, Ack, Attach, Attached, Detach, Refuse
from medusa.wire.outbox import Persist
from medusa.wire.statement import client_name
from tests.nodes.keyed import SECURITY, Keyed, curve
from tests.nodes.test_security import query

ATTACH = Attach(stream="q.out", epoch=1, next_seq=NOW, durable=0, granted=1 << 20, name="r")
FORGET = Forget(request=5, stream="q.out", name="r")
OWNER = client_name(curve("reader"))
KEY = f"{OWNER}/r"


def running():
    """A node with the query, and two keys that may read it."""
    second = ClientRules(key=curve("second"), subscribe=("*",))
    security = replace(SECURITY, clients={**SECURITY.clients, "second": second})
    node = Keyed(security, limits=Limits(checkpoint_every_us=100_000))
    for name in ("maker", "writer", "reader", "second", "core"):
        node.hello(name)
    assert node.deploy("maker", query()) == ""
    return node


def sender(node):
    return node.brain.fragments["q/flows"].outputs["out"].sender


def written(node):
    """Positions of the receivers in the checkpoint that was asked for last."""
    files = [e.files for e in node.effects if isinstance(e, Persist) and RECORD in e.files]
    [output] = read_record(files[-1][RECORD], where="test").outputs
    return output.receivers


def disk(node, ok=True):
    """The checkpoint under way becomes durable, or fails; what then goes out, by whom."""
    token = [e.token for e in node.effects if isinstance(e, Persist)][-1]
    node.brain.report(node.now_us, Persisted(token, ok, "full"))
    return [e for e in node.settle(disk=False) if hasattr(e, "message")]


def said(effects, kind):
    return [(e.peer, e.message) for e in effects if isinstance(e.message, kind)]


def named(node):
    return node.brain.status(0)["fragments"][0]["outputs"][0]["named"]


def test_a_new_name_is_answered_once_a_checkpoint_holds_it():
    node = running()
    assert node.say("reader", ATTACH, disk=False) == []
    assert written(node) == {KEY: 0}
    assert node.say("reader", replace_epoch(2), disk=False) == [], "asked again, still not durable"
    [(peer, attached)] = said(disk(node), Attached)
    assert (peer, attached.epoch, attached.next_seq) == (f"{OWNER}-1", 2, 0)
    assert [isinstance(each, Attached) for each in node.say("reader", replace_epoch(3))] == [True]


def replace_epoch(epoch, **changes):
    fields = {name: getattr(ATTACH, name) for name in ATTACH.__struct_fields__}
    return Attach(**{**fields, "epoch": epoch, **changes})


def test_a_checkpoint_that_was_under_way_before_does_not_count():
    node = running()
    node.say("reader", Attach(**as_dict(ATTACH, name="first")), disk=False)
    node.say("reader", Attach(**as_dict(ATTACH, name="r")), disk=False)
    first = said(disk(node), Attached)
    assert len(first) == 1
    assert set(written(node)) == {f"{OWNER}/first", KEY}, "the next one was asked for at once"
    assert len(said(disk(node), Attached)) == 1


def as_dict(message, **changes):
    return {**{name: getattr(message, name) for name in message.__struct_fields__}, **changes}


def test_a_checkpoint_that_fails_answers_nobody():
    node = running()
    node.say("reader", ATTACH, disk=False)
    assert said(disk(node, ok=False), Attached) == []
    node.now_us += 200_000
    node.brain.tick(node.now_us)
    node.settle(disk=False)
    assert len(said(disk(node), Attached)) == 1


def test_who_went_before_the_answer_keeps_no_name_busy():
    node = running()
    node.say("reader", ATTACH, disk=False)
    node.brain.report(node.now_us, PeerLost(f"{OWNER}-1"))
    node.settle(disk=False)
    node.hello("reader", suffix="2")
    assert node.say("reader", ATTACH, called=f"{OWNER}-2", disk=False) == []
    assert [peer for peer, _ in said(disk(node), Attached)] == [f"{OWNER}-2"]
    assert named(node)[0]["to"] == f"{OWNER}-2"


def test_two_who_make_the_same_name_at_once():
    node = running()
    node.hello("reader", suffix="2")
    node.say("reader", ATTACH, disk=False)
    assert node.answer("reader", ATTACH, called=f"{OWNER}-2", disk=False) == "E_TAKEN"
    disk(node)
    assert node.answer("reader", ATTACH, called=f"{OWNER}-2") == "E_TAKEN"
    node.say("reader", Detach(stream="q.out", epoch=1))
    [attached] = node.say("reader", ATTACH, called=f"{OWNER}-2")
    assert isinstance(attached, Attached)


def test_one_who_detaches_before_the_answer_gets_none():
    node = running()
    node.say("reader", ATTACH, disk=False)
    node.say("reader", Detach(stream="q.out", epoch=1), disk=False)
    assert said(disk(node), Attached) == []
    assert not named(node)[0]["connected"]


def test_an_acknowledgement_is_in_the_next_checkpoint():
    node = running()
    node.say("reader", ATTACH)
    sender(node).train(0, b"abc", 3)
    node.settle()
    checkpoints = node.brain.fragments["q/flows"].checkpoints
    ack = Ack(stream="q.out", epoch=1, frames=2, received=3, durable=2, granted=1 << 20)
    node.say("reader", ack)
    assert named(node) == [
        {
            "name": "r",
            "owner": OWNER,
            "acknowledged_row": 2,
            "kept_bytes": sender(node).log.nbytes,
            "connected": True,
            "to": f"{OWNER}-1",
            "sent_row": 3,
            "lost_rows": 0,
            "left_out_rows": 0,
        }
    ]
    node.now_us += 2_000_000
    node.brain.tick(node.now_us)
    node.settle()
    assert written(node) == {KEY: 2}
    assert node.brain.fragments["q/flows"].checkpoints == checkpoints + 1


def test_a_name_belongs_to_the_key_that_made_it():
    node = running()
    node.say("reader", ATTACH)
    sender(node).train(0, b"abc", 3)
    node.settle()
    assert node.answer("second", FORGET) == "E_NAME"
    [attached, *_] = node.say("second", Attach(**as_dict(ATTACH, next_seq=OLDEST)))
    assert isinstance(attached, Attached), "a subscription of its own, under the same name"
    ack = Ack(stream="q.out", epoch=1, frames=2, received=3, durable=3, granted=1 << 20)
    node.say("second", ack)
    assert sender(node).durable_positions() == {KEY: 0, f"{client_name(curve('second'))}/r": 3}


@pytest.mark.parametrize("name", ["maker", "writer"])
def test_it_needs_the_role_to_subscribe(name):
    node = running()
    assert node.answer(name, ATTACH) == "E_ROLE"
    assert node.answer(name, FORGET) == "E_ROLE"
    assert not sender(node).receivers


def test_nodes_have_no_names():
    node = running()
    assert node.answer("core", ATTACH) == "E_READER"
    with pytest.raises(RemoteProtocolError, match="not for it to say"):
        node.say("core", FORGET)


def test_what_is_ended_is_answered_once_that_is_durable():
    node = running()
    node.say("reader", ATTACH)
    refused = node.say("reader", FORGET, disk=False)
    assert [(type(each), each.code) for each in refused] == [(Refuse, "E_REMOVED")]
    assert written(node) == {}
    assert node.say("reader", FORGET, disk=False) == [], "asked again after a reconnection"
    assert node.answer("reader", replace_epoch(2), disk=False) == "E_TAKEN", "until it is gone for good"
    assert said(disk(node), Reply) == [(f"{OWNER}-1", Reply(request=5))]
    assert node.say("reader", FORGET) == [Reply(request=5)], "its answer was lost"
    assert node.answer("reader", Forget(request=6, stream="q.out", name="r")) == "E_NAME"
    assert node.answer("reader", Forget(request=7, stream="q.out", name="x")) == "E_NAME"


def test_nobody_ends_what_another_program_reads():
    node = running()
    node.hello("reader", suffix="2")
    node.say("reader", ATTACH)
    assert node.answer("reader", FORGET, called=f"{OWNER}-2") == "E_TAKEN"
    node.brain.report(node.now_us, PeerLost(f"{OWNER}-1"))
    assert node.answer("reader", FORGET, called=f"{OWNER}-2") == ""


def test_who_may_remove_the_query_ends_the_names_of_others_also_while_they_are_read():
    node = running()
    node.say("reader", ATTACH)
    forced = Forget(request=8, stream="q.out", name="r", owner=OWNER)
    assert node.answer("second", forced) == "E_ROLE"
    other = Forget(request=8, stream="q.out", name="r", owner="somebody")
    assert node.answer("maker", other) == "E_NAME"
    assert node.answer("maker", forced) == ""
    assert not sender(node).receivers
    assert any(
        e.peer == f"{OWNER}-1" and isinstance(e.message, Refuse) and e.message.code == "E_REMOVED"
        for e in node.effects
        if hasattr(e, "message")
    )


def test_another_query_than_one_may_deploy():
    node = running()
    rules = replace(SECURITY.clients["maker"], deploy=("other",))
    node.brain.report(node.now_us, RulesRead(replace(SECURITY, clients={**SECURITY.clients, "maker": rules})))
    node.settle()
    for name in ("reader", "maker"):
        node.hello(name)
    node.say("reader", ATTACH)
    assert node.answer("maker", Forget(request=8, stream="q.out", name="r", owner=OWNER)) == "E_ROLE"
    assert list(sender(node).receivers) == [KEY]


@pytest.mark.parametrize("bound", ["NAMED_PER_STREAM", "NAMED_PER_OWNER"])
def test_names_are_bounded(monkeypatch, bound):
    monkeypatch.setattr(subscribers, bound, 3)
    node = running()
    for number in range(3):
        attach = Attach(**as_dict(ATTACH, name=f"r{number}", epoch=number + 1))
        assert isinstance(node.say("reader", attach)[0], Attached)
    more = Attach(**as_dict(ATTACH, epoch=9))
    assert node.answer("reader", more) == "E_LIMIT"
    if bound == "NAMED_PER_OWNER":
        assert isinstance(node.say("second", ATTACH)[0], Attached), "another key has room of its own"
    assert node.answer("reader", Forget(request=1, stream="q.out", name="r0")) == ""
    assert isinstance(node.say("reader", Attach(**as_dict(ATTACH, epoch=10)))[0], Attached)


def test_one_key_leaves_names_of_a_stream_to_the_others(monkeypatch):
    monkeypatch.setattr(subscribers, "OWNER_PER_STREAM", 2)
    node = running()
    for number in range(2):
        attach = Attach(**as_dict(ATTACH, name=f"r{number}", epoch=number + 1))
        assert isinstance(node.say("reader", attach)[0], Attached)
    before = node.state()
    assert node.answer("reader", Attach(**as_dict(ATTACH, epoch=9))) == "E_LIMIT"
    assert node.state() == before
    assert isinstance(node.say("second", ATTACH)[0], Attached)
    assert node.answer("reader", Forget(request=1, stream="q.out", name="r0")) == ""
    assert isinstance(node.say("reader", Attach(**as_dict(ATTACH, epoch=10)))[0], Attached)


def test_removing_the_query_ends_them():
    node = running()
    node.say("reader", ATTACH)
    node.say("second", ATTACH)
    node.say("second", Detach(stream="q.out", epoch=1))
    hosted = node.brain.fragments["q/flows"]
    hosted.close("query 'q' was removed")
    assert [peer for peer, _ in said([e for e in node.settle() if hasattr(e, "message")], Refuse)] == [
        f"{OWNER}-1"
    ]


def test_who_was_known_is_not_begun_anew():
    node = running()
    known = replace_epoch(1, known=True, next_seq=OLDEST)
    assert node.answer("reader", known) == "E_NAME"
    assert named(node) == [], "nothing is left of it"
    node.say("reader", replace_epoch(2))
    assert [isinstance(each, Attached) for each in node.say("reader", replace_epoch(3, known=True))] == [True]
