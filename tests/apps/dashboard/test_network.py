"""What nodes say of themselves and each other, put together."""

from __future__ import annotations

import pytest

from medusa.apps.dashboard.network import Seen, StreamView, network_of
from medusa.errors import DataError
from medusa.wire.status_and_metrics import status_of
from tests.apps.dashboard.statuses import box, edges_and_core, fragment, guarding, node, seen


def streams_of(*statuses: dict) -> tuple[StreamView, ...]:
    return network_of(seen(*statuses)).streams


def pair(sent: str = "flowing", taken: str = "flowing", peers: tuple[str, str] = ("up", "up")) -> list[dict]:
    return [
        node("a", fragment("q/a", outs={"q.s": "b"}, state=sent), peers=f"b={peers[0]}"),
        node("b", fragment("q/b", ins={"q.s": "a"}, state=taken), peers=f"a={peers[1]}"),
    ]


def test_each_stream_between_nodes_stands_once_with_both_ends() -> None:
    streams = streams_of(*edges_and_core())
    assert [(s.name, s.origin, s.origin_fragment, s.target, s.target_fragment) for s in streams] == [
        ("q.cars-edge-1", "edge-1", "q/cars", "core", "q/all"),
        ("q.cars-edge-2", "edge-2", "q/cars", "core", "q/all"),
    ]
    assert {(s.state, s.rate, s.behind_rows) for s in streams} == {("flowing", 100.0, 10)}


def test_one_side_is_enough_for_a_stream() -> None:
    sends, takes = pair()
    assert [(s.origin_fragment, s.target_fragment, s.state) for s in streams_of(sends)] == [
        ("q/a", "", "flowing")
    ]
    (stream,) = streams_of(takes)
    assert (stream.origin, stream.origin_fragment, stream.target_fragment) == ("a", "", "q/b")
    assert (stream.rate, stream.behind_rows) == (100.0, None)


@pytest.mark.parametrize(
    ("sent", "taken", "peers", "state"),
    [
        ("flowing", "flowing", ("up", "up"), "flowing"),
        ("paused", "flowing", ("up", "up"), "cut"),
        ("flowing", "idle", ("up", "up"), "cut"),
        ("flowing", "flowing", ("silent", "up"), "cut"),
        ("flowing", "flowing", ("up", "silent"), "cut"),
        ("detached", "attaching", ("up", "up"), "waiting"),
        ("flowing", "refused", ("up", "up"), "refused"),
        ("?", "?", ("up", "up"), "unknown"),
    ],
)
def test_the_state_of_a_stream(sent: str, taken: str, peers: tuple[str, str], state: str) -> None:
    (stream,) = streams_of(*pair(sent, taken, peers))
    assert stream.state == state


def test_why_a_stream_is_refused_is_told() -> None:
    sends, takes = pair()
    takes["fragments"][0]["inputs"][0]["refusal"] = "no such stream (E_STREAM)"
    (stream,) = streams_of(sends, takes)
    assert (stream.state, stream.why) == ("refused", "no such stream (E_STREAM)")


def test_what_a_dead_node_said_counts_no_more_and_what_the_living_say_of_it_does() -> None:
    sends, takes = pair(peers=("silent", "up"))
    for dead, alive in ((takes, sends), (sends, takes)):
        alive["peers"] = dict.fromkeys(alive["peers"], "silent")
        network = network_of([*seen(alive), *seen(dead, why="no answer", age_s=9.0)])
        (stream,) = network.streams
        assert stream.state == "cut"
        assert {each.name: each.state for each in network.nodes}[dead["node"]] == "unreachable"
        assert [link.state for link in network.links] == ["cut"]
    network = network_of(seen(*pair(), why="no answer"))
    assert [stream.state for stream in network.streams] == ["unknown"]
    assert [link.state for link in network.links] == ["unknown"]


def test_peers_that_nobody_asks_are_there_and_a_node_asked_twice_is_there_once() -> None:
    network = network_of(seen(node("a", peers="b c=silent"), node("a", peers="b c=silent")))
    assert [(each.name, each.state) for each in network.nodes] == [
        ("a", "up"),
        ("b", "not asked"),
        ("c", "not asked"),
    ]
    assert [(link.a, link.b, link.state) for link in network.links] == [("a", "b", "up"), ("a", "c", "cut")]


