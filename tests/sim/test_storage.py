"""Damaged files in the simulator: what a start may delete, what excuses missing rows, planted mistakes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from medusa.engine.state.checkpoint import seal
from medusa.runtime.engine_host.group_names import begun_name, catalog_names, group_name
from medusa.sim.actors.start_check import StartCheck, check_marks, lacks_newest
from medusa.sim.checkers.losses import more_than
from medusa.sim.scenarios import run_scenario
from medusa.sim.world.disk import Disk
from medusa.sim.world.virtual_time import SimulationError
from tests.sim.planted_storage import STORAGE
from tests.sim.planting import Mistake, fails_its_tests, noticed, planted

SEARCHED = 200
CAUGHT = {name: mistake for name, mistake in STORAGE.items() if mistake.seed is not None}


def both(mistake: Mistake) -> Mistake:
    """With the second check that covers it planted away."""
    return replace(mistake, edits=mistake.edits + mistake.beside)


@pytest.mark.parametrize("seed", range(6))
def test_disks_that_give_back_what_they_never_should(seed):
    outcome = run_scenario("ruin", seed)
    assert outcome.ok, str(outcome)


@pytest.mark.parametrize("name", CAUGHT)
def test_the_recorded_seed_notices_it(name):
    mistake = CAUGHT[name]
    scenario = mistake.scenarios[0]
    with planted(both(mistake)):
        assert noticed(lambda seed: run_scenario(scenario, seed).violation, mistake.seed, mistake.shows)


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("name", CAUGHT)
def test_a_search_notices_it(name):
    """And without the mistake the seed that does is as it should be."""
    mistake = STORAGE[name]
    for scenario, seed in ((each, seed) for each in mistake.scenarios for seed in range(SEARCHED)):
        with planted(both(mistake)):
            found = run_scenario(scenario, seed).violation
        if found and found.startswith(mistake.shows):
            assert run_scenario(scenario, seed).ok
            return
    pytest.fail(f"none of {SEARCHED} seeds of {', '.join(mistake.scenarios)} notices it")


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("name", [name for name, each in STORAGE.items() if each.tests])
def test_a_unit_test_notices_it(name):
    """Together with the loss of the second check, where one covers it."""
    assert fails_its_tests("tests.sim.planted_storage:STORAGE", name) == ""


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("block", range(20))
@pytest.mark.parametrize("name", ["ruin", "storage"])
def test_more_seeds(name, block):
    """2,000 in all."""
    for seed in range(2000 + 50 * block, 2000 + 50 * (block + 1)):
        outcome = run_scenario(name, seed)
        assert outcome.ok, str(outcome)


@pytest.mark.parametrize("name", STORAGE)
def test_the_words_that_it_changes_are_there(name):
    with planted(both(STORAGE[name])):
        pass
    assert STORAGE[name].scenarios or STORAGE[name].tests


# --- a start --------------------------------------------------------------------------------------


def write(disk: Disk, name: str, fragment: str, token: int) -> None:
    disk.write(name, seal({"state": b"whole"}, {"fragment": fragment, "token": token, "catalog": 0}))


def test_of_the_last_two_checkpoints_none_goes_by_itself():
    disk = Disk("n")
    for token in (3, 4, 5):
        write(disk, group_name("q/a", token), "q/a", token)
    disk.delete(group_name("q/a", 3))
    StartCheck("n", disk)
    disk.delete(group_name("q/a", 4))
    with pytest.raises(SimulationError, match="one of the last two, is gone"):
        StartCheck("n", disk)


@pytest.mark.parametrize("how", ["bit", "gone", "short"])
def test_a_damaged_checkpoint_isnt_wanted(how):
    disk = Disk("n")
    for token in (3, 4):
        write(disk, group_name("q/a", token), "q/a", token)
    disk.damage("checkpoint", how, 0)
    StartCheck("n", disk)


def test_a_fragment_that_is_removed_leaves_nothing_to_miss():
    disk = Disk("n")
    for name in (group_name("q/a", 3), group_name("q/a", 4), begun_name("q/a", 3)):
        write(disk, name, "q/a", int(name[-2:]))
    for name in disk.names():
        disk.delete(name)
    StartCheck("n", disk)
    assert not disk.history.checkpoints


def test_a_checkpoint_whose_mark_could_not_be_written_never_counted():
    disk = Disk("n")
    for name in (group_name("q/a", 3), group_name("q/a", 4), begun_name("q/a", 4)):
        write(disk, name, "q/a", int(name[-2:]))
    disk.delete(group_name("q/a", 3))
    StartCheck("n", disk)


def test_two_checkpoints_and_no_mark():
    disk = Disk("n")
    write(disk, group_name("q/a", 3), "q/a", 3)
    check_marks("n", disk)
    write(disk, group_name("q/a", 4), "q/a", 4)
    with pytest.raises(SimulationError, match="no mark"):
        check_marks("n", disk)
    write(disk, begun_name("q/a", 3), "q/a", 3)
    check_marks("n", disk)


def test_a_catalog_counts_once_both_copies_are_there():
    disk = Disk("n")
    first, second = catalog_names(7)
    write(disk, first, "", 7)
    assert disk.history.catalog[0] == 0
    write(disk, second, "", 7)
    assert disk.history.catalog[0] == 7
    disk.damage("catalog", "gone", 0)
    assert disk.names() == []
    assert (disk.history.catalog[0], disk.history.harmed) == (7, {first, second})
    disk.lose()
    assert (disk.history.catalog[0], disk.history.harmed, disk.history.lost) == (0, set(), 1)


# --- what came ------------------------------------------------------------------------------------


def test_fewer_rows_explain_lower_counts_and_missing_rows_alone():
    want = pa.table({"k": ["a", "b"], "n": [3, 2], "s": [10, 20]})
    assert not more_than(want.slice(1), want)
    assert not more_than(pa.table({"k": ["a"], "n": [1], "s": [99]}), want)
    assert more_than(pa.table({"k": ["a", "a"], "n": [3, 1], "s": [1, 1]}), want)
    assert more_than(pa.table({"k": ["c"], "n": [1], "s": [1]}), want)
    rows = pa.table({"k": ["a"], "v": [1]})
    assert not more_than(rows.slice(1), rows)
    assert more_than(pa.concat_tables([rows, rows]), rows)


def test_a_newest_checkpoint_that_is_not_whole_is_told_from_others():
    """By the disk alone, whatever a node makes of it."""
    disk, name = Disk("a"), "q/part"
    assert not lacks_newest(disk, name)
    for number in (3, 5):
        disk.write(group_name(name, number), seal({"log": b"x" * 90}, {"token": number}))
    disk.write(group_name("q/other", 9), {"log": b"no seal"})
    disk.write(begun_name(name, 3), {})
    assert not lacks_newest(disk, name)
    disk.begin(group_name(name, 7), seal({"log": b"x" * 90}, {"token": 7}))
    disk.crash("torn")
    assert lacks_newest(disk, name)
    disk.delete(group_name(name, 7))
    assert not lacks_newest(disk, name)
