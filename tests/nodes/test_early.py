"""The first moments of a node: what is asked by a name that its peers know waits until they have told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from medusa.nodes.catalog.directory import Directory
from medusa.nodes.names.startup_grace import AT_ONCE, LOOK_US, NEWS_US, WAITING_MAX, StartupGrace
from medusa.nodes.reports import RulesRead
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.directory import Digest, Entries, Lookup, seen_from, seen_to
from medusa.wire.messages.move import Move
from medusa.wire.outbox import Outbox, Send
from tests.nodes.keyed import SECURITY, Keyed
from tests.nodes.test_naming import DIGEST, asked, news
from tests.nodes.test_security import query


def begun():
    """A node that has just started: clients are here, and no peer yet."""
    node = Keyed()
    for name in ("maker", "writer"):
        node.hello(name)
    return node


def told(node, after_us=0):
    """What clients hear when so much time has passed: the code of each answer, and what it says."""
    node.now_us += after_us
    node.brain.tick(node.now_us)
    sent = [e for e in node.settle() if isinstance(e, Send) and isinstance(e.message, Reply)]
    return [(e.message.code, None if e.payload is None else json.loads(bytes(e.payload))) for e in sent]


@pytest.mark.parametrize("order", [None, Move(request=4, fragment="q/far", to="n", timeout_ms=1000)])
def test_a_name_that_is_used_before_a_node_has_heard_its_peers_waits_for_their_news(order):
    """A stream was defined at another node just before: who asks is not told that there is none."""
    node = begun()
    asks = order or Lookup(request=4, name="q.out", kind="stream")
    assert node.say("maker", asks) == []
    assert told(node, LOOK_US) == []
    node.hello("near")
    assert told(node, LOOK_US) == []  # It is there, and hasn't said what it knows.
    node.say("near", DIGEST, seen_to({"near": 9, "n": 0}))
    node.say("near", Entries(), news(name="q.else", fragment="q/else"))
    assert told(node, LOOK_US) == []
    node.say("near", Entries(), news(name="q.out", fragment="q/far", version=9, after=7))
    answers = told(node, LOOK_US)
    if order is None:
        [(code, found)] = answers
        assert (code, found["node"]) == ("", "near")
    else:
        assert answers == []
        passed = [e.message for e in node.effects if isinstance(e, Send) and e.peer == "near"]
        assert [each.fragment for each in passed if isinstance(each, Move)] == ["q/far"]
    assert told(node, LOOK_US) == []
    # From now on what is unknown is unknown, at once.
    assert node.answer("maker", Lookup(request=5, name="no.such", kind="stream")) == "E_STREAM"
    assert node.answer("maker", Move(request=6, fragment="q/such", to="n", timeout_ms=1)) == "E_FRAGMENT"


def test_a_peer_that_wrote_nothing_new_since_our_last_life_has_told_all_with_its_first_word():
    """It sends no entries then, and needn't speak again for long."""
    node = begun()
    node.hello("near")
    assert node.say("maker", Lookup(request=4, name="no.such")) == []
    node.say("near", Entries(), news())
    assert told(node, LOOK_US) == []
    node.say("near", DIGEST, seen_to({"near": 7, "n": 0}))
    assert told(node, LOOK_US) == [("E_STREAM", None)]


