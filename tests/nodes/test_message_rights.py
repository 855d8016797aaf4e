"""Who may say which message: every type of the wire has a row, and the brain asks it before anything else."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from msgspec import inspect

from medusa.errors import RemoteProtocolError
from medusa.nodes import message_table
from medusa.nodes.message_table import MESSAGES, Heard
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages import Message
from medusa.wire.messages.base import Payload
from medusa.wire.messages.commands import Forget, Reply
from medusa.wire.messages.links import Attach, Heartbeat, Hello, Refuse
from medusa.wire.statement import client_name
from tests.nodes.keyed import NODES, curve
from tests.nodes.test_security import running

CALLERS = ("near", "core", "nobody", "maker", "writer", "reader")
"""Our node; bob's; clients without a role, who deploys q*, publishes into q.*, reads q.out."""

KINDS = {kind.__name__: kind for kind in get_args(Message)}

# Each caller in that order: p it passes, r it is refused and its link stays, e its link ends.
EXPECTED = {
    **dict.fromkeys(["Hello", "Heartbeat", "Refuse", "Declare"], "pppppp"),
    **dict.fromkeys(["Attach", "Ack", "Detach"], "pprrrp"),
    "TentativeTaken": "perrrp",
    **dict.fromkeys(["Attached", "Data", "Boundary", "Progress"], "pprrpr"),
    **dict.fromkeys(["StreamState", "TentativeRows", "TentativeBoundary"], "perrpr"),
    "OpenPublisher": "eerrpr",
    "Forget": "eerrrp",
    "Remove": "pprprr",
    **dict.fromkeys(["Deploy", "DeployGuarded", "Define", "DefineRemote", "RevokeRemote"], "eerprr"),
    "Lookup": "eerppp",
    "StatusRequest": "prrppp",
    "Move": "prrprr",
    **dict.fromkeys(["Grant", "Split", "Merge"], "perprr"),
    **dict.fromkeys(["Install", "Placed", "Entries", "Digest"], "preeee"),
    **dict.fromkeys(["Reply", "DhtFind", "DhtFound", "DhtStore", "DhtStored", "DhtLeave"], "ppeeee"),
    **dict.fromkeys(["Expect", "Unexpect", "Release", "Follow", "Moved", "Read"], "ppeeee"),
    **dict.fromkeys(["KeepRemote", "DropRemote", "Instantiate", "StoppedRemote"], "ppeeee"),
    **dict.fromkeys(["Load", "Receive", "Handover", "Settle", "Settled"], "peeeee"),
    **dict.fromkeys(["Prepare", "Accept", "Vote"], "peeeee"),
    **dict.fromkeys(["Configure", "Seed", "Ready", "Piece", "Whole", "Fed", "Standing"], "preeee"),
    **dict.fromkeys(["Got", "GiveUp"], "preeee"),
    "FedTogether": "preeee",
    **dict.fromkeys(["Traded", "Booked"], "epeeee"),
}


OF_LANE = ("StreamState", "TentativeRows", "TentativeBoundary")


def least(kind):
    """The smallest value of a type, as ``msgspec.inspect`` describes it."""
    match kind:
        case inspect.IntType():
            return max(0, kind.ge or 0)
        case inspect.StrType():
            return "x" * max(1, kind.min_length or 0)
        case inspect.BytesType():
            return bytes(kind.min_length or 0)
        case inspect.BoolType():
            return False
        case inspect.VarTupleType():
            return tuple(least(kind.item_type) for _ in range(kind.min_length or 0))
        case inspect.TupleType():
            return tuple(map(least, kind.item_types))
        case inspect.UnionType():
            return least(kind.types[0])
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.StructType():
            return kind.cls(**{each.name: least(each.type) for each in kind.fields if each.required})
    raise AssertionError(f"no value of {kind}: add its kind here")


def message_of(kind, stream="q.out"):
    """One that the decoder lets through, about query q."""
    about = {"stream": stream, "query": "q", "fragment": "q/flows", "request": 3}
    known = {name: value for name, value in about.items() if name in kind.__struct_fields__}
    message = msgspec.structs.replace(least(inspect.type_info(kind)), **known)
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=Message)


class Watched:
    """A node with a query, all callers there, that notes what gets through instead of doing it."""

    def __init__(self):
        self.node = running()
        for name in CALLERS:
            self.node.hello(name, incarnation=7)
        self.passed = []
        self.node.brain._dispatch = lambda heard: self.passed.append(heard.message)

    def say(self, name, message):
        """p, r or e; and that what didn't pass changed nothing."""
        if isinstance(message, Hello):
            called = name if name in NODES else client_name(curve(name), "1")
            about = {
                "version": PROTOCOL_VERSION,
                "node": called,
                "incarnation": 7,
                "client": name not in NODES,
            }
            message = msgspec.structs.replace(message, **about)
        self.passed.clear()
        before = self.node.state()
        try:
            said = self.node.say(name, message)
        except RemoteProtocolError as error:
            self.node.settle()
            found = "e" if error.code == "E_ROLE" else error.code
        else:
            found = "p" if self.passed else "r"
            if found == "r" and (getattr(message, "request", 0) or getattr(message, "stream", "")):
                [answer] = [each for each in said if isinstance(each, Reply | Refuse)]
                assert answer.code in ("E_ROLE", "E_NO_CONTRACT", "E_READER")
        assert len(self.passed) == (found == "p"), found
        assert self.node.state() == before
        return found


