"""Many runs of nodes that agree amid losses, crashes and mistrust; and planted mistakes, which they show."""

from __future__ import annotations

import re

import pytest

from tests.nodes.agreement.agreement_trial import Trial, seeded
from tests.nodes.agreement.planted import PLANTED

SEEDS = 100
"""Of one test."""

BROKEN = re.compile(r"two |too early|hides it|has accepted|on its disk")
"""What a run says when safety is broken; that nothing more is decided is another matter."""


@pytest.mark.parametrize("block", range(20))
def test_at_most_one_configuration_of_each_number_is_chosen_and_all_come_to_know_it(block):
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        seeded(seed)


def test_the_runs_have_what_they_are_to_try():
    """Contention, loss, restarts, proposals of others that are brought to an end, changes of voters."""
    runs = [seeded(seed) for seed in range(40)]
    assert sum(max(run.by_number) for run in runs) > 100, "many configurations"
    assert sum(ballot.round > 1 for run in runs for _, ballot in run.accepted) > 20, "many ballots"
    assert any(len(ballots) > 1 for run in runs for ballots in by_number(run).values()), "for one number too"
    assert sum(actor.life > 1 for run in runs for actor in run.actors.values()) > 20, "restarts"
    assert any(run.gone for run in runs)
    assert any(len({each.voters for each in run.by_number.values()}) > 2 for run in runs)
    assert any(run.loss for run in runs)
    assert any(run.disk_fails for run in runs)


def by_number(run):
    found = {}
    for number, ballot in run.accepted:
        found.setdefault(number, set()).add(ballot)
    return found


def test_the_same_seed_is_the_same_run():
    one, other = Trial(5).run(), Trial(5).run()
    assert (one.events, one.by_number, one.accepted) == (other.events, other.by_number, other.accepted)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_mistake_is_noticed(planted, monkeypatch):
    for target in planted.targets:
        monkeypatch.setattr(target, planted.attribute, planted.wrong)
    for seed in range(planted.within):
        try:
            seeded(seed)
        except AssertionError as error:
            if BROKEN.search(str(error)):
                return
    pytest.fail(f"{planted.name}: {planted.within} runs show nothing")
