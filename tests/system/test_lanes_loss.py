"""Streams pinned to connections of their own: what one connection suffers, no stream of another feels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import medusa as md
from medusa.apps.workloads.network.net import Net
from medusa.wire.link.lanes import lane_of
from tests.system.network import needs_network
from tests.system.nodes import DEADLINE_S, until
from tests.system.test_partitions import Keyed

pytestmark = pytest.mark.system

LANES = 3
TRAIN_ROWS = 200
TRIES = 5


def names() -> list[str]:
    """One stream for each connection."""
    found: dict[int, str] = {}
    for number in range(100):
        name = f"s{number}"
        found.setdefault(lane_of(f"pinned.at_a_{name}", LANES), name)
    return [found[lane] for lane in range(1, LANES + 1)]


def query(streams: list[str]) -> md.Query:
    q = md.Query("pinned")
    for name in streams:
        rows = q.source(name, {"n": "int64", "ts": "timestamp"}, time="ts")
        q.sink(
            f"out_{name}", rows.filter("n >= 0", name=f"at_a_{name}").filter("n >= 0", name=f"at_b_{name}")
        )
    return q


class Streams:
    """Numbered rows on each stream from a to b; whoever is told to, goes on without a pause."""

    def __init__(self, nodes: Keyed, streams: list[str]) -> None:
        self.sent = dict.fromkeys(streams, 0)
        self.got = dict.fromkeys(streams, 0)
        self._nodes = nodes
        self._over = threading.Event()
        self._failed: list[BaseException] = []
        self._pub = nodes.connect("pub", "a")
        self._reader = nodes.connect("reader", "b")
        self._pub.deploy(query(streams), at=places(streams))
        works: list[Callable[[], None]] = [lambda name=name: self._read(name) for name in streams]
        self._readers = [threading.Thread(target=self._guard, args=(work,), daemon=True) for work in works]
        self._sender: threading.Thread | None = None
        for thread in self._readers:
            thread.start()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # told to the test by `arrived`
            self._failed.append(error)

    def publish(self, name: str) -> None:
        n = np.arange(self.sent[name], self.sent[name] + TRAIN_ROWS)
        self._pub.publish(f"pinned.{name}", {"n": n, "ts": n.astype("datetime64[us]")})
        self.sent[name] += TRAIN_ROWS

    def begin(self) -> None:
        """Publish on all streams without a pause."""
        self._over.clear()
        self._sender = threading.Thread(target=self._guard, args=(self._send,), daemon=True)
        self._sender.start()

    def _send(self) -> None:
        while not self._over.wait(0.01):
            for name in self.sent:
                self.publish(name)

    def pause(self) -> None:
        self._over.set()
        self._sender.join(DEADLINE_S)
        assert not self._sender.is_alive()

    def _read(self, name: str) -> None:
        with self._reader.subscribe(f"pinned.out_{name}", from_="oldest") as trains:
            for train in trains:
                values = train.batch.column("n").to_pylist()
                assert values == list(range(self.got[name], self.got[name] + len(values)))
                self.got[name] += len(values)
            assert trains.lost_rows == 0

    def arrived(self, *streams: str, trains: int = 0) -> None:
        """Wait until all that was sent by now on these, and so many trains more, have arrived."""
        goals = {name: self.sent[name] + trains * TRAIN_ROWS for name in streams}

        def there() -> bool:
            if self._failed:
                raise self._failed[0]
            return all(self.got[name] >= goals[name] for name in streams)

        until(there, what=f"{goals}, {self.got} arrived")

    def attachments(self) -> dict[str, int]:
        """How often each stream was attached at b, and what was lost there."""
        with self._nodes.connect("pub", "b") as fed:
            inputs = [each for part in fed.status()["fragments"] for each in part["inputs"]]
        assert not any(each["lost_rows"] for each in inputs)
        return {each["stream"].rpartition("_")[2]: each["attachments"] for each in inputs}

    def end(self) -> None:
        """Everything has arrived, once and in order."""
        for name in self.sent:
            self._pub.finish(f"pinned.{name}")
        self._pub.flush(f"{DEADLINE_S:.0f}s")
        for thread in self._readers:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), (self.sent, self.got)
        if self._failed:
            raise self._failed[0]
        assert self.got == self.sent

    def close(self) -> None:
        self._pub.close()
        self._reader.close()


def places(streams: list[str]) -> dict[str, list[str]]:
    at_a = [box for name in streams for box in (name, f"at_a_{name}")]
    return {"a": at_a, "b": [box for name in streams for box in (f"at_b_{name}", f"out_{name}")]}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    needs_network()
    with Net(["a", "b", "pub", "reader"], seed=5) as net:
        links = f"[links]\nconnections = {LANES}\n"
        made = Keyed(net, tmp_path_factory.mktemp("lanes"), nodes=("a", "b"), more=links)
        try:
            yield made
        finally:
            made.close()


def connections_of(nodes: Keyed, streams: Streams) -> dict[str, tuple[int, int]]:
    """The ports of the connection that carries each stream: the one that its rows make busy."""
    found = {}
    for name in streams.sent:
        before = nodes.net.flows("a", "b")
        for _ in range(20):
            streams.publish(name)
        streams.arrived(name)
        grown = {ports: count - before.get(ports, 0) for ports, count in nodes.net.flows("a", "b").items()}
        found[name] = max(grown, key=grown.__getitem__)
    return found


def missed(nodes: Keyed) -> list[int]:
    """How often each has said that the other one is down."""
    return [nodes.log(name).count(" peer down ") for name in ("a", "b")]


def harm(nodes: Keyed, streams: Streams, bad: str, good: list[str]) -> dict[str, int] | None:
    """Lose packets of one connection, then all of them; how often each stream attached anew. None: the
    link as a whole was lost, as on a busy machine, where the test network itself comes late."""
    known = missed(nodes)
    connections, before = connections_of(nodes, streams), streams.attachments()
    assert len(set(connections.values())) == LANES
    streams.begin()
    nodes.net.set_flow("a", "b", connections[bad], loss=300)
    for _ in range(5):
        streams.arrived(*good, trains=5)
    nodes.net.set_flow("a", "b", connections[bad], loss=0, cut=True)
    streams.arrived(*good, trains=20)
    streams.arrived(bad, trains=5)
    streams.pause()
    streams.arrived(bad, *good)
    after, now = streams.attachments(), connections_of(nodes, streams)
    if any(now[name] != connections[name] for name in good) or missed(nodes) != known:
        return None
    return {name: after[name] - before[name] for name in after}


def test_a_bad_connection_harms_no_stream_of_another(nodes: Keyed) -> None:
    bad, *good = names()
    streams = Streams(nodes, [bad, *good])
    try:
        tried = iter(range(TRIES))
        while (anew := harm(nodes, streams, bad, good)) is None:
            assert next(tried, None) is not None, "the link is lost whenever one of its connections is"
        assert {name: anew[name] for name in good} == dict.fromkeys(good, 0)
        assert anew[bad] > 0  # its connection was replaced
        streams.end()
    finally:
        streams.close()
