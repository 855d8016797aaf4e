"""The tester tested: each mistake planted in a node is caught by some seed of the simulated runs."""

from __future__ import annotations

import msgspec
import pytest

from medusa.node import hosting
from medusa.node.hosting import Hosted
from medusa.node.inputs import Input
from medusa.node.outputs import Output
from tests.node.test_brain import (
    test_crashes_cuts_and_a_bad_network as chaos,
)
from tests.node.test_brain import (
    test_two_publishers_of_one_source_lose_and_repeat_nothing as two_publishers,
)


def ack_before_sync(monkeypatch):
    """Durable is said when the checkpoint is begun."""
    honest = Hosted._checkpoint

    def hasty(self, now_us):
        honest(self, now_us)
        for input in self.inputs.values():
            input.receiver.durable(now_us, input.fed_seq)

    monkeypatch.setattr(Hosted, "_checkpoint", hasty)


def forget_output(monkeypatch):
    """A checkpoint leaves out the output that is not yet durable downstream."""
    honest = Output.record

    def careless(self, token, offset, *, compact):
        record, _, _ = honest(self, token, offset, compact=compact)
        log = self.sender.log
        empty = msgspec.structs.replace(
            record, entries=(), first_seq=log.next_seq, first_boundary_us=log.boundary_us
        )
        return empty, [], {}

    monkeypatch.setattr(Output, "record", careless)


def position_of_arrival(monkeypatch):
    """A checkpoint notes what arrived instead of what was fed."""
    honest = Input.record

    def early(self):
        self.fed_seq = self.receiver.next_seq
        return honest(self)

    monkeypatch.setattr(Input, "record", early)
    one_at_a_time(monkeypatch)


def one_at_a_time(monkeypatch):
    """No mistake, but rows wait in the node where they else go on at once."""
    monkeypatch.setattr(hosting, "RUNNING_MAX", 1)


@pytest.mark.parametrize("seed", range(3))
def test_tiny_queues_change_nothing(seed, monkeypatch):
    one_at_a_time(monkeypatch)
    chaos(seed)


@pytest.mark.parametrize("plant", [ack_before_sync, forget_output, position_of_arrival])
def test_some_seed_catches_it(plant, monkeypatch):
    plant(monkeypatch)
    for seed in range(60):
        try:
            chaos(seed)
        except AssertionError:
            return
    pytest.fail(f"no seed of 60 caught {plant.__name__}")


def test_output_that_leaves_before_its_decision_is_on_disk_is_caught(monkeypatch):
    honest = Output.take
    monkeypatch.setattr(
        Output, "take", lambda self, now_us, element, *, hold: honest(self, now_us, element, hold=False)
    )
    with pytest.raises(AssertionError):
        two_publishers()
