"""Peers with a key that is let in send graphs as fast as they can: the others are served meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import threading

import pytest
import zmq

import medusa as md
from medusa.nodes.deploy import background_parsing
from medusa.nodes.fragment.subscribers import OWNER_PER_STREAM
from medusa.nodes.placement.placement import cut
from medusa.nodes.security.sessions import CLIENTS_PER_KEY
from medusa.nodes.spec.fragment_spec import fragment_to
from medusa.query.codec import graph_to_msgpack
from medusa.runtime.keys.key_files import CurveKey, read_curve_key, read_public, write_key
from medusa.wire import limits
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages.commands import Deploy, Reply, StatusRequest
from medusa.wire.messages.directory import Lookup
from medusa.wire.messages.links import OLDEST, Attach, Heartbeat, Hello, Refuse
from medusa.wire.messages.remote import DefineRemote, KeepRemote
from medusa.wire.statement import client_name
from tests.system.nodes import until
from tests.system.test_two_owners import Owners

pytestmark = pytest.mark.system

GRAPHS = 20
TRIES = 5
SUFFIXES = map(str, itertools.count(1))
"""Of the names of clients: each is another one."""

COLUMNS = [f"c{number}" for number in range(100)]
GUESTS = {
    "deployer": 'deploy = ["*"]',
    "nobody": "",
    "watcher": "status = true",
    "reader": 'subscribe = ["*"]',
}
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
    return large(20 * background_parsing.LOOP_BYTES_MAX)


class WithGuests(Owners):
    """Core has clients more, who may do one thing or nothing."""

    def __init__(self, folder):
        for name in GUESTS:
            write_key(folder / f"{name}.key", "client", CurveKey.new())
        super().__init__(folder)

    def text(self, node):
        found = super().text(node)
        for name, rules in GUESTS.items() if node == "core" else ():
            found += f'[clients.{name}]\nkey = "{self.public(name)}"\n{rules}\n'
        return found

    def public(self, name):
        return read_public(self.folder / f"{name}.pub")


@pytest.fixture
def owners(tmp_path):
    made = WithGuests(tmp_path)
    made.start("core", "far")
    yield made
    for node in ("core", "far"):
        print(f"--- the log of {node} ends with\n{made.log(node)[-4000:]}")
    made.close()


class Hostile:
    """A socket of ZeroMQ with a key that core lets in; it says what it likes."""

    def __init__(self, owners, key, node="", suffix="1"):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        own = read_curve_key(owners.folder / f"{key}.key")
        own.lock(self.socket, server_key=owners.public("core"))
        self.socket.connect(owners.addresses["core"])
        self.codes = []
        self.welcomed = False
        self.name = node or client_name(own.public, suffix)
        self.hello = Hello(
            version=limits.PROTOCOL_VERSION, node=self.name, incarnation=1, client=not node, answer=True
        )
        self.say(self.hello)

    def say(self, message, payload=None):
        self.socket.send_multipart([bytes(part) for part in encode_frame(message, payload)])
        self.hear()

    def hear(self, timeout_ms=0):
        while self.socket.poll(timeout_ms):
            timeout_ms = 0
            message, _ = decode_frame([memoryview(part) for part in self.socket.recv_multipart()])
            self.welcomed |= isinstance(message, Hello)
            if isinstance(message, Reply | Refuse):
                self.codes.append(message.code)
            elif isinstance(message, Hello | Heartbeat):
                answer = encode_frame(Heartbeat(incarnation=1))
                self.socket.send_multipart([bytes(part) for part in answer])

    def let_in(self):
        """Says ``Hello`` again until it is answered, as callers do; a client hears it by this connection."""

        def welcomed():
            if not self.answered(1) and not self.welcomed:
                self.say(self.hello)
            return self.welcomed

        until(welcomed, what="it is let in")
        return self

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

    def make(*arguments, **options):
        made.append(Hostile(owners, *arguments, **options))
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


def nobody_is_silent(owners, attack):
    """Attack again and again until no node counts another as silent meanwhile: a busy machine lets a node
    stand still now and then, an attack that can do so does each time."""
    for _ in range(TRIES):
        before = times_silent(owners)
        attack()
        if times_silent(owners) == before:
            return
    raise AssertionError(f"a node was silent in each of {TRIES} attacks")


def times_silent(owners):
    return sum(owners.log(node).count("peer down") for node in ("core", "far"))


def test_graphs_of_a_client_without_the_right_to_deploy_are_not_read(owners, hostile, graph):
    document = graph_to_msgpack(graph)

    def attack():
        peer = hostile("nobody", suffix=next(SUFFIXES))
        for number in range(1, GRAPHS + 1):
            peer.say(define(number), document)
        with peer.listening():
            assert served(owners)["parsing"] == {"graphs": 0, "bytes": 0}
            until(lambda: len(peer.codes) >= GRAPHS, what="every graph is answered")
        assert peer.codes == ["E_ROLE"] * GRAPHS

    nobody_is_silent(owners, attack)


def test_a_flood_of_graphs_is_bounded_and_the_others_are_served_meanwhile(owners, hostile, graph):
    document = graph_to_msgpack(graph)
    most = background_parsing.CALLER_BYTES_MAX // len(document)
    count = most + GRAPHS

    def attack():
        peer = hostile("deployer", suffix=next(SUFFIXES))
        for number in range(1, count + 1):
            peer.say(define(number), document)
        with peer.listening():
            served(owners)
            until(lambda: len(peer.codes) >= count, what="every graph is answered", deadline_s=300.0)
        assert "E_BUSY" in peer.codes
        assert len(peer.codes) == count

    nobody_is_silent(owners, attack)


def test_a_node_to_which_nothing_is_offered_has_nothing_read(owners, hostile, graph):
    """Carol's node far is alive; another socket with its key speaks as it."""
    owners.stop("far")
    [spec] = cut(graph, {"core": ["s"]}).fragments
    peer = hostile("far", "far")
    for number in range(1, GRAPHS + 1):
        peer.say(KeepRemote(request=number, name=f"k{number}"), fragment_to(spec))
    with peer.listening():
        status = served(owners)
        until(lambda: served(owners)["refused"].get("E_OFFER", 0) == GRAPHS, what="each is refused")
    assert status["parsing"] == {"graphs": 0, "bytes": 0}
    assert status["remote"]["kept"] == {}


