"""A query has one coordinator in a participant: who is asked for one that another has, says so."""

from __future__ import annotations

import medusa as md
from medusa.mind.deploying import WAITING_MAX
from medusa.mind.placement import cut
from medusa.sim.federation import Federation
from medusa.wire.messages import Remove


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
    fed.run(lambda: fed.nodes["b"].brain.commands.peers["a"] != "up")
    assert deployed(fed, clients["b"], "b").code == ""


def test_at_the_same_moment_on_other_nodes_both_stand():
    """What a race still allows; the docs say so."""
    fed, clients = two()
    asked = {node: client.deploy(small(), AT[node]) for node, client in clients.items()}
    assert [fed.answer(clients[node], number)[0].code for node, number in asked.items()] == ["", ""]


def test_who_asks_for_hundreds_of_names_that_are_elsewhere_fills_no_memory():
    fed, clients = two()
    assert deployed(fed, clients["a"], "a").code == ""
    coordinator = fed.nodes["b"].brain.commands.coordinator
    for number in range(3 * WAITING_MAX):
        coordinator.deploy(fed.world.now_us, "at-b", 1000 + number, cut(small().graph, AT["b"]))
    assert len(coordinator._waiting) == WAITING_MAX
