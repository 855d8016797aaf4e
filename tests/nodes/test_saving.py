"""The catalog's way to disk when the disk fails, and what waits for it."""

from __future__ import annotations

import pytest

from medusa.nodes.catalog.catalog import CATALOG, Catalog, PendingReplacement
from medusa.nodes.catalog.persistence import KEPT_MAX, PAUSE_US, PAUSE_US_MAX, CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.node import NodeMind
from medusa.nodes.placement.placement import cut
from medusa.nodes.reports import Persisted, Started
from medusa.query.codec import graph_to_msgpack
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Deploy, Reply
from medusa.wire.messages.links import Hello
from medusa.wire.outbox import CloseFragment, Log, Outbox, Persist, ReportLine, Send
from tests.nodes.test_brain import query

FULL = "No space left on device"


class Writer:
    """A saver whose disk the test is."""

    def __init__(self):
        self.outbox = Outbox()
        self._last = 0
        self.catalog = Catalog("a")
        self.saver = CatalogWriter(self.catalog, outbox=self.outbox, next_token=self._token)

    def _token(self):
        self._last += 1
        return self._last

    def took(self, kind):
        return [effect for effect in self.outbox.take() if isinstance(effect, kind)]


def test_a_failed_write_is_tried_again_after_pauses_that_double_up_to_a_bound():
    one, now_us, pauses = Writer(), 0, []
    one.saver.save()
    for _ in range(10):
        (write,) = one.took(Persist)
        assert one.saver.written(now_us, write.token, False, FULL)
        one.saver.save()
        one.saver.tick(one.saver.wake_at_us() - 1)
        assert one.took(Persist) == [], "not before the pause is over, whoever asks"
        pauses.append(one.saver.wake_at_us() - now_us)
        now_us = one.saver.wake_at_us()
        one.saver.tick(now_us)
    assert pauses == [min(PAUSE_US << n, PAUSE_US_MAX) for n in range(10)]
    assert one.saver.failures == 10


def test_what_waits_for_a_failed_write_goes_out_once_when_a_later_one_is_durable():
    one = Writer()
    token = one.saver.save()
    one.saver.send("c", Reply(request=1), after=token)
    assert [send.after for send in one.took(Send)] == [token], "the driver holds it back"
    one.saver.written(0, token, False, FULL)
    later = one.saver.save()
    one.saver.send("c", Reply(request=2), after=later)
    one.saver.send("c", Reply(request=1), after=token)
    assert one.took(Send) == []
    one.saver.tick(PAUSE_US)
    (write,) = one.took(Persist)
    assert write.token == later
    one.saver.written(PAUSE_US, later, True)
    assert one.took(Send) == [Send(peer="c", message=Reply(request=n)) for n in (1, 2)]
    one.saver.send("c", Reply(request=3), after=token)
    assert one.took(Send) == [Send(peer="c", message=Reply(request=3))]


def test_a_later_write_under_way_needs_no_retry():
    one = Writer()
    first, second = one.saver.save(), one.saver.save()
    one.saver.send("c", Reply(request=1), after=first)
    one.saver.written(0, first, False, FULL)
    assert one.saver.wake_at_us() is None
    one.outbox.take()
    one.saver.written(1, second, True)
    assert [send.message for send in one.took(Send)] == [Reply(request=1)]
    assert not one.saver.written(2, second, True), "not asked"


def test_what_joins_the_write_before_it_in_a_turn_is_in_that():
    one = Writer()
    first = one.saver.save()
    one.saver.send("c", Reply(request=1), after=first)
    one.outbox.report("info", "something was done")
    one.catalog.expected["q.out"] = {"b": "c"}
    second = one.saver.save(joins=True)
    one.saver.send("c", Reply(request=2), after=second)
    write, *others = one.outbox.take()
    assert first == second == write.token
    assert Catalog.from_bytes(write.files[CATALOG], node="a", where="here").expected == one.catalog.expected
    assert [type(each) for each in others] == [Send, ReportLine, Send], "each waits behind the write"
    third = one.saver.save(joins=True)
    assert third != first, "that one is under way, and may hold what was before"
    one.outbox.take()
    one.saver.written(0, first, True)
    assert (one.saver.durable, one.saver.idle) == (first, False)
    one.saver.written(0, third, True)
    assert (one.saver.durable, one.saver.idle) == (third, True)


