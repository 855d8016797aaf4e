"""The network of the partition tests is itself tested: what is sent arrives, cuts cut, faults happen."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest

from medusa.apps.workloads.network.net import Net
from tests.system.network import needs_network
from tests.system.nodes import DEADLINE_S

pytestmark = pytest.mark.system

SO_RCVBUFFORCE = 33
"""Of Linux, for root: a buffer beyond what all may have. On a busy machine all of it lies there."""


@pytest.fixture
def net() -> Iterator[Net]:
    needs_network()
    with Net(["a", "b", "c"], seed=1) as net:
        yield net


def connected(net: Net, a: str, b: str) -> tuple[socket.socket, socket.socket]:
    with net.on(b):
        listening = socket.create_server((net.addresses[b], 0))
    port = listening.getsockname()[1]
    with net.on(a):
        calling = socket.create_connection((net.addresses[b], port), timeout=10)
    answering, _ = listening.accept()
    listening.close()
    answering.settimeout(10)
    return calling, answering


def datagrams(net: Net, a: str, b: str, count: int, *, cut: bool = False) -> list[int]:
    """Which of so many numbered datagrams arrive, in the order in which they do.

    Args:
        cut: none is expected, so nothing that could be waited for ends it.
    """
    with net.on(b):
        there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        there.bind((net.addresses[b], 0))
    with net.on(a):
        here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with there, here:
        there.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 22)
        for number in range(count):
            here.sendto(number.to_bytes(4, "big"), there.getsockname())
        there.settimeout(0.5)
        got: list[int] = []
        end_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < end_s:
            try:
                number = int.from_bytes(there.recv(16), "big")
            except TimeoutError:
                if cut:
                    return got
                # What comes after all others ends it; that may be lost itself.
                here.sendto(count.to_bytes(4, "big"), there.getsockname())
                continue
            if number == count:
                return got
            got.append(number)
        raise AssertionError(f"{len(got)} of {count} have come, and nothing more does")


def test_bytes_arrive_in_both_directions(net: Net) -> None:
    calling, answering = connected(net, "a", "b")
    with calling, answering:
        calling.sendall(b"there" * 100_000)
        got = bytearray()
        while len(got) < 500_000:
            got += answering.recv(1 << 16)
        assert got == b"there" * 100_000
        answering.sendall(b"back")
        assert calling.recv(16) == b"back"


def test_a_cut_cuts_one_direction_only(net: Net) -> None:
    assert datagrams(net, "a", "b", 5) == [0, 1, 2, 3, 4]
    net.cut(("a", "b"))
    assert datagrams(net, "a", "b", 5, cut=True) == []
    assert datagrams(net, "b", "a", 5) == [0, 1, 2, 3, 4]
    assert datagrams(net, "a", "c", 5) == [0, 1, 2, 3, 4]
    net.heal()
    assert datagrams(net, "a", "b", 5) == [0, 1, 2, 3, 4]


def test_a_stream_goes_on_after_a_cut(net: Net) -> None:
    calling, answering = connected(net, "a", "b")
    with calling, answering:
        net.cut(*net.between("a", "b"))
        calling.sendall(b"sent into the cut")
        answering.settimeout(0.3)
        with pytest.raises(TimeoutError):
            answering.recv(64)
        net.heal()
        answering.settimeout(30)
        assert answering.recv(64) == b"sent into the cut"


def test_one_connection_is_cut_and_the_others_are_not(net: Net) -> None:
    (first, first_end), (second, second_end) = connected(net, "a", "b"), connected(net, "a", "b")
    with first, first_end, second, second_end:
        ports = {
            name: (socket_.getsockname()[1], socket_.getpeername()[1])
            for name, socket_ in (("first", first), ("second", second))
        }
        second.sendall(b"x" * 5_000)
        assert len(second_end.recv(5_000, socket.MSG_WAITALL)) == 5_000
        flows = net.flows("a", "b")
        assert flows[ports["first"]] < 5_000 < flows[ports["second"]]
        net.set_flow("a", "b", ports["first"], cut=True)
        first.sendall(b"sent into the cut")
        second.sendall(b"y" * 100)
        assert second_end.recv(100, socket.MSG_WAITALL) == b"y" * 100
        first_end.settimeout(0.3)
        with pytest.raises(TimeoutError):
            first_end.recv(64)
        net.set_flow("a", "b", ports["first"], cut=False, loss=200)
        first_end.settimeout(30)
        assert first_end.recv(64) == b"sent into the cut"


def test_loss_repetition_and_delay_happen_as_often_as_told(net: Net) -> None:
    net.set(("a", "b"), loss=200)
    assert 700 <= len(datagrams(net, "a", "b", 1000)) <= 900
    net.set(("a", "b"), loss=0, repeat=300)
    got = datagrams(net, "a", "b", 1000)
    assert 1200 <= len(got) <= 1400
    assert sorted(set(got)) == list(range(1000))
    net.set(("a", "b"), repeat=0, delay_s=0.2)
    calling, answering = connected(net, "a", "b")
    with calling, answering:
        begun = time.monotonic()
        calling.sendall(b"x")
        answering.recv(1)
        assert time.monotonic() - begun >= 0.2


def test_nothing_is_left_behind() -> None:
    needs_network()
    with Net(["a", "b"]) as net:
        spaces = [net.space(name) for name in net.names]
        sleeper = net.popen("a", "sleep", "1000")
    assert sleeper.wait(10) == -9
    assert not [space for space in spaces if os.path.exists(f"/run/netns/{space}")]
