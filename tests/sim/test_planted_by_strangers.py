"""The tester tested by somebody else: mistakes that a stranger planted are noticed, by seeds or by tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from medusa.sim.scenarios import SCENARIOS, run_scenario
from medusa.wire.log import OutputLog
from tests.sim.planted_by_strangers import MISTAKES, NOT_SIMULATED
from tests.sim.planting import Mistake, edit, planted

CAUGHT = {name: mistake for name, mistake in MISTAKES.items() if mistake.seed is not None}
SURVIVORS = {name: mistake for name, mistake in MISTAKES.items() if mistake.seed is None}

SEARCHED = 200
"""Seeds of each scenario."""

CAUGHT_MIN = 30
"""Of 36. Fewer: something that was seen isn't any more."""

SLOW = ("move", "splits", "comeback")
SAMPLE = [
    name
    for name, each in CAUGHT.items()
    if each.scenarios[0] not in SLOW and name != "half a deployment stays"
]
"""Those whose seed takes a fraction of a second."""


def violation(mistake: Mistake, scenario: str, seed: int) -> str:
    with planted(mistake):
        return run_scenario(scenario, seed).violation


@pytest.mark.parametrize("name", SAMPLE)
def test_the_recorded_seed_notices_it(name):
    mistake = CAUGHT[name]
    assert mistake.seed is not None
    assert violation(mistake, mistake.scenarios[0], mistake.seed).startswith(mistake.shows or "")
    assert violation(mistake, mistake.scenarios[0], mistake.seed)


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("name", CAUGHT)
def test_the_recorded_seed_notices_it_or_a_search_does(name):
    """And without the mistake the seed is as it should be."""
    mistake = CAUGHT[name]
    assert mistake.seed is not None
    seeds = [mistake.seed, *range(SEARCHED)]
    for scenario, seed in ((scenario, seed) for scenario in mistake.scenarios for seed in seeds):
        found = violation(mistake, scenario, seed)
        if found and found.startswith(mistake.shows):
            assert run_scenario(scenario, seed).ok
            return
    pytest.fail(f"no seed of {len(seeds)} of {', '.join(mistake.scenarios)} notices it")


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("name", NOT_SIMULATED)
def test_a_mistake_in_what_is_not_simulated_is_noticed_by_a_test(name):
    """The test file passes without it, which ``make test`` shows, and fails with it."""
    program = (
        "import sys, pytest; from tests.sim.planted_by_strangers import NOT_SIMULATED, planted\n"
        "name, file = sys.argv[1:]\n"
        "with planted(NOT_SIMULATED[name]):\n"
        "    sys.exit(pytest.main([file, '-q', '-x', '-p', 'no:cacheprovider', '-p', 'no:xdist']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, name, NOT_SIMULATED[name].tests],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout + ran.stderr


def test_the_table_is_whole():
    assert len(MISTAKES) == 36
    assert len(CAUGHT) >= CAUGHT_MIN
    for mistake in MISTAKES.values():
        assert set(mistake.scenarios) <= set(SCENARIOS)
        assert mistake.scenarios
        assert mistake.about.endswith(".")
    assert all((Path(__file__).parents[2] / each.tests).exists() for each in NOT_SIMULATED.values())


@pytest.mark.parametrize("name", [*MISTAKES, *NOT_SIMULATED])
def test_the_words_that_it_changes_are_there_and_come_back(name):
    mistake = {**MISTAKES, **NOT_SIMULATED}[name]
    with planted(mistake):
        pass
    with planted(mistake):  # The words are looked for in the file, which is as it was.
        pass


def test_a_change_is_made_and_undone():
    log = OutputLog()
    log.append_train(b"x", 3)
    with planted(MISTAKES["the log begins with what it forgot"]):
        log.trim(3, 1)
        assert log.start_seq == 0
    log.append_train(b"x", 4)
    log.trim(7, 2)
    assert log.start_seq == 7


def test_words_that_are_not_there_are_an_error():
    wrong = Mistake(area="link", about="None.", edits=edit("wire.log:OutputLog._forget", "no such words", ""))
    with pytest.raises(AssertionError, match="_forget has 0 times 'no such words'"), planted(wrong):
        pass
