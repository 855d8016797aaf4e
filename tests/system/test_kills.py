"""Nodes of a stateful query with a union, killed again and again: the answer is as if nobody had died."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import medusa as md
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


def kills_of_memory(nodes: Nodes, seed: int, victims: tuple[str, ...]) -> None:
    """The middle keeps nothing on disk; what its windows held when it died is what it says."""
    chance = random.Random(seed)
    text = nodes.config("middle").read_text()
    nodes.config("middle").write_text(text.replace('data = "middle.data"', 'store = "memory"'))
    nodes.start()
    flow = Flow(nodes, simple=True)
    try:
        flow.goes_on()
        for victim in victims:
            kill_and_go_on(nodes, flow, (victim,), chance)
            flow.goes_on()
        flow.finish()
        with md.connect(nodes.addresses["middle"], timeout="30s") as middle:
            (status,) = middle.status()["fragments"]
        assert not status["lost_unknown"]
        assert status["lost_rows"] == flow.uncounted() > 0
        assert not nodes.data("middle").exists()
    finally:
        flow.close()


def test_what_a_middle_node_without_a_disk_loses_is_what_it_says(nodes: Nodes) -> None:
    kills_of_memory(nodes, 0, ("middle", "edge-1", "middle", "core"))


@pytest.mark.full
@pytest.mark.issue(5)
@pytest.mark.parametrize("seed", range(1, 6))
def test_what_it_loses_in_ten_lives_is_what_it_says(nodes: Nodes, seed: int) -> None:
    kills_of_memory(nodes, seed, tuple(random.Random(seed).choices(NAMES, (1, 1, 3, 1), k=10)))


def test_killed_eight_times_nothing_is_lost_or_repeated(nodes: Nodes) -> None:
    kills(nodes, seed=0, count=8)


@pytest.mark.full
@pytest.mark.issue(5)
@pytest.mark.parametrize("seed", range(1, 6))
def test_killed_fifty_times_nothing_is_lost_or_repeated(nodes: Nodes, seed: int) -> None:
    kills(nodes, seed=seed, count=10)
