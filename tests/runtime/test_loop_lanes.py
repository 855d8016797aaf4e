"""The driver of a node and connections for streams: whose they are, and what their end means."""

from __future__ import annotations

from typing import Any

import pytest

from medusa.nodes.config.settings import parse
from medusa.nodes.node import NodeMind
from medusa.ports import Buffer
from medusa.runtime.node.graph_parser import GraphParser
from medusa.runtime.node.loop import NodeLoop
from medusa.runtime.transport.link_events import LinkDown, LinkUp
from medusa.testing import ManualClock
from medusa.wire import limits
from medusa.wire.codec import decode_header
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages import Message
from medusa.wire.messages.links import Ack, Attached, Boundary, Data, Heartbeat, Hello, Progress, Refuse
from medusa.wire.outbox import Send
from tests.runtime.test_loop import CONFIG, HELLO, Host, Links, said, state

LANE = Hello(version=limits.PROTOCOL_VERSION, node="b", incarnation=3, lane=1)


class Recorded(Links):
    """Keeps what is sent, introduced and cut."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message, dict[str, Any]]] = []
        self.introduced: list[tuple[str, int, Message]] = []
        self.ended: list[tuple[str, bool]] = []

    def send(self, link: str, frames: list[Buffer], **how: Any) -> None:
        self.sent.append((link, decode_header(frames[0]), how))

    def introduce(self, link: str, lane: int, frames: list[Buffer]) -> None:
        self.introduced.append((link, lane, decode_header(frames[0])))

    def cut(self, link: str, *, shun: bool = True) -> None:
        self.ended.append((link, shun))


@pytest.fixture
def links() -> Recorded:
    return Recorded()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def loop(links: Recorded, clock: ManualClock) -> NodeLoop:
    config = parse(CONFIG + '[streams."heavy.*"]\nweight = 4\n')
    made = NodeLoop(
        NodeMind(config, incarnation=7),
        links,
        Host(),
        clock,
        parser=GraphParser(wake=lambda: None),
        say=lambda report: None,
    )
    made.begin()
    made.turn([LinkUp("b"), said("b", HELLO), said("in-1", HELLO), said("in-2", LANE)])
    assert state(made) == "up"
    links.sent.clear()
    return made


def test_a_connection_for_streams_is_introduced_before_it_carries_any(
    loop: NodeLoop, links: Recorded
) -> None:
    loop.turn([LinkUp("b", 2)])
    [(link, lane, hello)] = links.introduced
    assert (link, lane) == ("b", 2)
    assert hello == Hello(version=limits.PROTOCOL_VERSION, node="a", incarnation=7, lane=2)


def test_what_comes_by_it_does_not_say_that_the_peer_is_there(
    loop: NodeLoop, links: Recorded, clock: ManualClock
) -> None:
    for _ in range(12):
        clock.advance(100_000)
        loop.turn(
            [said("in-2", Heartbeat(incarnation=3)), said("in-2", Progress(stream="s", epoch=1, frames=1))]
        )
    assert state(loop) == "silent"
    loop.turn([said("in-2", LANE), said("in-2", Heartbeat(incarnation=3))])
    assert state(loop) == "silent"
    loop.turn([said("in-1", Heartbeat(incarnation=3))])
    assert state(loop) == "up"


@pytest.mark.parametrize("end", [LinkDown("in-2"), LinkDown("b", 1)])
def test_its_end_is_not_the_end_of_the_link(loop: NodeLoop, end: LinkDown) -> None:
    loop.turn([end])
    assert state(loop) == "up"


def test_a_newer_one_of_the_same_number_takes_its_place(loop: NodeLoop, links: Recorded) -> None:
    loop.turn([said("in-3", LANE)])
    assert links.ended == [("in-2", True)]
    loop.turn([said("in-4", Hello(version=PROTOCOL_VERSION, node="b", incarnation=3, lane=2))])
    assert links.ended == [("in-2", True)]
    loop.turn([said("in-5", HELLO)])
    assert links.ended == [("in-2", True), ("in-1", True)]
    assert loop.refused == 0


@pytest.mark.parametrize(
    ("link", "hello"),
    [
        ("in-2", HELLO),
        ("in-1", LANE),
        ("in-2", Hello(version=PROTOCOL_VERSION, node="b", incarnation=3, lane=2)),
        ("in-9", Hello(version=PROTOCOL_VERSION, node="x", incarnation=3, lane=1)),
        ("in-9", Hello(version=PROTOCOL_VERSION, node="c1", incarnation=3, lane=1, client=True)),
        ("in-9", Hello(version=99, node="b", incarnation=3, lane=1)),
    ],
)
def test_who_may_not_have_one_is_told_and_cut(
    loop: NodeLoop, links: Recorded, link: str, hello: Hello
) -> None:
    loop.turn([said(link, hello)])
    assert loop.refused == 1
    assert (link, True) in links.ended
    [refusal] = {m.code for at, m, _ in links.sent if at == link and isinstance(m, Refuse)}
    assert refusal in ("E_IDENTITY", "E_ROLE", "E_VERSION")


def test_who_breaks_a_rule_there_loses_the_whole_link(loop: NodeLoop, links: Recorded) -> None:
    loop.turn([said("in-2", Hello(version=PROTOCOL_VERSION, node="c", incarnation=3))])
    assert links.ended == [("in-1", True), ("in-2", True)]
    assert state(loop) == "silent"


def test_each_message_goes_where_it_belongs(loop: NodeLoop, links: Recorded) -> None:
    outbox = loop._brain.outbox
    bound = [
        (Attached(stream="heavy.s", epoch=1, next_seq=0, boundary_us=0, schema=(), timed=False), 0),
        (Data(stream="heavy.s", epoch=1, frame=5, seq=0, rows=1), 5),
        (Boundary(stream="light.s", epoch=1, frame=6, seq=0, time_us=0), 6),
        (Progress(stream="light.s", epoch=1, frames=3), None),
        (Refuse(code="E_DETACHED", text="", stream="light.s"), 0),
    ]
    free = [
        Heartbeat(incarnation=1),
        Ack(stream="heavy.s", epoch=1, frames=1, received=0, durable=0, granted=0),
        Refuse(code="E_FRAME", text=""),
    ]
    for message in [message for message, _ in bound] + free:
        payload = b"x" if isinstance(message, Data) else None
        outbox.append(Send(peer="b", message=message, payload=payload))
    loop.turn([said("in-1", Heartbeat(incarnation=3))])
    how = {"heavy.s": 4, "light.s": 1}
    assert [sent for sent in links.sent if sent[1] in [m for m, _ in bound]] == [
        ("b", message, {"stream": message.stream, "weight": how[message.stream], "frame": frame})
        for message, frame in bound
    ]
    assert [sent for sent in links.sent if sent[1] in free] == [("b", message, {}) for message in free]
