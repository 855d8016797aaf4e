"""Faults and checks that were missing (stale messages, keys at cuts, damaged files), and what needs them."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

from medusa.engine.repartition.tables import hashes_of
from medusa.nodes.message_table import MESSAGES as TABLE
from medusa.query.rewrite.key_ranges import even_cuts
from medusa.runtime.engine_host.group_names import catalog_names, group_name
from medusa.sim.scenarios import SCENARIOS, run_scenario
from medusa.sim.world.disk import Disk
from medusa.sim.world.fault_dice import FILES, MESSAGES, ORDERS, VOTES, WORDS
from medusa.sim.world.fault_kinds import BELIEVED, LATE, LATE_ORDERS, STORAGE, draw
from medusa.sim.world.file_damage import HOW, damaged
from medusa.sim.world.keys_at_cuts import keys_at_cuts
from medusa.sim.world.network import Faults, Network
from medusa.sim.world.virtual_time import World
from tests.sim.conftest import SPENT
from tests.sim.planted_blind_spots import BLIND_SPOTS
from tests.sim.planting import noticed

SEEDS = {"returns": 12, "storage": 30, "seams": 4}


@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name, n in SEEDS.items() for seed in range(n)])
def test_seed(name, seed):
    """Chaos and checks: as ``medusa.sim.trials.moves`` and ``query_trial`` say."""
    passed(name, seed)


def passed(name, seed):
    began = time.process_time()
    outcome = run_scenario(name, seed)
    assert outcome.ok, str(outcome)
    SPENT.append((name, outcome.events, time.process_time() - began))


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("block", range(20))
@pytest.mark.parametrize("name", SEEDS)
def test_more_seeds(name, block):
    """3,000 in all."""
    for seed in range(1000 + 50 * block, 1000 + 50 * (block + 1)):
        passed(name, seed)


@pytest.mark.parametrize("mistake", BLIND_SPOTS)
def test_a_planted_mistake_is_noticed_by_its_recorded_seed(mistake, monkeypatch):
    blind = BLIND_SPOTS[mistake]
    blind.patch(monkeypatch)
    assert noticed(lambda seed: run_scenario(blind.scenario, seed).violation, blind.seed)


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("mistake", BLIND_SPOTS)
def test_a_planted_mistake_is_found_within_100_seeds(mistake, monkeypatch):
    """And its recorded seed is one of them that passes without it."""
    blind = BLIND_SPOTS[mistake]
    passed(blind.scenario, blind.seed)
    blind.patch(monkeypatch)
    assert any(run_scenario(blind.scenario, seed).violation for seed in range(100))


def test_faults_of_these_scenarios_do_happen():
    """In ``returns`` fragments come back and messages are stale; in ``storage`` each kind of file is harmed
    in each way; orders about deployments come late."""
    found = {name: set() for name in ("returns", "storage", "deploys")}
    files = set()
    for name, kinds in found.items():
        scenario = SCENARIOS[name]
        scene = scenario.build(World(0, name=name), 1, None).scene
        for seed in range(300):
            faults = draw(World(seed, name=name).dice("faults"), scene, (*scenario.kinds, *scenario.more), 8)
            kinds |= {fault.kind for fault in faults}
            files |= {fault.who[1:] for fault in faults if fault.kind == "damaged file"}
    assert found["returns"] >= {"stale move", "stuck connection"}
    assert found["storage"] >= {*STORAGE, *BELIEVED}
    assert found["deploys"] >= {*LATE_ORDERS, *LATE}
    assert files == {(what, how) for what in FILES for how in HOW}


# --- connections that are stuck -----------------------------------------------------------------


def hello(text):
    """A frame whose header begins as that of a ``Hello``."""
    return [b"\x9a\xa5hello" + text]


def test_what_is_diverted_comes_by_a_connection_of_its_own_and_begins_with_the_last_hello():
    world, came, apart = World(0), [], []
    net = Network(
        world,
        Faults(delay_us=10),
        lambda source, target, frames: came.append(frames[0][7:]),
        deliver_by=lambda source, target, frames, number: apart.append((number, frames[0][7:])),
    )
    net.send("a", "b", hello(b"1"))
    net.divert("a", "b")
    net.send("a", "b", [b"\x9a\xa4data__2"])
    net.send("a", "c", [b"\x9a\xa4data__3"])
    release = net.restore("a", "b")
    net.send("a", "b", [b"\x9a\xa4data__4"])
    world.run(until_us=1000, events_max=100)
    assert (came, apart) == ([b"1", b"_3", b"_4"], [])
    release()
    world.run(until_us=2000, events_max=100)
    assert apart == [(1, b"1"), (1, b"_2")]


def test_copies_come_in_time_too_and_healing_ends_what_is_stuck():
    world, came, apart = World(0), [], []
    net = Network(
        world,
        Faults(delay_us=10),
        lambda source, target, frames: came.append(frames[0]),
        deliver_by=lambda source, target, frames, number: apart.append(frames[0]),
    )
    net.divert("a", "b", copies=True)
    net.send("a", "b", [b"\x9a\xa4data__1"])
    net.heal_all()
    net.send("a", "b", [b"\x9a\xa4data__2"])
    net.restore("a", "b")()
    world.run(until_us=1000, events_max=100)
    assert [frame[-1:] for frame in came] == [b"1", b"2"]
    assert apart == []


def test_what_a_dead_host_had_sent_arrives_where_its_kernel_lives():
    world, came = World(0), []
    net = Network(world, Faults(delay_us=10), lambda source, target, frames: came.append(source + target))
    for source, target in (("a", "b"), ("b", "a")):
        net.send(source, target, [b"\x9a\xa4data"])
    net.forget("a", flushed=True)
    world.run(until_us=1000, events_max=100)
    assert came == ["ab"]


# --- files --------------------------------------------------------------------------------------


def test_damage_changes_what_it_says():
    data = bytes(range(1, 200))
    assert sum((a ^ b).bit_count() for a, b in zip(damaged(data, "bit", 777), data, strict=True)) == 1
    assert damaged(data, "short", 300) == data[: 300 % 199]
    zeros = damaged(data, "zeros", 50)
    assert (len(zeros), zeros[:50], set(zeros[50:])) == (199, data[:50], {0})
    assert damaged(b"", "bit", 3) == b""


@pytest.mark.parametrize("how", HOW)
def test_one_copy_of_a_catalog_is_damaged_the_other_one_never(how):
    for pick in range(30):
        disk = Disk("n")
        for token in (1, 2):
            for name in catalog_names(token):
                disk.write(name, {"catalog": b"number %d" % token})
        for name in catalog_names(1):
            disk.delete(name)
        disk.write(group_name("q/a", 3), {"state": b"whole"})
        assert "node-" in disk.damage("catalog copy", how, pick)
        whole = [n for n in catalog_names(2) if n in disk.names() and disk.read(n)["catalog"] == b"number 2"]
        assert len(whole) == 1
        assert disk.read(group_name("q/a", 3)) == {"state": b"whole"}
        assert not disk.damaged
        disk.damage("checkpoint", how, pick)
        assert disk.damaged
    assert Disk("n").damage("decision log", how, 0) == ""


# --- keys ---------------------------------------------------------------------------------------


NEVER_LATE = (
    *("data", "boundary", "fed", "piece", "whole", "standing"),  # Numbered frames: the network strikes links.
    "fed-together",
    *(
        "traded",
        "booked",
    ),  # Said again until answered; of markets alone: tests/nodes/market has their faults.
    *("declare", "define", "deploy-guarded", "forget", "grant", "instantiate", "merge", "move", "split"),
    *("define-remote", "drop-remote", "keep-remote", "revoke-remote", "stopped-remote"),
    *("state", "guess", "guessed-boundary", "guess-taken"),  # As those; said again, or nobody misses them.
    *("dht-find", "dht-found", "dht-leave", "dht-store", "dht-stored", "load", "lookup", "read", "status"),
)
"""Tags of messages that no fault picks by kind. Who adds a message says here, or in ``fault_dice``, whether
one does: late, again, in the place of another."""


def test_every_message_can_be_late_or_says_that_no_fault_picks_it():
    drawn = {*MESSAGES, *ORDERS, *VOTES, *WORDS}
    assert not drawn.intersection(NEVER_LATE)
    assert drawn.union(NEVER_LATE) == {message.__struct_config__.tag for message in TABLE}


def test_keys_lie_on_either_side_of_each_cut_and_close_to_it():
    hashes = np.sort(hashes_of([pa.array(keys_at_cuts())]))
    for parts in (2, 3):
        for cut in even_cuts(parts):
            at = int(hashes.searchsorted(np.uint64(cut)))
            near = [abs(int(hashes[place]) - cut) for place in (at - 3, at - 1, at, at + 2)]
            assert max(near) < 2**64 // 64 // 50
