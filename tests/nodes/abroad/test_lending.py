"""A fragment goes to a node of another participant and comes home, whoever dies: the answer is the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from medusa.nodes.abroad.abroad_moves import HandedOver, Lost, Returned
from medusa.nodes.catalog.entry_bodies import FragmentBody, body_from
from medusa.nodes.reports import FragmentFailed
from medusa.wire.messages.move import Move
from medusa.wire.messages.remote import RevokeRemote
from medusa.wire.messages.split import Split
from tests.nodes.abroad.lending import CUT, HALF, UNITED, Lending, counting, uniting

BOTH = pytest.mark.parametrize(("make", "at"), [(counting, CUT), (uniting, UNITED)], ids=["plain", "decided"])


def flowing(make: Any = counting, at: Any = CUT, **more: Any) -> tuple[Lending, str]:
    """Deployed, guarded, and the first half of the rows is on its way."""
    run = Lending(make(), at, **more)
    fragment = run.deploy()
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    return run, fragment


@BOTH
def test_it_goes_there_while_rows_flow_and_who_had_it_follows(make: Any, at: Any) -> None:
    run, fragment = flowing(make, at)
    before = run.newest()
    run.lend(fragment)
    replicas, newest = run.replicas(fragment), run.newest()
    assert replicas.abroad
    assert replicas.epoch == 2
    assert replicas.secondaries == ("m", "s")
    assert replicas.members == ("m", "s")
    assert set(newest.voters) == set(before.voters), "a host votes on nothing"
    run.publish(HALF)
    run.check()
    [event] = run.events["m"]
    assert isinstance(event, HandedOver)
    assert event.node == "h"
    [guest] = run.moves("h").guests()
    assert (guest.fragment, guest.participant) == (fragment, "alice")
    assert guest.rows_in > 0
    assert guest.rows_out > 0


@BOTH
def test_it_comes_home_when_it_is_recalled(make: Any, at: Any) -> None:
    run, fragment = flowing(make, at)
    run.lend(fragment)
    run.publish(HALF)
    run.fed.run(for_us=40_000)
    run.recall(fragment)
    run.until_at(fragment, "m")
    run.check()
    assert [type(each) for each in run.events["m"]] == [HandedOver, Returned]
    run.until(lambda: fragment not in run.node("h").brain.fragments, "the host has dropped it")
    assert run.moves("h").guests() == ()


@BOTH
def test_a_host_that_vanishes_loses_it(make: Any, at: Any) -> None:
    run, fragment = flowing(make, at)
    run.lend(fragment)
    run.publish(HALF)
    run.fed.run(for_us=40_000)
    run.node("h").crash()
    run.until_at(fragment, "m")
    run.check()
    assert [type(each) for each in run.events["m"]] == [HandedOver, Lost]


MOMENTS_US = (3_000, 10_000, 40_000, 160_000)
"""After the order. It is seeded, decided on, taken over and followed within these."""


def sent(moment_us: int, make: Any, at: Any, **more: Any) -> tuple[Lending, str]:
    """It was sent so long ago."""
    run, fragment = flowing(make, at, **more)
    run.contract(fragment)
    run.send(fragment)
    run.fed.run(for_us=moment_us)
    return run, fragment


@BOTH
@pytest.mark.parametrize("moment_us", MOMENTS_US)
def test_the_host_is_lost_at_any_moment(moment_us: int, make: Any, at: Any) -> None:
    run, fragment = sent(moment_us, make, at, seed=moment_us)
    run.node("h").crash()
    run.publish(HALF)
    run.check()
    run.until_at(fragment, "m")


@BOTH
@pytest.mark.parametrize("name", ["h", "m", "s", "e", "c"])
@pytest.mark.parametrize("moment_us", MOMENTS_US)
def test_a_node_is_restarted_at_any_moment(moment_us: int, name: str, make: Any, at: Any) -> None:
    run, fragment = sent(moment_us, make, at, seed=moment_us)
    run.node(name).crash()
    run.fed.run(for_us=moment_us)
    run.node(name).restart()
    run.publish(HALF)
    run.check()
    run.until(lambda: run.guarded(fragment), "guarded again")


@BOTH
@pytest.mark.parametrize("name", ["h", "m", "s"])
@pytest.mark.parametrize("moment_us", MOMENTS_US)
def test_a_node_is_restarted_while_it_comes_home(moment_us: int, name: str, make: Any, at: Any) -> None:
    run, fragment = flowing(make, at, seed=moment_us)
    run.lend(fragment)
    run.publish(HALF)
    run.recall(fragment)
    run.fed.run(for_us=moment_us // 4)
    run.node(name).crash()
    run.fed.run(for_us=moment_us)
    run.node(name).restart()
    run.check()
    run.until(lambda: run.guarded(fragment), "guarded again")


@BOTH
@pytest.mark.parametrize("moment_us", MOMENTS_US)
def test_all_die_at_once(moment_us: int, make: Any, at: Any) -> None:
    run, fragment = sent(moment_us, make, at, seed=moment_us)
    for node in run.fed.nodes.values():
        node.crash()
    for node in run.fed.nodes.values():
        node.restart()
    run.publish(HALF)
    run.check()
    run.until(lambda: run.guarded(fragment), "guarded again")


def test_the_owners_catalog_says_where_it_is_and_the_host_lists_a_guest() -> None:
    run, fragment = flowing()
    run.lend(fragment)
    deployment = run.node("e").brain.catalog.deployment("q")
    assert deployment is not None
    assert deployment.abroad == ((fragment, "h", "bob", ("kind",)),)
    directory = run.node("h").brain.naming.directory
    run.until(lambda: directory.find("fragment", fragment) is not None, "the host lists it")
    entry = directory.find("fragment", fragment)
    assert entry is not None
    assert body_from(entry.body, FragmentBody).guest_of == "alice"
    run.recall(fragment)
    run.until_at(fragment, "m")
    assert deployment.abroad == ()


def test_a_client_of_the_host_neither_splits_nor_moves_a_guest() -> None:
    run, fragment = flowing()
    run.lend(fragment)
    client = run.client("bob", "orders", "h")
    for order in (
        Split(request=0, fragment=fragment, box="kind", parts=2),
        Move(request=0, fragment=fragment, to="g", timeout_ms=1000),
    ):
        number = client.mind.request(lambda n, order=order: msgspec.structs.replace(order, request=n))
        client.do(lambda mind: None)
        assert run.fed.answer(client, number)[0].code != ""
    assert run.runs_at(fragment, "h")
    run.publish(HALF)
    run.check()


def test_a_guest_that_takes_too_much_goes_home_and_is_exact_there() -> None:
    run, fragment = flowing()
    run.lend(fragment)
    run.publish(HALF)
    failed = FragmentFailed(fragment=fragment, why="it took too much", code="E_MEMORY")
    run.node("h").order(lambda now_us: run.node("h").brain.report(now_us, failed))
    run.until_at(fragment, "m")
    run.check()
    assert "gives it back" in run.events["m"][1].why
    said = [each.fields for each in run.node("h").reports if "goes home" in each.what]
    assert said == [{"fragment": fragment, "why": "it took too much"}]


def test_the_operator_of_a_host_stops_no_guest_with_what_it_has_alone() -> None:
    """Its contract ends, and it goes home; rows are kept for it until then."""
    run, fragment = flowing()
    run.lend(fragment)
    client = run.client("bob", "stops", "h")
    number = client.mind.request(lambda n: RevokeRemote(request=n, name="alice/q", stop=True))
    client.do(lambda mind: None)
    assert run.fed.answer(client, number)[0].code == "E_NO_DEFINITION"
    assert run.runs_at(fragment, "h")


def test_who_orders_it_elsewhere_while_it_is_abroad_hears_where_it_is() -> None:
    run, fragment = flowing()
    run.lend(fragment)
    client = run.client("alice", "orders", "c")
    number = client.mind.request(lambda n: Move(request=n, fragment=fragment, to="s", timeout_ms=1000))
    client.do(lambda mind: None)
    reply, _ = run.fed.answer(client, number)
    assert reply.code == "E_MOVE"
    assert "'h' of participant 'bob'" in reply.text
