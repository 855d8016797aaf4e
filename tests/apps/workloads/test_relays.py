"""Relays below the connections of nodes: what is cut passes nothing and loses nothing, the rest passes."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from medusa.apps.workloads.network import hosts, net
from medusa.apps.workloads.network.hosts import made_hosts
from medusa.apps.workloads.network.relays import Relays
from medusa.errors import LinkError

DEADLINE_S = 60


class Door:
    """A node, as far as a relay knows it: it listens at a socket of its name."""

    def __init__(self, folder: Path, name: str) -> None:
        self.call = str(folder / f"{name}.call")
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(folder / name))
        self.listening.listen()
        self.listening.settimeout(DEADLINE_S)

    def accept(self) -> socket.socket:
        made, _ = self.listening.accept()
        made.settimeout(DEADLINE_S)
        return made


def calling(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(DEADLINE_S)
    made.connect(path)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Short enough for the path of a socket."""
    there = os.getcwd()
    os.chdir(tmp_path)
    yield Path()
    os.chdir(there)


@pytest.fixture
def b(folder: Path) -> Iterator[Door]:
    made = Door(folder, "b")
    yield made
    made.listening.close()


@pytest.fixture
def c(folder: Path) -> Iterator[Door]:
    made = Door(folder, "c")
    yield made
    made.listening.close()


@contextlib.contextmanager
def relays(folder: Path, **pids: int) -> Iterator[Relays]:
    made = Relays(folder, ["b", "c"], lambda: pids)
    try:
        yield made
    finally:
        made.close()


def is_silent(connection: socket.socket) -> bool:
    """Nothing is there to read."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    finally:
        connection.settimeout(DEADLINE_S)
    return False


def test_bytes_pass_both_ways_and_the_end_too(folder: Path, b: Door) -> None:
    with relays(folder), calling(b.call) as here, b.accept() as there:
        here.sendall(b"question")
        assert there.recv(100) == b"question"
        there.sendall(b"answer")
        assert here.recv(100) == b"answer"
        here.close()
        assert there.recv(100) == b""


@pytest.mark.parametrize("cut", ["a", "b"])
def test_a_cut_holds_all_of_one_node_back_and_healing_brings_it(
    folder: Path, b: Door, c: Door, cut: str
) -> None:
    """This process is node a; b and c answer in it."""
    with relays(folder, a=os.getpid()) as carrying, calling(b.call) as here, b.accept() as there:
        carrying.isolate(cut)
        here.sendall(b"held")
        there.sendall(b"back")
        with calling(b.call) as late:
            late.sendall(b"late")
            if cut == "b":  # The other link is whole; what goes by it comes after what was sent before it.
                with calling(c.call) as other, c.accept() as beside:
                    other.sendall(b"passes")
                    assert beside.recv(100) == b"passes"
            else:
                carrying.isolate(cut)  # Answered after what was sent before it.
            assert is_silent(there)
            assert is_silent(here)
            carrying.isolate()
            assert there.recv(100) == b"held"
            assert here.recv(100) == b"back"
            with b.accept() as later:
                assert later.recv(100) == b"late"


def test_who_calls_where_a_node_says_that_it_listens_is_carried_too(folder: Path, b: Door) -> None:
    with relays(folder) as carrying, calling(b.call) as first, b.accept():
        first.sendall(b"x")
        with calling(str(folder / "b")) as here, b.accept() as there:
            carrying.isolate("b")
            here.sendall(b"held")
            carrying.isolate("b")
            assert is_silent(there)
            carrying.isolate()
            assert there.recv(100) == b"held"


def test_a_node_that_listens_later_is_waited_for(folder: Path) -> None:
    with relays(folder), calling("b.call") as here:
        here.sendall(b"early")
        door = Door(folder, "b")
        with door.accept() as there:
            assert there.recv(100) == b"early"
        door.listening.close()


# --- which hosts there are -------------------------------------------------------------------------


def test_where_namespaces_are_not_allowed_relays_are_taken_and_say_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosts, "why_not", lambda: "needs root")
    with made_hosts(["a"], ["p"]) as made:
        assert made.kind == "relays"
        assert "no network is cut" in made.told
        assert "needs root" in made.told
        folder = Path(made.listens("a").removeprefix("ipc://")).parent
        assert folder.exists()
    assert not folder.exists()


def test_where_a_namespace_can_not_be_made_relays_are_taken_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: str) -> str:
        raise LinkError("ip netns add: Operation not permitted", code="link.network")

    monkeypatch.setattr(hosts, "why_not", lambda: "")
    monkeypatch.setattr(net, "_ip", refused)
    with made_hosts(["a"], ["p"]) as made:
        assert made.kind == "relays"
        assert "Operation not permitted" in made.told


def test_namespaces_that_are_wished_for_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "why_not", lambda: "needs root")
    with pytest.raises(LinkError, match="needs root") as refused, made_hosts(["a"], ["p"], "namespaces"):
        pass
    assert refused.value.code == "link.network"
    assert "--network relays" in refused.value.hint
