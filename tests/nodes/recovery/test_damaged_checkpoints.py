"""A file of a guarded fragment is damaged while its node is down: who stands by for it has what it held."""

from __future__ import annotations

from typing import Any

import pytest

from medusa.runtime.engine_host.group_names import GroupName, owner_of
from medusa.sim.world.file_damage import HOW
from tests.nodes.recovery.test_passive_standby import passively
from tests.nodes.taken_over import HALF, Run
from tests.nodes.test_taken_over import (
    CUT,
    UNITED,
    WHOLE,
    check_union,
    counting,
    run_of,
    two_sources,
    uniting,
)

KINDS: dict[str, tuple[Any, Any]] = {
    "clients": (counting, WHOLE),
    "nodes": (counting, CUT),
    "order of arrival": (uniting, UNITED),
}
FILES = (
    "catalog copy",
    "checkpoint",
    "output segment",
    "first checkpoint mark",
    "decision log",
    "life copy",
)


def guarded(kind: str, checkpoints: int, seed: int = 1) -> tuple[Run, str]:
    """Half of the rows are published, and so many checkpoints of it were written at its owner."""
    q, at = KINDS[kind]
    more: dict[str, Any] = {"tables": two_sources()} if at is UNITED else {}
    run, fragment = run_of(q(), at, {"m": ["s1"]}, witnesses=("w", "x"), seed=seed, **more)
    run.until_guarded(fragment)
    publish_half(run, fragment, checkpoints)
    return run, fragment


