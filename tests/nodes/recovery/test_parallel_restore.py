"""A state that was held for a lost owner is restored on several nodes at once, by ranges of its keys."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from medusa.nodes.placement.placement import cut
from medusa.nodes.recovery.backup_holders import followers_wanted
from medusa.nodes.repartition.parallel_restore import keyed_box
from medusa.query.recovery import STATE_BACKUP
from tests.nodes.recovery.test_state_backup import STANDBY, backed_up, holders, of, until_held
from tests.nodes.taken_over import HALF, ROWS, Run
from tests.nodes.test_taken_over import CUT, UNITED, WHOLE, check_union, counting, two_sources, uniting
from tests.sim.planting import Mistake, edit, planted


def run_of(
    q: Any, at: Any, monkeypatch: pytest.MonkeyPatch, *, parts: int = 2, **more: Any
) -> tuple[Run, str]:
    """All nodes restore in so many parts."""
    standby = more.pop("standby", STANDBY)
    run = Run(backed_up(q), at, standby=standby, deploys="w", witnesses=("x",), **more)
    for node in run.living:
        monkeypatch.setattr(node.brain.orders.restoring, "_parts", parts)
    run.deploy()
    [fragment] = run.fed.nodes["m"].brain.fragments
    run.read()
    for name in [each.fragment for each in run.newest().fragments]:
        run.until_guarded(name, 1)
    return run, fragment


def places(run: Run) -> dict[str, str]:
    """Where each fragment runs."""
    return {
        name: node.name
        for node in run.living
        for name, hosted in node.brain.fragments.items()
        if not hosted.frozen
    }


PARTS = {"q/kind-router": "s1", "q/kind-1": "s1", "q/kind-2": "s2", "q/kind-out": "s1"}


def until_restored(run: Run, want: dict[str, str] = PARTS) -> None:
    run.until(lambda: want.items() <= places(run).items(), "each part is at its node")


@pytest.mark.parametrize("after_us", [0, 40_000, 150_000])
def test_a_lost_fragment_goes_on_at_two_nodes(after_us: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run, fragment = run_of(counting(), CUT, monkeypatch, seed=after_us + 1)
    assert holders(run, fragment).keys() == {"e"}
    run.publish(0, HALF)
    run.fed.run(for_us=after_us)
    run.lose("m")
    until_restored(run)
    run.publish(HALF, ROWS)
    run.check()


def test_an_order_of_arrival_that_was_shown_stays_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where decisions are logged the fragment rests while it is split."""
    run, _ = run_of(uniting(), UNITED, monkeypatch, tables=two_sources())
    run.publish()
    run.fed.run(for_us=40_000)
    run.lose("m")
    run.until(
        lambda: {"s1", "s2"} <= {places(run).get(name) for name in ("q/kind-1", "q/kind-2")}, "in parts"
    )
    check_union(run)


def test_rows_that_clients_publish_go_on_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder is none that sends: the first that stands by. Three parts go to as many as there are."""
    run, fragment = run_of(counting(), WHOLE, monkeypatch, parts=3, standby={"m": ["s1", "s2", "s3"]})
    assert holders(run, fragment).keys() == {"s1"}
    run.publish(0, HALF)
    run.fed.run(for_us=60_000)
    run.lose("m")
    until_restored(run, {"q/kind-1": "s2", "q/kind-2": "s3"})
    assert "q/kind-3" not in places(run)
    run.publish(HALF, ROWS)
    run.check()


def test_with_one_spare_it_goes_on_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    run, fragment = run_of(counting(), CUT, monkeypatch)
    run.lose("s2")
    run.publish(0, HALF)
    run.fed.run(for_us=40_000)
    run.lose("m")
    run.until_owned(fragment, "s1")
    until_held(run, fragment, "e")
    run.publish(HALF, ROWS)
    run.check()


def test_a_part_that_is_lost_later_is_restored_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = run_of(counting(), CUT, monkeypatch, standby={**STANDBY, "m": ["s1", "s2", "s3"]})
    third = ROWS // 3
    run.publish(0, third)
    run.fed.run(for_us=40_000)
    run.lose("m")
    until_restored(run)
    run.until_guarded("q/kind-2", 1)
    run.publish(third, 2 * third)
    run.fed.run(for_us=40_000)
    run.lose("s2")
    run.until(lambda: places(run).get("q/kind-2") in ("s1", "s3"), "another spare has it")
    assert not [name for name in places(run) if "kind-2-" in name]
    run.publish(2 * third, ROWS)
    run.check()


def test_a_query_of_the_name_that_is_deployed_later_is_restored_in_parts_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its fragment is taken over in the same epoch as that of before."""
    run, fragment = run_of(counting(), CUT, monkeypatch)
    run.fed.nodes["m"].crash()
    until_restored(run)
    run.fed.restart("m")
    run.undeploy()
    run.until(lambda: not run.remains(), "nothing is left")
    run.deploy()
    run.until_guarded(fragment)
    assert places(run)[fragment] == "m"
    run.fed.nodes["m"].crash()
    until_restored(run)


