"""Publishers with names that die under faults; mistakes in that are noticed."""

from __future__ import annotations

import time

import msgspec
import pytest

from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.fragment.publishers import Publishers
from medusa.sim.scenarios import run_scenario
from medusa.sim.trials.queries import QueryTrial
from medusa.wire.codec import decode_frame
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.links import Attach
from tests.sim.conftest import SPENT

SEEDS = 24
EVER_FAILED = [
    # The first checkpoint of a fragment failed, and its mark stood: it waited for an operator for ever.
    39,
    # A source was finished before the node knew, durably, all the names that publish into it.
    73,
]


@pytest.mark.parametrize("seed", [*range(SEEDS), *EVER_FAILED])
def test_seed(seed):
    """Chaos and checks: as ``medusa.sim.trials.queries`` says, with ``program``."""
    passed(seed)


def passed(seed):
    began = time.process_time()
    outcome = run_scenario("comeback", seed)
    assert outcome.ok, str(outcome)
    SPENT.append(("comeback", outcome.events, time.process_time() - began))


@pytest.mark.full
@pytest.mark.issue(7)
@pytest.mark.parametrize("block", range(20))
def test_more_seeds(block):
    """1,000 in all."""
    for seed in range(1000 + 50 * block, 1000 + 50 * (block + 1)):
        passed(seed)


def test_in_them_programs_die_and_hang():
    outcomes = [run_scenario("comeback", seed, keep_trace=True) for seed in range(4)]
    trace = "\n".join(line for outcome in outcomes for line in outcome.last)
    for what in ("dies", "wakes", "another program publishes"):
        assert what in trace


def test_a_name_taken_over_while_the_log_is_fed_again_loses_nothing_if_the_node_then_dies(monkeypatch):
    """It goes on where the disk stands, although an earlier life has sent some of these rows again."""
    honest, told = QueryTrial._check_told, []

    def and_dies(self, node, client, frames):
        honest(self, node, client, frames)
        message, _ = decode_frame(frames)
        repeats = node.alive and any(hosted.repeating for hosted in node.brain.fragments.values())
        if repeats and isinstance(message, Attach) and message.durable < message.next_seq and not told:
            told.append((message.durable, message.next_seq))
            self.world.after(1, node.crash)
            self.world.after(5000, lambda: self.restart(node.name))

    monkeypatch.setattr(QueryTrial, "_check_told", and_dies)
    passed(82)
    assert told == [(0, 94)]


def count_not_saved(monkeypatch):
    """A checkpoint says nothing of the rows of a name."""
    honest = FragmentInput.record

    def careless(self):
        record = honest(self)
        return msgspec.structs.replace(record, next_seq=0) if self.named else record

    monkeypatch.setattr(FragmentInput, "record", careless)


def answered_at_once(monkeypatch):
    """Who opens a name is answered before that is on disk."""

    def hasty(self, now_us, input, peer, message):
        self._changed(now_us, False)
        input.receiver.peer_event(now_us, LinkEvent.PEER_UP)

    monkeypatch.setattr(Publishers, "_wait", hasty)


def a_name_per_client(monkeypatch):
    """Each life counts for itself."""
    honest = Publishers.open

    def alone(self, now_us, peer, source, message, **more):
        own = msgspec.structs.replace(message, name=peer, resumed=False)
        honest(self, now_us, peer, source, own, **more)

    monkeypatch.setattr(Publishers, "open", alone)


@pytest.mark.parametrize("plant", [count_not_saved, answered_at_once, a_name_per_client])
def test_a_planted_mistake_is_noticed(plant, monkeypatch):
    plant(monkeypatch)
    seen = (run_scenario("comeback", seed).violation for seed in [4, *range(16)])
    assert next(violation for violation in seen if violation).startswith("SimulationError: ")
