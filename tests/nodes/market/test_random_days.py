"""Whatever dies, is cut off or is lost, in any order: rows are paid once, and both say the same at last."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.nodes.market.owners import SECOND_US, Owners, contract, signed

NANO_PER_ROW, NANO = 20_000_000, 1_000_000_000
NAMES = ("alice", "bob")
PAIRS = (("bob", "alice", "there"), ("alice", "bob", "back"))


class Day:
    """Two owners with a contract in each direction, whose loads change, and what befalls them."""

    def __init__(self, seed):
        self.dice = Random(f"day {seed}")
        self.world = world = Owners(*NAMES)
        for provider, consumer, name in PAIRS:
            text = signed(contract(provider, consumer, id=name))
            for owner in NAMES:
                world[owner].papers[f"{name}.contract"] = text
        for owner in NAMES:
            for number in range(3):
                world.add(owner, f"{owner}{number}/in", rate=20 if owner == "alice" else 1)
        self.befell = Counter()
        world.start()

    def befall(self):
        """Something happens."""
        world, dice = self.world, self.dice
        what = dice.choice(("die", "die", "cut", "loss", "load", "load", "order"))
        self.befell[what] += 1
        name = dice.choice(NAMES)
        later_us = world.now_us + round(dice.choice((0.2, 1.0, 5.0, 9.0)) * SECOND_US)
        if what == "die" and world[name].up:
            world[name].die()
            world.at(later_us, lambda: world[name].up or world[name].start())
        elif what == "cut":
            world.part(*NAMES)
            world.at(later_us, world.heal)
        elif what == "loss":
            share = dice.choice((0.2, 0.6, 1.0))
            world.drops = lambda name, message, payload: dice.random() < share
            world.at(later_us, self.hears)
        elif what == "load":
            # One has much to do, the other has room.
            for each in world.fragments.values():
                each.rate = dice.choice((15, 20, 25)) if each.owner == f"{name}-1" else dice.choice((1, 3))
        elif world[name].up:
            # An order that nobody of the market gave, as by who runs the node.
            away = list(world[name].moves.away())
            if away:
                world[name].moves.recall(world.now_us, dice.choice(away))

    def hears(self):
        """Nothing is lost any more."""
        self.world.drops = lambda name, message, payload: False

    def ends(self):
        """All is well again, and load so low that everything comes home."""
        world = self.world
        world.run(10)
        world.heal()
        self.hears()
        for name in NAMES:
            if not world[name].up:
                world[name].start()
        for each in world.fragments.values():
            each.rate = 1
        world.run(300)


def paid(world, owner, name):
    found = world[owner].contract(name)
    return found.owed_micro + found.settled_micro


SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(8, 100))]


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_paid_once_whatever_befalls(seed):
    day = Day(seed)
    world = day.world
    for _ in range(40):
        world.run(day.dice.uniform(0.05, 20.0))
        day.befall()
        for owner in NAMES:
            for provider, _, name in PAIRS:
                if world[owner].up and owner == provider:
                    found = world[owner].contract(name)
                    # Beyond two intervals it takes half of one until a guest is to go, and then it goes.
                    assert found.exposure_micro <= found.exposure_most_micro * 3 // 2
    day.ends()
    assert [world.at_home(name) for name in NAMES] == [3, 3]
    for _, consumer, name in PAIRS:
        ours, theirs = (world[each].contract(name) for each in NAMES)
        assert (ours.owed_micro, ours.settled_micro, ours.receipts) == (
            theirs.owed_micro,
            theirs.settled_micro,
            theirs.receipts,
        )
        assert (ours.stopped, theirs.stopped) == ("", "")
        rows = sum(each.rows_lent for each in world.fragments.values() if each.owner == f"{consumer}-1")
        # Each row that came in at the other's and that its owner has, for a price of the contract.
        assert rows > 100
        least, most = (rows * NANO_PER_ROW * price // NANO for price in (1_000_000, 2_000_000))
        assert least <= paid(world, consumer, name) <= most
    for name in NAMES:
        market = world[name].status()
        assert market.away == market.guests == ()
        assert world[name].moves.permitted_out() == world[name].moves.permitted_in() == ()
    assert len(day.befell) >= 4
