"""What hostile peers send, each in a process of its own, so that nobody else waits for the sender.

Everything is made before it says that it is ready: making a graph of 4 MiB takes longer than sending it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection

import pyarrow as pa
import zmq

import medusa as md
from bench.hostile_place import Place
from medusa.nodes.placement.placement import cut
from medusa.nodes.spec.fragment_spec import SPEC_BYTES_MAX, fragment_to
from medusa.query.codec import graph_to_msgpack
from medusa.wire import limits
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Deploy, Remove, Reply, StatusRequest
from medusa.wire.messages.directory import Lookup
from medusa.wire.messages.links import OLDEST, Attach, Heartbeat, Hello, OpenPublisher, Refuse
from medusa.wire.messages.remote import DefineRemote, KeepRemote
from medusa.wire.statement import client_name

MIB = 1 << 20
PARTS, TINY_PARTS, GRAPHS = 40_000, 30_000_000, 40
"""Ten times what stood when it was found: 4,000 parts of 1 MiB, 3,000,000 of one byte, 4 graphs."""

COLUMNS, BOXES = 200, 460
"""A graph of nearly 4 MiB that takes longest to check: wide boxes in a row."""

STORM = 1_000_000
"""Small messages at most, as fast as they go."""

STREAM = "h.o"
"""Of the honest client's query."""

Attack = Callable[[float], str]
"""Does it for about so many seconds and says how it went."""


def large_graph(name: str, boxes: int = BOXES) -> md.Query:
    """Each box names all columns, so each is looked up."""
    columns = [f"c{number}" for number in range(COLUMNS)]
    query = md.Query(name)
    rows = query.source("s", pa.schema([(each, pa.int64()) for each in columns]), time=None)
    for _ in range(boxes):
        rows = rows.select(*columns)
    query.sink("o", rows)
    return query


class Hostile:
    """A socket of ZeroMQ with a key of the node's, and what it heard."""

    def __init__(self, place: Place, key: str, *, node: str = "") -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, 8)
        own = place.key(key)
        own.lock(self.socket, server_key=place.public("a"))
        self.socket.connect(place.address("a"))
        self.heard: Counter[str] = Counter()
        name = node or client_name(own.public, "1")
        self.hello = Hello(
            version=limits.PROTOCOL_VERSION, node=name, incarnation=1, client=not node, answer=True
        )
        self.say(self.hello)

    def say(self, message: Message, payload: bytes | None = None) -> None:
        self.socket.send_multipart([bytes(part) for part in encode_frame(message, payload)])
        self.hear(0)

    def hear(self, timeout_ms: int) -> None:
        """All that has come, and at least one message within the time."""
        while self.socket.poll(timeout_ms):
            timeout_ms = 0
            message, _ = decode_frame([memoryview(each) for each in self.socket.recv_multipart()])
            if isinstance(message, Reply | Refuse):
                self.heard[message.code or "done"] += 1
            if isinstance(message, Hello | Heartbeat):
                self.socket.send_multipart([bytes(part) for part in encode_frame(Heartbeat(incarnation=1))])

    def close(self) -> None:
        self._context.destroy(linger=0)


@contextmanager
def _hostile(place: Place, key: str, *, node: str = "") -> Iterator[Hostile]:
    peer = Hostile(place, key, node=node)
    try:
        yield peer
    finally:
        peer.close()


def parts(place: Place, body: bytes, each: int, total: int, seconds: float) -> str:
    """Messages of so many parts, ``total`` parts in all, also after the connection was ended.

    ZeroMQ sends nothing of a message before its last part was given to it, so that one is given too. What is
    left of a message when the connection ends is dropped on the sender's side: the next message begins.
    """
    with _hostile(place, "nobody") as peer:
        monitor = peer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        sent, cuts, end = 0, 0, time.monotonic() + seconds
        while sent < total and time.monotonic() < end:
            if peer.socket.poll(100, zmq.POLLOUT):
                for _ in range(each - 1):  # Takes no copy of a large one.
                    peer.socket.send(body, zmq.SNDMORE, copy=False)
                peer.socket.send(body)
                sent += each
            while monitor.poll(0):
                monitor.recv_multipart()
                cuts += 1
        left = end - time.monotonic()
        while left > 0 and monitor.poll(int(1000 * left)):
            monitor.recv_multipart()
            cuts += 1
            left = end - time.monotonic()
        return f"{sent:,} parts given to ZeroMQ, connection ended {cuts} times"


