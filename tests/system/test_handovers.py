"""Processes hand what others stand by for to one of these: each row once, in order, also when killed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import medusa as md
from tests.system.nodes import DEADLINE_S, until
from tests.system.standby_nodes import StandbyNodes
from tests.system.test_standby import CUT, ROWS, WHOLE, Clients, deployed

pytestmark = pytest.mark.system


@contextlib.contextmanager
def stopped(nodes: StandbyNodes, name: str) -> Iterator[None]:
    """It stands still meanwhile; killed in that time it stays so."""
    process = nodes.processes[name]
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        if nodes.processes.get(name) is process:
            process.send_signal(signal.SIGCONT)


MEMBERS = {"m", "s1", "s2"}
"""Who may have what is guarded. On a busy machine m may have been taken for silent by now, and have it no
more."""

WITH_W = tuple(MEMBERS - {left} | {"w"} for left in MEMBERS)
"""Who they may be once one of them has given its place to w."""


class Mover:
    """A client that orders a move and waits for its end, in a thread; once the owner has the order.

    Attributes:
        owner: who has it then.
    """

    def __init__(self, nodes: StandbyNodes, fragment: str, to: str, *, by: tuple[str, ...]) -> None:
        self._nodes, self._fragment, self._to, self._by = nodes, fragment, to, by
        self._ended: list[Any] = []
        self.owner = ""
        self._thread = self._begun()
        until(self._ordered, what="its owner has the order")

    def _begun(self) -> threading.Thread:
        thread = threading.Thread(target=self._move)
        thread.start()
        return thread

    def _move(self) -> None:
        try:
            with self._nodes.connect(*self._by) as fed:
                self._ended.append(fed.move(self._fragment, to=self._to))
        except md.LinkError as error:
            self._ended.append(error)

    def _ordered(self) -> bool:
        if self._ended and self._refused():  # Its target was missed before the order came.
            self._ended.clear()
            self._thread = self._begun()
        self.owner = self._nodes.replicas(self._fragment)["owner"]
        with self._nodes.connect(self.owner) as fed:
            return self._fragment in fed.status()["moves"]["going"]

    def _refused(self) -> bool:
        """For such a reason it wasn't done."""
        [said] = self._ended
        if isinstance(said, md.LinkError):
            assert said.code in ("E_TIMEOUT", "E_BROKEN", "E_STANDBY", "E_BUSY"), said
        return isinstance(said, md.LinkError)

    def check(self) -> None:
        """It has heard how that ended: it was done, or for such a reason it wasn't."""
        self._thread.join(2 * DEADLINE_S)  # So long an order is tried, and then undone.
        assert not self._thread.is_alive()
        if not self._refused():
            [said] = self._ended
            assert said["node"] == self._to
            assert self._to in self._nodes.members(self._fragment)


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_a_guarded_fragment_is_moved_while_rows_flow_and_back(
    nodes: StandbyNodes, at: dict[str, list[str]]
) -> None:
    fragment = deployed(nodes, at)
    with contextlib.ExitStack() as held:
        clients = Clients(nodes, held)
        clients.until(ROWS // 5)
        found = nodes.move(fragment, "s1", by="w")
        assert found["node"] == "s1"
        clients.until(ROWS // 3)
        done = nodes.command("move", fragment, "--to", "m")
        assert f"{fragment} is at m" in done.stdout
        clients.check()
        print(f"paused {found['pause_us'] / 1000:.1f} ms; {done.stdout.strip()}")
    nodes.until_followed(fragment)
    assert nodes.members(fragment) == MEMBERS


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_its_owner_is_killed_amid_a_move(nodes: StandbyNodes, at: dict[str, list[str]]) -> None:
    """The target stands still meanwhile, so that the order is given and not done."""
    fragment = deployed(nodes, at)
    with contextlib.ExitStack() as held:
        clients = Clients(nodes, held)
        clients.until(ROWS // 5)
        target = "s1" if nodes.until_followed(fragment) != "s1" else "s2"
        with stopped(nodes, target):
            mover = Mover(nodes, fragment, target, by=("w", "c"))
            nodes.kill(mover.owner)
        clients.check()
        mover.check()
    nodes.start(mover.owner)
    nodes.until_followed(fragment)
    assert nodes.members(fragment) == MEMBERS


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_it_is_moved_to_a_node_that_does_not_stand_by_and_back(
    nodes: StandbyNodes, at: dict[str, list[str]]
) -> None:
    fragment = deployed(nodes, at)
    with contextlib.ExitStack() as held:
        clients = Clients(nodes, held)
        clients.until(ROWS // 5)
        assert nodes.move(fragment, "w", by="c")["node"] == "w"
        until(lambda: nodes.members(fragment) in WITH_W, what="who had it gives its own place to the target")
        nodes.until_followed(fragment)
        clients.until(ROWS // 3)
        done = nodes.command("move", fragment, "--to", "m")
        assert f"{fragment} is at m" in done.stdout
        clients.check()
    nodes.until_followed(fragment)
    # Where w had it to the end it has given its place to m again.
    until(lambda: nodes.members(fragment) in (MEMBERS, *WITH_W), what="nobody is left over")


@pytest.mark.parametrize("victim", ["owner", "w", "e"])
def test_somebody_is_killed_amid_a_move_to_a_node_that_does_not_stand_by(
    nodes: StandbyNodes, victim: str
) -> None:
    """The target stands still until somebody is killed: owner, target, or who coordinates."""
    fragment = deployed(nodes, CUT)
    with contextlib.ExitStack() as held:
        clients = Clients(nodes, held)
        clients.until(ROWS // 5)
        with stopped(nodes, "w"):
            mover = Mover(nodes, fragment, "w", by=("c",))
            killed = mover.owner if victim == "owner" else victim
            nodes.kill(killed)
        nodes.start(killed)
        clients.check()
        mover.check()
    # Who took over while its owner was dead has given its own place to the target.
    until(lambda: nodes.members(fragment) in (MEMBERS, *WITH_W), what="nobody is left over")
    nodes.until_followed(fragment)
