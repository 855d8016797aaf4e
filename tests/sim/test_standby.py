"""Machines are lost for good and others take over, under faults; mistakes in that are noticed."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from medusa.sim.scenarios import SCENARIOS, run_scenario
from medusa.sim.trials.standby import StandbyTrial
from medusa.sim.world.fault_dice import MOMENTS
from medusa.sim.world.fault_kinds import LATE_VOTES, TAKEOVERS, Fault, draw
from medusa.sim.world.virtual_time import World
from tests.sim.conftest import SPENT
from tests.sim.planted_standby import COORDINATORS, STANDBY
from tests.sim.planting import fails_its_tests, noticed, planted

SEEDS = 100

FOUND = (
    # Deployed again it began in epoch 1 anew, and the checker took that for a step back.
    *(644, 1559, 1711),
    # Who was near was counted as secondary, and hadn't what had been acknowledged until then.
    *(1004, 1032),
    # Its disk was full when its owner came back and told senders that all of its own checkpoint is durable.
    31,
    # A sender set back how far its secondary is; output waited for that for ever.
    43,
    # A proposal that counted out a node that was heard again was never given up.
    57,
    # A deployment was undone after a takeover: who was told so looked for fragments where they had been.
    299,
    # The lost owner had had the query before and said a higher epoch than its successor: nobody found that.
    2043,
    # Who was asked to deploy lost the role before it had answered, and the trial asked nobody else.
    *(768, 1105),
    # What was given to a slow machine took as long when that was slow no more.
    1756,
    # The coordinator was lost before all was there: its successor had it run without a part.
    1548,
    # A node heard a removal before the configuration that it ends, and later removed part of the next query.
    1641,
    # A vote that a disk had, until the query was removed from there, wasn't counted by the checker.
    1069,
    # What a checkpoint had held back was taken by the checker for what its last decision made.
    1380,
)
"""Seeds that have shown something before, beside those of the first hundred."""

FULL = (pytest.mark.full, pytest.mark.issue(17))

COORDINATED = 30
"""Seeds of ``coordinators``; the first 12 run in CI."""

FORKED = 40
"""Seeds of ``forks``."""

CAUGHT = [name for name, each in STANDBY.items() if each.seed is not None]
COVERED = [name for name, each in STANDBY.items() if each.beside]


def both(mistake):
    """With the second check that covers it planted away."""
    return replace(mistake, edits=mistake.edits + mistake.beside)


@pytest.mark.parametrize("seed", dict.fromkeys((*range(SEEDS), *FOUND)))
def test_seed(seed):
    """Chaos and checks: as ``medusa.sim.trials.standby`` and ``medusa.sim.checkers.replicas`` say."""
    passed(seed)


def passed(seed, scenario="standby"):
    began = time.process_time()
    outcome = run_scenario(scenario, seed)
    assert outcome.ok, str(outcome)
    SPENT.append((scenario, outcome.events, time.process_time() - began))


@pytest.mark.full
@pytest.mark.issue(17)
@pytest.mark.parametrize("block", range(20))
def test_more_seeds(block):
    """2,000 in all."""
    for seed in range(2000 + 100 * block, 2000 + 100 * (block + 1)):
        passed(seed)


@pytest.mark.full
@pytest.mark.issue(17)
@pytest.mark.parametrize("block", range(10))
def test_more_seeds_of_coordinators(block):
    """1,000 in all."""
    for seed in range(2000 + 100 * block, 2000 + 100 * (block + 1)):
        passed(seed, "coordinators")


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=FULL if seed >= 12 else ()) for seed in range(COORDINATED)]
)
def test_seed_of_coordinators(seed):
    """Who deployed is lost for good: another node has its role, and removes all of it."""
    passed(seed, "coordinators")


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=FULL if seed >= FORKED // 2 else ()) for seed in range(FORKED)],
)
def test_seed_of_forks(seed):
    """Two fragments read one stream: a node that stands by for both takes over both."""
    passed(seed, "forks")


def test_in_seeds_of_forks_one_node_comes_to_have_both(monkeypatch):
    """Else they would show nothing."""
    ends = []
    monkeypatch.setattr(StandbyTrial, "check_end", lambda trial: ends.append(trial.newest))
    for seed in range(8):
        run_scenario("forks", seed)
    owners = [{each.fragment: each.owner for each in newest.fragments} for newest in ends]
    both = [of for of in owners if "m/per_k" in of and of.get("m/so_far") == of["m/per_k"]]
    assert len(both) >= 2


@pytest.mark.parametrize("name", COORDINATORS)
def test_the_recorded_seed_of_coordinators_notices_it(name):
    mistake = COORDINATORS[name]
    assert mistake.seed is not None
    with planted(mistake):
        assert noticed(lambda seed: run_scenario("coordinators", seed).violation, mistake.seed, mistake.shows)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=FULL if STANDBY[name].tests else ()) for name in CAUGHT]
)
def test_the_recorded_seed_notices_it(name):
    mistake = STANDBY[name]
    assert mistake.seed is not None
    with planted(both(mistake)):
        assert noticed(lambda seed: run_scenario("standby", seed).violation, mistake.seed, mistake.shows)


@pytest.mark.parametrize("name", [name for name, each in STANDBY.items() if each.tests])
def test_a_unit_test_notices_what_few_seeds_do(name):
    assert fails_its_tests("tests.sim.planted_standby:STANDBY", name) == ""


@pytest.mark.parametrize("name", COVERED)
def test_either_check_alone_holds(name):
    mistake = STANDBY[name]
    for edits in (mistake.edits, mistake.beside):
        with planted(replace(mistake, edits=edits)):
            outcome = run_scenario("standby", mistake.seed or 0)  # None: unit tests notice it
        assert outcome.ok, str(outcome)


@pytest.mark.parametrize("name", [*STANDBY, *COORDINATORS])
def test_the_words_that_it_changes_are_there(name):
    with planted(both({**STANDBY, **COORDINATORS}[name])):
        pass


def test_the_table_is_whole():
    assert len(CAUGHT) >= 8
    for mistake in STANDBY.values():
        assert set(mistake.scenarios) <= set(SCENARIOS)
        assert mistake.about.endswith(".")


def test_faults_aimed_at_the_moments_of_takeovers_do_happen():
    scenario = SCENARIOS["standby"]
    scene = scenario.build(World(0, name="standby"), 1, None).scene
    kinds, moments = set(), set()
    for seed in range(200):
        faults = draw(
            World(seed, name="standby").dice("faults"), scene, (*scenario.kinds, *scenario.more), 12
        )
        kinds |= {fault.kind for fault in faults}
        moments |= {word for fault in faults if fault.kind in TAKEOVERS for word in fault.who} & {*MOMENTS}
    assert kinds >= {*TAKEOVERS, *LATE_VOTES}
    assert moments == {*MOMENTS}


@pytest.mark.parametrize("moment", ["seeds", "guarded", "proposes", "has taken over"])
def test_a_fault_strikes_at_its_moment(moment):
    world = World(2, name="standby", keep_trace=True)
    trial = SCENARIOS["standby"].build(world, None, None)
    who = ("owner", moment) if moment != "proposes" else ("secondary", moment)
    trial.aim(Fault(number=0, kind="pause in a takeover", at_us=0, for_us=1000, who=who, amount=1))
    trial.start()
    assert world.run(until_us=8_000_000, events_max=200_000, done=lambda: "pauses" in world.lines[-1])