def graphs(
    place: Place, key: str, make: Callable[[int], Message], payloads: list[bytes], seconds: float
) -> str:
    """So many graphs at once, and what the answers were."""
    node = "e" if key == "e" else ""
    with _hostile(place, key, node=node) as peer:
        for number in range(1, GRAPHS + 1):
            peer.say(make(number), payloads[number % len(payloads)])
        end = time.monotonic() + seconds
        while time.monotonic() < end and (node or peer.heard.total() < GRAPHS):
            peer.hear(100)
        told = ", ".join(f"{code} {count}" for code, count in sorted(peer.heard.items()))
        return f"{GRAPHS} graphs sent; heard {told or 'nothing'}"


def storm(
    place: Place,
    key: str,
    make: Callable[[int], Message],
    seconds: float,
    *,
    payload: Callable[[int], bytes | None] = lambda number: None,
    hears: bool = True,
) -> str:
    """One message after the other; with ``hears`` the answers are taken, else they pile up."""
    with _hostile(place, key, node="e" if key == "e" else "") as peer:
        sent, end = 0, time.monotonic() + seconds
        while sent < STORM and time.monotonic() < end:
            if not peer.socket.poll(100, zmq.POLLOUT):
                continue
            sent += 1
            frames = encode_frame(make(sent), payload(sent))
            peer.socket.send_multipart([bytes(part) for part in frames])
            if hears:
                peer.hear(0)
        told = ", ".join(f"{code} {count}" for code, count in sorted(peer.heard.items()))
        return f"{sent:,} messages; heard {told or 'nothing'}"


