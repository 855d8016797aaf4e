"""The other nodes of a client: which of them it calls when one is lost, and what it was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from medusa.errors import LinkError
from medusa.runtime.client.connecting import given_nodes
from medusa.runtime.client.contacts import (
    CALL_AGAIN_US,
    CALLED_MAX,
    LEARN_EVERY_US,
    PATIENCE_US,
    Contacts,
    GivenNode,
)
from medusa.runtime.keys.client_keys import FirstUse
from medusa.wire.link.redirect import ASK_FIRST_US, ASK_LAST_US, ASK_OFTEN_US, ask_again_us


def at(node, address=None):
    return {"node": node, "address": f"tcp://{node}" if address is None else address, "server_key": ""}


def called(targets):
    return [each.address if isinstance(each, GivenNode) else each["node"] for each in targets]


def knowing(*nodes, given=()):
    made = Contacts(GivenNode(each) for each in given)
    made.learn(0, [at(node) for node in nodes])
    return made


def test_so_many_others_are_called_that_two_are_there():
    contacts = knowing("a", "b", "c", "d", "e")
    assert called(contacts.to_call(0, up=0, known={"a"})) == ["b", "c"]
    assert contacts.to_call(1, up=0, known={"a"}) == [], "they are being called"
    contacts.called(2, at("b"), there=True)
    contacts.called(2, at("c"), there=True)
    assert contacts.to_call(3, up=CALLED_MAX, known={"a", "b", "c"}) == []
    assert called(contacts.to_call(4, up=1, known={"a", "b", "c"})) == ["d"]


def test_who_does_not_answer_is_not_waited_for_and_who_failed_is_called_again_later():
    contacts = knowing("a", "b", "c", "d")
    assert called(contacts.to_call(0, up=0, known={"a"})) == ["b", "c"]
    assert called(contacts.to_call(PATIENCE_US, up=0, known={"a"})) == ["d"]
    contacts.called(PATIENCE_US, at("b"), there=False)
    again_us = PATIENCE_US + CALL_AGAIN_US
    assert contacts.to_call(again_us - 1, up=0, known={"a"}) == []
    assert called(contacts.to_call(again_us, up=0, known={"a"})) == ["b"]


def test_one_node_is_called_once_at_a_time():
    contacts = knowing("a", "b")
    assert contacts.calls(0, at("b"))
    assert not contacts.calls(1, at("b"))
    assert contacts.to_call(2, up=0, known={"a"}) == []
    contacts.called(3, at("b"), there=False)
    assert not contacts.calls(4, at("b"))
    assert contacts.calls(3 + CALL_AGAIN_US, at("b"))


def test_nobody_is_called_whose_address_nobody_knows():
    contacts = Contacts()
    contacts.learn(0, [at("b", "")])
    assert contacts.to_call(0, up=0, known=()) == []
    assert "b" in contacts


def test_an_address_that_was_given_is_called_unless_a_node_is_known_to_be_there():
    contacts = knowing("a", "b", given=["tcp://b", "ipc:///x"])
    assert called(contacts.to_call(0, up=0, known={"a"})) == ["b", "ipc:///x"]
    [given] = [each for each in contacts.given if each.address == "ipc:///x"]
    contacts.found(given, at("x", "ipc:///x"))
    contacts.called(1, given, there=True)
    assert "x" in contacts
    assert called(contacts.to_call(2, up=0, known={"a", "b"})) == ["x"]
    contacts.learn(3, [at("a")])
    assert "x" in contacts, "it was there, whatever a node says"


def test_which_nodes_there_are_is_asked_now_and_then():
    contacts = Contacts()
    assert not contacts
    assert contacts.to_learn(5)
    contacts.learn(5, [at("a")])
    assert contacts
    assert not contacts.to_learn(4 + LEARN_EVERY_US)
    assert contacts.to_learn(5 + LEARN_EVERY_US)


def test_it_is_asked_often_at_first_where_a_stream_is():
    rests = [ask_again_us(away_us) for away_us in (0, 20_000, 60_000, 400_000, 2_000_000, 60_000_000)]
    assert rests == [ASK_FIRST_US, ASK_FIRST_US, ASK_OFTEN_US, 40_000, 200_000, ASK_LAST_US]


# --- what is given to connect -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "server_key", "code", "text"),
    [
        ([], None, "link.address", "came an empty list"),
        (5, None, "link.address", "came int"),
        (["tcp://127.0.0.1:1", 5], None, "link.address", "came list"),
        (["tcp://127.0.0.1:1", "http://x"], None, None, "http://x"),
        (
            ["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"],
            ["k" * 40],
            "link.keys",
            "addresses: 2, server keys: 1",
        ),
        ("tcp://127.0.0.1:1", ["k" * 40] * 2, "link.keys", "addresses: 1, server keys: 2"),
    ],
)
def test_what_is_no_list_of_nodes_is_refused(address, server_key, code, text):
    with pytest.raises(LinkError, match=text) as caught:
        given_nodes(address, 1_000, None, server_key, None)
    assert code in (None, caught.value.code)
    assert caught.value.hint


def test_an_address_that_is_given_twice_is_one():
    found = given_nodes(["tcp://127.0.0.1:1", "tcp://127.0.0.1:1"], 1_000, None, None, None)
    assert [each.address for each in found] == ["tcp://127.0.0.1:1"]


def test_one_introduction_is_not_for_several_nodes(tmp_path):
    first = FirstUse(Path(tmp_path / "pins"), "tcp://127.0.0.1:9")
    with pytest.raises(LinkError, match="2 addresses are given") as caught:
        given_nodes(["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"], 1_000, "k" * 40, None, first)
    assert caught.value.code == "link.keys"
