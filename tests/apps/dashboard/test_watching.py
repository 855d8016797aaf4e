"""Asking nodes: some hang, some die, some talk nonsense; the others are known all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from medusa.apps.dashboard import watching
from medusa.apps.dashboard.network import network_of
from medusa.apps.dashboard.watching import Watcher, ask_all
from medusa.errors import LinkError
from tests.apps.dashboard.statuses import node
from tests.system.nodes import until


class Fed:
    """A node's client that says what ``answer`` gives."""

    def __init__(self, answer: Callable[[], Any], places: list[dict[str, str]]) -> None:
        self._answer = answer
        self._places = places
        self.closed = False

    def nodes(self) -> list[dict[str, str]]:
        return self._places

    def status(self) -> Any:
        return self._answer()

    def close(self) -> None:
        self.closed = True


def fails() -> Any:
    raise LinkError("waited 2s for an answer", code="link.timeout")


def connect_to(
    nodes: dict[str, Callable[[], Any]], made: list[Fed] | None = None, places: Sequence[str] = ()
) -> Any:
    """A function that calls one of these nodes.

    Args:
        places: what they say of others, as ``name=address``; the key of each is ``key of`` its name.
    """
    told = [
        {"node": name, "address": address, "server_key": f"key of {name}"}
        for name, _, address in (each.partition("=") for each in places)
    ]

    def connect(address: str, server_key: str) -> Fed:
        if address not in nodes:
            raise LinkError(f"nobody at {address}", code="link.refused")
        assert server_key in ("", f"key of {address}")
        fed = Fed(nodes[address], told)
        if made is not None:
            made.append(fed)
        return fed

    return connect


def test_all_are_asked_once_and_their_connections_closed() -> None:
    made: list[Fed] = []
    nodes = {"a": lambda: node("a"), "b": fails, "c": lambda: {"node": 1}}
    a, b, c, d = ask_all(["a", "b", "c", "d"], connect_to(nodes, made))
    assert a.status is not None
    assert (a.status.node, a.why) == ("a", "")
    assert (b.status, b.why) == (None, "waited 2s for an answer")
    assert c.why == "node 1 shows this client no boxes"
    assert d.why == "nobody at d"
    assert [fed.closed for fed in made] == [True] * 3


def test_who_does_not_let_us_in_says_what_to_do() -> None:
    def closed() -> Any:
        raise LinkError("it hangs up", hint="give it a key", code="link.handshake")

    (one,) = seen = ask_all(["a"], connect_to({"a": closed}))
    assert (one.why, one.hint) == ("it hangs up", "give it a key")
    assert network_of(seen).nodes[0].why == "it hangs up: give it a key"


def test_one_that_hangs_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    asked = threading.Semaphore(0)
    now = [0.0]
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def quick() -> Any:
        asked.release()
        return node("a")

    def hangs() -> Any:
        free.wait()
        return node("b")

    nodes = {"a": quick, "b": hangs}
    watcher = Watcher(["a", "b", "a"], connect_to(nodes), every_s=0.001, timeout_s=2.0)
    watcher.start()
    try:
        for _ in range(5):
            assert asked.acquire(timeout=30)
        assert [each.why for each in watcher.seen()] == ["", ""], "it is too early to say that b hangs"
        now[0] = 3.5
        until(lambda: not watcher.seen()[0].why, what="a answers again")
        a, b = watcher.seen()
        assert a.why == ""
        assert (b.status, b.why) == (None, "no answer")
        free.set()
        until(lambda: watcher.seen()[1].status is not None, what="b answers")
    finally:
        free.set()
        watcher.close()


def test_a_node_that_died_is_known_as_it_was_and_comes_back() -> None:
    rows, dead = [1], threading.Event()

    def answer() -> Any:
        return fails() if dead.is_set() else node("a", rows_in=rows[0])

    watcher = Watcher(["a"], connect_to({"a": answer}), every_s=0.001)
    watcher.start()
    try:
        until(lambda: watcher.seen()[0].status is not None, what="a is known")
        dead.set()
        until(lambda: watcher.seen()[0].why, what="a is away")
        (seen,) = watcher.seen()
        assert seen.status is not None
        assert (seen.status.rows_in, seen.why) == (1, "waited 2s for an answer")
        rows[0] = 2
        dead.clear()
        until(lambda: watcher.seen()[0].status.rows_in == 2, what="a is back")
        assert watcher.seen()[0].why == ""
    finally:
        watcher.close()


@pytest.mark.parametrize("wrong", [{}, [], {"node": "a"}, {"node": "a", "rows_in": "x"}])
def test_nonsense_is_a_reason_and_not_the_end(wrong: Any) -> None:
    says: list[Any] = [wrong]
    watcher = Watcher(["a"], connect_to({"a": lambda: says[0]}), every_s=0.001)
    watcher.start()
    try:
        until(lambda: watcher.seen()[0].why, what="the nonsense is told")
        assert watcher.seen()[0].status is None
        says[0] = node("a")
        until(lambda: not watcher.seen()[0].why, what="sense is taken")
    finally:
        watcher.close()


def test_closing_hangs_up_on_all() -> None:
    made: list[Fed] = []
    watcher = Watcher(["a", "b"], connect_to({"a": lambda: node("a"), "b": fails}, made), every_s=0.001)
    watcher.start()
    until(lambda: len(made) > 3, what="some connections")
    watcher.close()
    watcher.close()
    assert all(fed.closed for fed in made)
    Watcher(["a"], connect_to({})).close()  # never started


def test_closing_while_one_is_asked_ends_its_thread_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, free = threading.Event(), threading.Event()

    def hangs() -> Any:
        asked.set()
        assert free.wait(timeout=30)
        return node("a")

    made: list[Fed] = []
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    watcher = Watcher(["a"], connect_to({"a": hangs}, made), every_s=0.001)
    watcher.start()
    assert asked.wait(timeout=30)
    monkeypatch.setattr(made[0], "close", free.set)  # The answer comes when the connection is gone.
    watcher.close()
    assert free.is_set()
    assert died == []


def test_nodes_that_others_know_of_are_asked_too_each_once() -> None:
    made: list[Fed] = []
    nodes = {name: lambda name=name: node(name) for name in "abc"}
    connect = connect_to(nodes, made, ["a=other", "b=b", "c=c", "d=d", "e="])
    found = {each.name or each.address: each for each in ask_all(["a"], connect)}
    assert sorted(found) == ["a", "b", "c", "d"]
    assert [bool(each.why) for _, each in sorted(found.items())] == [False, False, False, True]
    assert len(made) == 3
    assert all(fed.closed for fed in made)
    made.clear()
    watcher = Watcher(["a", "b"], connect, every_s=0.001)
    watcher.start()
    try:
        until(lambda: len([each for each in watcher.seen() if each.status]) == 3, what="all are known")
        until(lambda: any(each.why for each in watcher.seen()), what="one isn't there")
        assert sorted(each.address for each in watcher.seen()) in (["a", "b", "c", "d"], [*"abcd", "other"])
        assert len(made) == 3
    finally:
        watcher.close()
