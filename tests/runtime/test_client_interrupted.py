"""Ctrl-C anywhere in a client's calls: it can be closed all the same, and says what it is.

CPython raises KeyboardInterrupt where a Python function begins and after a call of a C function. The
profiler is told of just these moments, and an error that it raises comes from there: so each of them
is tried, one after the other.
"""

from __future__ import annotations

import dataclasses
import itertools
import signal
import sys
import threading
import weakref
from weakref import WeakSet

import pytest

import medusa as md
from medusa.runtime.client import (
    client,
    client_loop,
    federation,
    home_node,
    publisher,
    publishing,
    subscription,
)
from tests.runtime.test_process import InThread, query, write

PARTS = (client, client_loop, federation, home_node, publisher, publishing, subscription)
OURS = {module.__file__ for module in PARTS}
WEAK = {weakref.__file__, sys.modules[WeakSet.__module__].__file__}
DEADLINE_S = 240
MOMENTS_MIN = 5


@pytest.fixture
def node(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("i")
    # Many clients say hello here, most of them before their connection stands.
    eager = dataclasses.replace(client_loop.PROMPT, hello_us=5_000)
    monkeypatch.setattr(client_loop, "PROMPT", eager)
    made = InThread(write(folder), monkeypatch)
    address = f"ipc://{folder}/a"
    with md.connect(address, timeout="20s") as fed:
        fed.deploy(query())
        fed.publish("q.rows", {"ts": [1], "v": [1]})
    yield address
    made.stop()


@pytest.fixture(autouse=True)
def deadline():
    """What hangs, hangs in this thread: an alarm ends it."""

    def late(number, frame):
        raise TimeoutError(f"nothing for {DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def from_ours(frame) -> bool:
    """Our code, or what it called in the standard library, but not what packages do within, nor where what
    is weakly referred to goes, nor a finalizer that the collector runs just here (of a package's object that
    an earlier test left): Python itself drops what is raised there."""
    for _ in range(4):
        if frame is None or frame.f_code.co_filename in WEAK or frame.f_code.co_name == "__del__":
            return False
        if frame.f_code.co_filename in OURS:
            return True
        frame = frame.f_back
    return False


def interrupted(call, at: int) -> bool:
    """Do it with KeyboardInterrupt at the so-manieth moment; whether there are so many."""
    moments = itertools.count()

    def profile(frame, event, argument):
        if event in ("call", "c_return") and from_ours(frame) and next(moments) == at:
            raise KeyboardInterrupt

    signal.alarm(DEADLINE_S)
    sys.setprofile(profile)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def threads() -> set[threading.Thread]:
    """Those that drive a client. (One whose start was interrupted may stand still before its first step.)"""
    return {each for each in threading.enumerate() if each.name == "medusa-client" and each.is_alive()}


def everywhere(node: str, prepare) -> None:
    """The call that ``prepare`` makes for a new client, interrupted at each of its moments."""
    for at in itertools.count():
        before = threads()
        fed = md.connect(node, timeout="20s")
        (thread,) = threads() - before
        came = interrupted(prepare(fed), at)
        fed.close()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        if not came:
            assert at > MOMENTS_MIN
            return


def test_publish(node):
    def prepare(fed):
        fed.publish("q.rows", {"ts": [1], "v": [1]})
        return lambda: fed.publish("q.rows", {"ts": [2, 3], "v": [1, 1]})

    everywhere(node, prepare)


def test_reading(node):
    def prepare(fed):
        def read():
            with fed.subscribe("q.out", from_="oldest") as trains:
                trains.next("20s")

        return read

    everywhere(node, prepare)


def test_asking(node):
    everywhere(node, lambda fed: fed.status)


def test_closing(node):
    everywhere(node, lambda fed: fed.close)


def test_connecting(node):
    for at in itertools.count():
        made = []
        came = interrupted(lambda made=made: made.append(md.connect(node, timeout="20s")), at)
        for fed in made:
            fed.close()
        for thread in threads():
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        if not came:
            assert at > MOMENTS_MIN
            return
