"""Load goes from an owner to another under a contract, and comes home; what is owed is the same at both."""

from __future__ import annotations

import pytest

from tests.nodes.market.owners import Owners, contract, signed

TERMS = contract("bob", "alice")


def two(**changes):
    """Alice has four tasks of a fifth of a core each, bob has none."""
    world = Owners("alice", "bob")
    text = signed(contract("bob", "alice", **changes))
    for owner in world.owners.values():
        owner.papers["c.contract"] = text
    for number in range(4):
        world.add("alice", f"q{number}/in")
    world.start()
    return world


def moved():
    world = two()
    assert world.run(60, until=lambda: world.guests_at("bob") == 2)
    return world


def test_the_overloaded_one_sheds_until_it_is_worth_it_no_more():
    world = moved()
    world.run(60)
    assert (world.at_home("alice"), world.guests_at("bob")) == (2, 2)
    ours, theirs = world["alice"].status(), world["bob"].status()
    assert [each.task for each in ours.away] == [each.task for each in theirs.guests] != []
    assert ours.handed_over == theirs.took == 2
    assert not ours.overloaded
    assert ours.contracts[0].price_micro if hasattr(ours.contracts[0], "price_micro") else True
