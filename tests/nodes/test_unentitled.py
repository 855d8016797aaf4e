"""No state changes because of a message whose key is not entitled (reliability C3, D 2 and 5): whatever
such a caller says, in whatever order, whole or wounded."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from medusa.errors import RemoteProtocolError
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Declare
from medusa.wire.messages.links import Heartbeat, Hello, Refuse
from medusa.wire.statement import client_name
from tests.nodes.keyed import ALICE, EVE, NODES, certificate, curve, revocation
from tests.nodes.test_brain_fuzz import random_message
from tests.nodes.test_security import OFFER, running

CALLERS = ["nobody", "core", "stranger", "revoked"]


def message_of(random):
    """Something to say, with its payload; now and then a statement that doesn't count."""
    if random.random() < 0.1:
        make = random.choice([certificate, revocation])
        wrong = random.choice(
            [
                {"signer": EVE},
                {"federation": "other"},
                {"recipient": "m"},
                {"key": curve("near")},
                {"expiry_us": 5},
                {"signer": ALICE},
            ]
        )
        return Declare(request=random.randrange(3), statement=make(**wrong)), None
    return random_message(random)


@pytest.mark.parametrize("seed", range(2))
def test_who_is_not_entitled_changes_nothing(seed):
    random = Random(seed)
    node = running()
    assert node.declare("maker", revocation(ALICE, participant="alice", key=curve("revoked"))) == ""
    before, trusted = node.state(), node.trusted()
    refused = 0
    for number in range(150):
        name = random.choice(CALLERS)
        message, payload = message_of(random)
        called = name if name in NODES else client_name(curve(name), "1")
        if random.random() < 0.2:
            called = random.choice(["near", "core", "n", client_name(curve("writer"), "1")])
        if isinstance(message, Hello):
            message = msgspec.structs.replace(
                message, node=called, version=PROTOCOL_VERSION, incarnation=number + 2
            )
        node.now_us += random.choice([0, 1_000, 50_000])
        try:
            if isinstance(message, Hello):
                node.brain.admit(message, key=curve(name))
            node.say(name, message, payload, called=called)
        except RemoteProtocolError:
            refused += 1
            node.settle()
        if not isinstance(message, Hello | Heartbeat | Refuse):
            assert node.state() == before, message
    assert node.state() == before
    assert node.trusted() == trusted
    assert refused > 35
    assert sum(node.brain.refusals.values()) > 55
    assert set(node.brain.refusals) >= {"E_IDENTITY", "E_REVOKED", "E_ROLE", "E_NO_CONTRACT"}
    assert node.answer("writer", msgspec.structs.replace(OFFER, stream="q.nothing")) == "E_STREAM", (
        "others are served as before"
    )


@pytest.mark.parametrize("seed", range(2))
def test_wounded_frames_of_any_caller_end_in_a_refusal_or_an_answer(seed):
    """The way of a message from its bytes on, for those who may do something too."""
    random = Random(100 + seed)
    node = running()
    for _ in range(200):
        message, payload = random_message(random)
        frames = [bytearray(part) for part in encode_frame(message, payload)]
        for _ in range(random.choice([0, 1, 1, 2])):
            part = random.choice(frames)
            if part:
                part[random.randrange(len(part))] = random.randrange(256)
        name = random.choice(["maker", "writer", "reader", "near", *CALLERS])
        called = name if name in NODES else client_name(curve(name), "1")
        try:
            found, body = decode_frame([bytes(part) for part in frames])
            node.brain.receive(node.now_us, called, found, body, key=curve(name))
        except RemoteProtocolError:
            pass
        node.settle()
    assert node.brain.status(node.now_us)["node"] == "n"
