"""What an owner says of nodes that it waits for."""

from __future__ import annotations

from medusa.nodes.names.unreachable_peers import UnreachablePeers
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.commands import Remove
from medusa.wire.status_and_metrics import AwayStatus
from tests.nodes.moved import World
from tests.nodes.parted import Parting


def test_a_move_to_a_node_that_is_away_says_so_and_since_when():
    world = World()
    world.fed.nodes["m2"].crash()
    world.fed.run(for_us=3_000_000)
    status, said = world.fed.nodes["m1"].brain.orders.moves.status, []
    request = world.order("m2", timeout_ms=1000)
    while request not in world.client("m1").mind.replies:
        world.fed.run(for_us=100_000)
        said += [(each.silent, each.waits_for) for each in status().values()]
    assert said[0] == ((), "")
    assert (("m2",), "node 'm2' doesn't answer, seen 3 s ago") in said
    reply, _ = world.fed.answer(world.client("m1"), request)
    assert (reply.code, reply.text) == ("E_TIMEOUT", "node 'm2' doesn't answer, seen 7 s ago")
    world.fed.nodes["m2"].restart()
    world.check()


def test_who_is_away_and_since_when():
    away = UnreachablePeers(["a", "b"])
    away.peer_event(1_000_000, "b", LinkEvent.PEER_UP)
    assert away.among(["b", "a", "c", "a"]) == ["a"]
    assert away.told(5_000_000, ["a", "b"]) == "node 'a' doesn't answer, never seen since our start"
    away.peer_event(2_000_000, "b", LinkEvent.PEER_DOWN)
    assert away.told(5_500_000, ["b", "c"]) == "node 'b' doesn't answer, seen 3 s ago"
    for event in (LinkEvent.PEER_UP, LinkEvent.PEER_RESTARTED):
        away.peer_event(6_000_000, "b", event)
        assert away.told(7_000_000, ["b"]) == ""


def test_who_answers_and_refuses_us_is_not_just_away():
    away = UnreachablePeers(["a", "b"])
    away.peer_event(1_000_000, "b", LinkEvent.PEER_UP)
    away.peer_event(2_000_000, "b", LinkEvent.PEER_DOWN)
    assert away.status(5_500_000) == {
        "a": AwayStatus(seen_us=None, refusal="", refused_us=None),
        "b": AwayStatus(seen_us=3_500_000, refusal="", refused_us=None),
    }
    for at_us in (3_000_000, 4_000_000, 9_000_000):
        away.refused(at_us, "b", "refuses our key")
    assert away.status(9_500_000)["b"].refused_us == 6_500_000
    assert away.status(9_500_000)["b"].text == "refuses our key, for 6 s"
    assert away.told(9_500_000, ["b"]) == "node 'b' refuses our key, for 6 s"
    assert away.told(20_000_000, ["b"]) == "node 'b' doesn't answer, seen 18 s ago", (
        "nor does it refuse any more"
    )
    away.refused(30_000_000, "b", "refuses our key")
    assert away.status(31_000_000)["b"].refused_us == 1_000_000
    away.peer_event(32_000_000, "b", LinkEvent.PEER_UP)
    away.peer_event(33_000_000, "b", LinkEvent.PEER_DOWN)
    assert away.status(34_000_000)["b"].refusal == ""


def test_an_order_that_a_node_passed_on_to_one_that_is_away_ends_in_time():
    world = World()
    mover = world.client("e")
    world.fed.run(for_us=100_000)
    world.fed.nodes["m1"].crash()
    request = world.order("m2", at="e", timeout_ms=3000)
    reply, _ = world.fed.answer(mover, request)
    assert reply.code == "E_TIMEOUT"
    assert reply.text == "node 'm1' doesn't answer, seen 2 s ago: it has fragment 'q/mean'"
    world.fed.nodes["m1"].restart()
    world.check()
    assert world.where == ["m1"], "who was refused didn't move it after all"


def test_a_split_whose_coordinator_is_away_says_so_and_since_when():
    world = Parting()
    world.fed.nodes["e"].crash()
    number = world.split()
    reply, _ = world.told(number)
    assert (reply.code, reply.hint) == ("E_TIMEOUT", "order it again when it is back")
    assert reply.text == "node 'e' doesn't answer, seen 4 s ago: it coordinates query 'q'"
    world.fed.nodes["e"].restart()


def test_a_move_and_an_undeploy_whose_coordinator_is_away_say_so_and_change_nothing():
    world = World()
    mover = world.client("c")
    world.fed.nodes["e"].crash()
    world.fed.run(for_us=3_000_000)
    reply, _ = world.move("m2", at="c", fragment="q/g", timeout_ms=1000)
    assert reply.code == "E_TIMEOUT"
    assert reply.text == "node 'e' doesn't answer, seen 7 s ago: it coordinates query 'q'"
    request = mover.mind.request(lambda number: Remove(request=number, query="q"))
    mover.do(lambda mind: None)
    reply, _ = world.fed.answer(mover, request)
    assert (reply.code, reply.hint) == ("E_TIMEOUT", "undeploy it when it is back")
    assert reply.text.startswith("node 'e' doesn't answer, seen ")
    assert reply.text.endswith(" s ago: it coordinates query 'q'")
    world.fed.nodes["e"].restart()
    world.check()
    assert world.where == ["m1"]


def test_a_name_of_no_fragment_is_beside_those_of_all_nodes():
    world = World()
    reply, _ = world.move("m2", at="e", fragment="q/maen")
    assert (reply.code, reply.hint) == ("E_FRAGMENT", "did you mean 'q/mean'?")
    assert "there are: q/" in reply.text


def test_a_fragment_goes_to_no_node_of_another_owner():
    """That one dropped the link of whoever asked it, again and again."""
    world = World()
    owner = world.fed.nodes["m1"].brain
    owner.diverting.whose = {"m2": "bob"}.get
    reply, _ = world.move("m2")
    assert reply.code == "E_ROLE"
    assert "'bob'" in reply.text
    assert not owner.orders.status().going
    owner.diverting.whose = lambda node: owner.settings.participant
    world.check()
