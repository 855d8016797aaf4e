"""Processes hand what others stand by for to one of these: each row once, in order, also when killed."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any

import pytest

import medusa as md
from tests.system.nodes import DEADLINE_S, run_to_end, until
from tests.system.standby_nodes import StandbyNodes
from tests.system.test_standby import CUT, ROWS, WHOLE, Clients, deployed

pytestmark = pytest.mark.system


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_a_guarded_fragment_is_moved_while_rows_flow_and_back(
    nodes: StandbyNodes, at: dict[str, list[str]]
) -> None:
    fragment = deployed(nodes, at)
    with contextlib.ExitStack() as held:
        clients = Clients(nodes, held)
        clients.until(ROWS // 5)
        with nodes.connect("w") as fed:
            found = fed.move(fragment, to="s1")
        assert found["node"] == "s1"
        assert nodes.replicas(fragment)["owner"] == "s1"
        clients.until(ROWS // 3)
        done = run_to_end("move", fragment, "--to", "m", *nodes.words("e"))
        assert done.returncode == 0, done.stderr
        assert f"{fragment} is at m" in done.stdout
        clients.check()
        print(f"paused {found['pause_us'] / 1000:.1f} ms; {done.stdout.strip()}")
    nodes.until_guarded(fragment, "s1", "s2")
    assert nodes.replicas(fragment)["owner"] == "m"


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_its_owner_is_killed_amid_a_move(nodes: StandbyNodes, at: dict[str, list[str]]) -> None:
    """The target stands still meanwhile, so that the order is given and not done."""
    fragment = deployed(nodes, at)
    ended: list[Any] = []

    def move() -> None:
        try:
            with nodes.connect("w", "c") as fed:
                ended.append(fed.move(fragment, to="s1"))
        except md.LinkError as error:
            ended.append(error)

    def ordered() -> bool:
        with nodes.connect("m") as fed:
            return fragment in fed.status()["moves"]["going"]

    with contextlib.ExitStack() as held:
        clients = Clients(nodes, held)
        clients.until(ROWS // 5)
        target = nodes.processes["s1"]
        target.send_signal(signal.SIGSTOP)
        mover = threading.Thread(target=move)
        mover.start()
        try:
            until(ordered, what="its owner has the order")
            nodes.kill("m")
        finally:
            target.send_signal(signal.SIGCONT)
        clients.check()
        mover.join(DEADLINE_S)
        assert not mover.is_alive()
    [said] = ended
    if isinstance(said, md.LinkError):
        assert said.code in ("E_TIMEOUT", "E_BROKEN", "E_STANDBY")
    else:
        assert said["node"] == nodes.replicas(fragment)["owner"] == "s1"
    nodes.start("m")
    owner = nodes.replicas(fragment)["owner"]
    nodes.until_guarded(fragment, *({"m", "s1", "s2"} - {owner}))


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_it_is_moved_to_a_node_that_does_not_stand_by_and_back(
    nodes: StandbyNodes, at: dict[str, list[str]]
) -> None:
    fragment = deployed(nodes, at)
    with contextlib.ExitStack() as held:
        clients = Clients(nodes, held)
        clients.until(ROWS // 5)
        with nodes.connect("c") as fed:
            assert fed.move(fragment, to="w")["node"] == "w"
        assert nodes.replicas(fragment)["owner"] == "w"
        nodes.until_guarded(fragment, "s1", "s2")
        assert set(nodes.replicas(fragment)["secondaries"]) == {"s1", "s2"}
        clients.until(ROWS // 3)
        done = run_to_end("move", fragment, "--to", "m", *nodes.words("e"))
        assert done.returncode == 0, done.stderr
        clients.check()
    nodes.until_guarded(fragment, "s1", "s2")
    assert nodes.replicas(fragment)["owner"] == "m"


@pytest.mark.parametrize("victim", ["m", "w", "e"])
def test_somebody_is_killed_amid_a_move_to_a_node_that_does_not_stand_by(
    nodes: StandbyNodes, victim: str
) -> None:
    """The target stands still until somebody is killed: owner, target, or who coordinates."""
    fragment = deployed(nodes, CUT)
    ended: list[Any] = []

    def move() -> None:
        try:
            with nodes.connect("c") as fed:
                ended.append(fed.move(fragment, to="w"))
        except md.LinkError as error:
            ended.append(error)

    def ordered() -> bool:
        with nodes.connect("m") as fed:
            return fragment in fed.status()["moves"]["going"]

    with contextlib.ExitStack() as held:
        clients = Clients(nodes, held)
        clients.until(ROWS // 5)
        target = nodes.processes["w"]
        target.send_signal(signal.SIGSTOP)
        mover = threading.Thread(target=move)
        mover.start()
        try:
            until(ordered, what="its owner has the order")
            nodes.kill(victim)
        finally:
            if victim != "w":
                target.send_signal(signal.SIGCONT)
        nodes.start(victim)
        clients.check()
        mover.join(DEADLINE_S)
        assert not mover.is_alive()
    [said] = ended
    if isinstance(said, md.LinkError):
        assert said.code in ("E_TIMEOUT", "E_BROKEN", "E_STANDBY")
    else:
        assert said["node"] == nodes.replicas(fragment)["owner"] == "w"
    # Who took over while its owner was dead has given its own place to the target.
    either = ({"m", "s1", "s2"}, {"w", "s1", "s2"}, {"m", "w", "s2"})
    until(lambda: _who(nodes, fragment) in either, what="nobody is left over")
    nodes.until_guarded(fragment, *(_who(nodes, fragment) - {nodes.replicas(fragment)["owner"]}))


def _who(nodes: StandbyNodes, fragment: str) -> set[str]:
    replicas = nodes.replicas(fragment)
    return {replicas["owner"], *replicas["secondaries"]}
