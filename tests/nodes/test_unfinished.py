"""A coordinator that finds a deployment half done hears first what the nodes have."""

from __future__ import annotations

import pytest

from medusa.nodes.catalog.catalog import DEPLOYING, RUNNING, Catalog
from tests.nodes.deployed import TARGETS, TIMEOUT_US, Town


def running():
    """A query runs, and its coordinator's disk has the catalog of just before it said so."""
    town = Town()
    town.deploy(1)
    machine, before = town.machines["m"], []

    def is_over():
        before.append(machine.disk)
        return town.replies.get(1) == ""

    town.settle(is_over, until_us=town.now_us + TIMEOUT_US)
    town.settle()
    states = [Catalog.from_bytes(disk, node="m", where="disk").deployments for disk in before if disk]
    last = max(place for place, each in enumerate(states) if "q" in each and each["q"].state == DEPLOYING)
    assert machine.remembered()[2] == {"q": RUNNING}
    machine.die()
    machine.disk = [disk for disk in before if disk][last]
    assert machine.remembered()[2] == {"q": DEPLOYING}
    town.replies.clear()
    return town


def stands(town):
    return {name: machine.remembered()[0] for name, machine in town.machines.items()}


def test_what_every_node_has_runs_on():
    town = running()
    before = stands(town)
    town.machines["m"].start()
    town.settle(until_us=town.now_us + TIMEOUT_US)
    assert stands(town) == before
    assert all(before.values())
    assert town.machines["m"].remembered()[2] == {"q": RUNNING}


def test_who_asks_again_meanwhile_hears_that_it_runs():
    town = running()
    town.restart("m")
    assert town.replies == {}, "it isn't known yet"
    town.settle(until_us=town.now_us + TIMEOUT_US)
    assert town.replies == {1: ""}


@pytest.mark.parametrize("away", ["t1", "t3", "t5"])
def test_it_waits_for_a_node_that_is_away(away):
    town = running()
    before = stands(town)
    town.machines[away].die()
    town.machines["m"].start()
    town.settle(until_us=town.now_us + 5 * TIMEOUT_US)
    assert town.machines["m"].remembered()[2] == {"q": DEPLOYING}
    assert stands(town) == before, "nothing is removed"
    town.machines[away].start()
    town.settle(until_us=town.now_us + TIMEOUT_US)
    assert town.machines["m"].remembered()[2] == {"q": RUNNING}
    assert stands(town) == before


