"""One client has so many deployments under way, and the others are served beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medusa.nodes.config.settings_security import ClientRules
from medusa.nodes.deploy.client_limit import UNDER_WAY_MAX, PendingAnswers, no_room
from medusa.nodes.reports import Persisted
from medusa.query.codec import graph_to_msgpack
from medusa.wire.messages.commands import Declare, Deploy, Remove, Reply
from medusa.wire.outbox import Persist, Send
from tests.nodes.keyed import SECURITY, Keyed, curve, revocation
from tests.nodes.test_security import query

AT = (("n", ("flows",)),)


def running():
    """Two keys that may deploy; ``maker`` has two programs. The disk is slow."""
    second = ClientRules(key=curve("second"), deploy=("*",))
    node = Keyed(replace(SECURITY, clients={**SECURITY.clients, "second": second}))
    for name in ("maker", "second"):
        node.hello(name)
    node.hello("maker", suffix="2")
    return node


def ask(node, name, number, called=None):
    """Deploy another query, of which nothing is written yet; the codes of what is answered at once."""
    document = graph_to_msgpack(query(f"q{number}").graph)
    begun = len(node.effects)
    node.say(name, Deploy(request=number, at=AT), document, disk=False, called=called)
    return codes(node.effects[begun:], lambda send: send.after is None)


def codes(effects, which):
    replies = [each for each in effects if isinstance(each, Send) and isinstance(each.message, Reply)]
    return [each.message.code for each in replies if which(each)]


def wrote(node):
    """The disk does all that was given to it; what is answered then."""
    held, node.effects = node.effects, []
    for effect in held:
        if isinstance(effect, Persist):
            node.brain.report(node.now_us, Persisted(effect.token, True))
    node.settle()
    return codes(held, lambda send: send.after is not None)


def test_one_more_is_refused_and_changes_nothing_until_one_is_answered():
    node = running()
    for number in range(UNDER_WAY_MAX):
        assert ask(node, "maker", number) == []
    deployments = list(node.brain.catalog.deployments)
    assert ask(node, "maker", 100) == ["E_BUSY"]
    assert list(node.brain.catalog.deployments) == deployments
    assert ask(node, "second", 101) == [], "another key has room of its own"
    assert wrote(node) == [""] * (UNDER_WAY_MAX + 1)
    assert ask(node, "maker", 100) == []
    assert wrote(node) == [""]


def test_all_programs_with_one_key_have_it_together():
    node = running()
    other = node.hello("maker", suffix="3")
    for number in range(UNDER_WAY_MAX):
        assert ask(node, "maker", number) == []
    assert ask(node, "maker", 100, called=other) == ["E_BUSY"]


def test_the_same_question_again_is_not_one_more():
    node = running()
    for number in range(UNDER_WAY_MAX):
        ask(node, "maker", number)
    assert ask(node, "maker", 0) == []
    assert set(wrote(node)) == {""}


def test_what_runs_already_is_said_to_run_whatever_is_under_way():
    node = running()
    assert node.deploy("maker", query("q99"), request=50) == ""
    for number in range(UNDER_WAY_MAX):
        ask(node, "maker", number)
    assert ask(node, "maker", 99) == ["E_DEPLOYED"]
    assert node.answer("maker", Remove(request=61, query="q99")) == "", "what makes room is done"


@pytest.mark.parametrize("other", ["program-1", "c-0123", ""])
def test_without_keys_each_program_has_room_of_its_own(other):
    under_way = ["program-2"] * UNDER_WAY_MAX
    assert no_room(other, 1, [], under_way) is None
    refusal = no_room("program-2", 7, [], under_way)
    assert (refusal.request, refusal.code) == (7, "E_BUSY")


def test_what_else_waits_for_the_disk_takes_no_room():
    node = running()
    for number in range(UNDER_WAY_MAX):
        statement = revocation(sequence=number + 1)
        assert not node.say("maker", Declare(request=100 + number, statement=statement), disk=False)[1:]
    waiting = [e.message.request for e in node.effects if isinstance(e, Send) and e.after is not None]
    assert set(range(100, 100 + UNDER_WAY_MAX)) <= set(waiting), "none of these is answered yet"
    for number in range(UNDER_WAY_MAX):
        assert ask(node, "maker", number) == []
    assert ask(node, "maker", 50) == ["E_BUSY"], "deployments do"


def test_an_answer_takes_room_until_it_is_on_disk():
    durable = [4]
    answers = PendingAnswers(lambda: durable[-1])
    answers.wait("x", 1, 5)
    answers.wait("x", 1, 5)
    answers.wait("y", 1, 6)
    answers.wait("x", 2, 4)
    assert sorted(answers.waiting()) == ["x", "y"]
    durable.append(5)
    assert answers.waiting() == ["y"]
    answers.wait("y", 1, 7)  # Asked again; a write has failed in between.
    durable.append(6)
    assert answers.waiting() == ["y"]
    durable.append(7)
    assert answers.waiting() == []
