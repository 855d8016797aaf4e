"""A query has one coordinator in a participant: who is asked for one that another has, says so."""

from __future__ import annotations

import pytest

import medusa as md
from medusa.nodes.deploy.coordinator import WAITING_MAX
from medusa.nodes.placement.placement import cut
from medusa.sim.actors.federation import Federation
from medusa.wire.messages.commands import Remove


def two():
    """Two coordinators, each with room for the whole query, and a client at each."""
    fed = Federation(1, ["a", "b"])
    fed.start()
    clients = {node: fed.client(f"at-{node}", node) for node in ("a", "b")}
    fed.run(for_us=1_000_000)
    return fed, clients


def small():
    q = md.Query("q")
    q.sink("out", q.source("in", {"v": "int64"}, time=None).filter("v > 0", name="f"))
    return q


AT = {node: {node: ["in", "f", "out"]} for node in ("a", "b")}


def deployed(fed, client, node):
    return fed.answer(client, client.deploy(small(), AT[node]))[0]


def test_a_name_that_another_coordinator_has_is_refused_on_other_nodes_too():
    fed, clients = two()
    assert deployed(fed, clients["a"], "a").code == ""
    reply = deployed(fed, clients["b"], "b")
    assert (reply.code, "node 'a'" in reply.text) == ("E_DEPLOYED", True)
    assert not fed.nodes["b"].brain.catalog.deployments
    assert not fed.nodes["b"].brain.fragments


def test_a_name_that_was_just_given_up_is_waited_for():
    fed, clients = two()
    assert deployed(fed, clients["a"], "a").code == ""
    send = fed.network.send

    def between(source, target, frames):
        if (source, target) != ("a", "b"):
            send(source, target, frames)

    fed.network.send = between
    removal = clients["a"].mind.request(lambda n: Remove(request=n, query="q"))
    clients["a"].do(lambda mind: None)
    assert fed.answer(clients["a"], removal)[0].code == ""
    asked = clients["b"].deploy(small(), AT["b"])
    fed.run(for_us=200_000)
    assert asked not in clients["b"].mind.replies, "no news of the removal yet"
    del fed.network.send
    assert fed.answer(clients["b"], asked)[0].code == ""


def test_the_name_of_a_query_that_is_lost_with_its_nodes_is_free():
    fed, clients = two()
    assert deployed(fed, clients["a"], "a").code == ""
    fed.nodes["a"].crash()
    fed.run(lambda: fed.nodes["b"].brain.peers["a"] != "up")
    assert deployed(fed, clients["b"], "b").code == ""


def four(began_us):
    """Two coordinators that each deploy over two nodes, b so much later; what their clients hear, and where
    the query runs then."""
    fed = Federation(1, ["a", "b", "c", "d"])
    fed.start()
    clients = {node: fed.client(f"at-{node}", node) for node in ("a", "b")}
    fed.run(for_us=1_000_000)
    others = {"a": "c", "b": "d"}
    asked = {}
    first, second = ("a", "b") if began_us >= 0 else ("b", "a")
    for node in (first, second):
        at = {node: ["in"], others[node]: ["f", "out"]}
        asked[node] = clients[node].deploy(small(), at)
        if node == first:
            fed.run(for_us=abs(began_us))
    said = {node: fed.answer(clients[node], number)[0] for node, number in asked.items()}
    fed.run(for_us=2_000_000)
    return said, [name for name, node in fed.nodes.items() if node.brain.fragments]


@pytest.mark.parametrize("later_us", [0, 100, 3_000, 100_000, -100, -100_000])
def test_at_the_same_moment_over_several_nodes_one_stands_and_the_other_hears_why(later_us):
    said, runs_at = four(later_us)
    won = [node for node, reply in said.items() if not reply.code]
    assert len(won) == 1
    assert runs_at == {"a": ["a", "c"], "b": ["b", "d"]}[won[0]]
    if abs(later_us) <= 100:
        assert won == ["a"], "its name comes first"
    [lost] = {"a", "b"} - set(won)
    assert said[lost].code == "E_DEPLOYED"
    assert f"from node {won[0]!r}" in said[lost].text


def test_at_the_same_moment_on_one_other_node_each_both_stand():
    """What a race still allows; the docs say so: both are done before any news come."""
    fed, clients = two()
    asked = {node: client.deploy(small(), AT[node]) for node, client in clients.items()}
    assert [fed.answer(clients[node], number)[0].code for node, number in asked.items()] == ["", ""]


def test_who_asks_for_hundreds_of_names_that_are_elsewhere_fills_no_memory():
    fed, clients = two()
    assert deployed(fed, clients["a"], "a").code == ""
    coordinator = fed.nodes["b"].brain.coordinator
    for number in range(3 * WAITING_MAX):
        coordinator.deploy(fed.world.now_us, "at-b", 1000 + number, cut(small().graph, AT["b"]))
    assert len(coordinator._waiting) == WAITING_MAX
