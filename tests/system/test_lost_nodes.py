"""The node that clients use is gone for good: they go on with another one, and no row is lost or doubled."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

import medusa as md
from medusa.errors import LinkError
from tests.system.nodes import DEADLINE_S, ForkedNodes, ordered, until
from tests.system.walls import Wall

pytestmark = pytest.mark.system

LIMITS = 'checkpoint_every = "100ms"'
PUBLISHERS = 2
TRIES = 5
FIRST = 1 << 40
"""The first row of the second publisher."""


@pytest.fixture
def nodes(tmp_path):
    made = ForkedNodes(tmp_path, ["a", "b", "c"], limits=LIMITS)
    made.start()
    yield made
    made.close()


def query() -> md.Query:
    """The same rows for either reader: what one with a name has acknowledged is not kept for one without,
    of which the new node knows only when it comes."""
    q = md.Query("q")
    some = q.source("rows", {"n": "int64"}, time=None).filter("n >= 0", name="some")
    q.sink("out", some)
    q.sink("kept", some)
    return q


class Clients:
    """A publisher and a reader without a name, and one of each with a name; each goes on until the end.

    Args:
        address: of the node to which all of them connect.
    """

    def __init__(self, address: str, held: contextlib.ExitStack) -> None:
        self.fed = held.enter_context(contextlib.closing(md.connect(address, timeout="60s")))
        self.second = held.enter_context(contextlib.closing(md.connect(address, timeout="60s")))
        self.named = self.fed.publisher("q.rows", durable="feed")
        self.readers = [
            self.fed.subscribe("q.out", from_="oldest"),
            self.second.subscribe("q.kept", from_="oldest", durable="results"),
        ]
        self.published = [0] * PUBLISHERS
        self.got: list[list[int]] = [[], []]
        self.failed: list[BaseException] = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._runs, args=(action, number))
            for action in (self._publish, self._read)
            for number in range(2)
        ]
        for each in self._threads:
            each.start()

    def _runs(self, action, number: int) -> None:
        try:
            action(number)
        except BaseException as error:
            self.failed.append(error)

    def _publish(self, number: int) -> None:
        give = (lambda rows: self.fed.publish("q.rows", rows), self.named.publish)[number]
        while not self._over.wait(0.002):
            begin = FIRST * number + self.published[number]
            give({"n": list(range(begin, begin + 10))})
            self.published[number] += 10
        (lambda: self.fed.finish("q.rows"), self.named.finish)[number]()

    def _read(self, number: int) -> None:
        reader = self.readers[number]
        for train in reader:
            self.got[number] += train.batch.column("n").to_pylist()
            if reader.durable:
                reader.ack(train.first_seq + len(train))

    def go_on(self) -> None:
        """Until all of them have got further by some rows."""
        before = [*self.published, *map(len, self.got)]
        until(
            lambda: (
                self.failed or all(at > then + 100 for at, then in zip(self.places(), before, strict=True))
            ),
            what="all go on",
        )
        assert self.failed == []

    def places(self) -> list[int]:
        return [*self.published, *map(len, self.got)]

    def go_by(self, node: str) -> bool:
        """Whether all of them go by this node."""
        streams = [*self.readers, self.fed._publishing._publishers["q.rows"], self.named.publisher]
        return all(each.loop.node == node for each in streams)

    def end(self) -> None:
        """They end, and all is as it should be."""
        self._over.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        assert self.failed == []
        self.fed.flush("60s")
        assert self.named.durable_row == self.published[1]
        for reader, got in zip(self.readers, self.got, strict=True):
            assert reader.lost_rows == 0, (reader.durable, reader.lost_rows)
            for number, count in enumerate(self.published):
                of_one = [n for n in got if n >= FIRST] if number else [n for n in got if n < FIRST]
                assert of_one == list(range(FIRST * number, FIRST * number + count))
        assert sorted(self.got[0]) == sorted(self.got[1])


def lose(nodes: ForkedNodes, clients: Clients) -> float:
    """``a`` is gone; how long until all clients go by ``b``."""
    nodes.kill("a")
    killed_s = time.monotonic()
    until(lambda: clients.failed or clients.go_by("b"), what="all clients go by b")
    return time.monotonic() - killed_s


def test_a_stream_that_moved_unheard_is_found_by_way_of_another_node(nodes):
    """Their node doesn't get through to them any more, moves what they use, and is killed."""
    with contextlib.ExitStack() as held:
        wall = Wall(nodes.folder / "wall", nodes.folder / "a")
        held.callback(wall.close)
        other = held.enter_context(contextlib.closing(md.connect(nodes.addresses["c"], timeout="60s")))
        other.deploy(query(), at={"a": ["rows"]})
        clients = Clients(wall.address, held)
        clients.go_on()
        wall.shut()
        assert ordered(lambda: other.move("q/rows", to="b"))["node"] == "b"
        lost_s = lose(nodes, clients)
        print(f"all go by the new node {lost_s * 1e3:,.0f} ms after the kill")
        clients.go_on()
        clients.end()


