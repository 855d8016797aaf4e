"""Fragments move, boxes are split and merged at random moments under faults; mistakes in that are noticed."""

from __future__ import annotations

import time

import pytest

from medusa.engine.state import background_copy
from medusa.nodes.repartition.automaton import SplitState
from medusa.sim.scenarios import SCENARIOS, run_scenario
from medusa.sim.world.fault_kinds import (
    AIMED,
    AIMED_SPLITS,
    LINKS,
    MACHINES,
    SPLIT_STEPS,
    STEPS,
    WEATHER,
    Fault,
    draw,
)
from medusa.sim.world.virtual_time import World
from tests.engine.test_splitting_run import (
    test_state_goes_where_the_router_sends_keys_of_any_type as any_key_type,
)
from tests.sim.conftest import SPENT
from tests.sim.planted_moves import MOVED, SPLIT, one_side_of_a_join_goes_to_the_first_part
from tests.sim.planted_process_splits import PROCESS_SPLITS
from tests.sim.planting import fails_its_tests, noticed, planted

SEEDS = {"move": 140, "splits": 60}
"""200 in all; half of them run in CI."""

FULL = (pytest.mark.full, pytest.mark.issue(6))
CASES = [
    pytest.param(name, seed, marks=FULL if seed >= count // 2 else ())
    for name, count in SEEDS.items()
    for seed in range(count)
]
# Two neighbours at one node with a slow disk, ordered to move at once: each was refused since the attempt of
# the other was being undone, both began anew in step, and so until their time was over.
CASES += [("splits", 159)]
# An order was on its way to the owner over a slow network when the last were given, so that one was refused.
CASES += [("splits", 1364)]
# The disk of a node that had been slow had work for 10 s more when they were given.
CASES += [("splits", 1482)]
# A class of users with timers is split and merged again.
CASES += [("splits", 108), ("splits", 248)]
# Who had handed a fragment over, and hadn't heard that it was taken, asked upstream for rows when it was just
# coming back: that was taken for its arrival, and the owner had no place there any more.
CASES += [("move", 3321), ("move", 3732), ("move", 3821)]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_seed(name, seed):
    """Chaos and checks: as ``medusa.sim.trials.moves`` and ``split_trial`` say."""
    passed(name, seed)


def passed(name, seed):
    began = time.process_time()
    outcome = run_scenario(name, seed)
    assert outcome.ok, str(outcome)
    SPENT.append((name, outcome.events, time.process_time() - began))


@pytest.mark.parametrize("name", SEEDS)
def test_states_that_are_copied_row_by_row_while_rows_come(name, monkeypatch):
    """As large ones are: a move, a death or a split comes in between."""
    monkeypatch.setattr(background_copy, "AT_ONCE", -1)
    monkeypatch.setattr(background_copy, "SLICE_ROWS", 1)
    for seed in range(500, 507):
        passed(name, seed)


def test_a_part_of_sessions_that_is_copied_row_by_row_and_moves(monkeypatch):
    """Found when keys became dense at the cuts."""
    monkeypatch.setattr(background_copy, "AT_ONCE", -1)
    monkeypatch.setattr(background_copy, "SLICE_ROWS", 1)
    passed("splits", 507)


@pytest.mark.full
@pytest.mark.issue(6)
@pytest.mark.parametrize("block", range(25))
@pytest.mark.parametrize("name", SEEDS)
def test_more_seeds(name, block):
    """5,000 in all."""
    for seed in range(1000 + SEEDS[name] * block, 1000 + SEEDS[name] * (block + 1)):
        passed(name, seed)


def test_faults_aimed_at_the_steps_of_splits_do_happen():
    """And the seeds share two queries."""
    scenario = SCENARIOS["splits"]
    trials = [scenario.build(World(seed, name="splits"), 1, None) for seed in range(2)]
    kinds, places = set(), set()
    for seed in range(SEEDS["splits"]):
        for fault in draw(World(seed, name="splits").dice("faults"), trials[0].scene, scenario.kinds, 8):
            kinds.add(fault.kind)
            places |= {fault.who[1].split()[-1]} if fault.kind in AIMED_SPLITS else set()
    assert kinds == {*WEATHER, *LINKS, *MACHINES, *AIMED_SPLITS}
    assert places == {*SPLIT_STEPS}
    assert {*trials[0].boxes, *trials[1].boxes} >= {"pairs", "stays", "firsts", "so_far", "per_k", "totals"}
    assert {each.value for each in SplitState} == {*SPLIT_STEPS}


def test_there_are_200_seeds_and_in_them_fragments_do_move():
    assert sum(SEEDS.values()) == 200
    shown = [("move", 0), ("splits", 5)]
    outcomes = [run_scenario(name, seed, keep_trace=True) for name, seed in shown]
    trace = "\n".join(line for outcome in outcomes for line in outcome.last)
    for what in ("fragment taken", "stream moved", "goes after", "box split", "box merged"):
        assert what in trace


def test_faults_aimed_at_the_steps_of_moves_do_happen():
    world, scenario = World(0, name="move"), SCENARIOS["move"]
    trial = scenario.build(world, 1, None)
    kinds, places = set(), set()
    for seed in range(SEEDS["move"]):
        for fault in draw(World(seed, name="move").dice("faults"), trial.scene, scenario.kinds, 12):
            kinds.add(fault.kind)
            places |= {fault.who[:2]} if fault.kind == "crash in a move" else set()
    assert kinds == {*WEATHER, *LINKS, *MACHINES, *AIMED}
    assert places >= {(part, step) for part in ("owner", "target") for step in STEPS}


@pytest.mark.parametrize(
    ("part", "step"),
    [("owner", "copying"), ("owner", "handed"), ("target", "following"), ("target", "taking")],
)
def test_who_takes_part_in_a_move_dies_at_its_step(part, step):
    world = World(6, name="move", keep_trace=True)
    trial = SCENARIOS["move"].build(world, None, None)
    who = (part, step, "lost")
    trial.aim(Fault(number=0, kind="crash in a move", at_us=0, for_us=1000, who=who, amount=1))
    trial.start()
    before: dict[str, set[str]] = {}

    def struck():
        if "crashes" in world.lines[-1]:
            return True
        for name, node in trial.nodes.items():
            status = node.brain.orders.status()
            before[name] = {way.state for side in (status.going, status.coming) for way in side.values()}
        return False

    assert world.run(until_us=5_000_000, events_max=100_000, done=struck)
    name = world.lines[-1].split()[1]
    assert step.replace("handed", "handing") in before[name]


@pytest.mark.parametrize(
    ("part", "step"),
    [
        ("owner", "split cutting"),
        ("coordinator", "split asking"),
        ("owner", "switching"),
        ("upstream", "over"),
    ],
)
def test_who_takes_part_in_a_split_dies_at_its_step(part, step):
    world = World(1, name="splits", keep_trace=True)
    trial = SCENARIOS["splits"].build(world, None, None)
    who = (part, step, "lost")
    trial.aim(Fault(number=0, kind="crash in a split", at_us=0, for_us=1000, who=who, amount=1))
    trial.start()
    before: dict[str, set[str]] = {}

    def struck():
        if "crashes" in world.lines[-1]:
            return True
        for name, node in trial.nodes.items():
            ways = node.brain.orders.splits.status()
            before[name] = {f"{way.what} {way.state}" for way in ways}
        return False

    assert world.run(until_us=5_000_000, events_max=100_000, done=struck)
    name = world.lines[-1].split()[1]
    if step == "over":
        assert not before[name]
    elif part == "owner":
        assert any(each.endswith(step) for each in before[name])
    else:
        assert any(step in each for each in before.values())


@pytest.mark.parametrize("mistake", [*MOVED, *SPLIT])
def test_a_planted_mistake_is_noticed_by_its_recorded_seed(mistake, monkeypatch):
    name = "move" if mistake in MOVED else "splits"
    recorded, plant = (MOVED | SPLIT)[mistake]
    plant(monkeypatch)
    assert noticed(lambda seed: run_scenario(name, seed).violation, recorded, "SimulationError: ")


@pytest.mark.parametrize("name", [name for name, mistake in PROCESS_SPLITS.items() if not mistake.tests])
def test_a_mistake_in_splits_of_classes_is_noticed_by_its_recorded_seed(name):
    mistake = PROCESS_SPLITS[name]
    with planted(mistake):
        assert noticed(lambda seed: run_scenario("splits", seed).violation, mistake.seed, mistake.shows)


@pytest.mark.parametrize("name", [name for name, mistake in PROCESS_SPLITS.items() if mistake.tests])
def test_a_mistake_in_splits_of_classes_is_noticed_by_its_tests(name):
    assert fails_its_tests("tests.sim.planted_process_splits:PROCESS_SPLITS", name) == ""


def test_one_side_of_a_join_in_the_first_part_is_noticed_by_a_unit_test(monkeypatch):
    """None of the seeds 394 to 690 of ``splits`` noticed it."""
    one_side_of_a_join_goes_to_the_first_part(monkeypatch)
    with pytest.raises(AssertionError):
        any_key_type("bool")
