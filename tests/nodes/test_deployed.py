"""One of five targets, or the coordinator, fails at each step of a deployment and of a removal: then nothing
of it is left anywhere, or all of it runs."""

from __future__ import annotations

import pytest

from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import REMOVING, ForwardingAddress
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages.commands import Install, Remove
from tests.nodes.deployed import NODES, QUIET, TARGETS, TIMEOUT_US, Town

HOW = ["dies", "dies for long", "hangs", "disk full"]


def begun(what):
    """A town in which this was just asked, and the number of the request."""
    town = Town()
    town.deploy(1)
    if what == "deploy":
        return town, 1
    town.settle(lambda: 1 in town.replies)
    town.settle()
    assert town.replies == {1: ""}
    assert town.runs()
    town.undeploy(2)
    return town, 2


def steps_of(what):
    town, request = begun(what)
    before = town.done
    town.settle(lambda: request in town.replies)
    town.settle()
    assert town.replies[request] == ""
    assert town.runs() is (what == "deploy")
    return town.done - before


def fails(town, victim, how, at):
    """So many steps go well, then this."""
    before = town.done
    town.settle(lambda: town.done - before >= at)
    machine = town.machines[victim]
    match how:
        case "dies":
            machine.die()
            town.restart(victim)
        case "dies for long":
            machine.die()
        case "hangs":
            machine.hangs = True
        case "disk full":
            machine.full = True


def tried(what, victim, how, at):
    """How it ended: what the client heard, and whether it runs."""
    town, request = begun(what)
    fails(town, victim, how, at)
    if how != "dies" and victim != "m":
        town.settle(lambda: request in town.replies, until_us=town.now_us + 2 * TIMEOUT_US)
    elif how != "dies":
        town.settle(until_us=town.now_us + 2 * TIMEOUT_US)
    town.heal()
    town.settle(lambda: request in town.replies, until_us=town.now_us + 3 * TIMEOUT_US)
    town.settle(until_us=town.now_us + 2 * TIMEOUT_US)
    runs, code = town.runs(), town.replies.get(request)
    if what == "deploy":
        assert code in ("", "E_TIMEOUT", "E_DEPLOYED")
        assert runs is (code == "")
    else:
        assert code in ("", "E_TIMEOUT", "E_QUERY"), (
            "asked again of a coordinator that had forgotten it: E_QUERY"
        )
        assert not runs, "a removal once begun is never given up"
    return code, runs


