"""A hundred members of the catalog between participants come, go and lie; look-ups equal the truth again some
rounds later, and nobody is ever given what its owner didn't sign, or less than before (reliability C3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import members as simulated
from medusa.errors import RemoteProtocolError
from medusa.nodes.dht.replication import DhtReplication
from medusa.nodes.dht.search import DhtSearch
from medusa.nodes.dht.storage import DhtStorage
from tests.nodes.dht_trial import QUICK, trial


def test_look_ups_equal_the_truth_some_rounds_after_churn_stops():
    wrong, members = trial(100)
    assert wrong == []
    tally = members.tally
    assert tally.right >= 95
    assert max(tally.hops) <= 7, "log2 of 100"
    assert members.refused["E_IDENTITY"] > 100, "forgeries were tried"
    assert members.refused["E_REPLAY"] > 100, "and replays"


@pytest.mark.full
@pytest.mark.issue(6)
@pytest.mark.parametrize("seed", range(2, 12))
def test_more_seeds(seed):
    assert trial(100, seed=seed)[0] == []


def test_the_same_seed_is_the_same_run():
    runs = [trial(12, seed=3)[1] for _ in range(2)]
    assert runs[0].tally == runs[1].tally
    assert runs[0].acked == runs[1].acked


@pytest.mark.parametrize("leave", [True, False])
def test_entries_follow_when_members_come_and_go(leave):
    assert not_handed_on(leave=leave) == []


def not_handed_on(*, leave, rounds=3):
    """Entries that some of those nearest don't hold, after three went and one came; nobody
    published again or looked up meanwhile."""
    members = simulated.Members(40, seed=5, settings=replace(QUICK, republish_us=3_600_000_000))
    members.build()
    gone = members.names[3:40:13]
    for name in gone:
        members.stop(name, leave=leave)
        members.run(members.now_us + rounds * QUICK.round_us)
    for name in gone[:1]:
        members.start(name)
    members.run(members.now_us + rounds * QUICK.round_us)
    return [full for full in members.truth if members.held_by(full) != members.holders(full)]


# --- planted: each of these must be noticed ----------------------------------------------------------


def older_is_kept(monkeypatch):
    put = DhtStorage.put

    def planted(self, data, now_us, wall_us):
        try:
            return put(self, data, now_us, wall_us)
        except RemoteProtocolError as error:
            if error.code != "E_REPLAY":
                raise
            self.drop(self.read(data, wall_us).name)
            return put(self, data, now_us, wall_us)

    monkeypatch.setattr(DhtStorage, "put", planted)


def nothing_is_handed_on(monkeypatch):
    for name in ("appeared", "went"):
        monkeypatch.setattr(DhtReplication, name, lambda self, peer, place: [])
    monkeypatch.setattr(DhtReplication, "leaving", lambda self: [])
    monkeypatch.setattr(DhtReplication, "due", lambda self, now_us, every_us: [])


def signatures_are_not_checked(monkeypatch):
    monkeypatch.setattr(simulated, "verify", lambda key, data, signature: True)


def the_first_answer_is_trusted(monkeypatch):
    wanted = DhtSearch._wanted
    monkeypatch.setattr(DhtSearch, "_wanted", lambda self: wanted(self)[:1])


PLANTED = [older_is_kept, signatures_are_not_checked, the_first_answer_is_trusted]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant, monkeypatch):
    plant(monkeypatch)
    assert trial(30, seed=1)[0] != []


def test_without_them_the_same_trial_is_right():
    assert trial(30, seed=1)[0] == []


def test_a_replica_that_is_not_replaced_is_noticed(monkeypatch):
    nothing_is_handed_on(monkeypatch)
    assert not_handed_on(leave=True)
    assert not_handed_on(leave=False)