def connections(place: Place, seconds: float, *, key: str = "nobody", at_once: int = 200) -> str:
    """New connections all the time, each with a name of its own, so many at once."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.setsockopt(zmq.MAX_SOCKETS, 4 * at_once)
    own, made, end = place.key(key), 0, time.monotonic() + seconds
    open_: list[zmq.Socket[bytes]] = []
    while time.monotonic() < end:
        try:
            each = context.socket(zmq.DEALER)
        except zmq.ZMQError:  # As many as this process may have: ZeroMQ is still closing some.
            time.sleep(0.01)
            continue
        made += 1
        each.setsockopt(zmq.LINGER, 0)
        own.lock(each, server_key=place.public("a"))
        each.connect(place.address("a"))
        name = client_name(own.public, f"n{made}")
        hello = Hello(version=limits.PROTOCOL_VERSION, node=name, incarnation=1, client=True, answer=True)
        each.send_multipart([bytes(part) for part in encode_frame(hello)])
        open_.append(each)
        if len(open_) > at_once:
            open_.pop(0).close()
    context.destroy(linger=0)
    return f"{made:,} connections"


def small_graph(name: str) -> bytes:
    query = md.Query(name)
    rows = query.source("s", {"ts": "int64", "v": "int64"}, time="ts", unit="us")
    query.sink("o", rows.filter("v >= 0"))
    return graph_to_msgpack(query.graph)


def _churn(number: int) -> Message:
    """A query is deployed, then removed, and so on."""
    if number % 2:
        return Deploy(request=number, at=(("a", ("s",)),))
    return Remove(request=number, query=f"c{number - 1}")


LONG = "x" * limits.NAME_CHARS_MAX

KINDS = {
    "nothing": "nothing",
    "parts": f"A1: messages of 4,000 parts of 1 MiB, {PARTS:,} in all, a key without rights",
    "many": f"A1: messages of 3,000,000 parts of one byte, {TINY_PARTS:,} in all, a key without rights",
    "whole": f"A1: messages of 100,000 parts of one byte, {TINY_PARTS:,} in all, a key without rights",
    "refused": f"A3: {GRAPHS} DefineRemote of 4 MiB, a key without rights",
    "define": f"A3: {GRAPHS} DefineRemote of 4 MiB, a key that may deploy",
    "keep": f"A3: {GRAPHS} KeepRemote of 4 MiB, a node of another participant",
    "deploy": f"A3: {GRAPHS} Deploy of 4 MiB that run, a key that may deploy",
    "status": "status asked as fast as it goes, answers taken",
    "status-unread": "status asked as fast as it goes, answers left",
    "lookup": "names of 255 letters looked up as fast as it goes",
    "hello": "Hello with a new incarnation as fast as it goes",
    "attach": "streams with names of 255 letters attached to as fast as it goes",
    "named": "a named subscription that nobody reads, and another, as fast as it goes",
    "window": "a reader that grants 1 GiB and reads nothing",
    "offer": "streams with 1,000 columns offered as fast as it goes",
    "churn": "a small query deployed and removed as fast as it goes",
    "fill": "small queries deployed as fast as it goes",
    "connections": "new connections with one key as fast as they go",
}
"""Of each attack what it is."""


def prepared(place: Place, kind: str) -> Attack:
    """Make all that an attack sends."""
    at = (("a", ("s",)),)
    if kind == "nothing":
        return lambda seconds: time.sleep(seconds) or ""
    if kind in ("refused", "define", "keep"):
        query = large_graph("q")
        graph = graph_to_msgpack(query.graph)
        [spec] = cut(query.graph, {"a": ["s"]}).fragments
        kept = fragment_to(spec)
        assert 3.5 * MIB < len(graph) < len(kept) <= SPEC_BYTES_MAX, (len(graph), len(kept))
        if kind == "keep":
            return partial(
                graphs, place, "e", lambda number: KeepRemote(request=number, name=f"k{number}"), [kept]
            )

        def define(number: int) -> Message:
            return DefineRemote(
                request=number, name=f"d{number}", node="b", at=(("a", ("s",)), ("b", ("o",)))
            )

        return partial(graphs, place, "nobody" if kind == "refused" else "deployer", define, [graph])
    if kind == "deploy":
        payloads = [graph_to_msgpack(large_graph(f"w{number}").graph) for number in range(GRAPHS)]
        return partial(graphs, place, "deployer", lambda number: Deploy(request=number, at=at), payloads)
    simple: dict[str, Attack] = {
        "parts": partial(parts, place, bytes(MIB), 4_000, PARTS),
        "many": partial(parts, place, b"x", 3_000_000, TINY_PARTS),
        "whole": partial(parts, place, b"x", 100_000, TINY_PARTS),
        "status": partial(storm, place, "watcher", lambda n: StatusRequest(request=n)),
        "status-unread": partial(storm, place, "watcher", lambda n: StatusRequest(request=n), hears=False),
        "lookup": partial(
            storm, place, "watcher", lambda n: Lookup(request=n, name=f"{n}{LONG}"[:255], kind="stream")
        ),
        "hello": partial(_hellos, place),
        "attach": partial(
            storm,
            place,
            "reader",
            lambda n: Attach(
                stream=f"{n}{LONG}"[:255], epoch=n, next_seq=OLDEST, durable=0, granted=MIB, plain=True
            ),
        ),
        "named": partial(
            storm,
            place,
            "reader",
            lambda n: Attach(stream=STREAM, epoch=n, next_seq=0, durable=0, granted=MIB, name=f"n{n}"),
        ),
        "window": partial(_window, place),
        "offer": partial(
            storm,
            place,
            "writer",
            lambda n: OpenPublisher(
                stream=f"o{n}", schema=tuple((f"column{c}", "int64", True) for c in range(1000))
            ),
        ),
        "churn": partial(
            storm, place, "deployer", _churn, payload=lambda n: small_graph(f"c{n}") if n % 2 else None
        ),
        "fill": partial(
            storm,
            place,
            "deployer",
            lambda n: Deploy(request=n, at=at),
            payload=lambda n: small_graph(f"c{n}"),
        ),
        "connections": partial(connections, place),
    }
    return simple[kind]


def _hellos(place: Place, seconds: float) -> str:
    own = place.key("nobody")
    name = client_name(own.public, "1")
    return storm(
        place,
        "nobody",
        lambda n: Hello(
            version=limits.PROTOCOL_VERSION, node=name, incarnation=n + 1, client=True, answer=True
        ),
        seconds,
    )


def _window(place: Place, seconds: float) -> str:
    """Says that it is there, and takes nothing."""
    with _hostile(place, "reader") as peer:
        peer.hear(1000)
        for epoch in range(1, 4):
            attach = Attach(
                stream=STREAM, epoch=epoch, next_seq=OLDEST, durable=0, granted=1 << 30, plain=True
            )
            end = time.monotonic() + seconds / 3
            _if_it_may(peer, attach)
            while time.monotonic() < end:
                time.sleep(0.1)
                _if_it_may(peer, Heartbeat(incarnation=1))
        return "three attachments"


def _if_it_may(peer: Hostile, message: Message) -> None:
    """A node that has put it out takes nothing more, and what is sent then would wait for ever."""
    if peer.socket.poll(0, zmq.POLLOUT):
        peer.socket.send_multipart([bytes(part) for part in encode_frame(message)])


def run(place: Place, kind: str, pipe: Connection) -> None:
    """In a process of its own: make it, say so, and do it for as many seconds as are then said."""
    attack = prepared(place, kind)
    pipe.send("ready")
    pipe.send(attack(pipe.recv()))
