"""One of five targets, or the coordinator, fails at each step of a deployment and of a removal: then nothing
of it is left anywhere, or all of it runs."""

from __future__ import annotations

import pytest

from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages import Install, Remove
from tests.mind.deployed import NODES, TIMEOUT_US, Town

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
