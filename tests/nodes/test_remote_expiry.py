"""Remote definitions that expire, on both sides."""

from __future__ import annotations

import msgspec

from medusa.nodes.reports import Surroundings
from medusa.nodes.spec.fragment_spec import fragment_to
from medusa.ports import SKEW_US
from medusa.query.codec import graph_to_msgpack
from medusa.wire.messages.commands import Install
from medusa.wire.messages.remote import DefineRemote
from tests.nodes.deployed import AT, Town, query
from tests.nodes.keyed import WALL_US
from tests.nodes.test_remote import asked, deployed, heard_by, keep, offering, part, run

HOUR_US = 3_600_000_000


def told_to_run(node, request):
    """Whether it runs the part when it is told to."""
    code = node.answer("core", run(request))
    assert (list(node.brain.fragments) == ["r/kept"]) == (code == "")
    return code


def test_what_has_expired_is_neither_kept_nor_run():
    node = offering()
    late = msgspec.structs.replace(keep(), expires_us=WALL_US - SKEW_US - 1)
    assert node.answer("core", late, fragment_to(part())) == "E_EXPIRED"
    assert node.answer("core", keep(2), fragment_to(part())) == ""
    assert node.brain.status(0)["remote"]["kept"]["bob/part"]["expires_us"] is None
    soon = msgspec.structs.replace(keep(3), expires_us=WALL_US + HOUR_US)
    assert node.answer("core", soon, fragment_to(part())) == "", "the same part, for another time"
    assert node.brain.status(0)["remote"]["kept"]["bob/part"]["expires_us"] == WALL_US + HOUR_US
    node.brain.report(0, Surroundings(WALL_US + HOUR_US + SKEW_US + 1))
    assert told_to_run(node, 4) == "E_EXPIRED"
    node.brain.report(0, Surroundings(WALL_US + HOUR_US + SKEW_US))
    assert told_to_run(node, 5) == "", "clocks may differ by so much"
    node.now_us = 2_000_000
    node.brain.tick(node.now_us)
    node.settle()
    assert node.brain.catalog.remote.held == {}
    assert list(node.brain.fragments) == ["r/kept"], "what runs goes on"


def test_nothing_that_expires_counts_before_the_time_is_known():
    node = offering()
    soon = msgspec.structs.replace(keep(), expires_us=WALL_US + HOUR_US)
    assert node.answer("core", soon, fragment_to(part())) == ""
    node.brain.wall._told_us = None
    assert told_to_run(node, 2) == "E_EXPIRED"
    assert node.answer("core", msgspec.structs.replace(soon, request=3), fragment_to(part())) == "E_EXPIRED"
    too_far = msgspec.structs.replace(keep(4), expires_us=1 << 61)
    assert node.answer("core", too_far, fragment_to(part())) == "E_LIMIT"


def test_who_defined_it_uses_it_no_more_either():
    town = Town()
    machine = town.machines["m"]
    for each in town.machines.values():
        each.brain.report(town.now_us, Surroundings(WALL_US))
    short = DefineRemote(request=1, name="part", node="t3", at=AT, lifetime_us=500_000)
    assert asked(town, short, graph_to_msgpack(query().graph)) == ""
    assert machine.brain.catalog.remote.mapped["part"].expires_us > WALL_US
    [held] = town.machines["t3"].brain.catalog.remote.held.values()
    assert held.expires_us == machine.brain.catalog.remote.mapped["part"].expires_us
    town.settle(until_us=town.now_us + 3_000_000)
    assert machine.brain.catalog.remote.mapped == {}
    by_spec = heard_by(town, "t3")
    assert deployed(town, 2) == ""
    assert by_spec == [Install]
