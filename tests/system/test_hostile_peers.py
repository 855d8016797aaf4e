"""Peers with a key that is let in send graphs as fast as they can: the others are served meanwhile."""

from __future__ import annotations

import contextlib
import threading

import pytest
import zmq

import medusa as md
from medusa.mind import parsing
from medusa.mind.placement import cut
from medusa.mind.spec import fragment_to
from medusa.query.codec import graph_to_msgpack
from medusa.runtime.keys import CurveKey, read_curve_key, read_public, write_key
from medusa.wire import limits
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages import Heartbeat, Hello, Reply
from medusa.wire.messages_remote import DefineRemote, KeepRemote
from medusa.wire.statement import client_name
from tests.system.nodes import until
from tests.system.test_two_owners import Owners

pytestmark = pytest.mark.system

GRAPHS = 20
COLUMNS = [f"c{number}" for number in range(100)]
AT = (("core", ("s",)), ("far", ("o",)))


def large(nbytes):
    """A graph of at least so many bytes: boxes that name all columns."""
    q = md.Query("large")
    rows = q.source("s", dict.fromkeys(COLUMNS, "int64"), time=None)
    while len(graph_to_msgpack(q.graph)) < nbytes:
        rows = rows.select(*COLUMNS)
    q.sink("o", rows)
    return q.graph


@pytest.fixture(scope="module")
def graph():
    return large(20 * parsing.LOOP_BYTES_MAX)


class WithGuests(Owners):
    """Core has two clients more: one that may deploy, one that may nothing."""

    def __init__(self, folder):
        for name in ("deployer", "nobody"):
            write_key(folder / f"{name}.key", "client", CurveKey.new())
        super().__init__(folder)

    def text(self, node):
        found = super().text(node)
        for name, rules in (("deployer", 'deploy = ["*"]\n'), ("nobody", "")) if node == "core" else ():
            found += f'[clients.{name}]\nkey = "{self.public(name)}"\n{rules}'
        return found

    def public(self, name):
        return read_public(self.folder / f"{name}.pub")


@pytest.fixture
def owners(tmp_path):
    made = WithGuests(tmp_path)
    made.start("core", "far")
    yield made
    made.close()


class Hostile:
    """A socket of ZeroMQ with a key that core lets in; it says what it likes."""

    def __init__(self, owners, key, node=""):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        own = read_curve_key(owners.folder / f"{key}.key")
        own.lock(self.socket, server_key=owners.public("core"))
        self.socket.connect(owners.addresses["core"])
        self.codes = []
        name = node or client_name(own.public, "1")
        hello = Hello(version=limits.PROTOCOL_VERSION, node=name, incarnation=1, client=not node, answer=True)
        self.say(hello)

    def say(self, message, payload=None):
        self.socket.send_multipart([bytes(part) for part in encode_frame(message, payload)])
        self.hear()

    def hear(self, timeout_ms=0):
        while self.socket.poll(timeout_ms):
            message, _ = decode_frame([memoryview(part) for part in self.socket.recv_multipart()])
            if isinstance(message, Reply):
                self.codes.append(message.code)
            elif isinstance(message, Hello | Heartbeat):
                answer = encode_frame(Heartbeat(incarnation=1))
                self.socket.send_multipart([bytes(part) for part in answer])

    def answered(self, count):
        self.hear(100)
        return len(self.codes) >= count

    @contextlib.contextmanager
    def listening(self):
        """Hear what comes, and so stay there, while the caller does other things."""
        over = threading.Event()

        def listen():
            while not over.is_set():
                self.hear(50)

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def close(self):
        self.context.destroy(linger=0)


@pytest.fixture
def hostile(owners):
    made = []

    def make(*arguments):
        made.append(Hostile(owners, *arguments))
        return made[-1]

    yield make
    for each in made:
        each.close()


def define(number):
    return DefineRemote(request=number, name=f"d{number}", node="far", at=AT)


def served(owners):
    """An honest client of core deploys, publishes, reads and undeploys."""
    q = md.Query("honest")
    q.sink("out", q.source("rows", {"ts": "int64"}, time="ts", unit="us").filter("ts >= 0"))
    with owners.connect("core") as fed:
        fed.deploy(q, at={"core": ["rows"]})
        fed.publish("honest.rows", {"ts": list(range(100))})
        with fed.subscribe("honest.out", from_="oldest") as trains:
            rows = 0
            while rows < 100:
                rows += trains.next("60s").batch.num_rows
        fed.flush()
        fed.undeploy("honest")
        return fed.status()


def nobody_was_silent(owners):
    return "peer down" not in owners.log("core") + owners.log("far")


def test_graphs_of_a_client_without_the_right_to_deploy_are_not_read(owners, hostile, graph):
    peer, document = hostile("nobody"), graph_to_msgpack(graph)
    for number in range(1, GRAPHS + 1):
        peer.say(define(number), document)
    assert served(owners)["parsing"] == {"graphs": 0, "bytes": 0}
    until(lambda: peer.answered(GRAPHS), what="every graph is answered")
    assert peer.codes == ["E_ROLE"] * GRAPHS
    assert nobody_was_silent(owners)


def test_a_flood_of_graphs_is_bounded_and_the_others_are_served_meanwhile(owners, hostile, graph):
    peer, document = hostile("deployer"), graph_to_msgpack(graph)
    most = parsing.CALLER_BYTES_MAX // len(document)
    count = most + GRAPHS
    for number in range(1, count + 1):
        peer.say(define(number), document)
    with peer.listening():
        served(owners)
        until(lambda: len(peer.codes) >= count, what="every graph is answered", deadline_s=300.0)
    assert "E_BUSY" in peer.codes
    assert len(peer.codes) == count
    assert nobody_was_silent(owners)


def test_a_node_to_which_nothing_is_offered_has_nothing_read(owners, hostile, graph):
    """Carol's node far is alive; another socket with its key speaks as it."""
    owners.stop("far")
    [spec] = cut(graph, {"core": ["s"]}).fragments
    peer = hostile("far", "far")
    for number in range(1, GRAPHS + 1):
        peer.say(KeepRemote(request=number, name=f"k{number}"), fragment_to(spec))
    status = served(owners)
    until(lambda: served(owners)["refused"].get("E_OFFER", 0) == GRAPHS, what="each is refused")
    assert status["parsing"] == {"graphs": 0, "bytes": 0}
    assert status["remote"]["kept"] == {}