def publish_half(run: Run, fragment: str, checkpoints: int) -> None:
    """In four parts, with a checkpoint behind each until so many were written."""
    for part in range(4):
        before = written(run, fragment)
        run.publish(part * HALF // 4, (part + 1) * HALF // 4)
        run.fed.run(for_us=25_000)
        if before < checkpoints:
            run.until(lambda: written(run, fragment) > before, "a checkpoint is written")  # noqa: B023


def written(run: Run, fragment: str) -> int:
    hosted = run.fed.nodes["m"].brain.fragments[fragment]
    return int(hosted.checkpoints)


def on_disk(run: Run, fragment: str) -> list[str]:
    """Its checkpoints, the oldest first."""
    names = map(GroupName.of, run.fed.nodes["m"].disk.names())
    mine = [each for each in names if (each.kind, each.owner) == ("checkpoint", owner_of(fragment))]
    return [each.name for each in sorted(mine, key=lambda each: each.number)]


def come_back(run: Run, what: str, how: str, pick: int) -> str:
    """The owner dies, one of its files is damaged, and it is back before anybody has taken over; where."""
    node = run.fed.nodes["m"]
    node.crash()
    where = str(node.disk.damage(what, how, pick))
    run.fed.run(for_us=20_000)
    run.fed.restart("m")
    return where


def check(run: Run, kind: str) -> None:
    run.publish(HALF)
    if kind == "order of arrival":
        check_union(run)
    else:
        run.check()


def check_told(run: Run, kind: str) -> None:
    """All rows come, unless it is said that some are lost."""
    run.publish(HALF)
    run.until_ended()
    told = [each.what for node in run.fed.nodes.values() for each in node.reports if each.level == "error"]
    if "rows lost" not in told:
        check_union(run) if kind == "order of arrival" else run.check()


@pytest.mark.parametrize(
    ("how", "checkpoints"),
    [("bit", 1), ("bit", 3), ("short", 1), ("short", 3), ("zeros", 1), ("zeros", 3), ("gone", 3)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_checkpoint_costs_nothing_that_another_node_has(
    kind: str, how: str, checkpoints: int
) -> None:
    run, fragment = guarded(kind, checkpoints)
    assert come_back(run, "checkpoint", how, pick=5)
    run.until_owned(fragment, "s1")
    check(run, kind)
    run.until(lambda: not run.fed.nodes["m"].brain.catalog.in_doubt, "the doubt is over")
    run.until_guarded(fragment)
    assert run.replicas(fragment).secondaries == ("m",)


@pytest.mark.parametrize(("how", "pick", "checkpoints"), [("older", 4, 3), ("older", 5, 3), ("gone", 5, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_in_which_the_disk_once_was_is_never_silent(
    kind: str, how: str, pick: int, checkpoints: int
) -> None:
    """The newest is gone, and the one before the last is back, or the first one is left: no file tells that
    there was more."""
    run, _ = guarded(kind, checkpoints)
    assert come_back(run, "checkpoint", how, pick=pick)
    check_told(run, kind)


@pytest.mark.parametrize("kind", ["clients", "nodes"])
def test_of_one_whose_secondaries_hold_checkpoints_too(kind: str) -> None:
    q, at = KINDS[kind]
    run = Run(passively(q()), at, standby={"*": ["s1"]}, deploys="e", witnesses=("w", "x"))
    run.deploy()
    [fragment] = run.fed.nodes["m"].brain.fragments
    run.read()
    run.until_guarded(fragment)
    publish_half(run, fragment, 3)
    assert come_back(run, "checkpoint", "bit", pick=3)
    run.until_owned(fragment, "s1")
    check(run, kind)


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_single_file_of_the_owner_costs_a_row(kind: str, what: str) -> None:
    for seed, how in enumerate(HOW[:-1]):
        run, _ = guarded(kind, 1 + seed % 3, seed=seed)
        if come_back(run, what, how, pick=7 * seed + 1):
            check(run, kind)


def both_down(checkpoints: int) -> tuple[Run, str]:
    """Who stands by was restarted too, and has nothing: it was given the fragment, and gives it back."""
    run, fragment = guarded("clients", checkpoints)
    run.fed.nodes["s1"].crash()
    assert come_back(run, "checkpoint", "short", pick=2)
    run.fed.restart("s1")
    return run, fragment


def test_where_nobody_has_more_the_checkpoint_before_goes_on_and_what_is_missing_is_told() -> None:
    run, fragment = both_down(3)
    run.until_owned(fragment, "m")
    assert run.replicas(fragment).epoch == 3
    run.until_guarded(fragment)
    check_told(run, "clients")
    assert not run.fed.nodes["m"].brain.catalog.in_doubt


def test_that_it_was_given_back_outlives_the_owner() -> None:
    """It dies when its disk has the epoch in which it was given back, and before it has taken it up."""
    run, fragment = both_down(3)
    node = run.fed.nodes["m"]

    def given_back() -> bool:
        damaged = node.brain.catalog.in_doubt.fragments.get(fragment)
        return damaged is not None and damaged.epoch == 3

    run.until(given_back, "it is given back")
    run.fed.run(for_us=50_000)
    assert given_back(), "its disk has that, and the owner hasn't looked"
    node.crash()
    run.fed.restart("m")
    run.until_owned(fragment, "m")
    run.until_guarded(fragment)
    check_told(run, "clients")
    assert not node.brain.catalog.in_doubt
    lost = [line for line in node.reports if line.what == "last copy lost"]
    assert not lost, "a whole checkpoint is there"


def test_where_nobody_has_anything_it_waits_for_an_operator_and_nothing_is_deleted() -> None:
    run, fragment = guarded("clients", 1)
    run.fed.nodes["s1"].crash()
    node = run.fed.nodes["m"]
    node.crash()
    for name in on_disk(run, fragment):
        node.disk.truncate(prefix=name)
        assert name in on_disk(run, fragment)
    before = on_disk(run, fragment)
    run.fed.restart("m")
    run.fed.restart("s1")
    catalog = node.brain.catalog
    run.until(lambda: run.replicas(fragment).epoch == 3, "it is given back")
    run.fed.run(for_us=5_000_000)
    assert "who stood by for it has nothing of it either" in catalog.in_doubt.fragments[fragment].why
    assert run.hosted(fragment) is None
    assert on_disk(run, fragment) == before
    assert run.replicas(fragment).epoch == 3, "it doesn't go to and fro"


def test_while_who_stands_by_is_away_it_waits_and_the_checkpoint_before_stays() -> None:
    run, fragment = guarded("clients", 3)
    other = run.fed.nodes["s1"]
    for name in run.fed.nodes:
        if name != "s1":
            run.fed.network.cut(name, "s1")
            run.fed.network.cut("s1", name)
    assert come_back(run, "checkpoint", "zeros", pick=4)
    before = on_disk(run, fragment)
    run.fed.run(for_us=3_000_000)
    assert other.alive
    assert run.hosted(fragment) is None
    assert on_disk(run, fragment) == before
    run.fed.network.heal_all()
    run.until_owned(fragment, "s1")
    check(run, "clients")
