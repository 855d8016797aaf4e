"""Who was chosen as owner and lost what it followed gives the fragment back to the owner before.

The owner before only slept. It keeps what it has until its successor says that it has begun.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from medusa.nodes.agreement.changes import begun, given_back, owned_by, taken_from
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.in_doubt import FragmentInDoubt
from medusa.nodes.recovery.succession_table import SUCCESSION, Here, Role, Step, role_of
from medusa.query.recovery import PASSIVE
from medusa.sim.checkers.catalog import newest_catalog
from medusa.wire.messages.configuration import Replicas
from tests.nodes.recovery.test_passive_standby import passively
from tests.nodes.recovery.upstream_run import UpstreamRun, query
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

BOTH = pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])

SLOW = 20

BETWEEN_US, LATER_US = 1_500_000, 6_000_000
"""The owner wakes while its successor is dead, and hears first that this was chosen; or after all is over."""


def put_to_sleep(q: Any, at: Any, *others: str, sleeps_us: int, **more: Any) -> tuple[Run, str]:
    """Some rows were shown when the owner fell asleep."""
    run, fragment = run_of(q, at, {"m": list(others)}, witnesses=("w", "x"), **more)
    run.until_guarded(fragment, len(others))
    run.publish(0, HALF)
    run.fed.run(for_us=20_000)
    run.fed.nodes["m"].pause(sleeps_us)
    return run, fragment


def kill_when_chosen(run: Run, fragment: str, name: str) -> None:
    """Before its disk has the fragment, which is slow: when a witness hears that it was chosen."""

    def chosen() -> bool:
        current = run.current("w")
        replicas = None if current is None else current.replicas(fragment)
        return replicas is not None and replicas.owner == name

    node = run.fed.nodes[name]
    run.until(lambda: run.recovery(name).agreement.proposing(run.query), f"{name} proposes itself")
    node.slowness = SLOW
    run.until(chosen, f"{name} is chosen")
    node.crash("lost")
    node.slowness = 1
    on_disk = Catalog.from_bytes(newest_catalog(node), node=name, where=name)  # type: ignore[arg-type]
    assert fragment not in on_disk.fragments, "another seed: its disk has it already"


@pytest.mark.parametrize("sleeps_us", [BETWEEN_US, LATER_US], ids=["between", "later"])
@BOTH
def test_the_owner_before_goes_on_with_what_it_kept(at: Any, sleeps_us: int) -> None:
    run, fragment = put_to_sleep(counting(), at, "s1", sleeps_us=sleeps_us)
    kill_when_chosen(run, fragment, "s1")
    run.fed.run(for_us=1_000_000)
    run.fed.restart("s1")
    run.publish(HALF)
    run.check()
    run.until_guarded(fragment)
    replicas = run.replicas(fragment)
    assert (replicas.owner, replicas.epoch, replicas.predecessors) == ("m", 3, ())


@pytest.mark.parametrize("sleeps_us", [BETWEEN_US, LATER_US], ids=["between", "later"])
def test_an_order_of_arrival_that_was_shown_is_that_of_all_rows(sleeps_us: int) -> None:
    run, fragment = put_to_sleep(uniting(), UNITED, "s1", sleeps_us=sleeps_us, tables=two_sources())
    kill_when_chosen(run, fragment, "s1")
    run.fed.run(for_us=1_000_000)
    run.fed.restart("s1")
    run.publish(HALF)
    check_union(run)
    assert run.owner(fragment) == "m"


@BOTH
def test_what_holds_checkpoints_only_gives_it_back_too(at: Any) -> None:
    q = passively(counting())
    run = Run(q, at, standby={"*": ["s1"]}, deploys="e", witnesses=("w", "x"))
    run.deploy()
    [fragment] = run.fed.nodes["m"].brain.fragments
    assert run.fed.nodes["m"].brain.fragments[fragment].spec.method == PASSIVE
    run.read()
    run.until_guarded(fragment)
    run.publish(0, HALF)
    run.fed.run(for_us=20_000)
    run.fed.nodes["m"].pause(BETWEEN_US)
    kill_when_chosen(run, fragment, "s1")
    run.fed.run(for_us=1_000_000)
    run.fed.restart("s1")
    run.publish(HALF)
    run.check()
    assert (run.owner(fragment), run.replicas(fragment).epoch) == ("m", 3)


def test_an_owner_that_is_killed_meanwhile_finds_on_its_disk_what_it_kept() -> None:
    run, fragment = put_to_sleep(counting(), CUT, "s1", sleeps_us=BETWEEN_US)
    kill_when_chosen(run, fragment, "s1")
    run.until(lambda: run.recovery("m").succession.stands_by(fragment), "it rests, and keeps what it has")
    run.fed.nodes["m"].crash()
    run.fed.restart("m")
    run.until(lambda: run.recovery("m").succession.stands_by(fragment), "it does so again")
    run.fed.restart("s1")
    run.publish(HALF)
    run.check()
    assert (run.owner(fragment), run.replicas(fragment).epoch) == ("m", 3)


def test_each_that_was_chosen_gives_it_back_to_the_one_before() -> None:
    """The first dies, and so does the second; neither has begun."""
    run, fragment = put_to_sleep(counting(), CUT, "s1", "s2", sleeps_us=LATER_US, seed=2)
    kill_when_chosen(run, fragment, "s1")
    kill_when_chosen(run, fragment, "s2")
    assert run.replicas(fragment).predecessors == ("s1", "m")
    run.fed.restart("s2")
    run.fed.run(for_us=LATER_US)
    assert run.owner(fragment) == "s2", "the first may have begun, and says nothing yet"
    run.fed.restart("s1")
    run.until(lambda: run.owner(fragment) == "s1", "the second gives it back to the first")
    assert run.replicas(fragment).predecessors == ("m",)
    run.publish(HALF)
    run.check()
    replicas = run.replicas(fragment)
    assert (replicas.owner, replicas.epoch, replicas.predecessors) == ("m", 5, ())


def test_one_that_has_begun_keeps_it_whoever_was_chosen_after_it() -> None:
    """What the owner before it kept is older than what was shown."""
    run, fragment = put_to_sleep(counting(), CUT, "s1", "s2", sleeps_us=LATER_US)
    run.until_owned(fragment, "s1")
    assert fragment not in run.fed.nodes["s1"].brain.catalog.ownership.stood_by
    run.publish(HALF, HALF + 60)
    run.until_guarded(fragment)
    assert run.replicas(fragment).predecessors == ()
    run.fed.nodes["s1"].pause(LATER_US)
    kill_when_chosen(run, fragment, "s2")
    assert run.replicas(fragment).predecessors == ("s1",)
    run.fed.restart("s2")
    run.publish(HALF + 60)
    run.check()
    assert run.owner(fragment) == "s1"


def test_who_has_lost_its_disk_may_have_begun_and_gives_nothing_back() -> None:
    """Nobody can tell whether it showed rows: the fragment waits for a person."""
    run, fragment = put_to_sleep(counting(), CUT, "s1", sleeps_us=BETWEEN_US)
    kill_when_chosen(run, fragment, "s1")
    run.fed.nodes["s1"].lose_disk()
    run.fed.restart("s1")
    run.until(lambda: not run.fed.nodes["s1"].brain.catalog.in_doubt, "it is rebuilt")
    run.fed.run(for_us=3_000_000)
    assert (run.owner(fragment), run.hosted(fragment)) == ("s1", None)
    assert run.recovery("m").succession.stands_by(fragment), "a person may decide that it goes on there"


def test_an_owner_that_wakes_steps_down_once_its_successor_has_begun() -> None:
    run, fragment = put_to_sleep(counting(), WHOLE, "s1", sleeps_us=BETWEEN_US)
    run.until_owned(fragment, "s1")
    run.until(lambda: run.replicas(fragment).predecessors == (), "it says that it has begun")
    run.publish(HALF)
    run.check()
    run.until(lambda: fragment not in run.fed.nodes["m"].brain.fragments, "it steps down")
    run.until_guarded(fragment)
    assert (run.owner(fragment), run.replicas(fragment).epoch) == ("s1", 2)


# --- the configuration ---------------------------------------------------------------------------------


def replicas_with(**how: Any) -> Replicas:
    first = Replicas(fragment="q/f", owner="a", epoch=1, secondaries=("b", "c"), members=("a", "b", "c", "d"))
    return msgspec.structs.replace(first, **how)


def test_who_takes_over_names_the_owners_before_it_until_it_has_begun() -> None:
    second = taken_from(replicas_with(), "b")
    assert (second.owner, second.epoch) == ("b", 2)
    assert (second.secondaries, second.predecessors) == (("c",), ("a",))
    third = taken_from(second, "c")
    assert (third.owner, third.secondaries, third.predecessors) == ("c", (), ("b", "a"))
    assert begun(third).predecessors == ()
    assert owned_by(third, "d", ()).predecessors == (), "handed over: its owner has begun"


def test_it_is_given_to_whoever_is_heard_and_has_all_of_it() -> None:
    second = taken_from(replicas_with(), "b")

    def to(replicas: Replicas, *silent: str, began: bool = False) -> tuple[str, int, Any, Any] | None:
        made = given_back(replicas, began=began, is_up=lambda node: node not in silent)
        return None if made is None else (made.owner, made.epoch, made.secondaries, made.predecessors)

    assert to(second) == ("c", 3, (), ("a",))
    assert to(second, "c") == ("a", 3, ("c",), ())
    assert to(second, "c", "a") is None, "whoever is heard first"
    third = taken_from(second, "c")
    assert to(third) == ("b", 4, (), ("a",)), "it may have begun: the first doesn't go on without its word"
    assert to(third, "b") is None


def test_who_may_have_begun_gives_it_to_those_that_stand_by_alone() -> None:
    second = taken_from(replicas_with(), "b")
    made = given_back(second, began=True, is_up=bool)
    assert made is not None
    assert (made.owner, made.predecessors) == ("c", ())
    assert given_back(taken_from(second, "c"), began=True, is_up=bool) is None
    assert given_back(replicas_with(secondaries=()), began=False, is_up=bool) is None


def test_a_catalog_is_whole_unless_something_was_ever_lost() -> None:
    assert Catalog("a").is_whole
    rebuilt, lost, doubtful, decided = (Catalog("a") for _ in range(4))
    rebuilt.begins_anew(3)
    lost.has_forgotten()
    doubtful.in_doubt.begin()
    spec: Any = None
    decided.in_doubt.fragments["q/f"] = FragmentInDoubt(
        spec=spec, coordinator="e", epoch=1, state="lost", why=""
    )
    decided.in_doubt.settle("q/f")
    assert not any(each.is_whole for each in (rebuilt, lost, doubtful, decided))
    doubtful.in_doubt.accept(2)
    assert not doubtful.in_doubt
    assert not doubtful.is_whole, "an operator has decided what it doesn't know"
    again = Catalog.from_bytes(doubtful.to_bytes(), node="a", where="a")
    assert not again.is_whole


def test_who_has_stood_by_since_has_not_begun() -> None:
    catalog = Catalog("a")
    assert not catalog.never_owned("q/f", 2), "its disk may be another one than it was"
    catalog.ownership.stood_by["q/f"] = 1
    again = Catalog.from_bytes(catalog.to_bytes(), node="a", where="a")
    assert [again.never_owned("q/f", epoch) for epoch in (1, 2, 3)] == [False, True, True]
    again.in_doubt.begin()
    assert not again.never_owned("q/f", 2)
    catalog.bury("q")
    assert catalog.ownership.stood_by == {}


# --- the table -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("here", Here)
def test_each_role_says_what_to_do_with_whatever_is_here(role: Role, here: Here) -> None:
    step = SUCCESSION[role][here]
    assert (step in (Step.GO_ON, Step.TAKE_BACK, Step.TAKE_OVER)) == (role is Role.OWNER)
    if role in (Role.SECONDARY, Role.PREDECESSOR):
        assert step is (Step.FOLLOW if here is Here.NOTHING else Step.REST)
    if here is not Here.RUNS:
        assert step is not Step.GO_ON, "what rests, or runs by an earlier decision, begins anew on disk"


def test_a_node_is_what_the_configuration_says_as_far_as_its_catalog_can_know() -> None:
    replicas = taken_from(replicas_with(), "b")
    roles = {node: role_of(node, replicas, knows=True) for node in "abcd"}
    assert roles == {"a": Role.PREDECESSOR, "b": Role.OWNER, "c": Role.SECONDARY, "d": Role.OTHER}
    unsure = {node: role_of(node, replicas, knows=False) for node in "abcd"}
    assert unsure == {"a": Role.OTHER, "b": Role.OWNER, "c": Role.OTHER, "d": Role.OTHER}
    gone = msgspec.structs.replace(replicas, members=(), secondaries=())
    assert role_of("b", gone, knows=True) is Role.ENDED


def test_what_is_found_again_is_given_to_nobody():
    """An operator takes up, in the same epoch, what the node has said that it has not."""
    run = UpstreamRun(*query("rows"), "s1", "s2")
    owner = run.recovery("m")
    before = owner.agreement.current("q")
    assert before is not None
    [replicas] = [each for each in before.fragments if each.fragment == run.fragment]
    owner.succession._say_without_state(replicas, "its state is in doubt", began=True)
    run.fed.run(for_us=10_000_000)
    now = owner.agreement.current("q")
    assert now is not None
    found = now.replicas(run.fragment)
    assert (found.owner, found.epoch) == ("m", replicas.epoch)