@pytest.fixture(scope="module")
def watched():
    return Watched()


def test_every_message_of_the_wire_has_a_row():
    assert set(MESSAGES) == set(KINDS.values())
    assert set(EXPECTED) == set(KINDS), "and is tried below"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_of_caller_says_what_the_table_allows(watched, kind):
    publishes = kind in ("Attached", "Data", "Boundary", "Progress", "OpenPublisher", *OF_LANE)
    message = message_of(KINDS[kind], stream="q.flows" if publishes else "q.out")
    if isinstance(message, Forget):
        message = msgspec.structs.replace(message, publisher=False)
    assert "".join(watched.say(name, message) for name in CALLERS) == EXPECTED[kind]


def test_what_a_message_names_decides_which_role_is_asked_for(watched):
    forget = message_of(Forget)
    publisher = msgspec.structs.replace(forget, publisher=True, stream="q.flows")
    assert "".join(watched.say(name, publisher) for name in CALLERS) == "eerrpr"
    owned = msgspec.structs.replace(forget, owner="other", publisher=False)
    assert "".join(watched.say(name, owned) for name in CALLERS) == "eerprr"
    plain = msgspec.structs.replace(message_of(Attach), plain=True)
    assert "".join(watched.say(name, plain) for name in CALLERS) == "prrrrp"
    other = msgspec.structs.replace(message_of(KINDS["Move"]), fragment="z/flows")
    assert "".join(watched.say(name, other) for name in CALLERS) == "prrrrr", "maker deploys q* only"


def test_a_message_without_a_row_is_nobodys_to_say(watched, monkeypatch):
    # A table of its own: one that gets a row back has it at its end, and docs/protocol.md shows the order.
    fewer = {kind: row for kind, row in MESSAGES.items() if kind is not Heartbeat}
    monkeypatch.setattr(message_table, "MESSAGES", fewer)
    assert "".join(watched.say(name, message_of(Heartbeat)) for name in CALLERS) == "eeeeee"


def test_without_keys_nodes_are_ours_and_clients_have_all_roles():
    for name, kind in KINDS.items():
        row = MESSAGES[kind].rights
        for right, client in ((row.own, False), (row.client, True)):
            if right.ends:
                with pytest.raises(RemoteProtocolError, match=f"{name} is not for it to say"):
                    message_table.refusal("x", None, message_of(kind), "", client=client)
            else:
                assert message_table.refusal("x", None, message_of(kind), "", client=client) is None


OWNERS = {
    "SESSION": "Heartbeat",
    "KEYS": "Declare",
    "STREAMS": "Refuse Attach Ack Detach OpenPublisher Attached Data Boundary Progress Forget "
    "StreamState TentativeRows TentativeBoundary TentativeTaken",
    "PEERS": "Hello",
    "NAMES": "Lookup",
    "CATALOG": "Entries Digest",
    "DHT": "DhtFind DhtFound DhtStore DhtStored DhtLeave",
    "QUERIES": "Deploy DeployGuarded Define Remove",
    "FRAGMENTS": "Install",
    "ORDERS": "Move Grant Split Merge",
    "COMING": "Receive Piece Whole Fed FedTogether Standing Handover Settle",
    "GOING": "Ready Got GiveUp Settled",
    "REROUTING": "Expect Unexpect Release Follow Moved Placed Read",
    "AGREEMENT": "Configure Prepare Accept Vote",
    "FOLLOWING": "Seed",
    "REMOTE": "DefineRemote RevokeRemote KeepRemote DropRemote Instantiate StoppedRemote",
    "LOADS": "Load",
    "MARKET": "Traded Booked",
    "STATUS": "StatusRequest",
    "ANSWERS": "Reply",
}

REQUIRED = (
    "Booked Data Define DefineRemote Deploy DeployGuarded Entries Install KeepRemote Piece Receive Seed "
    "Standing TentativeRows Traded"
)
OPTIONAL = "Digest Fed FedTogether Reply Whole"


def test_each_message_comes_to_the_part_that_is_to_have_it():
    brain, came = running().brain, []
    brain._owners = {each: lambda heard, name=each.name: came.append(name) for each in brain._owners}
    expected = {name: owner for owner, names in OWNERS.items() for name in names.split()}
    assert set(expected) == set(KINDS)
    for name, owner in expected.items():
        came.clear()
        brain._dispatch(Heard(0, "near", message_of(KINDS[name]), b""))
        assert came == [owner], name


def test_a_message_that_needs_a_payload_is_refused_without_by_the_node_too():
    node = running()
    node.hello("near")
    needs = dict.fromkeys(REQUIRED.split(), Payload.REQUIRED)
    needs |= dict.fromkeys(OPTIONAL.split(), Payload.OPTIONAL)
    for name, kind in KINDS.items():
        assert kind.PAYLOAD is needs.get(name, Payload.NONE), name
        if kind.PAYLOAD is not Payload.REQUIRED or "e" in EXPECTED[name][0]:
            continue
        before = node.state()
        with pytest.raises(RemoteProtocolError) as refused:
            node.say("near", message_of(kind), None)
        node.settle()
        assert refused.value.code == "E_FRAME", name
        assert node.state() == before