@pytest.mark.parametrize("home", ["a", "c"])
def test_the_node_is_killed_as_soon_as_it_has_handed_the_stream_over(nodes, home):
    """Whether or not they heard that it moved; of those of another node too."""
    with contextlib.ExitStack() as held:
        other = held.enter_context(contextlib.closing(md.connect(nodes.addresses["b"], timeout="60s")))
        other.deploy(query(), at={"a": ["rows"]})
        clients = Clients(nodes.addresses[home], held)
        clients.go_on()
        assert ordered(lambda: other.move("q/rows", to="b"))["node"] == "b"
        lose(nodes, clients)
        clients.go_on()
        nodes.start("a")
        clients.go_on()
        assert clients.go_by("b"), "they stay there"
        clients.end()


def other_than(fed, node):
    """Which other node is ours by now."""
    return until(lambda: fed.node != node and fed.status()["node"], what="another node is ours")


def test_a_client_of_several_nodes_goes_on_with_another_and_stays_there(nodes):
    dead = f"ipc://{nodes.folder}/nobody"
    addresses = [dead, nodes.addresses["c"], nodes.addresses["a"]]
    with md.connect(addresses, timeout="60s") as fed:
        assert fed.node in ("a", "c")
        first = fed.node
        fed.deploy(query(), at={"b": ["rows"]})
        reader = fed.subscribe("q.out", from_="oldest")
        fed.publish("q.rows", {"n": [1]})
        assert reader.next("60s").batch.column("n").to_pylist() == [1]
        nodes.kill(first)
        second = other_than(fed, first)
        assert second in {"a", "b", "c"} - {first}
        assert fed.find("q.out")["node"] == "b"
        named = fed.publisher("q.rows", durable="feed")  # By way of the one that is there.
        named.publish({"n": [2]})
        assert reader.next("60s").batch.column("n").to_pylist() == [2]
        for _ in range(TRIES):
            second = other_than(fed, first)
            nodes.start(first)
            until(lambda: first in {each["node"] for each in fed.statuses(all=True)}, what="it is back")
            if (fed.node, fed.status()["node"]) == (second, second):
                break
            nodes.kill(first)  # On a busy machine the second may have been missed meanwhile.
        else:
            pytest.fail(f"it never stays, {TRIES} times")
        named.finish()


def test_a_client_of_one_node_gives_orders_to_another_while_that_is_away(nodes):
    """What only that node can tell waits for it."""
    with (
        md.connect(nodes.addresses["c"], timeout="60s") as other,
        md.connect(nodes.addresses["a"], timeout="60s") as fed,
    ):
        other.deploy(query(), at={"b": ["rows"]})
        fed.subscribe("q.out")
        until(lambda: len(fed._following._contacts._told) == 3, what="it knows the other nodes")
        nodes.kill("a")
        # An order that was given before may have got there: it waits for that node.
        until(lambda: fed._following.home.down_us() > 0, what="the client has noticed")
        assert ordered(lambda: fed.move("q/rows", to="c"))["node"] == "c"
        nodes.start("a")
        assert (fed.node, fed.status()["node"]) == ("a", "a")


def test_none_of_several_nodes_is_there(tmp_path):
    addresses = [f"ipc://{tmp_path}/{name}" for name in ("x", "y")]
    with pytest.raises(
        LinkError, match=r"none of the 2 nodes at .*/x, .*/y answers .*waited 300ms"
    ) as caught:
        md.connect(addresses, timeout="300ms")
    assert caught.value.code == "link.timeout"