def test_of_two_answers_of_a_node_the_newer_counts() -> None:
    old, new = node("a", rows_in=1), node("a", rows_in=2)
    for given in ([*seen(old, age_s=5), *seen(new)], [*seen(new), *seen(old, age_s=5)]):
        (found,) = network_of(given).nodes
        assert found.status is not None
        assert found.status.rows_in == 2


def test_an_address_that_never_answered_is_a_node_by_that_name() -> None:
    (found,) = network_of([Seen(address="tcp://127.0.0.1:1", age_s=3.0)]).nodes
    assert (found.name, found.state, found.why) == (
        "tcp://127.0.0.1:1",
        "unreachable",
        "it has not answered yet",
    )


def test_owners_are_in_order_and_those_not_known_are_last() -> None:
    network = network_of(seen(node("z", participant="alice", peers="y"), node("a", participant="bob")))
    assert network.owners == ("alice", "bob", "")
    assert [each.name for each in network.nodes] == ["z", "a", "y"]


def test_rates_are_those_of_one_stream_only_where_it_is_alone() -> None:
    status = node("b", fragment("q/b", ins={"q.s": "a", "q.t": "a"}), peers="a")
    for each in status["fragments"][0]["inputs"]:
        each["source"] = "source-0"
    assert [stream.rate for stream in streams_of(status)] == [None, None]


def test_a_box_is_held_where_its_inputs_stand_apart() -> None:
    def held(**boundaries: dict) -> bool:
        boxes = {name: box(**figures) for name, figures in boundaries.items()} | {"join": box("join")}
        arcs = [[name, "", "join"] for name in boundaries]
        return status_of(node("n", fragment("q/f", boxes=boxes, arcs=arcs))).fragments[0].is_held("join")

    assert not held(a={"boundary": 5})
    assert not held(a={"boundary": 5}, b={"boundary": 5})
    assert held(a={"boundary": 5}, b={"boundary": 6})
    assert held(a={"boundary": None}, b={"boundary": 6})
    assert held(a={"boundary": 5}, b={"boundary": None, "finished": True})


def test_who_stands_by_for_what_and_who_is_missing() -> None:
    network = network_of(seen(*guarding({"s": "following", "t": "seeding", "u": "missing"})))
    assert [(each.fragment, each.owner, each.node, each.state, each.place) for each in network.standbys] == [
        ("q/cars", "edge", "s", "following", 1),
        ("q/cars", "edge", "t", "seeding", 2),
        ("q/cars", "edge", "u", "missing", 3),
    ]
    assert {each.number for each in network.standbys} == {3}
    assert not network.guarded[0].alone
    (alone,) = network_of(seen(*guarding({"s": "seeding"}))).guarded
    assert alone.alone, "who is being seeded can't take it over"


def test_a_node_that_only_the_configuration_names_is_drawn_as_not_asked() -> None:
    edge = guarding({"far": "following"})[0] | {"peers": {}}
    network = network_of(seen(edge))
    assert [(each.name, each.state) for each in network.nodes] == [("edge", "up"), ("far", "not asked")]


def test_what_a_dead_owner_said_of_its_secondaries_counts_less_than_the_living() -> None:
    edge, spare = guarding({"s": "following"})
    replicas = {"owner": "edge", "epoch": 2, "secondaries": {"s": {"state": "missing"}}}
    decided = {"number": 4, "coordinator": "c", "fragments": {"q/cars": replicas}}
    c = node("c", queries={"q": {"configuration": decided}})
    (standby,) = network_of([*seen(spare, c), *seen(edge, why="no answer", age_s=9.0)]).standbys
    assert (standby.state, standby.number) == ("missing", 4)
    (standby,) = network_of([*seen(spare), *seen(edge, why="no answer", age_s=9.0)]).standbys
    assert standby.state == "following", "nobody knows better"


@pytest.mark.parametrize("wrong", [{"node": 1}, {"node": "a", "peers": [1]}, [], None, {"fragments": []}])
def test_an_answer_that_is_no_status_is_refused(wrong: object) -> None:
    with pytest.raises(DataError, match="the status can't be read") as caught:
        status_of(wrong)
    assert caught.value.code == "data.status"
