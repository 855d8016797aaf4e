"""The tester tested by somebody else: mistakes that a stranger planted are noticed, by seeds or by tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medusa.sim.scenarios import SCENARIOS, run_scenario
from medusa.wire.link.output_log import OutputLog
from tests.sim.planted_by_strangers import MISTAKES
from tests.sim.planted_owners import OWNERS
from tests.sim.planting import Mistake, edit, noticed, planted

CAUGHT = {name: mistake for name, mistake in MISTAKES.items() if mistake.seed is not None}

SEARCHED = 200
"""Seeds of each scenario."""

CAUGHT_MIN = 36
"""Of 36. Fewer: something that was seen isn't any more."""

SLOW = ("move", "splits", "comeback")
LONG = (
    "half a deployment stays",
    "questions of an earlier attempt count",
    "a merge doesn't wait for boundaries",
)
"""What is noticed is that 30 virtual seconds aren't enough."""
SAMPLE = [name for name, each in CAUGHT.items() if each.scenarios[0] not in SLOW and name not in LONG]
"""Those whose seed takes a fraction of a second."""


def violation(mistake: Mistake, scenario: str, seed: int) -> str:
    with planted(mistake):
        return run_scenario(scenario, seed).violation


@pytest.mark.parametrize("name", SAMPLE)
def test_the_recorded_seed_notices_it(name):
    mistake = CAUGHT[name]
    assert mistake.seed is not None
    assert noticed(lambda seed: violation(mistake, mistake.scenarios[0], seed), mistake.seed, mistake.shows)


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


def test_the_table_is_whole():
    assert len(MISTAKES) == 36
    assert len(CAUGHT) >= CAUGHT_MIN
    for mistake in MISTAKES.values():
        assert set(mistake.scenarios) <= set(SCENARIOS)
        assert mistake.scenarios
        assert mistake.about.endswith(".")


@pytest.mark.parametrize("name", [*MISTAKES, *OWNERS])
def test_the_words_that_it_changes_are_there_and_come_back(name):
    mistake = {**MISTAKES, **OWNERS}[name]
    both = replace(mistake, edits=mistake.edits + mistake.beside)
    with planted(both):
        pass
    with planted(both):  # The words are looked for in the file, which is as it was.
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
    wrong = Mistake(
        area="link",
        about="None.",
        edits=edit(
            "wire.link.output_log:OutputLog._forget",
            "no such words",
            "",
        ),
    )
    with pytest.raises(AssertionError, match="_forget has 0 times 'no such words'"), planted(wrong):
        pass
