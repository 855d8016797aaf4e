"""Whatever a peer says, in whatever order: the brain raises ``RemoteProtocolError`` or nothing."""

from __future__ import annotations

from random import Random
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from medusa.errors import RemoteProtocolError
from medusa.nodes.placement.placement import cut
from medusa.nodes.spec.fragment_spec import fragment_to
from medusa.query.codec import graph_to_msgpack
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Deploy, Install, Remove
from medusa.wire.messages.links import Hello
from tests.nodes.test_brain import AT, Run, columns, query

STREAMS = ["q.flows", "q.out", "q.all", "q.per_k-partial", "nothing", ""]
NUMBERS = [0, 1, 2, 3, 7, 100, 599, 600, 601, 1 << 30, 1 << 40, (1 << 62) - 1]
TEXTS = ["", "x", "q", "E_EPOCH", "E_STREAM", "core", "e1", "reader", "../x"]


def value_for(name: str, kind: Any, random: Random) -> Any:
    """Something of the right type: plausible more often than not."""
    if name == "version":
        return 1
    if name == "stream":
        return random.choice(STREAMS)
    if name in ("query", "fragment"):
        return random.choice(["q", "q/flows", "q/per_k", "z"])
    if name == "schema":
        return columns()
    if name == "at":
        return random.choice([(("e1", ("flows",)),), (("core", ("flows", "per_k")),), ()])
    origin = get_origin(kind)
    base = get_args(kind)[0] if origin is not None else kind
    if base is bool:
        return random.random() < 0.5
    if base is int:
        return random.choice(NUMBERS) if random.random() < 0.8 else -random.choice([1, 2, 5])
    return random.choice(TEXTS)


def random_message(random: Random) -> tuple[Message, bytes | None]:
    """A message that passes the decoder, with a payload where there must or may be one."""
    kinds = get_args(Message)
    while True:
        kind = random.choice(kinds)
        if kind is Remove and random.random() < 0.95:
            continue  # Where the query is gone there is little left to break.
        hints = get_type_hints(kind, include_extras=False)
        fields = {
            field.name: value_for(field.name, hints[field.name], random)
            for field in msgspec.structs.fields(kind)
        }
        try:
            message = msgspec.msgpack.decode(msgspec.msgpack.encode(kind(**fields)), type=Message)
        except msgspec.ValidationError:
            continue
        return message, payload_for(message, random)


def payload_for(message: Message, random: Random) -> bytes | None:
    if isinstance(message, Deploy):
        return random.choice([b"", b"\xc1", graph_to_msgpack(query().graph)])
    if isinstance(message, Install):
        fragments = cut(query().graph, AT).fragments
        return random.choice([b"", b"junk", *map(fragment_to, fragments)])
    return b"not arrow" if type(message).__name__ == "Data" else None


@pytest.mark.parametrize("seed", range(6))
def test_random_words_of_every_peer(seed):
    random = Random(seed)
    run = Run(seed)
    run.publish_over(1_000_000)
    federation, world = run.federation, run.federation.world
    federation.run(for_us=500_000)
    refused = 0
    for _ in range(400):
        node = federation.nodes[random.choice(["core", "e1"])]
        peers = [*node.settings.peers, "reader", "pub-e1", "nobody"]
        peer = random.choice(peers)
        message, payload = random_message(random)
        if isinstance(message, Hello):
            message = msgspec.structs.replace(message, node=random.choice([peer, message.node]))
        try:
            node.brain.receive(world.now_us, peer, message, payload)
        except RemoteProtocolError:
            refused += 1
        node.soon()
        federation.run(for_us=random.choice([0, 1000, 100_000]))
    assert refused > 10
    for node in federation.nodes.values():
        assert node.loop is not None
        assert all(
            not hosted.failed or "removed" in hosted.failed for hosted in node.brain.fragments.values()
        )
