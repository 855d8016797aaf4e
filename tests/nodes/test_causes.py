"""Lines of the log say which command they follow from."""

from __future__ import annotations

from medusa.runtime.node.reports import Reports
from medusa.wire.outbox import Outbox, ReportLine
from tests.nodes.moved import World
from tests.nodes.parted import Parting


def causes(node, what):
    return [report.cause for report in node.reports if report.what == what]


def test_a_line_has_the_innermost_cause_and_none_behind_it():
    outbox = Outbox()
    with outbox.caused_by("client", 7):
        outbox.report("info", "a")
        with outbox.caused_by("node", 8):
            outbox.report("info", "b")
        outbox.report("info", "c")
    outbox.report("info", "d")
    assert [(each.what, each.cause) for each in outbox.take()] == [
        ("a", "client#7"),
        ("b", "node#8"),
        ("c", "client#7"),
        ("d", ""),
    ]


def test_a_cause_stands_at_the_end_of_a_line_and_does_not_make_it_another_one():
    lines = []
    log = Reports(lambda level, line: lines.append(line))
    for number in range(5):
        log.report(ReportLine(level="info", what="box split", fields={"box": "b"}, cause=f"client#{number}"))
    log.report(ReportLine(level="info", what="peer up"))
    assert lines == ["box split box=b cause=client#0", "peer up"]


def test_a_split_says_whose_order_it_was():
    world = Parting()
    other = world.fed.client("other", "m")
    number = world.split(client=other)
    assert world.told(number, other)[0].code == ""
    assert causes(world.fed.nodes["m"], "box split") == [f"other#{number}"]


def test_both_ends_of_a_move_name_the_same_cause():
    world = World()
    assert world.move()[0].code == ""
    [left] = causes(world.fed.nodes["m1"], "fragment moved")
    [came] = causes(world.fed.nodes["m2"], "fragment taken")
    assert left == came
    assert left.startswith("m1#")
