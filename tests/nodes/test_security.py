"""Who is who and who may say what (reliability D 2, 6, 31): a caller is its key, per message."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import medusa as md
from medusa.elements import START_US, Train
from medusa.errors import RemoteProtocolError
from medusa.nodes.config.fields import matches
from medusa.nodes.config.settings import Limits
from medusa.nodes.placement.placement import cut
from medusa.nodes.reports import PeerLost
from medusa.nodes.security.sessions import CLIENTS_MAX, CLIENTS_PER_KEY, GONE_US, makes_room
from medusa.nodes.spec.fragment_spec import fragment_to
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Install, Remove, StatusRequest
from medusa.wire.messages.links import (
    Ack,
    Attach,
    Attached,
    Boundary,
    Data,
    Detach,
    Hello,
    OpenPublisher,
    Progress,
)
from medusa.wire.messages.move import Grant, Move, Receive, Settle
from medusa.wire.messages.rerouting import Expect, Moved, Placed
from medusa.wire.messages.split import Merge, Split
from medusa.wire.outbox import Send
from medusa.wire.statement import client_name
from tests.nodes.keyed import (
    Keyed,
    curve,
)
from tests.wire.test_clean import SECRETS, dirty

SCHEMA = {"ts": "timestamp[us, UTC]", "v": "int64"}


def query(name="q"):
    q = md.Query(name)
    q.sink("out", q.source("flows", SCHEMA, time="ts").filter("v > 0", name="f"))
    return q


def columns():
    return query().graph.boxes[0].schema


ATTACH = Attach(stream="q.out", epoch=1, next_seq=0, durable=0, granted=1 << 20, plain=True)
OFFER = OpenPublisher(stream="q.flows", schema=columns())


def running(**options):
    """A node with the query, its publisher and its reader."""
    node = Keyed(**options)
    for name in ("maker", "writer", "second", "reader", "nobody", "near", "core"):
        node.hello(name)
    node.agree()
    assert node.deploy("maker", query()) == ""
    assert "q/flows" in node.brain.fragments
    return node


# --- who ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "key", "client"),
    [
        ("near", curve("core"), False),
        ("near", curve("maker"), False),
        ("near", curve("stranger"), False),
        ("near", "", False),
        (client_name(curve("maker"), "1"), curve("writer"), True),
        (client_name(curve("maker"), "1"), curve("near"), True),
        (client_name(curve("maker"), "1"), curve("maker"), False),
        (client_name(curve("maker")) + "0", curve("maker"), True),
        ("client-0123456789abcdef", curve("maker"), True),
        ("maker", curve("maker"), True),
    ],
)
def test_a_name_that_is_not_the_keys_is_refused_and_changes_nothing(name, key, client):
    """D 2: a forged id in a message."""
    node = running()
    before = node.state()
    with pytest.raises(RemoteProtocolError) as caught:
        node.brain.admit(Hello(version=PROTOCOL_VERSION, node=name, incarnation=7, client=client), key=key)
    assert caught.value.code == "E_IDENTITY"
    for message in (
        Hello(version=PROTOCOL_VERSION, node=name, incarnation=7, client=client),
        ATTACH,
        OFFER,
        Remove(request=1, query="q"),
    ):
        if client is False and key == curve("maker"):
            continue  # A client that says it is a node is caught where it comes in.
        with pytest.raises(RemoteProtocolError) as caught:
            node.brain.receive(1, name, message, key=key)
        assert caught.value.code == "E_IDENTITY"
    assert node.settle() == []
    assert node.state() == before


def test_a_hello_for_another_name_over_an_own_link_is_refused():
    """D 2: the name inside the message, where the link is right."""
    node = running()
    with pytest.raises(RemoteProtocolError) as caught:
        node.say("near", Hello(version=PROTOCOL_VERSION, node="core", incarnation=9))
    assert caught.value.code == "E_IDENTITY"


def test_one_key_does_not_shut_out_the_others():
    node = running()
    for number in range(CLIENTS_PER_KEY - 1):
        node.hello("nobody", suffix=f"n{number}")
    with pytest.raises(RemoteProtocolError) as caught:
        node.hello("nobody", suffix="one-more")
    assert caught.value.code == "E_LIMIT"
    node.hello("nobody", suffix="n7", incarnation=2)
    node.hello("writer", suffix="2")
    node.brain.report(1, PeerLost(client_name(curve("nobody"), "n7")))
    node.now_us = 60_000_000
    node.brain.tick(node.now_us)
    node.settle()
    node.hello("nobody", suffix="one-more")


def test_who_went_without_a_word_makes_room_for_one_more_with_its_key():
    """A program that connects anew for each question is not shut out until its ends are noticed."""
    node = running()
    node.hello("writer", suffix="w")
    names = [client_name(curve("nobody"), f"n{number}") for number in range(2 * CLIENTS_PER_KEY)]
    for number, name in enumerate(names):
        node.now_us = 1000 + number * GONE_US // 50  # Some fifty end in a second.
        node.hello("nobody", suffix=f"n{number}")
        node.brain.report(node.now_us, PeerLost(name))
    kept = [name for name in names if name in node.brain.sessions]
    assert len(kept) == len([name for name in node.brain.clients if name in names]) < CLIENTS_PER_KEY
    assert kept == names[-len(kept) :]  # Who was silent for longest went first.
    assert client_name(curve("writer"), "w") in node.brain.clients
    for name in kept:  # All speak again: none goes for another.
        node.hello("nobody", suffix=name.rpartition("-")[2], incarnation=2)
    for number in range(CLIENTS_PER_KEY - 1 - len(kept)):
        node.hello("nobody", suffix=f"more{number}")
    with pytest.raises(RemoteProtocolError, match="close some of them"):
        node.hello("nobody", suffix="one-more")


def test_where_a_node_has_as_many_clients_as_it_takes_a_silent_one_makes_room():
    clients = {f"c{number}": 0 for number in range(CLIENTS_MAX)}
    assert makes_room(GONE_US + 5, "new", clients, ()) is None
    clients |= {"c5": 7, "c6": 3}
    assert makes_room(GONE_US + 5, "new", clients, ()) == "c6"
    assert makes_room(GONE_US + 5, "c7", clients, ()) is None
    assert makes_room(GONE_US + 2, "new", clients, ()) is None  # Its link may be slow.
    del clients["c0"]
    assert makes_room(GONE_US + 5, "new", clients, ()) is None


def test_who_is_not_let_in_throws_nobody_out():
    node = running()
    for number in range(CLIENTS_PER_KEY - 1):
        node.hello("nobody", suffix=f"n{number}")
    silent = client_name(curve("nobody"), "n3")
    node.brain.report(1, PeerLost(silent))
    node.now_us = 2 * GONE_US
    node.brain.tick(node.now_us)
    hello = Hello(version=PROTOCOL_VERSION, node="near", incarnation=1, client=True)
    with pytest.raises(RemoteProtocolError) as caught:
        node.brain.admit(hello, key=curve("nobody"))
    assert caught.value.code == "E_IDENTITY"
    assert silent in node.brain.clients


def test_programs_that_never_came_up_are_forgotten():
    """Such as of another version: each start has another name, and would count for ever."""
    node = running()
    names = [client_name(curve("nobody"), f"old{number}") for number in range(CLIENTS_PER_KEY - 1)]
    for name in names:
        hello = Hello(version=99, node=name, incarnation=1, client=True)
        node.now_us += 1
        node.brain.admit(hello, key=curve("nobody"))
        with pytest.raises(RemoteProtocolError) as caught:
            node.say("nobody", hello, called=name)
        assert caught.value.code == "E_VERSION"
        node.brain.report(node.now_us, PeerLost(name))
    node.now_us += GONE_US
    node.brain.tick(node.now_us)
    node.hello("nobody", suffix="new")
    node.now_us += 60_000_000
    node.brain.tick(node.now_us)
    assert not set(names) & set(node.brain.clients)


def test_a_fragment_has_all_its_figures_before_the_engine_has_told_any():
    [fragment] = running().brain.status(0)["fragments"]
    assert (fragment["late"], fragment["dead"], fragment["state_bytes"]) == (0, 0, 0)


def test_one_key_takes_at_most_half_of_the_memory():
    """Credit is memory: who may publish leaves some for others."""
    node = running(limits=Limits(memory_bytes=32 << 20))
    names = [node.hello("writer", suffix=f"w{number}") for number in range(3)]
    said = [node.say("writer", OFFER, called=name) for name in names]
    assert [type(each[0]).__name__ for each in said] == ["Attach", "Attach", "Refuse"]
    assert said[2][0].code == "E_MEMORY"
    assert "client 'writer' publishes 2 streams" in said[2][0].text
    assert [type(each).__name__ for each in node.say("second", OFFER)] == ["Attach"]


def test_the_name_of_a_client_follows_from_its_key():
    assert client_name(curve("a"), "x") != client_name(curve("b"), "x")
    assert client_name(curve("a"), "x").startswith(client_name(curve("a")) + "-")


# --- what -----------------------------------------------------------------------------------------

EVERYTHING = [
    (OFFER, "publish"),
    (
        Attached(stream="q.flows", epoch=1, next_seq=0, boundary_us=0, schema=columns(), timed=False),
        "publish",
    ),
    (Data(stream="q.flows", epoch=1, frame=1, seq=0, rows=1), "publish"),
    (Boundary(stream="q.flows", epoch=1, frame=1, seq=0, time_us=START_US), "publish"),
    (Progress(stream="q.flows", epoch=1, frames=1), "publish"),
    (ATTACH, "subscribe"),
    (Ack(stream="q.out", epoch=1, frames=0, received=0, durable=0, granted=0), "subscribe"),
    (Detach(stream="q.out", epoch=1), "subscribe"),
    (Remove(request=4, query="q"), "deploy"),
    (Move(request=4, fragment="q/flows", to="near", timeout_ms=1000), "deploy"),
    (Grant(request=4, fragment="q/flows", to="n"), "deploy"),
    (Split(request=4, fragment="q/flows", box="flows", parts=2), "deploy"),
    (Merge(request=4, fragment="q/flows", box="flows"), "deploy"),
]


@pytest.mark.parametrize(("message", "role"), EVERYTHING, ids=[type(m).__name__ for m, _ in EVERYTHING])
def test_a_client_key_may_do_nothing_unless_it_is_said(message, role):
    node = running()
    before = node.state()
    for name in ("nobody", "maker", "writer", "reader"):
        may = {"maker": ("deploy", "status"), "writer": ("publish",), "reader": ("subscribe",)}
        if role in may.get(name, ()):
            continue
        assert node.answer(name, message, b"x" if isinstance(message, Data) else None) == "E_ROLE"
        assert node.state() == before


def status_of(node, name):
    node.effects.clear()
    said = node.say(name, StatusRequest(request=4))
    [send] = [e for e in node.effects if isinstance(e, Send) and e.message in said]
    return send.message.code, json.loads(bytes(send.payload)) if send.payload is not None else None


def test_a_client_sees_of_the_status_what_concerns_it():
    """To publish one has to know the columns; nothing of others shows."""
    node = running()
    assert status_of(node, "nobody") == ("E_ROLE", None)
    node.say("writer", OFFER)
    code, whole = status_of(node, "maker")
    assert (code, list(whole["queries"])) == ("", ["q"])
    assert [len(one["inputs"]) for one in whole["fragments"]] == [1]
    code, part = status_of(node, "writer")
    assert part == {
        "node": "n",
        "sources": {"q.flows": whole["sources"]["q.flows"]},
        "streams": [],
        "elsewhere": {},
        "fragments": [{"inputs": whole["fragments"][0]["inputs"]}],
    }
    code, part = status_of(node, "reader")
    assert part == {"node": "n", "sources": {}, "streams": ["q.out"], "elsewhere": {}, "fragments": []}


def test_a_client_without_a_role_may_not_deploy():
    node = running()
    for name in ("nobody", "writer", "reader"):
        assert node.deploy(name, query("q2")) == "E_ROLE"
    assert node.deploy("maker", query("other")) == "E_ROLE", "its pattern is q*"
    assert list(node.brain.catalog.deployments) == ["q"]
    assert node.answer("maker", Remove(request=3, query="other")) == "E_ROLE"


def test_each_role_lets_its_client_do_its_part():
    node = running()
    assert any(isinstance(each, Attach) for each in node.say("writer", OFFER))
    assert any(isinstance(each, Attached) for each in node.say("reader", ATTACH))
    assert node.answer("maker", StatusRequest(request=4)) == ""
    assert node.answer("maker", Remove(request=5, query="q")) == ""
    assert not node.brain.fragments


def test_a_right_is_for_the_names_it_says():
    node = running()
    assert node.deploy("maker", query("q2"), request=10) == ""
    attach = Attach(stream="q2.out", epoch=1, next_seq=0, durable=0, granted=1 << 20, plain=True)
    assert node.answer("reader", attach) == "E_ROLE"
    assert node.answer("writer", OpenPublisher(stream="q2.flows", schema=columns())) == "E_ROLE"


def test_what_is_refused_is_counted_and_says_what_would_allow_it():
    node = running()
    [reply] = node.say("nobody", StatusRequest(request=4))
    assert reply.text == "client 'nobody' may not ask for the status"
    assert "status = true in [clients.nobody]" in reply.hint
    assert node.brain.status(0)["refused"] == {"E_ROLE": 1}


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_patterns_are_as_regular_expressions_say(pattern, name):
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    assert matches(pattern, name) == (re.fullmatch(expression, name) is not None)


def test_a_pattern_of_many_stars_takes_no_time():
    assert not matches("*a" * 120 + "b", "a" * 255)
    assert matches("*a" * 120, "a" * 255)


# --- nodes of others ------------------------------------------------------------------------------


def test_a_box_that_runs_at_another_participants_node_is_not_split_here_and_it_is_said_whose_it_is():
    node = Keyed()
    for name in ("maker", "near", "core"):
        node.hello(name)
    [fragment] = cut(query().graph, {"core": ["flows", "f"], "n": ["out"]}).at("n")
    install = Install(request=1, query="q", fragment=fragment.name)
    assert node.answer("near", install, fragment_to(fragment)) == ""
    [source] = [feed.source for feed in fragment.feeds]
    [reply] = node.say("maker", Split(request=2, fragment=fragment.name, box=source, parts=2))
    assert (reply.code, reply.text) == (
        "query.split",
        f"box {source!r} runs at node 'core' of participant 'bob', for query 'q'",
    )


def test_a_node_of_another_participant_runs_and_stops_nothing_here():
    """D 6: no contract."""
    node = running()
    before = node.state()
    [fragment] = cut(query("z").graph, {"n": ["flows"]}).fragments
    install = Install(request=1, query="z", fragment=fragment.name)
    assert node.answer("core", install, fragment_to(fragment)) == "E_NO_CONTRACT"
    assert node.answer("core", Remove(request=2, query="q")) == "E_NO_CONTRACT"
    assert node.answer("core", StatusRequest(request=3)) == "E_ROLE"
    assert node.answer("core", ATTACH) == "E_READER"
    kept = Attach(stream="q.out", epoch=1, next_seq=0, durable=0, granted=1 << 20)
    assert node.answer("core", kept) == "E_READER", "the plan doesn't name it"
    assert node.state() == before
    assert node.answer("near", install, fragment_to(fragment)) == "", "one of our own may"


@pytest.mark.parametrize(
    "message",
    [
        Move(request=4, fragment="q/flows", to="core", timeout_ms=1000),
        Grant(request=4, fragment="q/flows", to="n"),
        Split(request=4, fragment="q/flows", box="flows", parts=2),
        Merge(request=4, fragment="q/flows", box="flows"),
        Receive(fragment="q/flows", attempt=1 << 40, epoch=9, coordinator="core"),
        Settle(fragment="q/flows", attempt=1 << 40, gone=True),
        Placed(request=4, query="q", fragment="q/flows", node="core", streams=("q.out",)),
        Moved(request=4, stream="q.out", node="core", epoch=9),
        Expect(request=4, query="q", stream="q.out", like="core", reader="core", epoch=9),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_node_of_another_participant_moves_nothing_and_takes_nothing(message):
    """D 22: only the present owner hands a fragment over, inside its participant."""
    node = running()
    before = node.state()
    [fragment] = cut(query("z").graph, {"n": ["flows"]}).fragments
    payload = fragment_to(fragment) if isinstance(message, Receive) else None
    try:
        code = node.answer("core", message, payload)
    except RemoteProtocolError as error:
        code = error.code
    assert code in ("E_ROLE", "E_NO_CONTRACT")
    assert node.state() == before


def test_what_a_node_with_keys_sends_tells_nothing_of_its_memory():
    """D 31: who reads may be another owner."""
    payloads = []
    for secret in SECRETS:
        output = running().brain.fragments["q/flows"].outputs["out"]
        valid = np.array([True, False, True, False, True])
        arrays = [dirty("timestamp[us, UTC]", 0, np.ones(5, bool), secret), dirty("int64", 0, valid, secret)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=output._codec.schema)
        output.take(0, Train(batch=batch, times=arrays[0]), hold=False)
        [entry] = output.sender.log.entries()
        payloads.append(bytes(entry.payload))
    assert payloads[0] == payloads[1]
