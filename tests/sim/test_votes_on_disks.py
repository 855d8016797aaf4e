"""The checker of decisions: it looks at disks, and knows what they may forget."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from medusa.engine.state.checkpoint import seal
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.catalog.kept_configurations import KeptConfiguration
from medusa.runtime.engine_host.group_names import catalog_names
from medusa.sim.checkers.votes_on_disks import VotesOnDisks
from medusa.sim.world.disk import Disk
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.messages.configuration import Ballot, Configuration, Proposal

FIRST = Configuration(query="q", number=1, coordinator="a", voters=("a", "b", "c", "d"), life=7)
SECOND = msgspec.structs.replace(FIRST, number=2, coordinator="b")


class Voters:
    """Four nodes, of which there are the disks."""

    def __init__(self) -> None:
        self.nodes = {name: SimpleNamespace(name=name, lives=1, disk=Disk(name)) for name in FIRST.voters}
        self.checker = VotesOnDisks(self.nodes)
        self.catalogs = {name: Catalog(name) for name in self.nodes}
        self._numbers = dict.fromkeys(self.nodes, 0)
        for name in self.nodes:
            self.knows(name, FIRST)

    def knows(self, name, current, accepted=None):
        proposal = accepted and Proposal(ballot=Ballot(1, "b"), configuration=accepted)
        self.catalogs[name].configurations["q"] = KeptConfiguration(current=current, accepted=proposal)
        self.has_turn(name)

    def removes(self, name):
        self.catalogs[name].bury("q")
        self.has_turn(name)

    def has_turn(self, name):
        self._numbers[name] += 1
        data = self.catalogs[name].to_bytes()
        for group in catalog_names(self._numbers[name]):
            self.nodes[name].disk.write(group, seal({CATALOG: data}, {}))
        self.checker.look(self.nodes[name])

    def decided(self):
        self.checker.check_decided(SECOND, FIRST)


def test_more_than_half_of_the_disks_decide():
    voters = Voters()
    for name in ("b", "c"):
        voters.knows(name, FIRST, SECOND)
    with pytest.raises(SimulationError, match=r"2 is decided, and on the disks of \['b', 'c'\]"):
        voters.decided()
    voters.knows("d", FIRST, SECOND)
    voters.decided()
    voters.knows("b", SECOND)
    voters.decided()


def test_a_vote_counts_though_the_query_was_removed_from_the_voter_since():
    """Who proposed hears that it is decided after a voter has heard that the query is no more."""
    voters = Voters()
    for name in ("b", "c", "d"):
        voters.knows(name, FIRST, SECOND)
    voters.removes("c")
    voters.decided()


def test_a_removed_query_is_no_vote():
    voters = Voters()
    for name in ("b", "c"):
        voters.knows(name, FIRST, SECOND)
    for name in ("a", "d"):
        voters.removes(name)
    with pytest.raises(SimulationError, match="2 is decided"):
        voters.decided()


def test_a_vote_that_a_disk_forgot_without_a_removal_counts_no_more():
    voters = Voters()
    for name in ("b", "c", "d"):
        voters.knows(name, FIRST, SECOND)
    voters.knows("d", FIRST)
    with pytest.raises(SimulationError, match="2 is decided"):
        voters.decided()


def test_what_was_accepted_for_an_earlier_query_of_the_name_is_no_vote():
    voters = Voters()
    for name in ("b", "c"):
        voters.knows(name, FIRST, SECOND)
    other = msgspec.structs.replace(FIRST, life=6)
    voters.knows("d", other, msgspec.structs.replace(SECOND, life=6))
    with pytest.raises(SimulationError, match="2 is decided"):
        voters.decided()
