"""Boxes of deployed queries are split by what they hold, or where one says."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from medusa.nodes.reports import StopRequested
from medusa.query.boxes import KeyRouter
from medusa.runtime.embedded.embedded_run import collect
from tests.nodes.parted import Parting
from tests.nodes.test_splits import refused, state
from tests.query.test_split import best

KEYS, ROWS = 300, 4_000


def held_by(world):
    """Keys by Zipf(1.2), all in one window, are what the box of this world holds; rows of each key."""
    chance = 1 / np.arange(1, KEYS + 1) ** 1.2
    keys = np.random.default_rng(5).choice(KEYS, ROWS, p=chance / chance.sum())
    times = np.sort(np.random.default_rng(6).integers(0, 4_000_000, ROWS))
    table = {"ts": pa.array(times, pa.timestamp("us", "UTC")), "seg": keys, "v": keys}
    world.rows = pa.table(table).cast(world.rows.schema)
    world.want = {"out": collect(world.q, rows=world.rows)["out"]}
    for first in range(0, ROWS, 500):
        world.publish(first, 500)
    [box] = world.fed.nodes["m"].brain.fragments.values()
    assert world.fed.run(lambda: box.rows_in == ROWS, for_us=500_000)
    return Counter(keys.tolist())


def hash_of(key):
    """As docs/hash_partition.md has it."""
    return xxhash.xxh64_intdigest(b"\x01" + int(key).to_bytes(8, "little"))


def routers(world):
    hosted = world.fed.nodes["m"].brain.fragments.values()
    return [box for each in hosted for box in each.spec.graph.boxes if isinstance(box, KeyRouter)]


@pytest.mark.parametrize("parts", [2, 4])
def test_zipf_keys_are_shared_nearly_as_well_as_ranges_can(parts):
    world = Parting(every=0)
    weights = {hash_of(key): rows for key, rows in held_by(world).items()}
    reply, told = world.told(world.split(parts, ranges="weight"))
    assert reply.code == "", reply
    held = [0] * parts
    for hash, rows in weights.items():
        held[bisect_right(told["ranges"], hash)] += rows
    assert max(held) <= 1.1 * best([weights[hash] for hash in sorted(weights)], parts)
    assert told["shares"] == pytest.approx([rows / ROWS for rows in held])
    assert [list(box.cuts) for box in routers(world)] == [told["ranges"]]
    world.finish()
    world.check()


@pytest.mark.parametrize("kind", ["joined", "session", "running", "distinct"])
def test_while_rows_flow_other_kinds_are_split_by_what_they_hold(kind):
    world = Parting(kind)
    reply, told = world.told(world.split(2, ranges="weight"))
    assert reply.code == "", reply
    assert sum(told["shares"]) == pytest.approx(1)
    assert max(told["shares"]) < 0.9
    world.check()


def test_ranges_that_are_given_are_those_of_the_router():
    world = Parting()
    cuts = (1 << 60, (1 << 64) - 1)
    reply, told = world.told(world.split(3, ranges=cuts))
    assert reply.code == "", reply
    assert tuple(told["ranges"]) == cuts
    assert told["shares"][2] == 0
    assert [box.cuts for box in routers(world)] == [cuts]
    world.check()


@pytest.mark.parametrize("ranges", [(), (5,), (5, 5), (6, 5), (0, 5), (1, 2, 3)])
def test_ranges_that_are_none_change_nothing(ranges):
    world = Parting()
    before = state(world)
    refused(world, world.split(3, ranges=ranges), "query.split", "3 parts need 2 cuts that ascend")
    assert state(world) == before
    world.check()


def test_what_cannot_be_weighed_stays_as_it_is():
    world = Parting(every=0)
    before = state(world)
    refused(world, world.split(ranges="weight"), "query.split", "it holds no keys yet")
    assert state(world) == before
    passing = Parting("passing")
    before = state(passing)
    refused(passing, passing.split(ranges="weight"), "query.split", "it has no key")
    assert state(passing) == before
    passing.check()


@pytest.mark.parametrize("end", ["removed", "stopped", "failed"])
def test_what_ends_while_it_is_weighed_is_not_split(end):
    world = Parting()
    node = world.fed.nodes["m"]
    before = world.fragments
    number = world.split(ranges="weight")
    splits = node.brain.orders.splits
    assert world.fed.run(lambda: [each.state for each in splits.status()] == ["weighing"], for_us=100_000)
    assert not state(world)[0]["q/box"][1], "rows flow on"
    if end == "removed":
        node.order(lambda now_us: node.brain.installed.drop("q"))
        assert world.told(number)[0].code == "E_REMOVED"
        world.fed.run(for_us=50_000)
        assert (world.fragments, splits.status()) == ([], ())
    elif end == "stopped":
        node.order(lambda now_us: node.brain.report(now_us, StopRequested()))
        refused(world, number, "E_BROKEN", "node 'm' ends")
        assert world.fed.run(lambda: node.brain.stopped)
        node.crash()
        node.restart()
        assert world.fragments == before
        world.check()
    else:
        node.loop._host._running["q/box"].failed = True
        refused(world, number, "query.split", "has failed")
        assert (world.fragments, splits.status()) == (before, ())
