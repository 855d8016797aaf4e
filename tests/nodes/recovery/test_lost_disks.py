"""Nodes whose disks are lost are rebuilt while rows flow: who stands by goes on at once."""

from __future__ import annotations

import pytest

from medusa.errors import LinkError
from tests.nodes.taken_over import HALF, ROWS, Run
from tests.nodes.test_taken_over import CUT, WHOLE, counting, run_of


def lose_disk(run: Run, name: str) -> None:
    """It is back at once, before anybody takes over."""
    node = run.fed.nodes[name]
    node.crash()
    node.lose_disk()
    run.fed.restart(name)


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_an_owner_that_is_back_without_its_disk_is_taken_over_from_though_a_peer_is_away(at) -> None:
    """It is heard, so nobody suspects it, and it can't know all that it had until that peer is back."""
    run, fragment = run_of(counting(), at, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    run.publish(0, HALF)
    run.fed.run(for_us=20_000)
    run.fed.nodes["x"].crash()
    lose_disk(run, "m")
    run.until_owned(fragment, "s1")
    assert run.fed.nodes["m"].brain.catalog.in_doubt, "not all peers were heard"
    run.publish(HALF, ROWS)
    run.check()
    run.fed.restart("x")
    run.until(lambda: not run.fed.nodes["m"].brain.catalog.in_doubt, "it is rebuilt")
    run.until_guarded(fragment, 2)


def test_the_next_goes_on_where_the_first_in_order_has_nothing_and_the_owner_never_votes_again() -> None:
    """The first was restarted with the owner: it is heard, and follows nothing. A voter is lost for good."""
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    run.until_guarded(fragment, 2)
    run.publish(0, HALF)
    run.fed.run(for_us=20_000)
    assert run.replicas(fragment).secondaries == ("s1", "s2")
    run.lose("x")
    run.fed.nodes["m"].crash()
    run.fed.nodes["s1"].crash()
    run.fed.restart("s1")
    lose_disk(run, "m")
    run.until_owned(fragment, "s2")
    run.publish(HALF, ROWS)
    run.check()


def test_a_later_query_of_that_name_stays_where_it_is_deployed() -> None:
    """Its fragment is of the same name, and in the same epoch as that which was lost."""
    run, fragment = run_of(counting(), CUT, {"m": ["s1"]})
    run.until_guarded(fragment)
    lose_disk(run, "m")
    run.until_owned(fragment, "s1")
    run.until(lambda: not run.fed.nodes["m"].brain.catalog.in_doubt, "it is rebuilt")
    run.undeploy()
    run.until(lambda: not run.remains(), "nothing is left")
    run.deploy()
    run.until_guarded(fragment)
    run.fed.run(for_us=500_000)
    assert (run.owner(fragment), run.replicas(fragment).epoch) == ("m", 1)


def test_clients_wait_for_what_was_on_a_lost_disk() -> None:
    """Until another node has it nobody knows of it: that isn't the same as that there is no such stream."""
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1"]})
    run.until_guarded(fragment)
    run.publish(0, HALF)
    run.fed.run(for_us=20_000)
    for name in ("s1", "s2", "s3", "w", "x"):  # They hear nobody, so nothing is decided.
        for other in run.fed.nodes:
            if other != name:
                run.fed.network.cut(name, other)
                run.fed.network.cut(other, name)
    lose_disk(run, "m")
    catalog = run.fed.nodes["m"].brain.catalog
    run.until(lambda: "q" in catalog.configurations, "its peers have told it what it had")
    for look in (lambda: catalog.sink("q.out"), lambda: catalog.entry("q.rows")):
        with pytest.raises(LinkError) as refused:
            look()
        assert refused.value.code == "E_MOVED"
    with pytest.raises(LinkError) as unknown:
        catalog.sink("another.out")
    assert unknown.value.code == "E_STREAM"
    run.fed.network.heal_all()
    run.until_owned(fragment, "s1")
    run.publish(HALF, ROWS)
    run.check()


def test_a_fragment_is_installed_again_that_reads_another_node_by_now() -> None:
    """The answer was lost, and what it reads was taken over before its coordinator asked again."""
    run, fragment = run_of(counting(), CUT, {"m": ["s1"]})
    run.until_guarded(fragment)
    brain = run.fed.nodes["c"].brain
    [spec] = brain.catalog.fragments.values()
    request = brain.catalog.installed_by(spec.name)
    assert request
    run.lose("m")
    run.until(lambda: brain.catalog.fragments[spec.name].feeds != spec.feeds, "it reads the successor")
    again = brain.installed.install(request, spec, "e")
    assert again is not None
    assert again.code == ""
    other = brain.installed.install(request + 1, spec, "e")
    assert other is not None
    assert other.code == "E_DEPLOYED"
    run.publish()
    run.check()


def test_a_rebuilt_voter_votes_though_a_peer_that_has_nothing_to_do_with_the_query_is_lost_for_good() -> None:
    """Its word is the second of three once the node is gone that stood by for both."""
    run, fragment = run_of(counting(), CUT, {"e": ["s1"], "m": ["s1"]}, witnesses=())
    run.until_guarded(fragment)
    assert {*run.newest().voters} == {"e", "m", "s1"}
    run.lose("x")
    run.publish(0, HALF)
    lose_disk(run, "m")
    run.until_owned(fragment, "s1")
    run.until_guarded(fragment)
    rebuilt = run.fed.nodes["m"].brain
    run.until(lambda: not rebuilt.catalog.configurations["q"].forgot, "all voters were heard")
    run.lose("s1")
    run.until_owned(fragment, "m")
    assert rebuilt.catalog.in_doubt, "a peer may know more of what else was here"
    run.until(
        lambda: all(not each.secondaries for each in run.newest().fragments), "the lost one is counted out"
    )
    run.publish(HALF, ROWS)
    run.check()