@pytest.mark.parametrize(
    "effect",
    [
        Persist(token=7, fragment="q/f", files={}),
        Log(fragment="q/f", number=1, data=b""),
        CloseFragment(fragment="q/f"),
    ],
    ids=lambda effect: type(effect).__name__,
)
def test_what_others_do_on_the_disk_stays_between_two_writes(effect):
    """The second may name a checkpoint, and nothing that was closed: the first is there before either."""
    one = Writer()
    first = one.saver.save()
    one.outbox.append(effect)
    second = one.saver.save(joins=True)
    assert first != second
    assert [each if each is effect else each.token for each in one.outbox.take()] == [first, effect, second]


def test_more_than_can_be_kept_is_answered_with_an_error():
    one = Writer()
    token = one.saver.save()
    one.saver.written(0, token, False, FULL)
    one.outbox.take()
    for number in range(KEPT_MAX + 1):
        one.saver.send("c", Reply(request=number), after=token)
    (send,) = one.took(Send)
    assert (send.message.request, send.message.code) == (KEPT_MAX, "E_DISK")
    assert FULL in send.message.text


def test_a_node_with_a_full_disk_writes_seldom_and_answers_when_there_is_room():
    brain = NodeMind(Settings(name="a", listen="ipc:///a", data="a", peers={}), incarnation=1)
    brain.report(0, Started())
    brain.receive(0, "c", Hello(version=PROTOCOL_VERSION, node="c", incarnation=0, client=True))
    at = tuple(("a", (box.id,)) for box in query().graph.boxes[:1])
    brain.receive(0, "c", Deploy(request=7, at=at), graph_to_msgpack(query().graph))
    now_us = writes = errors = 0
    answers = []
    while now_us < 60_000_000 and not answers:
        full = now_us < 20_000_000
        for effect in brain.outbox.take():
            match effect:
                case Persist(fragment="", token=token):
                    writes += 1
                    brain.report(now_us, Persisted(token, not full, FULL if full else ""))
                case Persist(token=token):
                    brain.report(now_us, Persisted(token, True))
                case ReportLine(what="catalog not written"):
                    errors += 1
                case Send(after=None, message=Reply() as reply):
                    answers.append(reply)
        if not len(brain.outbox):
            now_us = max(brain.wake_at_us(now_us), now_us + 1)
            brain.receive(now_us, "c", Hello(version=PROTOCOL_VERSION, node="c", incarnation=0, client=True))
            brain.tick(now_us)
    assert answers == [Reply(request=7)]
    assert now_us >= 20_000_000
    assert 5 < writes < 20
    assert errors


def test_a_fragment_that_a_split_or_merge_makes_was_asked_for_by_nobody():
    """Also where one of its name was: the record that it is there is written before it is."""

    def written():
        return Catalog.from_bytes(catalog.to_bytes(), node="a", where="here")

    catalog, (made,) = Catalog("a"), cut(query().graph, {"a": ["flows"]}).fragments
    catalog.add(made, "c", request=7)
    assert written().installed == {made.name: 7}
    catalog.fragments.pop(made.name)  # it was split
    becoming = PendingReplacement(gone=("q/router",), made=(made,), epoch=3)
    catalog.becoming.append(becoming)
    before = written()
    catalog.becoming.remove(becoming)
    catalog.add(made, "c")
    assert before.installed == catalog.installed == {}
    assert list(before.fragments) == list(catalog.fragments) == [made.name]