# --- small messages, ever more of them --------------------------------------------------------------

LONG = "x" * limits.NAME_CHARS_MAX


def long_name(number):
    return f"{number}{LONG}"[: limits.NAME_CHARS_MAX]


def attach(number, **fields):
    return Attach(**{"epoch": number, "next_seq": OLDEST, "durable": 0, "granted": 1 << 20} | fields)


def life(number, peer):
    return Hello(
        version=limits.PROTOCOL_VERSION, node=peer.name, incarnation=number + 1, client=True, answer=True
    )


STORMS = {
    "status": ("watcher", lambda number, peer: StatusRequest(request=number)),
    "lookup": ("watcher", lambda number, peer: Lookup(request=number, name=long_name(number))),
    "lives": ("nobody", life),
    "attach": ("reader", lambda number, peer: attach(number, stream=long_name(number), plain=True)),
}


@pytest.mark.parametrize("kind", STORMS)
def test_whatever_small_messages_storm_in_the_others_are_served_meanwhile(owners, hostile, kind):
    key, make = STORMS[kind]

    def attack():
        peer = hostile(key, suffix=next(SUFFIXES)).let_in()
        sent, over = [0], threading.Event()

        def send():
            while not over.is_set():
                sent[0] += 1
                peer.say(make(sent[0], peer))

        thread = threading.Thread(target=send)
        thread.start()
        try:
            until(lambda: sent[0] > 100, what="the storm has begun")
            served(owners)
            between = sent[0]
            served(owners)
            # ZeroMQ takes hundreds at once, or none for as long as these are under way.
            until(lambda: sent[0] > between, what="it goes on")
        finally:
            over.set()
            thread.join()

    nobody_is_silent(owners, attack)


