"""The data folder of a node is damaged while it is down: no loss is silent, and nothing intact is deleted."""

import os
import shutil
from dataclasses import replace

import pytest

from medusa.nodes.repair.operator_decisions import OperatorDecisions
from medusa.runtime.engine_host.group_names import GroupName, owner_of
from medusa.runtime.repair.operator_repair import repair
from tests.runtime.damaged import Damaged

SAMPLE = range(3)
BLOCK = 40


def said_or_exact(folder, seed, **options):
    run = Damaged(folder, seed, **options)
    ended = run.run()
    assert ended.deleted == [], ended
    assert ended.exact or ended.said, f"seed {seed}, {run.event}: {ended}"
    return run, ended


@pytest.mark.parametrize("seed", SAMPLE)
def test_the_end_is_exact_or_the_loss_is_told(tmp_path, seed):
    said_or_exact(tmp_path, seed)


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("block", range(30))
def test_more_damaged_folders(tmp_path, block):
    """1,200 in all: most of them just after a deployment, a move, a split, a merge or a removal."""
    for seed in range(1000 + BLOCK * block, 1000 + BLOCK * (block + 1)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        said_or_exact(folder, seed)


@pytest.mark.parametrize("copy", [0, 1])
def test_one_bit_in_either_copy_of_the_catalog_just_after_a_deployment_costs_nothing(tmp_path, copy):
    run, ended = said_or_exact(tmp_path, copy, event="deploy", kind="window", victim="m", copies=(copy,))
    assert ended.exact, ended
    assert run.missing == []
    assert run.waiting == set()
    assert run.victim.brain.catalog.in_doubt.newest == 0
    assert any("the other copy of number" in report.what for report in run.victim.reports)


@pytest.mark.parametrize("seed", [1, 2])
def test_with_both_copies_lost_a_fragment_waits_until_its_coordinator_confirms_it(tmp_path, seed):
    run, ended = said_or_exact(tmp_path, seed, event="deploy", kind="window", victim="m", copies=(0, 1))
    assert run.missing == []
    assert run.waiting == {"q/box"}
    assert any("is lost, number 1 is the newest whole one" in text for text in ended.said)
    [here] = [r for r in run.victim.reports if r.what == "fragment in doubt is here"]
    assert here.fields["why"] == "node 'e', which deployed it, says that it runs"
    assert ended.exact, ended


def test_a_fragment_that_loses_its_state_while_it_moves_waits_and_its_node_starts(tmp_path):
    run, ended = said_or_exact(tmp_path, 2145)
    assert run.event == "move"
    assert run.victim.alive
    assert any("none of them is whole" in text for text in ended.said)
    node = run.victim
    assert "q/box" in node.brain.catalog.ownership.moves, "its move waits with it"
    node.crash()
    repair(replace(node.settings, data=str(tmp_path / "m")), OperatorDecisions(begin_anew=("q/box",)))
    node.restart()
    assert node.alive, node.unable
    run.fed.run(lambda: not node.brain.catalog.ownership.moves, for_us=5_000_000)
    assert node.brain.catalog.ownership.moves == {}
    assert "q/box" in node.brain.fragments


def test_a_mark_of_the_first_checkpoint_that_is_missing_is_written_with_the_next_one(tmp_path):
    """Or checkpoints that are lost later would look like a fragment that never had any."""
    run = Damaged(tmp_path, 1, event="quiet", kind="window", victim="m")
    node, path = run.fed.nodes["m"], tmp_path / "m"
    run.deploy()
    run.begin()

    def groups(kind):
        mine = (GroupName.of(name) for name in os.listdir(path))
        return [each.name for each in mine if (each.kind, each.owner) == (kind, owner_of("q/box"))]

    def restart(kind):
        node.crash()
        assert groups(kind)
        for name in groups(kind):
            shutil.rmtree(path / name)
        node.disk.close()
        node.restart()

    run.fed.run(for_us=720_000)
    restart("first checkpoint mark")
    run.fed.run(lambda: groups("first checkpoint mark"), for_us=2_000_000)
    restart("checkpoint")
    assert {name: each.state for name, each in node.brain.catalog.in_doubt.fragments.items()} == {
        "q/box": "lost"
    }


def test_a_decision_log_without_a_checkpoint_is_used_when_the_fragment_is_confirmed(tmp_path):
    """Or what had left the node would come again in another order under the same numbers."""
    run, ended = said_or_exact(
        tmp_path,
        1,
        event="quiet",
        kind="union",
        victim="e",
        coordinator="c",
        copies=(0, 1),
        checkpoint_every_us=60_000_000,
    )
    [here] = [r for r in run.victim.reports if r.what == "fragment in doubt is here"]
    assert here.fields["begins"] == "its decision log"
    assert ended.exact, ended