@pytest.mark.parametrize("lives", [1, 2])
@pytest.mark.parametrize("peers", [1, 3])
def test_nodes_that_started_hear_each_other_and_then_answer_at_once(lives, peers):
    """Catalogs that agree with each other as nodes do; in a second life all is known from disk."""
    names = ["n", *(f"p{number}" for number in range(peers))]
    sites = {name: Outbox() for name in names}
    held = {name: Directory(name, incarnation=1, outbox=sites[name], count=print) for name in names}
    now_us = 0

    def agree(early=None):
        """What all say to each other in two seconds; n's ``early`` hears it."""
        nonlocal now_us
        for _ in range(20):
            now_us += 100_000
            for name in names:
                held[name].tick(now_us)
            for name in names:
                for each in sites[name].take():
                    payload = None if each.payload is None else bytes(each.payload)
                    to = held[each.peer]
                    to.receive(now_us, name, each.message, payload)
                    if early is not None and each.peer == "n":
                        seen = seen_from(payload) if isinstance(each.message, Digest) else {}
                        early.told(name, seen.get(name), to.seen(name))

    for name in names:
        held[name].put(0, "stream", f"{name}.out", 1, b"")
        for other in names:
            if other != name:
                held[name].peer_up(0, other)
    if lives == 2:
        agree()
        before = held["n"]
        held["n"] = Directory("n", incarnation=2, outbox=sites["n"], count=print)
        held["n"].load(now_us, before.runs())
        for name in names[1:]:
            held[name].peer_down("n")
            held[name].peer_up(now_us, "n")
            held["n"].peer_up(now_us, name)
    early = StartupGrace(names[1:])
    assert early.waits(now_us, "c", 1, stands=bool, again=print)
    agree(early)
    assert not early.waits(now_us, "c", 2, stands=bool, again=print)


def test_who_lost_the_right_to_while_it_waited_orders_nothing():
    node = begun()
    move = Move(request=4, fragment="q/far", to="n", timeout_ms=1000)
    assert node.say("maker", move) == []
    rules = {name: each for name, each in SECURITY.clients.items() if name != "maker"}
    node.brain.report(node.now_us, RulesRead(replace(SECURITY, clients=rules)))
    node.hello("near")
    node.say("near", DIGEST, seen_to({"near": 7, "n": 0}))
    node.say("near", Entries(), news(name="q.out", fragment="q/far"))
    assert told(node, NEWS_US) == []
    assert not [e for e in node.effects if isinstance(e, Send) and isinstance(e.message, Move)]


def test_what_is_asked_again_over_another_link_is_answered_once():
    node = begun()
    lookup = Lookup(request=4, name="far.out")
    assert node.say("maker", lookup) == []
    node.hello("near")
    node.say("near", Entries(), news())
    assert node.answer("maker", lookup) == ""
    assert told(node, NEWS_US) == []


def test_an_order_that_waits_and_names_what_nobody_has_is_refused_in_the_end():
    node = begun()
    assert node.say("maker", Move(request=4, fragment="q/such", to="n", timeout_ms=1)) == []
    assert node.answer("writer", Move(request=4, fragment="q/such", to="n", timeout_ms=1)) == "E_ROLE"
    assert told(node, NEWS_US) == [("E_FRAGMENT", None)]


def test_what_nobody_has_named_is_refused_in_the_end_though_a_peer_stays_away():
    node = begun()
    assert node.say("maker", Lookup(request=4, name="no.such")) == []
    assert told(node, NEWS_US - 1) == []
    assert told(node, LOOK_US) == [("E_STREAM", None)]
    assert told(node, LOOK_US) == []
    assert node.answer("maker", Lookup(request=5, name="no.such")) == "E_STREAM"


def test_a_node_that_waits_wakes_by_itself_and_keeps_not_too_many_questions():
    node = begun()
    for number in range(WAITING_MAX):
        assert node.say("maker", Lookup(request=number, name="no.such")) == []
    assert node.say("maker", Lookup(request=0, name="no.such")) == []  # Asked again, after its link broke.
    assert node.answer("maker", Lookup(request=WAITING_MAX, name="no.such")) == "E_STREAM"
    assert node.brain.wake_at_us(node.now_us) <= node.now_us + LOOK_US
    answers = [told(node, NEWS_US if not turn else LOOK_US) for turn in range(WAITING_MAX // AT_ONCE)]
    assert answers == [[("E_STREAM", None)] * AT_ONCE] * (WAITING_MAX // AT_ONCE)
    assert told(node, LOOK_US) == []


def test_what_is_known_and_what_a_client_may_not_use_is_answered_at_once():
    node = begun()
    assert node.deploy("maker", query()) == ""
    assert asked(node, "maker", "q.out", "stream")[0] == ""
    node.hello("nobody")
    assert asked(node, "nobody", "q.out", "stream")[0] == "E_ROLE"