def test_while_it_waits_it_can_be_removed():
    town = running()
    town.machines["t3"].die()
    town.asked = None
    town.restart("m")
    town.settle(until_us=town.now_us + TIMEOUT_US)
    town.undeploy(2)
    town.settle(until_us=town.now_us + TIMEOUT_US // 2)
    town.heal()
    assert not any(stands(town).values())
    assert town.machines["m"].remembered()[2] == {}


@pytest.mark.parametrize("lacks", TARGETS)
def test_where_one_lacks_its_part_all_of_it_goes(lacks):
    town = running()
    town.machines[lacks].die()
    town.machines[lacks].disk = None
    town.machines[lacks].start()
    town.restart("m")
    town.heal()
    assert not any(stands(town).values())
    assert town.machines["m"].remembered()[2] == {}
    assert town.replies == {1: "E_DEPLOYED"}


def test_a_failure_is_told_once_it_is_on_disk():
    """Else a coordinator that dies now would go on with what its client was told has failed."""
    town = Town()
    town.deploy(1)
    town.settle(lambda: all(stands(town)[each] for each in TARGETS), until_us=town.now_us + TIMEOUT_US)
    town.machines["t3"].hangs = True
    told = []

    def is_told():
        if town.replies.get(1):
            told.append(town.machines["m"].remembered()[2]["q"])
        return bool(told)

    machine = town.machines["m"]
    machine.brain.coordinator._questions.forget(lambda _: True)  # What t5 answered is lost.
    town.settle(is_told, until_us=town.now_us + 3 * TIMEOUT_US)
    assert told == ["removing"]


# --- where it can't be judged, or somebody steps in ----------------------------------------------------


def with_catalog(town, name, change):
    """A node starts again with this changed in what is on its disk."""
    machine = town.machines[name]
    catalog = Catalog.from_bytes(machine.disk, node=name, where="disk")
    made = change(catalog)
    if machine.brain is not None:
        machine.die()
    machine.disk = catalog.to_bytes()
    return made


def moves(town, fragment, source, target):
    """A part is at another node than its coordinator knows; it came there by no request of it."""

    def leaves(catalog):
        spec = catalog.fragments[fragment]
        catalog.remove("q")
        return spec

    spec = with_catalog(town, source, leaves)
    with_catalog(town, target, lambda catalog: catalog.add(spec, "m"))
    for name in (source, target):
        town.machines[name].start()


def test_a_part_that_came_by_a_move_goes_too_when_a_client_undeploys():
    town = running()
    with_catalog(town, "t2", lambda catalog: catalog.installed.clear())
    town.machines["t2"].start()
    town.machines["t3"].die()
    town.asked = None
    town.restart("m")
    town.settle(until_us=town.now_us + TIMEOUT_US)
    town.undeploy(2)
    town.settle(until_us=town.now_us + TIMEOUT_US // 2)
    machine = town.machines["m"]
    assert machine.remembered()[2] == {"q": "removing"}
    deployment = Catalog.from_bytes(machine.disk, node="m", where="disk").deployments["q"]
    assert deployment.began == 0, "or the next life would leave it there"
    town.heal()
    assert not any(stands(town).values())
    assert machine.remembered()[2] == {}


def test_it_goes_too_when_a_client_undeploys_what_is_being_undone():
    town = running()
    with_catalog(town, "t2", lambda catalog: catalog.installed.clear())
    town.machines["t2"].start()
    with_catalog(town, "t5", lambda catalog: catalog.remove("q"))
    town.machines["t5"].start()
    town.asked = None
    town.restart("m")
    town.settle(
        lambda: town.machines["m"].remembered()[2] == {"q": "removing"}, until_us=town.now_us + TIMEOUT_US
    )
    assert town.machines["m"].remembered()[2] == {"q": "removing"}
    town.undeploy(2)
    town.heal()
    assert town.replies == {2: ""}
    assert not any(stands(town).values())


def test_who_asks_again_while_a_node_is_away_hears_so_and_nothing_is_undone():
    town = running()
    before = stands(town)
    town.machines["t3"].die()
    town.restart("m")
    town.settle(until_us=town.now_us + 5 * TIMEOUT_US)
    assert town.replies == {1: "E_TIMEOUT"}
    assert stands(town) == before
    assert town.machines["m"].remembered()[2] == {"q": DEPLOYING}
    town.machines["t3"].start()
    town.settle(until_us=town.now_us + TIMEOUT_US)
    assert town.machines["m"].remembered()[2] == {"q": RUNNING}
    assert stands(town) == before
    del town.replies[1]
    town.ask_again()
    town.settle(until_us=town.now_us + TIMEOUT_US)
    assert town.replies == {1: ""}


def test_who_waits_is_answered_when_somebody_undeploys():
    town = running()
    town.machines["t3"].die()
    town.restart("m")
    town.settle(until_us=town.now_us + TIMEOUT_US // 4)
    assert town.replies == {}
    town.undeploy(2)
    town.settle(lambda: 1 in town.replies, until_us=town.now_us + TIMEOUT_US)
    assert town.replies == {1: "E_REMOVED"}
    assert town.machines["m"].remembered()[2] == {"q": "removing"}, "on disk before it was told"
    town.heal()
    assert (town.replies[1], sorted(town.replies)) == ("E_REMOVED", [1, 2])
    assert not any(stands(town).values())


def test_a_part_that_has_moved_is_not_missing():
    town = running()
    moves(town, "q/on_t2", "t2", "t4")
    before = stands(town)
    assert (before["t2"], before["t4"]) == ([], ["q/on_t2", "q/on_t4"])
    town.restart("m")
    town.settle(until_us=town.now_us + 3 * TIMEOUT_US)
    assert town.replies == {1: ""}
    assert town.machines["m"].remembered()[2] == {"q": RUNNING}
    assert stands(town) == before


def abroad(town, *nodes):
    """The coordinator put these parts at nodes of another participant."""

    def put(catalog):
        catalog.deployments["q"].abroad = tuple((f"q/on_{node}", node, "bob", ()) for node in nodes)

    with_catalog(town, "m", put)


def test_one_with_parts_at_another_participant_is_left_until_somebody_removes_it():
    """Those don't tell what they have: here t5 has nothing, as far as its own participant lets us know."""
    town = running()
    abroad(town, "t5")
    with_catalog(town, "t5", lambda catalog: catalog.remove("q"))
    town.machines["t5"].start()
    before = stands(town)
    town.restart("m")
    town.settle(until_us=town.now_us + 5 * TIMEOUT_US)
    assert town.replies == {1: "E_TIMEOUT"}
    assert stands(town) == before
    assert town.machines["m"].remembered()[2] == {"q": DEPLOYING}
    town.undeploy(2)
    town.settle(until_us=town.now_us + 3 * TIMEOUT_US)
    assert town.replies == {1: "E_TIMEOUT", 2: ""}
    assert not any(stands(town).values())
    assert town.machines["m"].remembered()[2] == {}


def test_of_one_with_parts_at_another_participant_an_own_one_is_missing():
    town = running()
    abroad(town, "t5")
    with_catalog(town, "t2", lambda catalog: catalog.remove("q"))
    town.machines["t2"].start()
    town.restart("m")
    town.heal()
    assert town.replies == {1: "E_DEPLOYED"}
    assert not any(stands(town).values())
    assert town.machines["m"].remembered()[2] == {}
