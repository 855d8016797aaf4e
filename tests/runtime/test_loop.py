"""The driver of a node: which connection belongs to whom, and what the end of one means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from medusa.nodes.config.settings import parse
from medusa.nodes.node import NodeMind
from medusa.ports import Buffer
from medusa.runtime.node.graph_parser import GraphParser
from medusa.runtime.node.loop import NodeLoop
from medusa.runtime.transport.link_events import Arrival, LinkDown, LinkRefused, LinkUp
from medusa.testing import ManualClock
from medusa.wire import limits
from medusa.wire.codec import encode_frame
from medusa.wire.messages.links import Heartbeat, Hello
from medusa.wire.status_and_metrics import status_of

CONFIG = 'name = "a"\nlisten = "ipc:///tmp/a"\ndata = "d"\n[peers]\nb = "ipc:///tmp/b"\n'


class Links:
    """One link that we called, to b; callers say who they are."""

    def __init__(self) -> None:
        self.sent: dict[str, list[bytes]] = {}
        """The last message by link."""

    def wait(self, timeout_ms: int) -> list[Any]:
        raise AssertionError("a turn never waits")

    def handled(self) -> None:
        pass

    def send(self, link: str, frames: Sequence[Buffer]) -> None:
        self.sent[link] = [bytes(each) for each in frames]

    def cut(self, link: str, *, shun: bool = True) -> None:
        pass

    def calls(self, link: str) -> bool:
        return link == "b"

    def door(self) -> dict[str, int]:
        return {}

    def call_at(self, peer: str, address: str) -> None:
        self.called = peer, address

    def trust(self, keys: Iterable[str], server_keys: Mapping[str, Sequence[str]]) -> None:
        pass

    def wake(self) -> None:
        pass


class Host:
    """Runs nothing."""

    def finished(self) -> list[Any]:
        return []


def said(link: str, message: Any) -> Arrival:
    return Arrival(link, tuple(memoryview(part) for part in encode_frame(message)))


HELLO = Hello(version=limits.PROTOCOL_VERSION, node="b", incarnation=3)


@pytest.fixture
def loop() -> NodeLoop:
    made = NodeLoop(
        NodeMind(parse(CONFIG), incarnation=1),
        Links(),
        Host(),
        ManualClock(),
        parser=GraphParser(wake=lambda: None),
        say=lambda report: None,
    )
    made.begin()
    made.turn([LinkUp("b"), said("b", HELLO), said("in-1", HELLO)])
    assert state(made) == "up"
    return made


def state(loop: NodeLoop) -> str:
    asked = loop.ask()
    loop.turn([])
    return asked.result(0)["peers"]["b"]


@pytest.mark.parametrize("link", ["b", "in-1"])
def test_a_peer_is_silent_at_once_when_either_of_its_links_ends(loop: NodeLoop, link: str) -> None:
    """By the one go our words, by the other its own."""
    loop.turn([LinkDown(link)])
    assert state(loop) == "silent"
    loop.turn([said("b", HELLO)])
    assert state(loop) == "up"


def test_status_says_that_a_peer_refuses_our_key(loop: NodeLoop) -> None:
    loop.turn([LinkDown("b"), LinkRefused("b", "link.not_admitted", "it doesn't admit this key", "")])
    asked = loop.ask()
    loop.turn([])
    status = asked.result(0)
    assert status["peers"] == {"b": "silent"}
    assert status["away"]["b"]["refusal"] == "refuses our key"
    assert status_of(status).why_away("b") == "refuses our key, for 0 s"


def test_a_link_that_a_newer_one_has_replaced_may_end(loop: NodeLoop) -> None:
    loop.turn([said("in-2", HELLO), LinkDown("in-1")])
    assert state(loop) == "up"


def test_a_slow_connection_of_an_earlier_life_replaces_nothing(loop: NodeLoop) -> None:
    """What comes by it would else count as said in this life, and this life would go unheard."""
    earlier = Hello(version=limits.PROTOCOL_VERSION, node="b", incarnation=2)
    loop.turn([said("in-2", earlier), said("in-2", Heartbeat(incarnation=2))])
    assert loop.refused == 1  # Nobody is known at the other end of that connection.
    loop.turn([LinkDown("in-2")])
    assert state(loop) == "up"
    loop.turn([LinkDown("in-1")])
    assert state(loop) == "silent"


def test_a_connection_of_a_later_life_replaces_the_one_that_stood(loop: NodeLoop) -> None:
    later = Hello(version=limits.PROTOCOL_VERSION, node="b", incarnation=4)
    loop.turn([said("in-2", later), LinkDown("in-1")])
    assert state(loop) == "up"
    assert loop.refused == 0


# What version 1 of the protocol wrote, byte by byte.
EARLIER_NODE = b"\x9a\xa5hello\x01\xa1b\x04\xc3\xc2\xc2\x00\x00\xa0"
EARLIER_CLIENT = b"\x9a\xa5hello\x01\xa1k\x04\xc3\xc3\xc2\x00\x00\xa0"


@pytest.mark.parametrize("hello", [EARLIER_NODE, EARLIER_CLIENT], ids=["node", "client"])
def test_an_earlier_version_hears_that_it_is_one_and_the_node_goes_on(loop: NodeLoop, hello: bytes) -> None:
    loop.turn([Arrival("in-2", (memoryview(hello),))])
    [header] = loop._transport.sent["in-2"]
    tag, code, text, hint, *rest = msgspec.msgpack.decode(header)
    assert (tag, code) == ("refuse", "E_VERSION")
    assert text.startswith(f"speaks version 1, we speak {limits.PROTOCOL_VERSION}")
    assert "same version" in hint
    assert rest == ["", 0], "the fields that version 1 knew"
    assert loop.refused == 1
    loop.turn([said("b", HELLO)])
    assert state(loop) == "up"
