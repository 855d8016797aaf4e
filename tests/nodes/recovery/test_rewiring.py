"""Where a fragment reads and who reads it, by a configuration; applied twice it changes nothing more."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

import medusa as md
from medusa.nodes.placement.placement import PlacementPlan, cut
from medusa.nodes.placement.standby_plan import guarded_as
from medusa.nodes.recovery.first_configuration import first_configuration
from medusa.nodes.recovery.rewiring import reader_switches, replicas_of, rewired, switched_feeds

SCHEMA = {"ts": "int64", "k": "int64"}


def plan() -> PlacementPlan:
    """e -> m -> c, and e -> n -> c: two fragments read one stream."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="s")
    first = rows.filter("k > 0", name="first")
    for side, name in (("left", "kind"), ("right", "other")):
        kept = first.filter(f"k <> {len(side)}", name=name)
        q.sink(side, kept.filter("k > 1", name=f"last_{side}"))
    made = cut(
        q.graph, {"e": ["rows", "first"], "m": ["kind"], "n": ["other"], "c": ["last_left", "last_right"]}
    )
    return guarded_as(made, {"q/kind": ("s", "t"), "q/other": ("s", "t"), "q/rows": ("t",)})


PLAN = plan()
FIRST = first_configuration(PLAN, "e", 7)
assert FIRST is not None
SPECS = {each.name: each for each in PLAN.fragments}
LAST, OTHER_LAST = SPECS["q/last_left"], SPECS["q/last_right"]


def taken_over(configuration, *steps):
    """The fragments have these owners now, one after the other."""
    for fragment, owner in steps:
        fragments = tuple(
            msgspec.structs.replace(each, owner=owner, epoch=each.epoch + 1)
            if each.fragment == fragment
            else each
            for each in configuration.fragments
        )
        configuration = msgspec.structs.replace(
            configuration, number=configuration.number + 1, fragments=fragments
        )
    return configuration


def reads(spec):
    return {feed.stream: (feed.node, feed.epoch) for feed in spec.feeds}


def readers(spec):
    return {spec.streams[sink]: nodes for sink, nodes in spec.readers.items()}


# --- the first one -------------------------------------------------------------------------------------


def test_at_first_owners_are_as_planned_and_nobody_follows_yet():
    assert (FIRST.query, FIRST.number, FIRST.coordinator, FIRST.life) == ("q", 1, "e", 7)
    assert {each.fragment: each.owner for each in FIRST.fragments} == {
        "q/kind": "m",
        "q/other": "n",
        "q/rows": "e",
    }
    assert all(each.epoch == 1 and each.secondaries == () for each in FIRST.fragments)
    assert replicas_of(FIRST, "q/kind").members == ("m", "s", "t")
    assert replicas_of(FIRST, "q/kind").reads == ("q.first",)
    assert set(replicas_of(FIRST, "q/rows").streams) == {"q.first", "q.rows"}


def test_whoever_has_a_part_in_it_votes_once():
    assert len(set(FIRST.voters)) == len(FIRST.voters)
    assert set(FIRST.voters) == {"e", "m", "n", "s", "t"}
    assert FIRST.voters[0] == "e"
    witnessed = PlacementPlan(query="q", fragments=PLAN.fragments, witnesses=("w", "e"))
    assert set(first_configuration(witnessed, "x", 1).voters) == {*FIRST.voters, "w", "x"}


def test_who_is_not_guarded_has_no_replicas_and_a_bare_query_no_configuration():
    assert replicas_of(FIRST, LAST.name) is None
    bare = PlacementPlan(
        query="q", fragments=tuple(msgspec.structs.replace(each, standby=()) for each in PLAN.fragments)
    )
    assert first_configuration(bare, "e", 1) is None


# --- switches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_while_all_is_as_planned_nothing_changes(name):
    assert rewired(SPECS[name], FIRST) == SPECS[name]
    assert list(switched_feeds(SPECS[name], FIRST)) == []
    assert list(reader_switches(SPECS[name], FIRST)) == []


def test_what_reads_a_fragment_that_was_taken_over_reads_its_new_owner():
    now = taken_over(FIRST, ("q/kind", "s"))
    assert reads(rewired(LAST, now)) == {"q.kind": ("s", 2)}
    assert rewired(OTHER_LAST, now) == OTHER_LAST


def test_what_it_reads_is_read_by_its_new_owner():
    now = taken_over(FIRST, ("q/kind", "s"))
    assert set(readers(rewired(SPECS["q/rows"], now))["q.first"]) == {"s", "n"}


def test_its_own_readers_and_feeds_stay():
    now = taken_over(FIRST, ("q/kind", "s"))
    assert rewired(SPECS["q/kind"], now) == SPECS["q/kind"]


def test_of_two_fragments_that_read_one_stream_one_does_not_take_the_place_of_the_other():
    """s is the owner of one by now, and may have the other."""
    now = taken_over(FIRST, ("q/kind", "s"))
    spec = rewired(SPECS["q/rows"], now)
    both = taken_over(now, ("q/other", "t"))
    assert set(readers(rewired(spec, both))["q.first"]) == {"s", "t"}


def test_owner_after_owner_each_is_followed():
    spec, now = LAST, FIRST
    for owner, epoch in (("s", 2), ("t", 3), ("m", 4)):
        now = taken_over(now, ("q/kind", owner))
        spec = rewired(spec, now)
        assert reads(spec)["q.kind"] == (owner, epoch)


def test_who_missed_some_goes_to_the_last():
    now = taken_over(FIRST, ("q/kind", "s"), ("q/kind", "t"))
    assert reads(rewired(LAST, now))["q.kind"] == ("t", 3)
    assert set(readers(rewired(SPECS["q/rows"], now))["q.first"]) == {"t", "n"}


def test_an_older_configuration_leads_nobody_back():
    now = taken_over(FIRST, ("q/kind", "s"))
    spec = rewired(LAST, taken_over(now, ("q/kind", "t")))
    assert rewired(spec, now) == spec


@pytest.mark.parametrize("seed", range(200))
def test_applied_twice_it_changes_nothing_more(seed):
    dice, now = Random(seed), FIRST
    specs = dict(SPECS)
    for _ in range(6):
        each = dice.choice(now.fragments)
        reading = {
            other.owner for other in now.fragments if set(other.reads) & set(each.reads) and other != each
        }
        free = [node for node in each.members if node != each.owner and node not in reading]
        if not free:
            continue
        now = taken_over(now, (each.fragment, dice.choice(free)))
        for name, spec in specs.items():
            specs[name] = rewired(spec, now)
            assert rewired(specs[name], now) == specs[name]
            assert list(switched_feeds(specs[name], now)) == []
            assert list(reader_switches(specs[name], now)) == []
    for spec in specs.values():
        for feed in spec.feeds:
            of = next(each for each in now.fragments if feed.stream in each.streams)
            assert (feed.node, feed.epoch) == (of.owner, of.epoch)
        for stream, nodes in readers(spec).items():
            reading = {each.owner for each in now.fragments if stream in each.reads}
            assert reading <= set(nodes), "who reads it is kept rows for"
            assert len(nodes) == len(set(nodes)) == len(readers(SPECS[spec.name])[stream])
