"""Nodes of a stateful query with a union, killed again and again: the answer is as if nobody had died."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.system.killed import NAMES, Flow
from tests.system.nodes import ForkedNodes, Nodes

pytestmark = pytest.mark.system

VICTIMS = (
    ("edge-1",),
    ("middle",),
    ("core",),
    ("middle", "core"),
    ("edge-2",),
    ("edge-2", "middle"),
    ("middle",),
    NAMES,
)
"""Sender, middle node and receiver of each link, also together."""


LIMITS = 'checkpoint_every = "100ms"'


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    # A socket's path is short; pytest's own folders may not be.
    made = ForkedNodes(tmp_path_factory.mktemp("k"), list(NAMES), limits=LIMITS)
    yield made
    made.close()


@pytest.fixture
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Nodes as a user starts them."""
    made = Nodes(tmp_path_factory.mktemp("k"), list(NAMES), limits=LIMITS)
    yield made
    made.close()


def kill_and_go_on(nodes: Nodes, flow: Flow, victims: tuple[str, ...], chance: random.Random) -> None:
    """After some train more they die, and come back at once or when rows no longer pass."""
    flow.await_trains(chance.randrange(1, 6))
    for victim in victims:
        nodes.kill(victim)
    if chance.random() < 0.5:
        flow.stands()
    nodes.start(*victims)
    if chance.random() < 0.7:
        flow.goes_on()


def kills(nodes: Nodes, seed: int, count: int) -> None:
    chance = random.Random(seed)
    nodes.start()
    flow = Flow(nodes)
    try:
        flow.goes_on()
        for number in range(count):
            kill_and_go_on(nodes, flow, VICTIMS[(number + seed) % len(VICTIMS)], chance)
        flow.goes_on()
        flow.end()
    finally:
        flow.close()


def test_killed_eight_times_nothing_is_lost_or_repeated(nodes: Nodes) -> None:
    kills(nodes, seed=0, count=8)


@pytest.mark.full
@pytest.mark.issue(5)
@pytest.mark.parametrize("seed", range(1, 6))
def test_killed_fifty_times_nothing_is_lost_or_repeated(commands: Nodes, seed: int) -> None:
    kills(commands, seed=seed, count=10)