def test_one_client_does_not_fill_the_queue_of_deployments(owners, hostile):
    peer = hostile("deployer").let_in()
    for number in range(1, 201):
        q = md.Query(f"tiny{number}")
        q.sink("out", q.source("rows", {"ts": "int64"}, time="ts", unit="us").filter("ts >= 0"))
        peer.say(Deploy(request=number, at=(("core", ("rows",)),)), graph_to_msgpack(q.graph))
    with peer.listening():
        served(owners)
        until(lambda: len(peer.codes) >= 200, what="every deployment is answered", deadline_s=300.0)
    assert set(peer.codes) == {"", "E_BUSY"}
    with owners.connect("core") as fed:
        assert len(fed.status()["fragments"]) == peer.codes.count("")


def test_one_client_does_not_take_all_names_of_a_stream(owners, hostile):
    q = md.Query("named")
    q.sink("out", q.source("rows", {"ts": "int64"}, time="ts", unit="us").filter("ts >= 0"))
    with owners.connect("core") as fed:
        fed.deploy(q, at={"core": ["rows"]})
        peer = hostile("reader").let_in()
        for number in range(1, OWNER_PER_STREAM + 101):
            peer.say(attach(number, stream="named.out", name=f"n{number}", next_seq=0))
        # Not all of it is heard: what waits of a stream is dropped where another attachment of it begins.
        with peer.listening():
            until(
                lambda: fed.status()["refused"].get("E_LIMIT") == 100,
                what="names beyond the bound are refused",
            )
        assert set(peer.codes) == {"E_LIMIT"}
        with fed.subscribe("named.out", from_="oldest", durable="report") as trains:
            fed.publish("named.rows", {"ts": list(range(10))})
            rows = 0
            while rows < 10:
                rows += trains.next("60s").batch.num_rows


def test_a_reader_that_grants_a_gibibyte_and_takes_nothing_is_cut_off_alone(owners, hostile):
    q = md.Query("wide")
    q.sink("out", q.source("rows", {"ts": "int64", "v": "utf8"}, time="ts", unit="us").filter("ts >= 0"))
    with owners.connect("core") as fed:
        fed.deploy(q, at={"core": ["rows"]})
        peer = hostile("reader").let_in()
        peer.say(attach(1, stream="wide.out", plain=True, granted=1 << 40))
        with fed.subscribe("wide.out", from_="oldest") as trains:
            text, rows, count = "x" * 10_000, 0, 60
            for number in range(count):
                fed.publish(
                    "wide.rows", {"ts": list(range(100 * number, 100 * (number + 1))), "v": [text] * 100}
                )
                while rows < 100 * (number + 1):
                    rows += trains.next("60s").batch.num_rows
        assert rows == 100 * count


def test_programs_of_one_key_have_a_bound_and_those_that_are_there_go_on(owners, hostile):
    first = hostile("nobody", suffix="first").let_in()

    def crowded():
        """How many of a crowd are refused, and how many let in; more than may be where some stood still until
        they counted as gone, as on a busy machine."""
        crowd = [hostile("nobody", suffix=next(SUFFIXES)) for _ in range(CLIENTS_PER_KEY + 20)]

        def heard():
            for each in (first, *crowd):
                each.hear()
            return sum(each.welcomed or bool(each.codes) for each in crowd) == len(crowd)

        until(heard, what="each is let in or refused")
        found = [each.codes for each in crowd].count(["E_LIMIT"]), sum(each.welcomed for each in crowd)
        for each in crowd:
            each.close()
        return found

    tries = iter(range(TRIES))
    while crowded() != (21, CLIENTS_PER_KEY - 1):
        assert next(tries, None) is not None, "more were let in than may be, or fewer, each time"
    served(owners)
    before = len(first.codes)
    first.say(StatusRequest(request=1))
    until(lambda: first.answered(before + 1), what="the first one is still heard")
    assert first.codes[before:] == ["E_ROLE"]
