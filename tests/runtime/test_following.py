"""A client goes after a stream that moved: what it makes of the answers to where it is."""

from __future__ import annotations

import threading

import pytest

from medusa.errors import LinkError
from medusa.runtime import following
from medusa.runtime.followed import Followed
from medusa.runtime.following import LOOK_AGAIN_S, Following
from medusa.wire.messages import Refuse
from medusa.wire.trail import MOVED_US


class Loop:
    """A connection to a node."""

    def __init__(self, node):
        self.node = node

    def ring(self):
        pass

    def down_us(self):
        return 0


class Stream(Followed):
    """One that its node refused."""

    kind = "stream"

    def __init__(self, loop, code):
        super().__init__(loop, "q.out")
        self.epoch, self.follows = 1, True
        self.refusal = Refuse(code=code, text="not here", stream="q.out")
        self.moved = []

    def mind_of_stream(self):
        raise AssertionError

    def last_refusal(self):
        return self.refusal

    def move(self, loop, epoch):
        self.moved.append((loop.node, epoch))
        self.refusal = None


@pytest.fixture
def world(monkeypatch):
    """A client of ``a``; the clock, and where the catalog says that the stream is."""

    class World:
        now_us, place = 0, None

        def __init__(self):
            self.following = Following(Loop("a"), None)
            monkeypatch.setattr(following, "now_us", lambda: self.now_us)
            monkeypatch.setattr(self.following, "lookup", lambda *_: self.lookup())
            monkeypatch.setattr(self.following, "loop_at", lambda place: Loop(place["node"]))

        def lookup(self):
            if self.place is None:
                raise LinkError("nothing is called so", code="E_STREAM")
            return self.place

        def refused(self, code):
            self.stream = Stream(Loop("a"), code)
            return self.stream

        def seek(self, after_us=0):
            self.now_us += after_us
            self.following._seek(self.stream)

    return World()


def test_what_moved_is_waited_for_while_nobody_has_heard_where_it_is(world):
    """The word that it left may be known before the word that it came."""
    stream = world.refused("E_MOVED")
    world.seek()
    world.seek(MOVED_US - 1)
    assert stream.final_refusal() is None
    world.place = {"node": "a", "epoch": 1}  # As it was before.
    world.seek(MOVED_US)
    world.place = None
    world.seek(1)
    world.seek(MOVED_US - 1)
    assert stream.final_refusal() is None
    world.place = {"node": "b", "epoch": 2}
    world.seek()
    assert stream.moved == [("b", 2)]


def test_what_moved_and_is_nowhere_for_long_was_removed(world):
    stream = world.refused("E_MOVED")
    world.seek()
    world.seek(MOVED_US)
    assert stream.final_refusal() is stream.refusal


def test_what_its_node_does_not_know_and_nobody_else_is_nowhere(world):
    stream = world.refused("E_STREAM")
    world.seek()
    assert stream.final_refusal() is stream.refusal


def test_who_hears_that_a_stream_moved_looks_at_once_and_soon_again(monkeypatch):
    monkeypatch.setattr(following, "LOOK_EVERY_S", 1e6)
    home = Loop("a")
    client = Following(home, None)
    rests, looked, over = [], threading.Semaphore(0), threading.Event()
    answers = iter([False, True, True, False])

    def look():
        looked.release()
        if (seeks := next(answers)) is False:
            over.set()
        return seeks

    class Rest:
        """A lock, and how long anybody has waited for it."""

        def __init__(self, lock):
            self.lock = lock

        def acquire(self, timeout):
            rests.append(timeout)
            return self.lock.acquire(timeout=min(timeout, 60))

        def release(self):
            self.lock.release()

    monkeypatch.setattr(client, "_look", look)
    client._rest = Rest(client._rest)
    client.add(Stream(home, "E_MOVED"), 1)
    home.moved()
    assert looked.acquire(timeout=60)  # The answer is that nothing is sought.
    over.wait(60)
    over.clear()
    home.moved()
    assert over.wait(60)
    assert all(looked.acquire(timeout=60) for _ in range(3))
    client.close()
    client.join()
    assert rests[:5] == [1e6, 1e6, LOOK_AGAIN_S, 2 * LOOK_AGAIN_S, 1e6]