@pytest.mark.parametrize("what", ["deploy", "undeploy"])
def test_one_fails_at_each_step(what):
    """At each step another one, in another way; ``test_each_fails_at_each_step`` does them all."""
    ends = set()
    for at in range(steps_of(what) + 1):
        ends.add(tried(what, NODES[at % len(NODES)], HOW[(at + at // 6) % len(HOW)], at))
    assert len(ends) > 1, "some steps are early enough to matter and some too late"


@pytest.mark.full
@pytest.mark.issue(6)
@pytest.mark.parametrize("victim", NODES)
@pytest.mark.parametrize("what", ["deploy", "undeploy"])
def test_each_fails_at_each_step(what, victim):
    ends = {tried(what, victim, how, at) for at in range(steps_of(what) + 1) for how in HOW}
    assert len(ends) > 1


@pytest.mark.parametrize("at", range(0, 20, 4))
def test_the_coordinator_dies_while_a_target_is_away(at):
    """It comes back first, and then the target."""
    town, request = begun("deploy")
    fails(town, "t4", "dies for long", at)
    fails(town, "m", "dies", 3)
    town.settle(until_us=town.now_us + 2 * TIMEOUT_US)
    town.heal()
    assert town.runs() is (town.replies.get(request) == "")


def test_one_target_refuses():
    town = Town(strangers=["t2"])
    town.deploy(1)
    town.settle(lambda: 1 in town.replies)
    town.settle()
    assert town.replies == {1: "E_PEER"}
    assert not town.runs()


@pytest.mark.parametrize("also_m", [False, True], ids=["coordinator stays", "coordinator restarts"])
def test_a_node_that_has_refused_and_is_gone_for_good_keeps_no_name(monkeypatch, also_m):
    """It has nothing of the query, so nothing is waited for."""
    town = Town()

    def full(streams, caller=None):
        raise LinkError("no room", code="E_LIMIT")

    monkeypatch.setattr(town.machines["t4"].brain.installed, "check_memory", full)
    kept = town.machines["m"].brain.catalog.deployments
    town.deploy(1)
    town.settle(lambda: "q" in kept and kept["q"].refused)
    assert kept["q"].refused == ("t4",)
    town.machines["t4"].die()
    town.settle(lambda: 1 in town.replies)
    assert town.replies == {1: "E_LIMIT"}
    if also_m:
        town.settle()
        town.machines["m"].die()
        town.restart("m")
    town.settle(until_us=town.now_us + 2 * QUIET.timeout_us)
    assert town.machines["m"].brain.catalog.deployments == {}
    town.heal()
    assert not town.runs()


def test_a_node_that_may_have_a_part_is_waited_for():
    """It has refused nothing: its answer was lost with it."""
    town, _ = begun("deploy")
    town.settle(lambda: town.machines["t4"].brain.fragments)
    town.machines["t4"].die()
    town.settle(until_us=town.now_us + 2 * QUIET.timeout_us)
    assert town.machines["m"].brain.catalog.deployments["q"].state == REMOVING
    town.heal()
    town.settle(until_us=town.now_us + 2 * TIMEOUT_US)
    assert town.machines["m"].brain.catalog.deployments == {}
    assert not town.runs()


def test_words_that_come_again_late_change_nothing():
    """A network may repeat what coordinators say, after what they said later."""
    town, _ = begun("undeploy")
    heard = []
    take = town.machines["t2"].take

    def noted(source, frames):
        heard.append((source, frames))
        take(source, frames)

    town.machines["t2"].take = noted
    town.settle(lambda: 2 in town.replies)
    town.deploy(3)
    town.settle(lambda: 3 in town.replies)
    town.settle()
    assert town.runs()
    words = [each for each in heard if isinstance(decode_frame(each[1], peer="m")[0], Install | Remove)]
    assert [type(decode_frame(frames, peer="m")[0]) for _, frames in words] == [Remove, Install]
    take(*words[0])
    town.settle()
    assert town.runs(), "a removal of before"
    town.undeploy(4)
    town.settle(lambda: 4 in town.replies)
    take(*words[1])
    town.settle()
    assert not town.runs(), "an installation of before"


def test_another_coordinator_removes_nothing_of_ours():
    town, _ = begun("undeploy")
    town.settle(lambda: 2 in town.replies)
    town.deploy(3)
    town.settle(lambda: 3 in town.replies)
    removal = encode_frame(Remove(request=1 << 40, query="q"))
    town.machines["t2"].take("t1", [bytes(part) for part in removal])
    town.settle()
    assert town.runs()


def town_without_folder():
    """The query ran everywhere, and the disk of its coordinator is lost; what the targets have of it."""
    town, _ = begun("undeploy")
    town.asked = None
    town.settle(lambda: 2 in town.replies)
    town.deploy(3)
    town.settle(lambda: 3 in town.replies)
    town.settle()
    assert town.runs()
    had = {name: dict(town.machines[name].brain.fragments) for name in TARGETS}
    town.machines["m"].die()
    town.machines["m"].disk = None
    town.machines["m"].lives += 1  # Lives are told apart by the clock where no disk knows the last one.
    return town, had


def test_a_deployment_that_fails_removes_nothing_that_was_there_before():
    """The coordinator lost its folder, and the query is deployed again while one target is away."""
    town, had = town_without_folder()
    town.machines["t4"].hangs = True
    town.restart("m")
    town.settle()
    town.deploy(4)
    town.settle(lambda: 4 in town.replies, until_us=town.now_us + 2 * TIMEOUT_US)
    assert town.replies[4] == "E_TIMEOUT"
    town.heal()
    assert town.machines["m"].remembered() == ([], {}, {}), "what it had installed itself is gone"
    for name in TARGETS:
        assert town.machines[name].brain.fragments == had[name]
        assert town.machines[name].remembered()[0] == list(had[name])
        assert town.machines[name].engine == set(had[name])
    town.deploy(5)
    town.settle(lambda: 5 in town.replies, until_us=town.now_us + 2 * TIMEOUT_US)
    town.settle()
    assert town.replies[5] == ""
    assert town.runs()
    assert {name: dict(town.machines[name].brain.fragments) for name in TARGETS} == had
    town.undeploy(6)
    town.settle(lambda: 6 in town.replies, until_us=town.now_us + 2 * TIMEOUT_US)
    town.settle()
    assert town.replies[6] == ""
    assert not town.runs(), "a removal takes them all, however old"


def test_an_attempt_is_undone_by_the_next_life_as_by_this_one():
    town, had = town_without_folder()
    town.machines["t4"].hangs = True
    town.restart("m")
    town.settle()
    town.deploy(4)
    town.settle(until_us=town.now_us + TIMEOUT_US // 4)
    assert 4 not in town.replies
    town.machines["m"].die()
    town.heal()
    for name in TARGETS:
        assert town.machines[name].brain.fragments == had[name]
    assert not town.machines["m"].brain.fragments
    assert not town.machines["m"].brain.catalog.deployments


def test_a_target_that_was_new_to_the_query_keeps_nothing_of_an_attempt_that_failed():
    """Two targets have lost their disks as well: what the attempt installs there goes, the rest stays."""
    town, had = town_without_folder()
    for name in ("t2", "t5"):
        town.machines[name].die()
        town.machines[name].disk = None
        town.restart(name)
    town.machines["t4"].hangs = True
    town.restart("m")
    town.settle()
    town.deploy(4)
    town.settle(lambda: town.machines["t2"].brain.fragments, until_us=town.now_us + TIMEOUT_US // 2)
    assert town.machines["t2"].brain.fragments
    town.settle(lambda: 4 in town.replies, until_us=town.now_us + 2 * TIMEOUT_US)
    town.heal()
    here = {name: dict(town.machines[name].brain.fragments) for name in TARGETS}
    assert here == {**had, "t2": {}, "t5": {}}


def test_an_undo_does_not_forget_where_a_fragment_has_gone():
    """Else the next attempt would put a second one in its old place."""
    town, had = town_without_folder()
    brain = town.machines["t3"].brain
    [name] = had["t3"]
    names = (*brain.fragments[name].spec.streams.values(),)
    brain.catalog.remove("q")
    left = brain.catalog.left[name] = ForwardingAddress(query="q", node="t2", epoch=3, names=names)
    brain.fragments.clear()
    town.restart("m")
    town.settle()
    for request in (4, 5):
        town.deploy(request)
        town.settle(lambda request=request: request in town.replies, until_us=town.now_us + 2 * TIMEOUT_US)
        assert town.replies[request] == "E_MOVED"
        town.settle(until_us=town.now_us + TIMEOUT_US // 2)
    assert brain.catalog.left == {name: left}
