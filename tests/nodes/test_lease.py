"""Names of nodes that are heard of no more are forgotten everywhere, and nobody brings them back."""

from __future__ import annotations

import pytest

from medusa.nodes.catalog.directory import FORGET_EVERY_US
from medusa.nodes.clock.expiry import PERIOD_US, PERIODS_KEPT, is_over, period
from medusa.wire import limits
from tests.nodes.keyed import WALL_US, Keyed
from tests.nodes.test_directory import STEP_US, Site, World, entry, give, known, one, run

NOW_US = 1_800_000_000_000_000  # January 2027.


class Years(World):
    """Nodes that come and go, over periods; all clocks are right within a day."""

    def __init__(self, seed, count):
        super().__init__(seed, count)
        for site in self.sites.values():
            self.clock(site)

    def clock(self, site):
        skew_us = self.dice.randrange(-(24 * 3_600_000_000), 24 * 3_600_000_000)
        site.directory.wall = lambda now_us: NOW_US + now_us + skew_us

    def step(self):
        for name, site in self.sites.items():
            if name not in self.dead:
                site.directory.put(
                    self.now_us, "node", name, period(name, site.directory.wall(self.now_us)), b""
                )
        super().step()

    def come(self, name):
        self.sites[name] = Site(name)
        self.clock(self.sites[name])
        self.names.append(name)
        self.links = [(a, b) for a in self.names for b in self.names if a < b]

    def go(self, name):
        """For good."""
        self.dead.add(name)
        for thing in list(self.sites[name].owned):
            del self.sites[name].owned[thing], self.epochs[thing]

    def revive(self, name):
        super().revive(name)
        self.clock(self.sites[name])

    def passes(self, periods):
        """In steps of a third of a period; in each all that is to be said is said."""
        for _ in range(3 * periods):
            self.now_us += PERIOD_US // 3
            for _ in range(12):
                self.step()
            for _ in range(2):  # Who forgot last may have told who forgot first.
                self.now_us += FORGET_EVERY_US
                for _ in range(12):
                    self.step()

    def writers(self, name):
        return set(self.sites[name].directory._written.writers)


def test_the_period_of_a_node():
    assert period("a", None) == period("a", 0) == period("a", WALL_US) == 1
    at = [period("a", NOW_US + number * PERIOD_US) for number in range(3)]
    assert at == [at[0], at[0] + 1, at[0] + 2]
    assert len({period(f"n{number}", NOW_US) for number in range(50)}) == 2, "they don't all write at once"
    written = period("a", NOW_US)
    assert not is_over("a", written, NOW_US + PERIODS_KEPT * PERIOD_US)
    assert is_over("a", written, NOW_US + (PERIODS_KEPT + 1) * PERIOD_US)
    assert not is_over("a", 1, NOW_US), "its clock wasn't known, or its version writes no period"
    assert not is_over("a", written, None)


def test_a_node_that_is_gone_is_forgotten_and_comes_again_by_itself_only():
    world = Years(1, 4)
    world.loss = 0
    world.own(world.sites["n2"], "s1", 1)
    world.passes(1)
    assert known(world.sites["n0"]) == {"s1": ("n2", world.sites["n2"].owned["s1"])}
    away = world.sites["n3"]
    away.disk = away.directory.runs()
    world.dead.add("n3")
    world.go("n2")
    world.passes(PERIODS_KEPT + 2)
    assert world.writers("n0") == world.writers("n1") == {"n0", "n1"}
    assert known(world.sites["n0"]) == {}
    world.revive("n3")  # Its file still says what n2 wrote.
    assert "n2" in world.writers("n3")
    world.passes(1)
    assert all(world.writers(name) == {"n0", "n1", "n3"} for name in ("n0", "n1", "n3"))
    world.revive("n2")
    world.heal()
    assert world.writers("n0") == {"n0", "n1", "n2", "n3"}
    assert len({site.directory.digest() for site in world.sites.values()}) == 1


@pytest.mark.parametrize("seed", range(3))
def test_many_more_names_than_there_may_be_at_once_come_and_go(seed, monkeypatch):
    monkeypatch.setattr(limits, "WRITERS_MAX", 14)
    world = Years(seed, 4)
    living = list(world.names)
    for number in range(16):
        world.go(living.pop(world.dice.randrange(len(living))))
        living.append(f"x{number}")
        world.come(living[-1])
        world.own(world.sites[world.dice.choice(living)], f"s{number}", 1)
        world.loss = 0.2
        world.passes(1)
        for name in world.dead & set(world.sites):
            del world.sites[name]  # Nobody sees it again.
        world.names = list(world.sites)
        world.dead.clear()
    world.loss = 0
    world.passes(PERIODS_KEPT + 2)
    assert {frozenset(world.writers(name)) for name in living} == {frozenset(living)}
    assert len({world.sites[name].directory.digest() for name in living}) == 1
    assert all(known(world.sites[name]) == world.truth() for name in living)
    assert not any("E_LIMIT" in site.refused for site in world.sites.values())


def test_what_is_there_is_believed_whatever_its_clock_says():
    site = one(peers=("a",))
    site.directory.wall = lambda now_us: NOW_US
    old = run(entry(kind="node", name="a", epoch=2))
    give(site, "a", old)
    site.directory.tick(FORGET_EVERY_US)
    assert site.directory.find("node", "a") is not None
    other = run(entry(kind="node", name="c", writer="c", epoch=2), writer="c")
    give(site, "a", other)
    assert site.directory.find("node", "c") is None
    assert site.refused == ["E_EXPIRED"]
    site.directory.peer_down("a")
    site.directory.tick(2 * FORGET_EVERY_US + STEP_US)
    assert site.directory.find("node", "a") is None


def test_a_node_writes_its_period():
    node = Keyed(wall_us=NOW_US)
    node.brain.tick(node.now_us + 2_000_000)
    directory = node.brain.naming.directory
    assert directory.find("node", "n").epoch == period("n", NOW_US) > 1