@pytest.mark.parametrize("seed", range(8))
def test_nodes_that_die_amid_it_lose_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder that restores it, or a spare: killed at some moment, and back with its disk."""
    dice = random.Random(seed)
    run, _ = run_of(counting(), CUT, monkeypatch, seed=seed)
    run.publish(0, HALF)
    run.fed.run(for_us=dice.randrange(60_000))
    run.lose("m")
    # The takeover is decided after 0.9 s or so, and the parts are out some 100 ms later.
    run.fed.run(for_us=dice.randrange(900_000, 1_500_000))
    victim = dice.choice(["e", "e", "s1", "s2"])
    run.fed.nodes[victim].crash()
    run.fed.run(for_us=dice.randrange(1_000, 3_000_000))
    run.fed.restart(victim)
    run.publish(HALF, ROWS)
    run.check()


# --- what is asked -----------------------------------------------------------------------------------------


def test_the_whole_goes_to_nobody_while_it_is_restored_in_parts() -> None:
    run = Run(backed_up(counting()), CUT, standby=STANDBY)
    spec = msgspec.structs.replace(
        cut(run.q.graph, run.at).fragments[1],
        method=STATE_BACKUP,
        backup_nodes=("u1", "u2"),
        standby=("u1", "u2", "s"),
    )
    about: Any = {"is_up": lambda node: True, "refused": lambda node: False, "keeps_here": True}
    assert followers_wanted(spec, of("u1"), **about) == ()
    assert followers_wanted(spec, of("u1"), **about, to="s") == ("s",), "but a part to its node"


def test_what_is_split_is_what_holds_keys() -> None:
    specs = {each.name: each for each in cut(counting().graph, CUT).fragments}
    assert keyed_box(specs["q/kind"]) == "kind"
    assert keyed_box(specs["q/rows"]) == "", "a filter has no state, and would be split by blocks"


# --- planted mistakes ---------------------------------------------------------------------------------------

MISTAKES = {
    "all parts go to one node": (
        edit(
            "nodes.repartition.parallel_restore:ParallelRestore._send_out",
            "to = restore.nodes[next(places, 0)]",
            "to = restore.nodes[0]",
        ),
        lambda patch: test_a_lost_fragment_goes_on_at_two_nodes(0, patch),
    ),
    "the whole goes to a spare meanwhile": (
        edit(
            "nodes.recovery.backup_holders:followers_wanted",
            'first = "" if keeps_here else next(there, "")',
            'first = next(there, "")',
        ),
        lambda patch: test_the_whole_goes_to_nobody_while_it_is_restored_in_parts(),
    ),
    "a part is split again": (
        edit(
            "nodes.repartition.parallel_restore:ParallelRestore._nodes_for",
            "if len(nodes) < 2 or self._is_part(spec):",
            "if len(nodes) < 2:",
        ),
        test_a_part_that_is_lost_later_is_restored_as_it_is,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edits, notices = MISTAKES[name]
    with planted(Mistake(area="state backup", about=name, edits=edits)), pytest.raises(AssertionError):
        notices(monkeypatch)
